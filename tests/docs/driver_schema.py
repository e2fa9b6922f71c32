"""The file with the JSON Schema of the driver protocol, made from its types.

python -m tests.docs.driver_schema
"""

from __future__ import annotations

import json
from pathlib import Path

from torntail.drive.protocol import json_schema

FILE = Path(__file__).parents[2] / "docs" / "driver-protocol.schema.json"


def text() -> str:
    """What the file should hold."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

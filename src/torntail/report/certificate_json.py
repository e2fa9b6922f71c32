"""The certificate as a file: a documented interface for programs.

Decides the text only; what stands in it is `judge.verdict`'s. Keys of a certificate are added,
never renamed, within one `format`.
"""

from __future__ import annotations

import json
from pathlib import Path

from torntail.judge.verdict import Certificate

__all__ = ["certificate_text", "read_certificate", "write_certificate"]


def certificate_text(certificate: Certificate) -> str:
    """A certificate as JSON text, in ASCII."""
    return json.dumps(certificate.to_json(), indent=2, ensure_ascii=True) + "\n"


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Writes a certificate; the file is there whole or not at all."""
    text = certificate_text(certificate)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def read_certificate(path: Path) -> Certificate:
    """Reads a certificate; raises `ValueError` saying why the file holds none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds no certificate")
    try:
        return Certificate.from_json(record)
    except ValueError as error:
        raise ValueError(f"{path} holds no certificate of this version: {error}") from error

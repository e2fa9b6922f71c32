"""`python -m torntail`: the command."""

from __future__ import annotations

from torntail.cli import main

if __name__ == "__main__":
    main()

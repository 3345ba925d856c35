"""`python -m dotcu` is `dotcu`."""

from __future__ import annotations

from dotcu.cli.main import main

if __name__ == "__main__":
    main()

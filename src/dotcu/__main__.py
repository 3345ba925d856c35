"""`python -m dotcu` is `dotcu`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from dotcu.cli.main import main
    except KeyboardInterrupt:  # as `main` ends, without a traceback, while the command is still imported
        sys.exit(130)
    main()

"""A trial of an installed package, for `dotcu build --check`: a row for each operator and dtype, as JSON.

DOTCU_JIT=0 python -m dotcu.cli.trial mylib
"""

from __future__ import annotations

import sys

from dotcu.cli import console


def main(modules: list[str]) -> None:
    """Run every sample of the operators in some modules."""
    from dotcu.shipping.trial import rows

    console.as_json({"rows": list(rows(modules))})


if __name__ == "__main__":
    main(sys.argv[1:])

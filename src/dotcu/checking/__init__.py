"""One command that says whether an operator is right."""

from dotcu.checking.checker import check
from dotcu.checking.report import CheckReport

__all__ = ["CheckReport", "check"]

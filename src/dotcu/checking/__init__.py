"""One command that says whether an operator is right."""

from dotcu.checking.check import check
from dotcu.checking.report import CheckReport

__all__ = ["CheckReport", "check"]

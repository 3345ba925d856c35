"""The code in kernels that dotcu compiles, and in binaries that any compiler built."""

from __future__ import annotations

from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.inspector import inspect

__all__ = ["InspectReport", "inspect"]

"""The code in kernels that dotcu compiles, and in binaries that any compiler built."""

from __future__ import annotations

from dotcu.inspection.inspector import inspect
from dotcu.inspection.report import InspectReport

__all__ = ["InspectReport", "inspect"]

"""What code holds: kernels that dotcu compiles, and binaries that anyone built."""

from __future__ import annotations

from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.inspector import inspect

__all__ = ["InspectReport", "inspect"]

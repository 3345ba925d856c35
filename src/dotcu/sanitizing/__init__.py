"""Python code as it is, with every kernel that it launches on CPU tensors in the simulator."""

from __future__ import annotations

from dotcu.sanitizing.report import SanitizeReport
from dotcu.sanitizing.script import run_script
from dotcu.sanitizing.session import sanitize

__all__ = ["SanitizeReport", "run_script", "sanitize"]

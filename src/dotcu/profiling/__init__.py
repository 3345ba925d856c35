"""Profiling an operator's kernels: Nsight Compute's counters by source line, or CUPTI's timings without them.

order (what is asked) -> child (a process that makes the call) under ncu -> pages (what the report says)
-> kernel (figures, stalls by line) -> report
"""

from dotcu.profiling.profiler import profile
from dotcu.profiling.report import ProfileReport

__all__ = ["ProfileReport", "profile"]

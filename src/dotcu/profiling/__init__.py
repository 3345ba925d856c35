"""Profiles of an operator's kernels: Nsight Compute's counters by source line, or CUPTI's timings instead.

request -> worker (a process that makes the call), under ncu -> ncu (the pages of its report)
-> kernel (figures, stalls by line) -> report
"""

from dotcu.profiling.profiler import profile
from dotcu.profiling.report import ProfileReport

__all__ = ["ProfileReport", "profile"]

"""How many compilers may run at once: no more than there are cores, nor than there is memory for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")

JOB_BYTES = 2 << 30
"""Room for one compile. Source: 1.6 GB measured for `torch/extension.h`, GCC 12.2, torch 2.13."""

_CGROUP = Path("/sys/fs/cgroup")


def bound(count: int, *, cores: int, free_bytes: int | None) -> int:
    """The jobs to run at once, at least one; memory does not count where it is unknown."""
    fitting = count if free_bytes is None else free_bytes // JOB_BYTES
    return max(1, min(count, cores, fitting))


def here(count: int) -> int:
    """The jobs to run at once on this machine, as it is now."""
    return bound(count, cores=len(os.sched_getaffinity(0)), free_bytes=free_bytes())


def free_bytes() -> int | None:
    """What the machine has left, or a container may still take; None where neither can be told."""
    known = [value for value in (_machine(Path("/proc/meminfo")), _container(_CGROUP)) if value is not None]
    return min(known, default=None)


def _machine(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _container(cgroup: Path) -> int | None:
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - used) if limit.isdecimal() else None


def each(work: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """Do the work for each item, as many at once as there is room for; the first error is raised."""
    if not items:
        return []
    with ThreadPoolExecutor(here(len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # those under way end, none begins
            raise

"""Ranges around launches, named after their kernels, while a profiler looks on.

torch's profiler gets a record_function, which emit_nvtx turns into an NVTX range. A tool outside the
process, such as Nsight Systems, gets an NVTX range; it says that it is there by the library that the
first NVTX call is to load.

Sources: nvtx3/nvtxDetail/nvtxInit.h (NVTX_INJECTION64_PATH), CUPTI's documentation, "CUPTI Injection"
(CUDA_INJECTION64_PATH).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch._C._autograd import _profiler_enabled

from dotcu import settings


def wanted() -> bool:
    """Whether anybody would see a range; one look at torch and one at the settings."""
    return _profiler_enabled() or attached()


def attached() -> bool:
    """Whether a tool outside this process looks on, for all of its life."""
    now = settings.current()
    return (now.nvtx_injection or now.cuda_injection) is not None and _takes_ranges(now.nvtx_injection)


def named(kernel: str) -> AbstractContextManager[object]:
    """A range of that name, for whoever looks on."""
    if _profiler_enabled():
        return torch.profiler.record_function(kernel)
    return torch.cuda.nvtx.range(_escaped(kernel))


def _takes_ranges(library: Path | None) -> bool:
    """Whether torch has NVTX, and the library that its first call loads is a tool.

    Some containers name CUPTI there for every process: a range would take it from torch's profiler.
    """
    return torch.version.cuda is not None and (library is None or not library.name.startswith("libcupti"))


def _escaped(kernel: str) -> str:
    return kernel.replace("{", "{{").replace("}", "}}")  # torch formats the name

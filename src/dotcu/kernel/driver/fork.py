"""Forks: a child of a process that had started CUDA can never use a GPU, and locks must not stay locked.

The driver keeps threads and mappings that a fork does not copy. torch notes in the child that CUDA was used;
a flag here repeats it, since every launch reads it.
"""

from __future__ import annotations

import os

import torch

from dotcu.errors import LaunchError

_forked = torch.cuda._is_in_bad_fork()  # where dotcu is imported only after the fork


def _note() -> None:
    global _forked
    _forked = torch.cuda._is_in_bad_fork()


os.register_at_fork(after_in_child=_note)


def forked_with_cuda() -> bool:
    """Return whether a process that had started CUDA was forked, and this is its child or a later one."""
    return _forked


def require_own_cuda(doing: str) -> None:
    """Refuse to touch the driver, to do something, where a fork has made it unusable."""
    if _forked:
        raise LaunchError(
            f"{doing} failed: this process was forked after CUDA was initialized.\n"
            "CUDA does not work in such a child; the simulator does, on CPU tensors.\n"
            'Start the child with multiprocessing.set_start_method("spawn") or "forkserver", or '
            'DataLoader(..., multiprocessing_context="spawn"); or fork before the first CUDA call, and '
            "torch.cuda.is_available() is one."
        )

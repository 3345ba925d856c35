"""Whether a case fits the memory of a device, and how many sets of its inputs do."""

from __future__ import annotations

import sys

import torch

RESULTS = 4
"""So many results are there at once: the last two of a contender, a new one, and the reference's."""

INPUTS = 2
"""So many sets of inputs are there beside those that calls take turns with: what new values come from, and
what the reference computes from."""

SHARE = 0.9
"""Of the free memory: the rest is lost between blocks."""


def free_bytes(device: torch.device) -> int:
    """What a device has left for tensors, with what torch holds and nobody uses."""
    if device.type != "cuda":
        return sys.maxsize
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def needed(inputs: int, results: int, sets: int = 1, *, kept: int = 0) -> int:
    """The bytes that it takes to time and to judge a case, by those of its tensors.

    Args:
        kept: Of the inputs: those of which new values are another set's, so that a copy of each set is kept.
    """
    return int(((sets + INPUTS) * inputs + (sets - 1) * kept + RESULTS * results) / SHARE)


def how_many(inputs: int, results: int, free: int, wanted: int, *, kept: int = 0) -> int:
    """So many sets of inputs fit, of those that are wanted; at least one."""
    fitting = (sets for sets in range(wanted, 1, -1) if needed(inputs, results, sets, kept=kept) <= free)
    return next(fitting, 1)


def too_large(inputs: int, results: int, free: int) -> str:
    """What a case needs and what there is, in words; empty where it fits."""
    least = needed(inputs, results)
    if least <= free:
        return ""
    return f"needs {least / 2**30:.1f} GiB of memory on the GPU, which has {free / 2**30:.1f} GiB free"

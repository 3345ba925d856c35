"""The gallery's operators run on the GPU where there is one, else in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

import dotcu
from dotcu.checking.trials.ranks import join


@pytest.fixture(autouse=True, scope="session")
def _group_of_one() -> None:
    """On a GPU the operators over ranks need a process group, and one rank is enough."""
    if torch.cuda.is_available() and not torch.distributed.is_initialized():
        join(0, 1, "")


@pytest.fixture(autouse=True)
def _simulated(device: torch.device) -> Iterator[None]:
    """Run bodies, not references, on CPU tensors."""
    with nullcontext() if device.type == "cuda" else dotcu.simulate():
        yield

"""The gallery's operators run on the GPU where there is one, else in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

import dotcu
from dotcu.checking.trials.ranks import alone


@pytest.fixture(autouse=True, scope="module")
def _group_of_one() -> Iterator[None]:
    """On a GPU the operators over ranks need a process group, and one rank is enough."""
    with alone() if torch.cuda.is_available() else nullcontext():
        yield


@pytest.fixture(autouse=True)
def _simulated(device: torch.device) -> Iterator[None]:
    """Run bodies, not references, on CPU tensors."""
    with nullcontext() if device.type == "cuda" else dotcu.simulate():
        yield

"""The gallery's operators run on the GPU where there is one, else in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

import dotcu


@pytest.fixture(autouse=True)
def _simulated(device: torch.device) -> Iterator[None]:
    """Run bodies, not references, on CPU tensors."""
    with nullcontext() if device.type == "cuda" else dotcu.simulate():
        yield

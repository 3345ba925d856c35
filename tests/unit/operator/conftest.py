"""An operator that several files of this folder call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from helpers.scale_operators import make_scale_add


@pytest.fixture(scope="module")
def scale_add() -> dotcu.operator.Operator:
    return make_scale_add()


@pytest.fixture
def pair(device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(3, 5, generator=generator).to(device) for _ in range(2))  # type: ignore[return-value]

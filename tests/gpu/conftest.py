"""What tests on a GPU share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from helpers.gpu_lock import holding_gpu


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """No other test uses the GPU while those of a module run, whatever the number of pytest's workers."""
    if not torch.cuda.is_available():
        yield
        return
    with holding_gpu(exclusive=True):
        yield

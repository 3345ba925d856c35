"""A launch by native code and one by Python: the same values, or the same error with the same text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.kernel import load_inline, native
from helpers import random_launches

pytestmark = pytest.mark.gpu

CALLS = 5000


@pytest.fixture(scope="module")
def kernels() -> tuple[Any, Any]:
    """The same kernel twice; the second is never launched by native code."""
    assert native.prepare() == ""
    fast, slow = (load_inline(random_launches.SOURCE).echo for _ in range(2))
    slow._plans.keep = lambda *launch: None
    return fast, slow


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_thousand_launches_come_to_the_same(kernels: tuple[Any, Any], seed: int) -> None:
    drawer = random_launches.Drawer(seed, "cuda")
    outs = [torch.zeros(random_launches.ECHO_BYTES, dtype=torch.uint8, device="cuda") for _ in kernels]
    taken = refused = 0
    for call in range(CALLS):
        args, config = drawer.arguments(outs[0]), drawer.config()
        others = [outs[1] if value is outs[0] else value for value in args]
        fast, slow = kernels
        by_native = random_launches.outcome(fast, args, config)
        by_python = random_launches.outcome(slow, others, config)
        where = f"seed {seed}, call {call}: {config}"
        assert by_native == by_python, where
        taken += by_native is None
        refused += by_native is not None
        if call % 10 == 0:
            assert torch.equal(*outs), where
            assert outs[0]._version == outs[1]._version, where
    assert torch.equal(*outs)
    assert taken > CALLS // 5
    assert refused > CALLS // 5

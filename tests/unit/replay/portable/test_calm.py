"""What is learnt of torch: the same wherever it is asked first."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dotcu.replay.portable import calm
from replays import CPU

INSIDE: dict[str, Callable[[Callable[[], None]], Any]] = {
    "a dispatch mode": lambda learn: _within(TorchDispatchMode(), learn),
    "fake tensors": lambda learn: _within(FakeTensorMode(), learn),
    "inference mode": lambda learn: _within(torch.inference_mode(), learn),
    "autocast": lambda learn: _within(torch.autocast("cpu", dtype=torch.bfloat16), learn),
    "vmap": lambda learn: torch.func.vmap(lambda x: (learn(), x)[1])(torch.ones(2)),
    "grad": lambda learn: torch.func.grad(lambda x: (learn(), x.sum())[1])(torch.ones(2)),
}


def _within(context: Any, learn: Callable[[], None]) -> None:
    with context:
        learn()


@pytest.mark.parametrize("where", INSIDE)
def test_what_is_calm_does_not_depend_on_who_asks_first(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    before, seen = [calm.thread_keys(), calm.plain_keys(CPU)], []
    monkeypatch.setattr(calm, "_plain", {})
    calm.thread_keys.cache_clear()
    INSIDE[where](lambda: seen.append([calm.thread_keys(), calm.plain_keys(CPU)]))
    assert seen == [before]


def test_without_the_symbol_the_profiler_is_seen_still(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any) -> Any:
        raise OSError("not here")

    monkeypatch.setattr(ctypes, "PyDLL", missing)
    callbacks = calm._callbacks()
    assert not callbacks()
    with torch.autograd.profiler.profile():
        assert callbacks()

"""A plan as functions that can be called."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable
from typing import Any

import torch

from dotcu.kernel import recent
from dotcu.replay.arguments import Caller
from dotcu.replay.portable import calm, frames
from dotcu.replay.portable.driver import WRONG_CONTEXT, drivers
from dotcu.replay.portable.outcome import ASIDE, MISS, UNSET
from dotcu.replay.portable.rendering import Placed, Source, render

UNFIT = (ArithmeticError, ValueError, LookupError, RuntimeError)
"""What a plan's checks raise where it does not fit: divisors, shifts and roundings; reads; addresses."""

Replay = Callable[..., Any]
"""Takes a value for each argument; gives what the call gives, MISS or ASIDE."""


class Compiled:
    """One plan of an overload.

    Attributes:
        guarded: For a call whose tensors can be of any kind.
    """

    def __init__(self, placed: Placed, caller: Caller) -> None:
        self._placed = placed
        self._names = _names(placed.plan.device, caller)
        self.guarded = self._compile(render(placed))

    @functools.cached_property
    def below(self) -> Replay:
        """For a call that the dispatcher has seen."""
        return self._compile(render(self._placed, guarded=False))

    def _compile(self, source: Source) -> Replay:
        free: list[Any] = []

        def new() -> tuple[Any, ...]:
            cell = (ctypes.c_uint64 * 1)()
            return (cell, *(part for frame in source.frames for part in frames.allocate(frame)))

        # list.pop and list.append are atomic, so that each call has memory of its own while it launches.
        names: dict[str, Any] = self._names | source.objects
        names |= {"NEW": new, "POP": free.pop, "PUSH": free.append}
        exec(compile(source.text, "<dotcu: a call by plan>", "exec"), names)
        replay: Replay = names["replay"]
        return replay


def _names(device: torch.device, caller: Caller) -> dict[str, object]:
    """What every text names."""
    driver, plain = drivers[device.type], calm.plain_keys(device)

    def elsewhere(index: int, values: tuple[Any, ...]) -> Any:
        result = caller.elsewhere(index, values)
        return ASIDE if result is NotImplemented else result

    def failed(plan: int, launch: int, status: int, values: tuple[Any, ...]) -> Any:
        if status in WRONG_CONTEXT and not launch:
            return elsewhere(device.index or 0, values)
        caller.failure(plan, launch, status)
        return ASIDE

    return {
        "MISS": MISS, "ASIDE": ASIDE, "UNSET": UNSET, "UNFIT": UNFIT,
        "TENSOR": torch.Tensor, "PARAMETER": torch.nn.Parameter,
        "KEYS": calm.keys_of, "WORDS": calm.WORDS, "PLAIN": plain.usual, "INFERENCE": plain.inference,
        "GRADIENTS": torch.is_grad_enabled, "EXCLUDED": calm.excluded, "COUNTING": calm.COUNTING,
        "BITS": struct.Struct("<d").pack, "TRUNC": math.trunc, "FLOOR": math.floor, "CEIL": math.ceil,
        "ALLOCATE": driver.allocate, "STREAM": driver.stream, "CONTEXT": driver.context,
        "LAUNCH": driver.launch, "NOTE": recent.note, "WRITE": caller.write,
        "ELSEWHERE": elsewhere, "FAILED": failed,
    }  # fmt: skip

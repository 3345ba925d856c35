"""What contenders compute, and what a contender is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ELEMENTS = 1024
BLOCK = 256
BLOCKS = ELEMENTS // BLOCK
ALPHA = 2.0
DIGITS = (1, 2, 3, 4)
WEIGHTS = (1.0, 2.0, 0.5)  # powers of two: the sum is the same, whether rounded after the products or not

KERNELS = Path(__file__).parent / "kernels.cu"

Call = Callable[[], Tensor]
"""One call, arguments and all; the result is new memory."""


@dataclass(frozen=True)
class Inputs:
    """The tensors that every contender is called with. `leaf` is `a` again, with a gradient to record."""

    a: Tensor
    b: Tensor
    c: Tensor
    leaf: Tensor

    def fill(self, seed: int) -> None:
        """Give them other values, in place: a contender that kept its result would then be wrong."""
        generator = torch.Generator(device=self.a.device).manual_seed(seed)
        for tensor in (self.a, self.b, self.c):
            tensor.normal_(generator=generator)


def make_inputs(device: torch.device) -> Inputs:
    """Allocate and fill the inputs."""
    a, b, c = (torch.empty(ELEMENTS, device=device) for _ in range(3))
    inputs = Inputs(a, b, c, a.detach().requires_grad_())
    inputs.fill(0)
    return inputs


def added(inputs: Inputs) -> Tensor:
    """What a call of `add` must give, bit for bit."""
    return inputs.a + inputs.b


def scaled(inputs: Inputs) -> Tensor:
    """What a call of `scale_add` must give."""
    return inputs.a + ALPHA * inputs.b


def weighed(inputs: Inputs) -> Tensor:
    """What a call of `weigh` must give."""
    x, y, z = WEIGHTS
    return x * inputs.a + y * inputs.b + z * inputs.c + float("".join(map(str, DIGITS)))


CPP = "C++ TORCH_LIBRARY"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to make a call.

    Attributes:
        make: Imports, compiles and registers what it takes; an error means that it is skipped.
        want: What a call must give.
        base: The contender that its time is compared with.
        launches: Kernels that a call launches.
        mode: What calls are made under.
        records: Whether a call is recorded for a gradient.
    """

    name: str
    make: Callable[[Inputs], Call]
    want: Callable[[Inputs], Tensor] = added
    base: str = CPP
    launches: int = 1
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext
    records: bool = False


class Once:
    """A function that runs once: later calls give the same value, or raise the same error."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._outcome: tuple[Any, Exception | None] | None = None

    def __call__(self) -> Any:
        if self._outcome is None:
            try:
                self._outcome = self._function(), None
            except Exception as error:
                self._outcome = None, error
        value, error = self._outcome
        if error is not None:
            raise error
        return value

"""Contenders, their inputs, and what they must compute."""

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
LAUNCHES = 8
"""Of the operator that launches more than once."""

DIGITS = (1, 2, 3, 4)
WEIGHTS = (1.0, 2.0, 0.5)  # powers of two: the sum is the same, whether rounded after the products or not

KERNELS = Path(__file__).parent / "kernels.cu"

Call = Callable[[], Tensor]
"""One call, arguments and all."""


@dataclass(frozen=True)
class Inputs:
    """The tensors that every contender is called with.

    Attributes:
        leaf: `a` again, with a gradient to record.
        alpha: One element, a power of two: a product with it is exact, so that it may be fused with a sum.
    """

    a: Tensor
    b: Tensor
    c: Tensor
    leaf: Tensor
    alpha: Tensor

    def fill(self, seed: int) -> None:
        """Give them other values, in place: a contender that kept its result would then be wrong."""
        generator = torch.Generator(device=self.a.device).manual_seed(seed)
        for tensor in (self.a, self.b, self.c):
            tensor.normal_(generator=generator)
        self.alpha.fill_(2.0**seed)


def make_inputs(device: torch.device) -> Inputs:
    """Allocate and fill the inputs."""
    a, b, c = (torch.empty(ELEMENTS, device=device) for _ in range(3))
    inputs = Inputs(a, b, c, a.detach().requires_grad_(), torch.empty(1, device=device))
    inputs.fill(0)
    return inputs


def added(inputs: Inputs) -> Tensor:
    """The result of `add`, bit for bit."""
    return inputs.a + inputs.b


def summed(count: int, inputs: Inputs) -> Tensor:
    """The result of `add` after `add`: a + b + ... + b, in this order."""
    out = inputs.a
    for _ in range(count):
        out = out + inputs.b
    return out


def scaled(inputs: Inputs) -> Tensor:
    """The result of `scale_add`."""
    return inputs.a + ALPHA * inputs.b


def scaled_by_tensor(inputs: Inputs) -> Tensor:
    """The result of `scale_add` with a factor that is read from a tensor."""
    return inputs.a + inputs.alpha * inputs.b


def weighed(inputs: Inputs) -> Tensor:
    """The result of `weigh`."""
    x, y, z = WEIGHTS
    return x * inputs.a + y * inputs.b + z * inputs.c + float("".join(map(str, DIGITS)))


CPP = "C++ TORCH_LIBRARY"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to make a call.

    Attributes:
        make: Imports, compiles and registers what it takes; an error means that it is skipped.
        want: The result, bit for bit.
        base: The contender that its time is compared with.
        launches: Kernels that a call launches.
        mode: What calls are made under.
        records: A call is recorded for a gradient.
        writes: A call gives memory that was there before, and writes it; the others give new memory.
    """

    name: str
    make: Callable[[Inputs], Call]
    want: Callable[[Inputs], Tensor] = added
    base: str = CPP
    launches: int = 1
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext
    records: bool = False
    writes: bool = False


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
        value, failure = self._outcome
        if failure is not None:
            raise failure
        return value

"""Tensors in float64: as they are, moved in their last place, and beside zero.

Integers and bools stay what they are. A complex tensor counts as its real and imaginary parts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

TRIALS = 8
"""How often each input's elements are moved at random, after all were moved up and all down: so often that
no element of many stays where it is by chance."""

Noise = Callable[[torch.Tensor], torch.Tensor | float]
"""Numbers from -1 to 1, one for each element of a tensor, on its device; or one for all."""


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether it holds integers or bools."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; a complex one as real numbers, with a last dimension for both parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def to_double(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor in float64; of a complex one, in complex128."""
    if is_whole(tensor):
        return tensor.clone()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def to_single(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor with its float64 numbers rounded to float32, and so for complex ones."""
    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return tensor.to(narrower.get(tensor.dtype, tensor.dtype), copy=True)


def noises(trials: int = TRIALS) -> list[Noise]:
    """How inputs are moved: all up, all down, then some times each element at random."""
    generators: dict[torch.device, torch.Generator] = {}

    def random(like: torch.Tensor) -> torch.Tensor:
        if like.device not in generators:
            generators[like.device] = torch.Generator(like.device).manual_seed(0)
        generator = generators[like.device]
        numbers = torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)
        return numbers.mul_(2).sub_(1)

    return [lambda like: 1.0, lambda like: -1.0, *[random] * trials]


def move(tensor: torch.Tensor, noise: Noise) -> torch.Tensor:
    """The tensor in float64, each element moved by up to one unit in the last place of its own dtype."""
    if is_whole(tensor):
        return tensor.clone()
    parts = real(to_double(tensor))
    moved = parts * (1 + torch.finfo(tensor.dtype).eps * noise(parts))
    return torch.view_as_complex(moved) if tensor.is_complex() else moved


def beside_zero(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, each zero a hair on its own side of it: squares of that are zero again."""
    if is_whole(tensor):
        return tensor.clone()
    parts = real(to_double(tensor))
    beside = torch.where(parts == 0, torch.full_like(parts, 1e-300).copysign(parts), parts)
    return torch.view_as_complex(beside) if tensor.is_complex() else beside

"""A call with a name, that can be made again and again with the same values in new memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dotcu.checking.memory import fresh
from dotcu.operator import Sample


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call to try.

    Attributes:
        name: Unique for an overload, without blanks and slashes: `float32-s0-transposed`.
        dtype: Of the operator's dtypes, the one that it is for.
        sample: The arguments. They are not to be handed to anybody: `make` gives equal ones.
        derived: Whether dotcu made it: then the operator may refuse it with a clear error.
    """

    name: str
    dtype: torch.dtype
    sample: Sample
    derived: bool = True

    def make(self) -> Sample:
        """The arguments in new memory, of the same layout, with the same values."""
        return fresh(self.sample)

    def become(self, suffix: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Case:
        """The same call with every tensor changed, under a name with a suffix."""
        sample = self.sample.map_tensors(change)
        return Case(name=f"{self.name}-{suffix}", dtype=self.dtype, sample=sample)


def seed_of(name: str, seed: int) -> int:
    """A seed for the random numbers of something with a name, that does not hang on what ran before."""
    return (zlib.crc32(name.encode()) ^ (seed * 0x9E3779B1)) & 0x7FFF_FFFF


def short(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")

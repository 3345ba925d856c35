"""New values in the same memory before every timed call, so that a remembered result is wrong.

Each call takes the values of the next set of inputs; floating-point values are also scaled by a factor
that differs from call to call. The first element stays, so a result that is looked up by it is wrong as
well. torch does not count these writes. Integers and bools may be indices: they are never scaled, nor are
masks and probabilities; what scaling keeps (order, symmetry, a triangle of zeros) needs no exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dotcu.benchmark.workloads.workload import ascends
from dotcu.checking.memory import fresh, same_bits, without_repeats
from dotcu.checking.numerics import real
from dotcu.checking.trials.fresh_values import COMPUTED
from dotcu.kernel.simulation import extent
from dotcu.operator import Sample

GOLDEN = 0.6180339887
"""Multiples of it, modulo 1, are spread evenly and never repeat: neighbours differ by 0.38 at least."""

LOOKED_AT = 4096
"""Elements that are looked at to see how many different values a tensor has."""

FEW = 4
"""A tensor with no more different values than this is a mask, or has flags."""

_Write = Callable[[Tensor, int], object]


class InputValues:
    """Writes values of a turn into sets of inputs; in one turn, all sets have the same values.

    Takes the memory of another copy of all sets, and sets the values of all.

    Args:
        sets: The same call with several sets of tensors, whose values are used in rotation.
        outs: Keyword arguments that a call only writes; they keep what the last call wrote.
        poisoned: Tensors that are overwritten before each call, so that one that writes nothing shows.

    Attributes:
        vary: True if values differ from turn to turn; else a remembered result cannot be detected.
        turns: The turn whose values a set has, by its `id`.
    """

    def __init__(
        self, sets: Sequence[Sample], *, outs: Sequence[str] = (), poisoned: Sequence[Tensor] = ()
    ) -> None:
        self._sets, self._outs, self._poisoned = sets, outs, poisoned
        self.turns = {id(sample): 0 for sample in sets}
        arguments = [_argument(tensors) for tensors in zip(*map(self._tensors, sets), strict=True)]
        self._writes = [write for write, _ in arguments]
        self.vary = any(varies for _, varies in arguments)
        for sample in sets:
            self._write(sample, 0)

    def __call__(self, sample: Sample, turn: int) -> None:
        """Write the values of a turn into a set, on torch's current stream."""
        for tensor in self._poisoned:
            tensor.fill_(torch.nan if tensor.is_floating_point() or tensor.is_complex() else 85)
        self._write(sample, turn)
        self.turns[id(sample)] = turn

    def inputs(self, turn: int) -> Sample:
        """Return the values of a turn in new memory."""
        made = fresh(self._sets[0])
        self._write(made, turn)
        return made

    def _write(self, sample: Sample, turn: int) -> None:
        for write, tensor in zip(self._writes, self._tensors(sample), strict=True):
            if write is not None and tensor.numel():
                write(without_repeats(tensor.data), turn)

    def _tensors(self, sample: Sample) -> tuple[Tensor, ...]:
        """Return the tensors that a call reads, each once."""
        read = {name: value for name, value in sample.kwargs.items() if name not in self._outs}
        return tuple({id(tensor): tensor for tensor in Sample(*sample.args, **read).tensors}.values())


def _argument(tensors: Sequence[Tensor]) -> tuple[_Write | None, bool]:
    """Return what writes one argument, from its tensor of each set, and True if its values vary."""
    views = [without_repeats(tensor.data) for tensor in tensors]
    first = views[0]
    if extent(first) < first.numel():  # elements share memory: nothing is written
        return None, False
    values = [view.clone() for view in views]
    if not scalable(first):
        varies = not all(same_bits([one], values[:1]) for one in values)
        return lambda into, turn: into.copy_(values[turn % len(values)]), varies
    ordered = not first.is_complex() and ascends(first)
    is_square = first.dim() > 1 and first.size(-1) == first.size(-2)  # it may be positive definite
    keeps_first = first.numel() > 1 and not ordered and not is_square
    corner = (slice(0, 1),) * first.dim()
    wide = torch.complex64 if first.is_complex() else torch.float32

    def write(into: Tensor, turn: int) -> None:
        source = values[turn % len(values)]
        factor = 0.5 + turn * GOLDEN % 1 / 2
        if source.dtype in COMPUTED:
            torch.mul(source, factor, out=into)
        else:  # a dtype that torch only stores, such as 8-bit floats
            into.copy_(source.to(wide) * factor)
        if keeps_first:
            into[corner].copy_(values[0][corner])

    return write, first.numel() > 0


def scalable(tensor: Tensor) -> bool:
    """Return True for numbers that may be scaled: neither indices, nor a mask, nor probabilities."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return False
    side = int(LOOKED_AT ** (1 / max(1, tensor.dim())))
    part = real(tensor[(slice(0, side),) * tensor.dim()].clone()).float()
    if tensor.numel() >= FEW**2 and part.unique().numel() <= FEW:
        return False
    if tensor.dim() == 0 or tensor.size(-1) < 2 or tensor.is_complex():
        return True
    rows = tensor[(0,) * (tensor.dim() - 1)].float()
    return not (bool((rows >= 0).all()) and abs(float(rows.sum()) - 1) < 0.02)

"""New values in the same memory before every timed call, so that the result of the call before is wrong.

Each call takes the values of the next set of inputs; where all sets are alike, numbers are scaled. They recur
after as many turns as there are sets: a result that is stored for each of them is right. Of
floating-point tensors the first element stays, so a result that is looked up by it is wrong as well; not of
rows that ascend, or of square matrices, which may be positive definite. torch does not count these writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dotcu.benchmark.workloads.workload import ascends
from dotcu.checking.memory import fresh, same_bits, without_repeats
from dotcu.checking.trials.fresh_values import COMPUTED
from dotcu.kernel.arguments.memory import extent
from dotcu.operator import Sample


class InputValues:
    """Writes values of a turn into sets of inputs; in one turn, all sets have the same values.

    Takes the memory of another copy of all sets, and sets the values of all.

    Args:
        sets: The same call with several sets of tensors, whose values are used in rotation.
        outs: Keyword arguments that a call only writes; they keep what the last call wrote.
        poisoned: Tensors that are overwritten before each call, so that one that writes nothing shows.

    Attributes:
        vary: True if values differ from turn to turn; else a remembered result is never wrong.
        turns: The turn whose values a set has, by its `id`.
    """

    def __init__(
        self, sets: Sequence[Sample], *, outs: Sequence[str] = (), poisoned: Sequence[Tensor] = ()
    ) -> None:
        self._first, self._outs, self._poisoned = sets[0], outs, poisoned
        self.turns = {id(sample): 0 for sample in sets}
        self._values = [_values(tensors) for tensors in zip(*map(self._tensors, sets), strict=True)]
        self.vary = any(not same_bits([one], own[:1]) for own in self._values for one in own[1:])
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
        made = fresh(self._first)
        self._write(made, turn)
        return made

    def _write(self, sample: Sample, turn: int) -> None:
        for values, tensor in zip(self._values, self._tensors(sample), strict=True):
            if values:
                without_repeats(tensor.data).copy_(values[turn % len(values)])

    def _tensors(self, sample: Sample) -> tuple[Tensor, ...]:
        """Return the tensors that a call reads, each once."""
        read = {name: value for name, value in sample.kwargs.items() if name not in self._outs}
        return tuple({id(tensor): tensor for tensor in Sample(*sample.args, **read).tensors}.values())


FEW = 4  # a tensor with no more different values is a mask, or has flags


def _values(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the values that one argument takes in turn; none where its elements share memory."""
    values = [without_repeats(tensor.data).clone() for tensor in tensors]
    first = values[0]
    if extent(without_repeats(tensors[0].data)) < first.numel():
        return []
    if not (first.is_floating_point() or first.is_complex()) or not first.numel():
        return values
    if all(same_bits([one], [first]) for one in values) and first.dtype in COMPUTED:
        is_mask = first.numel() >= FEW**2 and first.flatten()[:4096].unique().numel() <= FEW
        values = [first] if is_mask else [first * (1 - i / 16) for i in range(max(2, len(values)))]
    is_square = first.dim() > 1 and first.size(-1) == first.size(-2)
    if first.numel() > 1 and not is_square and (first.is_complex() or not ascends(first)):
        corner = (slice(0, 1),) * first.dim()
        for other in values[1:]:
            other[corner].copy_(first[corner])
    return values

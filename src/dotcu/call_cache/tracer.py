"""What is known of a call while its body runs: steps, guards, tensors, launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.builder import Builder
from dotcu.call_cache.layouts import Layout, all_identical, is_contiguous
from dotcu.call_cache.plan import ConstantKey, Key, NumberKey, Op, TensorKey
from dotcu.call_cache.symbols import is_symbol, symbol
from dotcu.call_cache.values import plain
from dotcu.kernel.tensors import is_plain


class Untold(Exception):
    """Something that no plan can say, for the reason that the message gives."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A tensor whose place in memory is known in every call.

    Attributes:
        tensor: It itself; kept, so that its id stays its own.
        argument: Whether its memory is an argument's, else an allocation's.
        source: Of which argument or allocation.
        layout: Where its elements lie, from the first element of that.
        whole: Whether it has all elements of that, each once.
    """

    tensor: Tensor
    argument: bool
    source: int
    layout: Layout
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What the body allocates.

    Attributes:
        tensor: What torch gave.
    """

    tensor: Tensor
    layout: Layout
    zeroed: bool


@dataclass(frozen=True, kw_only=True)
class New:
    """What a rule foresees of a tensor with memory of its own."""

    layout: Layout
    dtype: torch.dtype
    zeroed: bool = False


@dataclass(frozen=True, kw_only=True)
class View:
    """What a rule foresees of a tensor on the memory of another."""

    of: Known
    layout: Layout
    whole: bool = True


@dataclass(frozen=True)
class Answer:
    """What a body is told without asking torch."""

    value: Any


Foreseen = New | View | Answer | Sequence["New | View"]


class Tracer:
    """The steps of a call, and what they say of its tensors.

    Attributes:
        device: Of all its tensors.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.builder = Builder()
        self.memories: list[Memory] = []
        self.keys: list[Key] = []
        self.handed: list[Any] = []
        self._known: dict[int, Known] = {}
        self._numels: dict[tuple[Any, ...], Any] = {}
        self._leaves: list[tuple[int, tuple[Any, ...], tuple[Any, ...]]] = []
        self._aligned: dict[int, int] = {}
        self.device = _device([value for value in arguments if isinstance(value, Tensor)])
        for value in arguments:
            self._argument(value)

    def _argument(self, value: Any) -> None:
        index = len(self.keys)
        handed = value
        if isinstance(value, Tensor):
            handed = self._tensor(index, value)
            self.keys.append(TensorKey(dtype=value.dtype, dim=value.dim(), device=value.device))
        elif type(value) in (int, float):
            is_float = type(value) is float
            op = Op.FLOAT_ARGUMENT if is_float else Op.INT_ARGUMENT
            handed = self._leaf(op, index, 0, value)
            self.keys.append(NumberKey(is_float=is_float))
        elif value is None or type(value) in (bool, str, torch.dtype, torch.device):
            self.keys.append(ConstantKey(value=value))
        elif type(value) in (list, tuple) and all(type(item) is int for item in value):
            self.keys.append(ConstantKey(value=tuple(value)))
        else:
            raise Untold(f"argument {index + 1} is a {type(value).__name__}, which a plan does not hold")
        self.handed.append(handed)

    def _leaf(self, op: Op, index: int, dimension: int, value: Any) -> Any:
        return symbol(self.builder, self.builder.leaf(op, index, dimension, value))

    def multiprocessors(self, count: int) -> Any:
        """How many the GPU has, as a step."""
        tensor = next(index for index, key in enumerate(self.keys) if isinstance(key, TensorKey))
        return self._leaf(Op.MULTIPROCESSORS, tensor, 0, count)

    def _tensor(self, index: int, value: Tensor) -> Tensor:
        """Take a tensor argument in, under another identity where it is given twice."""
        if not is_plain(value):
            raise Untold(f"argument {index + 1} is not plain memory")
        tensor = value.detach() if id(value) in self._known else value
        sizes = tuple(self._leaf(Op.SIZE, index, d, size) for d, size in enumerate(value.shape))
        strides = tuple(self._leaf(Op.STRIDE, index, d, stride) for d, stride in enumerate(value.stride()))
        layout = Layout(sizes, strides)
        if sizes:
            self._leaves.append((index, sizes, strides))
            self._numels.setdefault(_steps(sizes), self._leaf(Op.NUMEL, index, 0, value.numel()))
        self._remember(Known(tensor=tensor, argument=True, source=index, layout=layout))
        return tensor

    def _remember(self, known: Known) -> None:
        self._known[id(known.tensor)] = known

    # What rules ask.

    def known(self, tensor: Any) -> Known:
        """What is known of a tensor.

        Raises:
            Untold: It came about in a way that nobody followed.
        """
        found = self._known.get(id(tensor))
        if found is None:
            raise Untold("it has a tensor of which nothing is known")
        return found

    def numel(self, sizes: Sequence[Any]) -> Any:
        """How many elements a tensor of these sizes has."""
        found = self._numels.get(_steps(sizes))
        return math.prod(sizes) if found is None else found

    def is_contiguous(self, known: Known) -> bool:
        """What torch says of a tensor, as a guard: in one step for the layout that an argument has."""
        layout = known.layout
        for index, sizes, strides in self._leaves:
            if all_identical(layout.sizes, sizes) and all_identical(layout.strides, strides):
                value = int(known.tensor.is_contiguous())
                return bool(self.builder.guard(self.builder.leaf(Op.CONTIGUOUS, index, 0, value)))
        return is_contiguous(layout)

    def is_aligned(self, known: Known, bytes: int) -> bool:
        """Whether a tensor of an argument's memory starts at an address divisible by `bytes`, as a guard."""
        start = self._leaf(Op.ADDRESS, known.source, 0, self.argument(known.source).data_ptr())
        address = start + known.layout.offset * known.tensor.itemsize
        if self._aligned.get(address.step, 1) % bytes == 0:
            return True
        aligned = bool(address % bytes == 0)
        if aligned:
            self._aligned[address.step] = bytes
        return aligned

    def offset(self, known: Known) -> Any:
        """Where a tensor begins in its storage, in elements."""
        if not known.argument:
            return known.layout.offset
        argument = self.argument(known.source)
        start = self._leaf(Op.OFFSET, known.source, 0, argument.storage_offset())
        return start + known.layout.offset

    def argument(self, index: int) -> Tensor:
        """A tensor argument, as it was handed to the body."""
        tensor = self.handed[index]
        assert isinstance(tensor, Tensor)
        return tensor

    def base(self, known: Known) -> Tensor:
        """The argument or the allocation whose memory a tensor has."""
        return self.argument(known.source) if known.argument else self.memories[known.source].tensor

    # What came about.

    def learn(self, result: Any, foreseen: Foreseen) -> None:
        """Take in what torch gave, if that is what a rule foresaw.

        Raises:
            Untold: It is not.
        """
        results = [result] if isinstance(result, Tensor) else list(result)
        rows = list(foreseen) if isinstance(foreseen, (list, tuple)) else [foreseen]
        if len(results) != len(rows):
            raise Untold("torch gave another number of tensors than foreseen")
        for tensor, row in zip(results, rows, strict=True):
            self._learn(tensor, row)

    def _learn(self, tensor: Tensor, row: Any) -> None:
        if isinstance(row, New):
            start, dtype = 0, row.dtype
        else:
            start, dtype = row.of.tensor.storage_offset(), row.of.tensor.dtype
            start -= plain(row.of.layout.offset)
        sizes, strides, offset = plain(tuple(row.layout))
        same = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == (
            sizes,
            strides,
            start + offset,
        )
        if not same or (tensor.dtype, tensor.device) != (dtype, self.device) or not is_plain(tensor):
            raise Untold("torch gave another layout, dtype or device than foreseen")
        if isinstance(row, New):
            self._remember(Known(tensor=tensor, argument=False, source=len(self.memories), layout=row.layout))
            self.memories.append(Memory(tensor=tensor, layout=row.layout, zeroed=row.zeroed))
        elif id(tensor) not in self._known:
            self._remember(
                replace(row.of, tensor=tensor, layout=row.layout, whole=row.whole and row.of.whole)
            )


def _steps(sizes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(("step", size.step) if is_symbol(size) else size for size in sizes)


def _device(tensors: Sequence[Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1:
        raise Untold(f"its tensors are on {len(devices)} devices")
    return devices.pop()

"""The state of a trace: steps, guards, tensors and allocations, as far as the body has run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.arithmetic import Builder
from dotcu.call_cache.layouts import Layout, all_identical, is_contiguous, is_empty
from dotcu.call_cache.record import Key, RecordedStep, StepOp, TensorKey, Unsupported
from dotcu.call_cache.symbols import is_symbol, plain, symbol
from dotcu.kernel.arguments.pack import is_plain

ALLOCATOR_ALIGNMENT = 16
"""The alignment of new memory that every allocator of torch guarantees, in bytes."""


@dataclass(frozen=True, kw_only=True)
class TracedTensor:
    """A tensor whose location in memory is known in every call, or that a rule expects torch to return.

    Attributes:
        tensor: The tensor of this call; the reference keeps its id unique. While it is only expected: the
            tensor that it is a view of, None for an allocation.
        argument: True if its memory is an argument's, else an allocation's.
        source: The index of that argument or allocation.
        layout: Its sizes, strides and offset, from the first element of the source.
        whole: True if it has all elements of the source, each once.
        zeroed: True if it is an allocation filled with zeros.
    """

    tensor: Tensor | None
    argument: bool
    source: int
    layout: Layout
    dtype: torch.dtype
    whole: bool = True
    zeroed: bool = False

    @property
    def first_byte(self) -> Any:
        """The offset of its first element from that of the source, in bytes."""
        return self.layout.offset * self.dtype.itemsize


class TraceState:
    """The steps of a call, and its tensors in terms of them.

    Attributes:
        device: The device of all its tensors.
        arguments: The arguments as the body receives them, with symbols for numbers.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.builder = Builder()
        self.allocations: list[TracedTensor] = []
        self.keys: list[Key] = []
        self.arguments: list[Any] = []
        self._known: dict[int, TracedTensor] = {}
        self._numels: dict[tuple[Any, ...], Any] = {}
        self._leaves: list[tuple[int, tuple[Any, ...], tuple[Any, ...]]] = []
        self._aligned: dict[int, int] = {}
        devices = {value.device for value in arguments if isinstance(value, Tensor)}
        if len(devices) != 1:
            raise Unsupported(f"its tensors are on {len(devices)} devices")
        (self.device,) = devices
        for value in arguments:
            self._add_argument(value)

    def _add_argument(self, value: Any) -> None:
        index = len(self.keys)
        traced = value
        if isinstance(value, Tensor):
            traced = self._add_tensor(index, value)
            self.keys.append(TensorKey(dtype=value.dtype, dim=value.dim(), device=value.device))
        elif type(value) in (int, float):
            op = StepOp.FLOAT_ARGUMENT if type(value) is float else StepOp.INT_ARGUMENT
            traced = self._leaf(op, index, 0, value)
            self.keys.append(type(value))
        elif value is None or type(value) in (bool, str, torch.dtype, torch.device):
            self.keys.append((value,))
        elif type(value) in (list, tuple) and all(type(item) is int for item in value):
            self.keys.append((tuple(value),))
        else:
            raise Unsupported(f"argument {index + 1} is a {type(value).__name__}, which cannot be recorded")
        self.arguments.append(traced)

    def _leaf(self, op: StepOp, index: int, dimension: int, value: Any) -> Any:
        return symbol(self.builder, self.builder.leaf(RecordedStep(op, index, dimension), value))

    def multiprocessors(self, count: int) -> Any:
        """Return the number of multiprocessors of the GPU, as a step."""
        tensor = next(index for index, key in enumerate(self.keys) if isinstance(key, TensorKey))
        return self._leaf(StepOp.MULTIPROCESSORS, tensor, 0, count)

    def _add_tensor(self, index: int, value: Tensor) -> Tensor:
        """Add a tensor argument; an alias of it where it is passed twice."""
        if not is_plain(value):
            raise Unsupported(f"argument {index + 1} is not plain memory")
        tensor = value.detach() if id(value) in self._known else value
        sizes, strides = (
            tuple(self._leaf(op, index, dimension, number) for dimension, number in enumerate(numbers))
            for op, numbers in ((StepOp.SIZE, value.shape), (StepOp.STRIDE, value.stride()))
        )
        if sizes:
            self._leaves.append((index, sizes, strides))
            self._numels.setdefault(_steps(sizes), self._leaf(StepOp.NUMEL, index, 0, value.numel()))
        self._known[id(tensor)] = TracedTensor(
            tensor=tensor, argument=True, source=index, layout=Layout(sizes, strides), dtype=value.dtype
        )
        return tensor

    def known(self, tensor: Any) -> TracedTensor:
        """Return the trace's view of a tensor.

        Raises:
            Unsupported: The trace did not see where it comes from.
        """
        known = self._known.get(id(tensor))
        if known is None:
            raise Unsupported("it has a tensor of unknown origin")
        return known

    def numel(self, sizes: Sequence[Any]) -> Any:
        """Return the number of elements of a tensor of these sizes."""
        numel = self._numels.get(_steps(sizes))
        return math.prod(sizes) if numel is None else numel

    def is_contiguous(self, known: TracedTensor) -> bool:
        """Ask as torch does, and guard the answer: in one step for the layout of an argument."""
        layout = known.layout
        for index, sizes, strides in self._leaves:
            if all_identical(layout.sizes, sizes) and all_identical(layout.strides, strides):
                leaf = RecordedStep(StepOp.CONTIGUOUS, index)
                value = int(self.argument(index).is_contiguous())
                return bool(self.builder.guard(self.builder.leaf(leaf, value)))
        return is_contiguous(layout)

    def is_aligned(self, known: TracedTensor, bytes: int) -> bool:
        """Ask if a tensor's first element is aligned to `bytes`, and guard the answer."""
        if not known.whole and is_empty(known.layout.sizes):
            return True
        if not known.argument:
            if ALLOCATOR_ALIGNMENT % bytes:
                raise Unsupported(f"it asks whether new memory is aligned to {bytes} bytes")
            return bool(known.first_byte % bytes == 0)
        start = self._leaf(StepOp.ADDRESS, known.source, 0, self.argument(known.source).data_ptr())
        address = start + known.first_byte
        if self._aligned.get(address.step, 1) % bytes == 0:
            return True
        aligned = bool(address % bytes == 0)
        if aligned:
            self._aligned[address.step] = bytes
        return aligned

    def offset(self, known: TracedTensor) -> Any:
        """Return the storage offset of a tensor, in elements."""
        if not known.argument:
            return known.layout.offset
        start = self.argument(known.source).storage_offset()
        return self._leaf(StepOp.OFFSET, known.source, 0, start) + known.layout.offset

    def argument(self, index: int) -> Tensor:
        """Return a tensor argument, as the body receives it."""
        tensor = self.arguments[index]
        assert isinstance(tensor, Tensor)
        return tensor

    def base(self, known: TracedTensor) -> Tensor:
        """Return the argument or the allocation whose memory a tensor shares."""
        tensor = None if known.argument else self.allocations[known.source].tensor
        return self.argument(known.source) if tensor is None else tensor

    def add_results(self, result: Any, expected: TracedTensor | Sequence[TracedTensor]) -> None:
        """Add the tensors that torch returned, if they are as a rule expected them."""
        results = [result] if isinstance(result, Tensor) else list(result)
        rows = [expected] if isinstance(expected, TracedTensor) else list(expected)
        if len(results) != len(rows):
            raise Unsupported("torch returned another number of tensors than expected")
        for tensor, row in zip(results, rows, strict=True):
            start = 0 if row.tensor is None else self.base(row).storage_offset()
            sizes, strides, offset = plain(tuple(row.layout))
            wanted = (sizes, strides, start + offset, row.dtype, self.device)
            real = (
                tuple(tensor.shape),
                tensor.stride(),
                tensor.storage_offset(),
                tensor.dtype,
                tensor.device,
            )
            if real != wanted or not is_plain(tensor):
                raise Unsupported("torch returned another layout, dtype or device than expected")
            known = self._known.setdefault(id(tensor), replace(row, tensor=tensor))
            if row.tensor is None:
                self.allocations.append(known)


def _steps(sizes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(("step", size.step) if is_symbol(size) else size for size in sizes)

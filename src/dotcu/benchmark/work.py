"""The work of a call: the bytes that it moves and the operations on them, declared and counted."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dotcu.checking.memory import fresh
from dotcu.errors import OperatorError
from dotcu.kernel import simulate
from dotcu.kernel.arguments.memory import extent
from dotcu.kernel.arguments.pack import tensors_in
from dotcu.kernel.languages import ADAPTERS
from dotcu.kernel.launch_policy import LaunchRecord, watching_launches
from dotcu.tracebacks import one_line, own_fault

if TYPE_CHECKING:
    from torch import Tensor

    from dotcu.operator import Overload, Sample
    from dotcu.simulator import Counters


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one call: bytes, and operations in a dtype, 0 if unknown.

    It is declared by the operator's `work`; else every tensor counts once.
    """

    read_bytes: int
    written_bytes: int
    flops: int = 0
    dtype: str = ""
    declared: bool = False

    @property
    def bytes(self) -> int:
        """Read and written together."""
        return self.read_bytes + self.written_bytes


def work_of(overload: Overload, sample: Sample, result: Any) -> Work:
    """Return the work of a call.

    Inputs count as read once, results as written once, arguments that a call writes as both, those that it
    only writes (`out`) as written. Memory that several tensors share counts once. What the operator's `work`
    declares is split between reads and writes in the same proportion.

    Args:
        overload, sample, result: The operator, a call's arguments, and what it returned; None if it failed.
    """
    signature = overload.signature
    mutated = tensors_in(signature.written(sample.args, sample.kwargs))
    outs = {_memory(tensor) for tensor in tensors_in(sample.kwargs.get(name) for name in signature.outs)}
    arguments = {_memory(tensor) for tensor in sample.tensors}
    returned = [tensor for tensor in tensors_in([result]) if _memory(tensor) not in arguments]
    read = _once(tensor for tensor in sample.tensors if _memory(tensor) not in outs)
    written = _once([*mutated, *returned])
    read_bytes, written_bytes = sum(map(_bytes, read)), sum(map(_bytes, written))
    dtype = dtype_of(read or written)
    if not overload.declares_work:
        return Work(read_bytes=read_bytes, written_bytes=written_bytes, dtype=dtype)
    total, flops = _declared(overload, sample, result)
    touched = read_bytes + written_bytes
    read_bytes = round(total * read_bytes / touched) if touched else total
    written_bytes = total - read_bytes
    return Work(read_bytes=read_bytes, written_bytes=written_bytes, flops=flops, dtype=dtype, declared=True)


def _declared(overload: Overload, sample: Sample, result: Any) -> tuple[int, int]:
    """Return the bytes and FLOPs that `work` returns."""
    work = f"`work` of {overload.qualified_name}"
    wanted = (
        "It takes the operator's arguments and returns two whole numbers: bytes moved, and FLOPs.\n"
        "Write: return 3 * x.numel() * x.element_size(), x.numel()"
    )
    try:
        returned = overload.work_of(sample, result)
    except Exception as error:
        raise OperatorError(f"{work} failed on {sample!r}: {error}\n{wanted}") from error
    try:
        total, flops = map(operator.index, returned)
    except (TypeError, ValueError):
        total = flops = -1
    if min(total, flops) < 0:
        raise OperatorError(f"{work} returned {returned!r} for {sample!r}.\n{wanted}")
    return total, flops


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    """Return the identity of a tensor's memory and layout."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def _once(tensors: Iterable[Tensor]) -> list[Tensor]:
    return list({_memory(tensor): tensor for tensor in tensors if tensor.numel()}.values())


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; those that lie in the same memory count once."""
    return min(tensor.numel(), extent(tensor)) * tensor.element_size()


_NARROWEST_FIRST = (
    "float8_e4m3fn", "float8_e5m2", "int8", "float16", "bfloat16", "float32", "complex64", "float64",
    "complex128",
)  # fmt: skip


def dtype_of(tensors: Sequence[Tensor]) -> str:
    """Return the dtype whose rate bounds the arithmetic on some tensors: that of the narrowest numbers."""
    names = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
    return next((name for name in _NARROWEST_FIRST if name in names), "")


LEEWAY = 1.02  # a claim may be so much more than what was counted
UNCOUNTED = "its work was not counted"  # begins a text that says why a claim could not be checked


def count_check(overload: Overload, sample: Sample) -> str:
    """Return why a call's claimed work is more than its kernels do in the simulator, or why that is unknown.

    Empty where nothing is wrong: a claim of less is fine, since kernels read some bytes again. What torch's
    own operations move in the body is not counted.
    """
    if not overload.declares_work:
        return ""
    try:
        ours, result, _, counters = counted(overload, sample)
    except OperatorError as error:
        return f"{UNCOUNTED}: {error}"
    claim = work_of(overload, ours, result)
    asked_bytes, flops = counters.global_bytes, sum(counters.operations.values())
    notes = []
    if claim.bytes > LEEWAY * asked_bytes:
        notes.append(f"`work` claims {claim.bytes} bytes, and its kernels ask for {asked_bytes}")
    if claim.flops > LEEWAY * flops:
        notes.append(f"`work` claims {claim.flops} FLOPs, and its kernels do {flops}, without comparisons")
    own = "; what torch's operations do is not counted"
    return f"on {sample!r} {'; '.join(notes)}{own}" if notes else ""


MAX_ELEMENTS = 1 << 22  # a call with more is not simulated: it would take minutes


def counted(overload: Overload, sample: Sample) -> tuple[Sample, Any, tuple[LaunchRecord, ...], Counters]:
    """Run a call in the simulator on copies of its arguments; return these, the result, launches and counts.

    Raises:
        OperatorError: It cannot be run there; says why, and what its body raised is the cause.
    """
    of_library = OperatorError("a library computes it, and launches no kernel that can run in the simulator")
    if overload.body is None and not any(map(sys.modules.get, ADAPTERS)):
        raise of_library
    elements = sum(tensor.numel() for tensor in sample.tensors)
    if elements > MAX_ELEMENTS:
        raise OperatorError(f"its {elements} elements are more than the {MAX_ELEMENTS} that are simulated")
    ours = fresh(sample)
    try:
        with torch.no_grad(), watching_launches() as launches, simulate(checks=()) as run:
            result = overload(*ours.args, **ours.kwargs)
    except Exception as error:  # clusters, say, or code that is only for newer GPUs; or a fault of its own
        if own_fault(error):
            raise
        reason = one_line(error) or type(error).__name__
        raise OperatorError(f"the simulator cannot run it: {reason}") from error
    if overload.body is None and not run.launches:
        raise of_library
    return ours, result, tuple(launches), run.counters

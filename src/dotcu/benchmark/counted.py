"""What a call's kernels do, counted in the simulator: an author's claims can be held against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dotcu.checking.memory import fresh
from dotcu.kernel import simulate
from dotcu.kernel.context import Launch, watching

if TYPE_CHECKING:
    from dotcu.operator import Overload, Sample

MOST_ELEMENTS = 1 << 22
"""A call with more elements than this is not simulated: it would take minutes."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the kernels of one call did.

    Attributes:
        sample: The arguments that it was called with, copies of what was given.
        result: What the call returned.
        launches: In order; their compile times are those of the simulator's code, PTX.
        bytes: That lanes asked global memory for, also where several asked for the same, or again.
        sectors: Of 32 bytes of global memory that these accesses touched.
        ideal_sectors: That would have held the same bytes side by side.
        operations: Arithmetic operations by PTX type: `f32`, `bf16`, `s8`.
        lane_instructions: Instructions, once for each lane.
    """

    sample: Sample
    result: Any
    launches: tuple[Launch, ...]
    bytes: int
    sectors: int
    ideal_sectors: int
    operations: Mapping[str, int]
    lane_instructions: int


def counted(overload: Overload, sample: Sample) -> Counted | str:
    """Run a call in the simulator, and count; why it cannot be run, where it cannot.

    Args:
        sample: CPU tensors; they stay as they are.
    """
    if overload.body is None:
        return "a library computes it, and the simulator runs bodies alone"
    elements = sum(tensor.numel() for tensor in sample.tensors)
    if elements > MOST_ELEMENTS:
        return f"its {elements} elements are more than the {MOST_ELEMENTS} that are simulated"
    ours = fresh(sample)
    try:
        with torch.no_grad(), watching() as launches, simulate(checks=()) as run:
            result = overload(*ours.args, **ours.kwargs)
    except Exception as error:  # clusters, say, or code that is only for newer GPUs; or a fault of its own
        return _unable(error)
    counters = run.counters
    return Counted(
        sample=ours,
        result=result,
        launches=tuple(launches),
        bytes=counters.global_bytes,
        sectors=counters.global_sectors,
        ideal_sectors=counters.ideal_sectors,
        operations=dict(counters.operations),
        lane_instructions=counters.lane_instructions,
    )


def moving_operations(overload: Overload, sample: Sample) -> tuple[str, ...]:
    """The torch operations in a call's body that move data, which the simulator does not count.

    Args:
        sample: CPU tensors, of a call that can be simulated; they stay as they are.
    """
    assert overload.body is not None
    ours = fresh(sample)
    with torch.no_grad(), simulate(checks=()), _Watch() as seen:
        overload.body(*ours.args, **ours.kwargs)
    return tuple(seen.names)


_ALLOCATE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class _Watch(TorchDispatchMode):
    """Notes operations that move data, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if not _is_view(func) and name.removeprefix("aten::") not in _ALLOCATE:
            self.names[name] = None
        return func(*args, **(kwargs or {}))


def _is_view(func: Any) -> bool:
    """Whether an operation only gives other views of what it gets."""
    aliases = [one.alias_info for one in func._schema.returns]
    is_unsafe = func._schema.name == "aten::_unsafe_view"  # of memory that nobody else has
    return is_unsafe or (bool(aliases) and all(one is not None and not one.is_write for one in aliases))


def _unable(error: Exception) -> str:
    told = str(error).strip() or type(error).__name__
    return f"the simulator cannot run it: {told.splitlines()[0]}"

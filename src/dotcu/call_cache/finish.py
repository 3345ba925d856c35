"""The plan of a body that has returned: its results, and the steps that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from dotcu.call_cache.arithmetic import operands
from dotcu.call_cache.effects import Effects, Made, Ran
from dotcu.call_cache.layouts import Layout, all_identical, is_contiguous, is_in_order
from dotcu.call_cache.plan import Allocation, Field, Instruction, Launch, Plan, Step
from dotcu.call_cache.symbols import step_of
from dotcu.call_cache.tracer import Known, Tracer, Untold

Places = Mapping[Step, Step]
"""Where each step of the tracer stands in the plan."""


def finished(
    tracer: Tracer, launches: Sequence[Launch], result: Any, writes: Sequence[int], *, distinct: bool
) -> Plan:
    """The plan of a call.

    Raises:
        Untold: What the body returned cannot be said.
    """
    results = _results(tracer, result, bool(writes))
    allocations = [
        Allocation(
            dtype=memory.tensor.dtype,
            device=tracer.device,
            sizes=tuple(step_of(tracer.builder, size) for size in memory.layout.sizes),
            strides=tuple(step_of(tracer.builder, stride) for stride in memory.layout.strides),
            zeroed=memory.zeroed,
        )
        for memory in tracer.memories
    ]
    parts: list[Allocation | Launch] = [*allocations, *launches]
    kept = tracer.builder.live({step for part in parts for step in _steps(part)})
    places = {step: place for place, step in enumerate(kept)}
    return Plan(
        keys=tuple(tracer.keys),
        device=tracer.device,
        steps=tuple(_moved_step(tracer.builder.steps[step], places) for step in kept),
        guards=tuple(sorted((places[step], value) for step, value in tracer.builder.guards.items())),
        allocations=tuple(_moved_allocation(allocation, places) for allocation in allocations),
        launches=tuple(_moved_launch(launch, places) for launch in launches),
        results=results,
        single=isinstance(result, Tensor),
        writes=tuple(writes),
        distinct=distinct,
    )


def _results(tracer: Tracer, result: Any, writes: bool) -> tuple[int, ...]:
    """Which allocations a body returns; each takes the layout that it is returned in."""
    if result is None and writes:
        return ()
    if not isinstance(result, Tensor) and (type(result) is not tuple or len(result) < 2):
        raise Untold(f"it returns a {type(result).__name__}")
    found = [tracer.known(tensor) for tensor in (result if isinstance(result, tuple) else (result,))]
    if any(known.argument for known in found) or len({known.source for known in found}) < len(found):
        raise Untold("it returns memory that is not new, or twice")
    for known in found:
        _returned(tracer, known)
    return tuple(known.source for known in found)


def _returned(tracer: Tracer, known: Known) -> None:
    memory = tracer.memories[known.source]
    if not _same(known.layout, memory.layout):
        if not (known.whole and is_in_order(memory.layout) and is_contiguous(known.layout)):
            raise Untold("it returns a part of what it allocates, or in another order")
        tracer.memories[known.source] = replace(memory, tensor=known.tensor, layout=known.layout)


def _same(a: Layout, b: Layout) -> bool:
    return all_identical((*a.sizes, *a.strides, a.offset), (*b.sizes, *b.strides, b.offset))


def _steps(part: Allocation | Launch) -> tuple[Step, ...]:
    if isinstance(part, Allocation):
        return (*part.sizes, *part.strides)
    return (*part.grid, *(field.step for field in part.fields if field.step >= 0))


def _moved_step(instruction: Instruction, places: Places) -> Instruction:
    moved = [places[step] for step in operands(instruction)]
    return Instruction(instruction.op, *moved) if moved else instruction


def _moved_allocation(allocation: Allocation, places: Places) -> Allocation:
    return replace(
        allocation,
        sizes=tuple(places[step] for step in allocation.sizes),
        strides=tuple(places[step] for step in allocation.strides),
    )


def _moved_launch(launch: Launch, places: Places) -> Launch:
    x, y, z = (places[step] for step in launch.grid)
    return replace(
        launch, grid=(x, y, z), fields=tuple(_moved_field(field, places) for field in launch.fields)
    )


def _moved_field(field: Field, places: Places) -> Field:
    return field if field.step < 0 else replace(field, step=places[field.step])


def seen(tracer: Tracer, launches: Sequence[Ran], results: tuple[int, ...]) -> Effects:
    """What the body did in this call, as torch and the launches had it."""
    return Effects(
        allocations=tuple(
            Made(
                dtype=memory.tensor.dtype,
                sizes=tuple(memory.tensor.shape),
                strides=memory.tensor.stride(),
                zeroed=memory.zeroed,
            )
            for memory in tracer.memories
        ),
        launches=tuple(launches),
        results=results,
    )

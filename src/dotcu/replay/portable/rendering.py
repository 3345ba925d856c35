"""A plan as the source text of one Python function: what a call by plan comes to, and nothing else.

    def replay(a0=UNSET, a1=DEFAULT1):      # every argument of the schema, by position
        types, dtypes, constants, reads     # else MISS: the plan is not for such a call
        steps, guards, limits               # else MISS: nothing has been done yet
        context                             # else ELSEWHERE
        allocations, parameters             # where torch raises, ASIDE: the body shall say why
        launches                            # where the driver refuses, FAILED
        return results

The text holds numbers and names of this package's own making; every object comes by name, so that
nothing that a user wrote is ever compiled.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dotcu.replay.arguments import Argument
from dotcu.replay.packed import replayed
from dotcu.replay.plan import Field, FieldKind, Launch, Op, Plan, Step, TensorKey
from dotcu.replay.portable import calm
from dotcu.replay.portable.expressions import Steps
from dotcu.replay.portable.fitting import Text, write_keys, write_limits, write_reads, write_steps
from dotcu.replay.portable.frames import Frame, Item, frame, packing
from dotcu.replay.rows import Row

_CODES = {
    FieldKind.ARGUMENT_ADDRESS: "Q", FieldKind.ALLOCATION_ADDRESS: "Q",
    FieldKind.INT8: "b", FieldKind.INT16: "h", FieldKind.INT32: "i", FieldKind.INT64: "q",
    FieldKind.UINT8: "B", FieldKind.UINT16: "H", FieldKind.UINT32: "I", FieldKind.UINT64: "Q",
    FieldKind.FLOAT32: "f", FieldKind.FLOAT64: "d",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Source:
    """A function as text.

    Attributes:
        objects: What stands behind the names that are this plan's own.
        frames: The memory of each launch.
    """

    text: str
    objects: dict[str, object]
    frames: tuple[Frame, ...]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A plan, and where it belongs.

    Attributes:
        operator: The overload, by qualified name.
        number: Which of its plans this is.
        reads: What must be the same object still.
        context: The CUcontext that the launches need; 0 for none.
    """

    plan: Plan
    arguments: Sequence[Argument]
    operator: str
    number: int
    reads: Sequence[Row] = ()
    context: int = 0


def render(placed: Placed, *, guarded: bool = True) -> Source:
    """The function that replays a plan.

    Args:
        guarded: Whether tensors can be of any kind; else the dispatcher has seen to that.
    """
    plan = placed.plan
    text, steps = Text(), Steps(plan, placed.arguments)
    _write_signature(text, placed.arguments)
    write_keys(text, plan, placed.arguments, steps, guarded)
    write_reads(text, placed.reads)
    write_steps(text, plan, steps)
    write_limits(text, plan, steps)
    text.add("except UNFIT: return MISS")
    if guarded and plan.writes:
        text.unless(["EXCLUDED(COUNTING)"], "ASIDE")
    frames = tuple(frame(launch, _constant_grid(steps, launch)) for launch in plan.launches)
    _write_frames(text, plan, placed.context)
    _write_allocations(text, plan, steps)
    for i, launch in enumerate(plan.launches):
        _write_parameters(text, steps, i, launch, frames[i])
    text.add("except Exception: return ASIDE")
    for i, launch in enumerate(plan.launches):
        _write_launch(text, steps, i, launch, placed)
    _write_results(text, plan)
    return Source(text="\n".join(text.lines) + "\n", objects=text.objects, frames=frames)


def _write_signature(text: Text, arguments: Sequence[Argument]) -> None:
    names = []
    for i, argument in enumerate(arguments):
        default = text.name(f"DEFAULT{i}", argument.default[0]) if argument.default else "UNSET"
        names.append(f"a{i}={default}")
    text.add(f"def replay({', '.join(names)}):", depth=0)
    text.add("try:")


def _constant_grid(steps: Steps, launch: Launch) -> list[int]:
    """A grid, with zeros where calls write it."""
    return [steps.bounds[step].low if _is_constant(steps, step) else 0 for step in launch.grid]


def _is_constant(steps: Steps, step: Step) -> bool:
    return steps.bounds[step].low == steps.bounds[step].high


def _write_frames(text: Text, plan: Plan, context: int) -> None:
    """Memory that no other call is using: the driver reads it while other threads run.

    The context is looked at where memory might be allocated on another device than the plan's. With
    one device the driver refuses to launch in another context, before anything was launched.
    """
    if not plan.launches and not context:
        return
    names = "".join(f", view{i}, config{i}, pointers{i}" for i, _ in enumerate(plan.launches))
    text.add("try: frame = POP()", "except IndexError: frame = NEW()", f"cell{names or ','} = frame")
    if context and not calm.is_only(plan.device):
        text.add(f"if CONTEXT(cell) or cell[0] != {context}:")
        text.add("PUSH(frame)", f"return ELSEWHERE({plan.device.index or 0}, {_values(plan)})", depth=2)


def _values(plan: Plan) -> str:
    return f"({''.join(f'a{i}, ' for i, _ in enumerate(plan.keys))})"


def _write_allocations(text: Text, plan: Plan, steps: Steps) -> None:
    text.add("try:")
    text.add(f"stream = STREAM({plan.device.index or 0})" if plan.launches else "pass", depth=2)
    for i, allocation in enumerate(plan.allocations):
        sizes, strides = (_tuple(steps, part) for part in (allocation.sizes, allocation.strides))
        text.add(f"o{i} = ALLOCATE({sizes}, {strides}, {text.dtype(allocation.dtype)})", depth=2)
        if allocation.zeroed:
            text.add(f"o{i}.zero_()", depth=2)
    known = {step.a: steps.value(i) for i, step in enumerate(plan.steps) if step.op is Op.ADDRESS}
    sources = {(f.kind, f.source) for launch in plan.launches for f in launch.fields if f.kind in _OWNERS}
    for kind, source in sorted(sources):
        address = f"{_OWNERS[kind]}{source}.data_ptr()"
        if kind is FieldKind.ARGUMENT_ADDRESS:
            address = known.get(source, address)
        text.add(f"at_{_OWNERS[kind]}{source} = {address}", depth=2)


_OWNERS = {FieldKind.ARGUMENT_ADDRESS: "a", FieldKind.ALLOCATION_ADDRESS: "o"}


def _tuple(steps: Steps, of: Sequence[Step]) -> str:
    return f"({''.join(f'{steps.value(step)}, ' for step in of)})"


def _write_parameters(text: Text, steps: Steps, index: int, launch: Launch, memory: Frame) -> None:
    items = [Item(field.offset, _CODES[field.kind], _field_value(steps, field)) for field in launch.fields]
    items += [
        Item(memory.grid(axis), "I", steps.value(step))
        for axis, step in enumerate(launch.grid)
        if not _is_constant(steps, step)
    ]
    packed = packing(memory.memory, [*items, Item(memory.stream, "Q", "stream")])
    text.name(f"PACK{index}", struct.Struct(packed.format).pack_into)
    values = [
        value if isinstance(value, str) else text.name(f"BYTES{index}_{i}", value)
        for i, value in enumerate(packed.values)
    ]
    text.add(f"PACK{index}(view{index}, {packed.start}, {', '.join(values)})", depth=2)


def _field_value(steps: Steps, field: Field) -> str:
    value = steps.value(field.step) if field.step >= 0 else ""
    if field.kind not in _OWNERS:
        return value
    return " + ".join(filter(None, (f"at_{_OWNERS[field.kind]}{field.source}", value)))


def _write_launch(text: Text, steps: Steps, index: int, launch: Launch, placed: Placed) -> None:
    """A launch; one whose grid has a zero in it runs nothing."""
    if any(steps.bounds[step].high == 0 for step in launch.grid):
        return
    text.name(f"FUNCTION{index}", ctypes.c_void_p(launch.function))
    maybe_empty = [steps.value(step) for step in launch.grid if steps.bounds[step].low <= 0]
    depth = 2 if maybe_empty else 1
    if maybe_empty:
        text.add(f"if {' and '.join(maybe_empty)}:")
    text.add(f"status = LAUNCH(config{index}, FUNCTION{index}, pointers{index}, None)", depth=depth)
    failed = f"FAILED({placed.number}, {index}, status, {_values(placed.plan)})"
    text.unless(["status"], failed, depth=depth)
    text.add(f"NOTE({text.name(f'LAUNCHED{index}', replayed(launch, placed.operator))})", depth=depth)


def _write_results(text: Text, plan: Plan) -> None:
    if plan.launches:
        text.add("PUSH(frame)")
    if plan.writes:
        written = [f"a{i}" for i in plan.writes if isinstance(plan.keys[i], TensorKey)]
        text.add(f"WRITE([{', '.join(written)}])")
    results = [f"o{i}" for i in plan.results]
    several = f"({', '.join(results)},)" if results else "None"
    text.add(f"return {results[0] if results and plan.single else several}")

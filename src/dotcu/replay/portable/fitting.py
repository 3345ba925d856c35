"""Whether a plan fits a call, as lines of source text: types, steps, guards, limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import ConstantKey, Field, FieldKind, Key, Launch, NumberKey, Op, Plan, Step, TensorKey
from dotcu.replay.portable import calm
from dotcu.replay.portable.bounds import INT_MAX, TRUTHS, Bounds
from dotcu.replay.portable.expressions import Steps, outside, takes_ints
from dotcu.replay.rows import Row

# Source: CUDA Programming Guide, "Technical Specifications per Compute Capability".
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)

_LIMITS = {
    FieldKind.INT8: Bounds(-(2**7), 2**7 - 1),
    FieldKind.INT16: Bounds(-(2**15), 2**15 - 1),
    FieldKind.INT32: Bounds(-(2**31), 2**31 - 1),
    FieldKind.UINT8: Bounds(0, 2**8 - 1),
    FieldKind.UINT16: Bounds(0, 2**16 - 1),
    FieldKind.UINT32: Bounds(0, 2**32 - 1),
    FieldKind.UINT64: Bounds(0, INT_MAX),
}
# Half way between the largest float and 2^128: from here on a double rounds to infinity.
_INFINITE_FLOAT = "3.4028235677973366e38"
_INLINED = TRUTHS | {Op.CONTIGUOUS}


@dataclass
class Text:
    """Lines that are being written, and the objects that they name."""

    lines: list[str] = field(default_factory=list)
    objects: dict[str, object] = field(default_factory=dict)

    def add(self, *lines: str, depth: int = 1) -> None:
        self.lines.extend("    " * depth + line for line in lines)

    def name(self, name: str, value: object) -> str:
        """A name for an object."""
        self.objects[name] = value
        return name

    def dtype(self, dtype: torch.dtype) -> str:
        return self.name(str(dtype).replace(".", "_"), dtype)

    def unless(self, conditions: Iterable[str], outcome: str = "MISS", depth: int = 1) -> None:
        """Give up where one of some conditions is true."""
        found = [condition for condition in conditions if condition]
        if found:
            self.add(f"if {' or '.join(found)}: return {outcome}", depth=depth)


def write_keys(text: Text, plan: Plan, arguments: Sequence[Argument], steps: Steps, guarded: bool) -> None:
    """Types, dtypes, dimensions and devices; with `guarded`, that tensors are plain and need no gradient."""
    keys = list(enumerate(plan.keys))
    text.unless(
        (condition for i, key in keys for condition in _misfits(text, i, key, arguments[i], steps)), depth=2
    )
    tensors = [(i, key) for i, key in keys if isinstance(key, TensorKey)]
    text.unless((_elsewhere(text, i, key, guarded) for i, key in tensors), depth=2)
    if plan.distinct:
        pairs = itertools.combinations([i for i, _ in tensors], 2)
        text.unless((f"a{i} is a{j}" for i, j in pairs), depth=2)
    if guarded and tensors:
        gradients = " or ".join(f"a{i}.requires_grad" for i, _ in tensors)
        text.unless([f"({gradients}) and GRADIENTS()"], depth=2)


def _misfits(text: Text, index: int, key: Key, argument: Argument, steps: Steps) -> Iterator[str]:
    name, kinds = f"a{index}", argument.kinds
    if isinstance(key, TensorKey):
        yield f"type({name}) is not TENSOR and type({name}) is not PARAMETER"
        yield f"{name}.dtype is not {text.dtype(key.dtype)}"
        shape = f"len(shape{index} := {name}.shape)" if steps.uses(Op.SIZE, index) else f"{name}.ndim"
        yield f"{shape} != {key.dim}"
    elif isinstance(key, ConstantKey):
        constant = text.name(f"CONSTANT{index}", key.value)
        yield f"{name} is not {constant} and (type({name}) is not type({constant}) or {name} != {constant})"
    elif not key.is_float:
        yield "True" if argument.makes_float else f"type({name}) is not int"
    elif takes_ints(argument):
        yield f"type({name}) is not float and type({name}) is not int"
    else:
        yield f"type({name}) is not float"
    if not kinds & _kind(key, argument):
        yield "True"


def _kind(key: Key, argument: Argument) -> Kinds:
    """What a value with a key can be."""
    if isinstance(key, TensorKey):
        return Kinds.TENSOR
    if isinstance(key, NumberKey) and key.is_float:
        return Kinds.FLOAT | Kinds.INT if argument.makes_float else Kinds.FLOAT
    if isinstance(key, NumberKey):
        return Kinds.INT
    return _CONSTANT_KINDS.get(type(key.value), Kinds.OTHER)


_CONSTANT_KINDS = {type(None): Kinds.NONE, bool: Kinds.BOOL, int: Kinds.INT, float: Kinds.FLOAT}


def _elsewhere(text: Text, index: int, key: TensorKey, guarded: bool) -> str:
    """A condition that a tensor is not an ordinary one of the plan's device."""
    if not guarded:
        return f"a{index}.device != {text.name(f'DEVICE{index}', key.device)}"
    keys = calm.keys_text(f"a{index}")  # they tell the type of device
    keys = f"not ((keys := {keys}) == PLAIN or keys == INFERENCE)"
    is_there = key.device.type != "cuda" or calm.is_only(key.device)
    place = "" if is_there else f"a{index}.get_device() != {key.device.index} or "
    return place + keys


def write_reads(text: Text, reads: Sequence[Row]) -> None:
    """What the body reads beside its arguments. A name that is gone raises, and is a misfit then."""
    for i, (where, what, value) in enumerate(reads):
        if isinstance(where, int):
            text.unless([f"WORDS[{where >> 3}] != {what}"], depth=2)
            continue
        text.objects |= {f"READ{i}": where, f"NAME{i}": what, f"VALUE{i}": value}
        text.unless([f"READ{i}[NAME{i}] is not VALUE{i}"], depth=2)


def write_steps(text: Text, plan: Plan, steps: Steps) -> None:
    """Every step that something takes or that can fail; guards as soon as their step is there."""
    wanted: dict[Step, set[int]] = {}
    for index, value in plan.guards:
        wanted.setdefault(index, set()).add(value)
    fed = set(used_by_launches(plan))
    needed = steps.needed([*fed, *wanted])
    fed.update(operand for index in needed for operand in steps.operands(index))
    _write_dimensions(text, plan, steps)
    for index in needed:
        if index in fed or plan.steps[index].op not in _INLINED:
            text.add(*steps.statements(index), depth=2)
            text.unless((f"{steps.value(index)} != {value}" for value in wanted.get(index, ())), depth=2)
        else:  # a branch of the body: tested where it is computed
            text.unless((_differs(steps.expression(index), value) for value in wanted[index]), depth=2)
    text.objects |= steps.constants()


def _differs(condition: str, value: int) -> str:
    return {0: condition, 1: f"not ({condition})"}.get(value, "True")


def _write_dimensions(text: Text, plan: Plan, steps: Steps) -> None:
    """Names for the sizes and strides of the tensors whose sizes or strides are steps."""
    for i, key in enumerate(plan.keys):
        for op, name, source in ((Op.SIZE, "size", f"shape{i}"), (Op.STRIDE, "stride", f"a{i}.stride()")):
            if isinstance(key, TensorKey) and steps.uses(op, i):
                text.add(f"{''.join(f'{name}{i}_{axis}, ' for axis in range(key.dim))}= {source}", depth=2)


def used_by_launches(plan: Plan) -> Iterator[Step]:
    """The steps that allocations and launches take."""
    for allocation in plan.allocations:
        yield from (*allocation.sizes, *allocation.strides)
    for launch in plan.launches:
        yield from launch.grid
        yield from (field.step for field in launch.fields if field.step >= 0)


def write_limits(text: Text, plan: Plan, steps: Steps) -> None:
    """What parameters and grids can hold."""
    for launch in plan.launches:
        text.unless((_overflows(steps, field) for field in launch.fields), depth=2)
        text.unless(_too_many(steps, launch), depth=2)


def _overflows(steps: Steps, field: Field) -> str:
    if field.kind is FieldKind.FLOAT32:
        value = steps.value(field.step)
        return f"not -{_INFINITE_FLOAT} < {value} < {_INFINITE_FLOAT} and {value} - {value} == 0"
    if field.kind not in _LIMITS:
        return ""
    return outside(steps.value(field.step), steps.bounds[field.step], _LIMITS[field.kind])


def _too_many(steps: Steps, launch: Launch) -> Iterator[str]:
    values = [steps.value(step) for step in launch.grid]
    for step, value, most in zip(launch.grid, values, _MOST_BLOCKS, strict=True):
        yield outside(value, steps.bounds[step], Bounds(0, most))
    for value, blocks in zip(values, launch.cluster or (), strict=False):
        yield f"{value} % {blocks}" if blocks > 1 else ""
    if launch.most_blocks:
        yield f"{' * '.join(values)} > {launch.most_blocks}"

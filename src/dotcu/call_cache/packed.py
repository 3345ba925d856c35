"""Plans as native code reads them: tuples, and arrays of its structs (native/native.h)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping

from dotcu.call_cache.plan import Allocation, ConstantKey, Instruction, Key, Launch, NumberKey, Op, Plan
from dotcu.kernel.recent import Launched

_KEY_TENSOR, _KEY_INT, _KEY_FLOAT, _KEY_CONSTANT = range(4)
Codes = Mapping[object, int]
"""torch's own numbers of dtypes (by dtype) and device types (by name)."""


def pack(plan: Plan, operator: str, codes: Codes, context: int) -> tuple[object, ...]:
    """A plan as `Plans.add` takes it.

    Args:
        operator: Whose it is, by qualified name.
        context: The CUcontext that its launches need; 0 for none.
    """
    return (
        b"".join(_key(key, codes) for key in plan.keys),
        tuple(key.value if isinstance(key, ConstantKey) else None for key in plan.keys),
        b"".join(map(_step, plan.steps)),
        b"".join(struct.pack("<iiq", step, 0, value) for step, value in plan.guards),
        tuple(map(_allocation, plan.allocations)),
        tuple(_launch(launch, operator) for launch in plan.launches),
        _ints(plan.results),
        plan.single,
        plan.distinct,
        context,
        plan.device.index or 0,
    )


def _ints(values: Iterable[int]) -> bytes:
    return array("i", values).tobytes()


def _key(key: Key, codes: Codes) -> bytes:
    if isinstance(key, ConstantKey):
        return struct.pack("<5i", _KEY_CONSTANT, 0, 0, 0, 0)
    if isinstance(key, NumberKey):
        return struct.pack("<5i", _KEY_FLOAT if key.is_float else _KEY_INT, 0, 0, 0, 0)
    index = key.device.index if key.device.type == "cuda" else -1
    return struct.pack("<5i", _KEY_TENSOR, codes[key.dtype], key.dim, codes[key.device.type], index)


def _step(step: Instruction) -> bytes:
    layout = "<4id" if step.op is Op.FLOAT else "<4iq"
    return struct.pack(layout, step.op, step.a, step.b, 0, step.value)


def _allocation(allocation: Allocation) -> tuple[object, ...]:
    steps = _ints((*allocation.sizes, *allocation.strides))
    return allocation.dtype, len(allocation.sizes), int(allocation.zeroed), steps


def _launch(launch: Launch, operator: str) -> tuple[object, ...]:
    return (
        launch.function,
        launch.parameters,
        _ints(launch.offsets),
        b"".join(struct.pack("<4i", f.offset, f.kind, f.source, f.step) for f in launch.fields),
        _replayed(launch, operator),
        launch.grid,
        launch.block,
        launch.smem_bytes,
        launch.cluster or (0, 0, 0),
        int(launch.cooperative),
        int(launch.programmatic),
        launch.most_blocks,
    )


def _replayed(launch: Launch, operator: str) -> Launched:
    """A replayed launch, for messages about faults: its grid is not kept."""
    device = launch.device.index or 0
    return Launched(operator, launch.kernel, f"block={launch.block}, replayed from a plan", device)

"""Calls by hand-written plans: what the tests of the native and of the portable path share.

The driver is replaced by a function that notes what it is told, so that plans launch without a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import (
    Allocation,
    Field,
    FieldKind,
    Instruction,
    Key,
    Launch,
    NumberKey,
    Op,
    Plan,
    TensorKey,
)

CPU = torch.device("cpu")
VECTOR = TensorKey(dtype=torch.float32, dim=1, device=CPU)
FUNCTION = 0x7F00_1234_5678
"""A CUfunction that no driver made; larger than 32 bits."""

TENSOR = Argument(name="x", kinds=Kinds.TENSOR)
INT = Argument(name="n", kinds=Kinds.INT | Kinds.OTHER)
FLOAT = Argument(name="alpha", kinds=Kinds.FLOAT | Kinds.INT, makes_float=True)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What the driver was told of one launch."""

    function: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    smem_bytes: int
    stream: int
    attributes: dict[int, tuple[int, ...]]
    parameters: bytes


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass
class Driver:
    """Takes the driver's place.

    Attributes:
        context: The CUcontext that is current.
        statuses: What the next launches give; success beyond them.
        before: Called at each launch, before anything is read.
    """

    launches: list[Launched] = field(default_factory=list)
    context: int = 0
    statuses: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    expected: dict[int, Launch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        word = ctypes.c_void_p
        self.launch_function = ctypes.CFUNCTYPE(ctypes.c_int, word, word, ctypes.POINTER(word), word)(
            self._launch
        )
        self.context_function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))(self._context)

    def _context(self, into: Any) -> int:
        into[0] = self.context
        return 0

    def _launch(self, config: int, function: int, pointers: Any, extra: int | None) -> int:
        self.before()
        launch, told = self.expected[function], _Config.from_address(config)
        start = pointers[0] - launch.offsets[0] if launch.offsets else 0
        assert [pointers[i] for i, _ in enumerate(launch.offsets)] == [start + at for at in launch.offsets]
        assert extra is None
        self.launches.append(
            Launched(
                function=function,
                grid=tuple(told.grid),
                block=tuple(told.block),
                smem_bytes=told.smem_bytes,
                stream=told.stream or 0,
                attributes=dict(_attribute(told.attributes + 72 * i) for i in range(told.attribute_count)),
                parameters=ctypes.string_at(start, len(launch.parameters)) if launch.parameters else b"",
            )
        )
        return self.statuses.pop(0) if self.statuses else 0


def _attribute(address: int) -> tuple[int, tuple[int, ...]]:
    identifier, _, *value = (ctypes.c_uint32 * 5).from_address(address)
    return identifier, tuple(value)


@dataclass
class Caller:
    """Notes what it is asked, and answers with a word."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    elsewhere_gives: Any = NotImplemented

    def miss(self, fallback: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
        self.calls.append(("miss", args, kwargs or {}))
        return "missed"

    def record(self, *values: Any) -> str:
        self.calls.append(("record", values))
        return "recorded"

    def stale(self) -> None:
        self.calls.append(("stale",))

    def elsewhere(self, index: int, values: tuple[Any, ...]) -> Any:
        self.calls.append(("elsewhere", index, values))
        return self.elsewhere_gives

    def failure(self, plan: int, launch: int, status: int) -> None:
        self.calls.append(("failure", plan, launch, status))
        raise RuntimeError(f"launch {launch} of plan {plan}: {status}")

    def write(self, tensors: list[Tensor]) -> None:
        self.calls.append(("write", tensors))


def fallback(*args: Any, **kwargs: Any) -> str:
    """What torch made for the operator."""
    return "torch"


class Way:
    """One implementation of calls by plan, on CPU tensors, with the driver replaced."""

    def __init__(self, name: str, module: Any, driver: Driver) -> None:
        self.name, self.module, self.driver = name, module, driver

    def operator(self, arguments: Sequence[Argument], *plans: Plan, **how: Any) -> Operator:
        return Operator(self, arguments, plans, **how)


class Operator:
    """An operator of one overload that has plans.

    Args:
        reads: What the plans read beside their arguments.
        context: The CUcontext that launches need.
        autocasts: Whether there is a rule for autocast.
    """

    def __init__(
        self,
        way: Way,
        arguments: Sequence[Argument],
        plans: Sequence[Plan],
        *,
        reads: tuple[tuple[object, str, object], ...] = (),
        context: int = 0,
        autocasts: bool = False,
    ) -> None:
        self.way, self.driver, self.caller = way, way.driver, Caller()
        self.plans = way.module.plans(arguments, self.caller)
        self.plans.clear(reads)
        for plan in plans:
            self.add(plan, context)
        self.entry = way.module.entry([self.plans], fallback, autocasts=autocasts)

    def add(self, plan: Plan, context: int = 0) -> None:
        self.driver.expected |= {launch.function: launch for launch in plan.launches}
        assert self.way.module.add(self.plans, plan, "tests::noted", context)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry(*args, **kwargs)

    @property
    def launched(self) -> list[Launched]:
        return self.driver.launches

    @property
    def asked(self) -> list[str]:
        """What the caller was asked, in order."""
        return [call[0] for call in self.caller.calls]


class Steps(list[Instruction]):
    """Steps that are being written."""

    def add(self, op: Op, a: int = 0, b: int = 0, value: float = 0) -> int:
        self.append(Instruction(op, a, b, value))
        return len(self) - 1

    def constant(self, value: int) -> int:
        return self.add(Op.INT, value=value)


def tensor_key(tensor: Tensor) -> TensorKey:
    return TensorKey(dtype=tensor.dtype, dim=tensor.dim(), device=tensor.device)


def plan(keys: Sequence[Key], steps: Sequence[Instruction], **parts: Any) -> Plan:
    """A plan on the CPU that gives nothing unless `parts` say more."""
    nothing: dict[str, Any] = {
        "guards": (),
        "allocations": (),
        "launches": (),
        "results": (),
        "single": True,
    }
    return Plan(keys=tuple(keys), device=CPU, steps=tuple(steps), **nothing | parts)


def launch(steps: Steps, *fields: Field, size: int = 0, **parts: Any) -> Launch:
    """A launch of one block unless `parts` say more; each field is a parameter, 16 bytes apart."""
    one = steps.constant(1)
    size = size or 16 * max(1, len(fields))
    nothing: dict[str, Any] = {
        "kernel": "noted",
        "function": FUNCTION,
        "device": CPU,
        "parameters": bytes(size),
        "offsets": tuple(range(0, size, 16)),
        "fields": fields,
        "grid": (one, one, one),
        "block": (32, 1, 1),
    }
    return Launch(**nothing | parts)


def doubling() -> Plan:
    """An operator on a float vector: makes one like it, and launches with both addresses and the size."""
    steps = Steps()
    n, one, block = steps.add(Op.NUMEL), steps.constant(1), steps.constant(256)
    blocks = steps.add(Op.NEG, steps.add(Op.FLOORDIV, steps.add(Op.NEG, n), block))
    made = Allocation(dtype=torch.float32, device=CPU, sizes=(n,), strides=(one,))
    fields = (
        Field(offset=0, kind=FieldKind.ARGUMENT_ADDRESS),
        Field(offset=16, kind=FieldKind.ALLOCATION_ADDRESS),
        Field(offset=32, kind=FieldKind.INT64, step=n),
    )
    return plan(
        [VECTOR],
        steps,
        allocations=(made,),
        launches=(launch(steps, *fields, grid=(blocks, one, one)),),
        results=(0,),
    )


def writing(kind: FieldKind, argument: Argument) -> Plan:
    """An operator that writes its one number into a field of a kind."""
    steps, is_float = Steps(), argument.makes_float
    number = steps.add(Op.FLOAT_ARGUMENT if is_float else Op.INT_ARGUMENT)
    launched = launch(steps, Field(offset=0, kind=kind, step=number))
    return plan([NumberKey(is_float=is_float)], steps, launches=(launched,))


def returning(keys: Sequence[Key], number: int) -> Plan:
    """A plan that launches nothing, and tells itself by the size of its result."""
    steps = Steps()
    size, one = steps.constant(number), steps.constant(1)
    made = Allocation(dtype=torch.float32, device=CPU, sizes=(size,), strides=(one,))
    return plan(keys, steps, allocations=(made,), results=(0,))

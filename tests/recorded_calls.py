"""Calls by hand-written plans.

The driver is replaced by a function that notes what it is told, so that plans launch without a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.call_cache import native as native_cache
from dotcu.call_cache.native import Argument, ArgumentKind
from dotcu.call_cache.purity import DependencyGuard
from dotcu.call_cache.record import (
    Allocation,
    Field,
    FieldKind,
    Key,
    Launch,
    RecordedCall,
    RecordedStep,
    StepOp,
    TensorKey,
)
from dotcu.kernel import native
from dotcu.kernel.scope import Scope, in_body

CPU = torch.device("cpu")
VECTOR = TensorKey(dtype=torch.float32, dim=1, device=CPU)
FUNCTION = 0x7F00_1234_5678
"""A CUfunction that no driver made; larger than 32 bits."""

TENSOR = Argument(name="x", kinds=ArgumentKind.TENSOR)
INT = Argument(name="n", kinds=ArgumentKind.INT)
FLOAT = Argument(name="alpha", kinds=ArgumentKind.FLOAT | ArgumentKind.INT, makes_float=True)


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
        context: The CUcontext that is current where none was pushed.
        pushed: Those that were pushed and not yet popped.
        contexts: The one that was current at each launch.
        statuses: What the next launches give; success beyond them.
        before: Called at each launch, before anything is read.
        encoded: What tensor maps were encoded of; the bytes of each are its number, from 1 on.
        map_status: What encoding one gives.
    """

    launches: list[Launched] = field(default_factory=list)
    context: int = 0
    pushed: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    expected: dict[int, Launch] = field(default_factory=dict)
    encoded: list[tuple[Any, ...]] = field(default_factory=list)
    map_status: int = 0

    def __post_init__(self) -> None:
        word, into, status = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int
        self.functions = {
            "launch": ctypes.CFUNCTYPE(status, word, word, ctypes.POINTER(word), word)(self._launch),
            "context": ctypes.CFUNCTYPE(status, into)(self._context),
            "enter": ctypes.CFUNCTYPE(status, word)(self._enter),
            "leave": ctypes.CFUNCTYPE(status, into)(self._leave),
            "encode": ctypes.CFUNCTYPE(status, word, status, status, word, *[word] * 4, *[status] * 4)(
                self._encode
            ),
        }

    def _now(self) -> int:
        return self.pushed[-1] if self.pushed else self.context

    def _context(self, into: Any) -> int:
        into[0] = self._now()
        return 0

    def _enter(self, context: int) -> int:
        self.pushed.append(context)
        return 0

    def _leave(self, into: Any) -> int:
        into[0] = self.pushed.pop()
        return 0

    def _encode(self, at: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        """Note what a map is encoded of: the driver's arguments, those of arrays as tuples."""
        assert at % 64 == 0
        counts = (rank, rank - 1, rank, rank)
        types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
        arrays = (
            tuple((of * count).from_address(start)) if count else ()
            for of, count, start in zip(types, counts, rest, strict=False)
        )
        self.encoded.append((kind, address, *arrays, *rest[4:]))
        ctypes.memset(at, len(self.encoded), 128)
        return self.map_status

    def _launch(self, config: int, function: int, pointers: Any, extra: int | None) -> int:
        self.before()
        launch, told = self.expected[function], _Config.from_address(config)
        start = pointers[0] - launch.offsets[0] if launch.offsets else 0
        assert [pointers[i] for i, _ in enumerate(launch.offsets)] == [start + at for at in launch.offsets]
        assert extra is None
        self.contexts.append(self._now())
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
class Devices:
    """Takes the place of several GPUs: every tensor is on one of them, if torch's C functions are asked.

    Attributes:
        current: torch's current one.
        entered: Those that a guard made current, in order.
        left: How many guards were left again.
        broken: Whether a device cannot be entered.
    """

    current: int = 0
    entered: list[int] = field(default_factory=list)
    left: int = 0
    broken: bool = False
    places: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        word, number, status = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32
        self.functions = {
            "device_type": ctypes.CFUNCTYPE(status, word, ctypes.POINTER(number))(self._type),
            "device_index": ctypes.CFUNCTYPE(status, word, ctypes.POINTER(number))(self._index),
            "enter_device": ctypes.CFUNCTYPE(status, number, ctypes.POINTER(word))(self._enter),
            "leave_device": ctypes.CFUNCTYPE(status, word)(self._leave),
        }

    def put(self, tensor: Tensor, index: int) -> Tensor:
        """Let a tensor be on a GPU."""
        self.places[tensor._cdata] = index
        return tensor

    def place(self, tensor: Tensor) -> int:
        """The GPU that a tensor is on."""
        return self.places[tensor._cdata]

    def allocate(self, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Allocate on the current one, as torch does."""
        return self.put(torch.empty_strided(sizes, strides, dtype=dtype), self.current)

    def _type(self, tensor: int, into: Any) -> int:
        into[0] = 1
        return 0

    def _index(self, tensor: int, into: Any) -> int:
        into[0] = self.places[ctypes.c_uint64.from_address(tensor).value]
        return 0

    def _enter(self, index: int, into: Any) -> int:
        if self.broken:
            return 1
        self.entered.append(index)
        into[0], self.current = 1 + self.current, index
        return 0

    def _leave(self, guard: int) -> int:
        self.left += 1
        self.current = guard - 1
        return 0


@contextmanager
def configured(*, functions: Mapping[str, Any] | None = None, **values: Any) -> Iterator[None]:
    """Let native code take calls on CPU tensors until the block ends.

    Args:
        functions: ctypes' functions that it calls in place of torch's and the driver's, by its names.
        values: What else it is told.
    """
    reason = native.prepare(CPU)
    if reason:
        pytest.skip(reason)
    known = {**native.torch_layout(), **native.plain_keys(CPU), "allocate": native.allocator("cpu")}
    for name, function in (functions or {}).items():
        known[name] = ctypes.cast(function, ctypes.c_void_p).value
    native.library().configure(known | values)
    try:
        yield
    finally:
        native.library().configure(dict(native.torch_layout()))
        configured_anew()


def configured_anew() -> None:
    """Let whoever calls next prepare native code; operators that were called before go on on the GPU."""
    native._prepared.clear()
    if torch.cuda.is_available():
        native.prepare(torch.device("cuda", 0))


@dataclass
class Caller:
    """Notes what it is asked, and answers with a word.

    Attributes:
        calls: What was asked, but for scopes and checks.
        scopes: The GPUs that scopes were asked for.
        checked: What was asked to be checked, with the values of the call.
        clear: Called when something that was read is not what it was.
        runs: What the body does, beside being noted.
        counts: Whether what is asked to follow the body says that it did.
    """

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)
    checked: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    clear: Callable[[], object] = lambda: None
    runs: Callable[..., Any] = lambda *args, **kwargs: "body"
    counts: bool = True
    body: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.body = self._body

    def _body(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(("body", args, kwargs))
        return self.runs(*args, **kwargs)

    def scope(self, gpu: int) -> Scope:
        self.scopes.append(gpu)
        return in_body("tests::noted", gpu)

    def trace(self, *args: Any, **kwargs: Any) -> tuple[str, bool]:
        self.calls.append(("follow", args, kwargs))
        return "followed", self.counts

    def check(self, result: Any, given: tuple[Any, ...]) -> Any:
        self.checked.append((result, given))
        return result

    def record(self, *values: Any) -> Any:
        self.calls.append(("record", values))
        return "recorded"

    def stale(self) -> None:
        self.calls.append(("stale",))
        self.clear()

    def failure(self, plan: int, launch: int, status: int) -> None:
        self.calls.append(("failure", plan, launch, status))
        raise RuntimeError(f"launch {launch} of plan {plan}: {status}")

    def error(self, error: BaseException) -> None:
        self.calls.append(("error", error))


def fallback(*args: Any, **kwargs: Any) -> str:
    """What torch made for the operator."""
    return "torch"


X = torch.ones(1)
ANCHOR = Argument(name="anchor", kinds=ArgumentKind.TENSOR, keyword_only=True, default=(X,))
"""What an operator of numbers alone has beside them: a call without a tensor goes to torch."""


class Operator:
    """An operator of one overload that has plans, on CPU tensors.

    Args:
        driver: What native code launches by.
        reads: What the plans read beside their arguments.
        context: The CUcontext that launches need.
        autocasts: Whether there is a rule for autocast.
        follows: Whether a body is followed that no plan takes the place of.
        returns: How many values the schema promises.
    """

    def __init__(
        self,
        driver: Driver,
        arguments: Sequence[Argument],
        *plans: RecordedCall,
        reads: tuple[DependencyGuard, ...] = (),
        context: int = 0,
        autocasts: bool = False,
        follows: bool = False,
        returns: int = 1,
    ) -> None:
        self.driver, self.caller = driver, Caller()
        self._anchored = bool(arguments) and not any(a.kinds & ArgumentKind.TENSOR for a in arguments)
        self._plans, self._reads, self._context = plans, reads, context
        self.plans = native_cache.make(
            (*arguments, ANCHOR) if self._anchored else arguments, self.caller, returns=returns
        )
        self.caller.clear = lambda: self.plans.clear((), follows)
        self.plans.clear(reads, follows)
        for plan in plans:
            self.add(plan, context)
        self.entry = native_cache.entry([self.plans], fallback, autocasts=autocasts)

    def add(self, plan: RecordedCall, context: int = 0) -> None:
        self.driver.expected |= {launch.function: launch for launch in plan.launches}
        keys = (*plan.keys, VECTOR) if self._anchored else plan.keys
        assert native_cache.add(self.plans, replace(plan, keys=keys), "tests::noted", context)

    def again(self) -> None:
        """Keep the plans once more that there were at first, with what they read then."""
        self.plans.clear(self._reads, False)
        for plan in self._plans:
            self.add(plan, self._context)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry(*args, **kwargs)

    @property
    def launched(self) -> list[Launched]:
        return self.driver.launches

    @property
    def asked(self) -> list[str]:
        """What the caller was asked, in order."""
        return [call[0] for call in self.caller.calls]


class Steps(list[RecordedStep]):
    """Steps that are being written."""

    def add(self, op: StepOp, a: int = 0, b: int = 0, value: float = 0) -> int:
        self.append(RecordedStep(op, a, b, value))
        return len(self) - 1

    def constant(self, value: int) -> int:
        return self.add(StepOp.INT, value=value)


def tensor_key(tensor: Tensor) -> TensorKey:
    return TensorKey(dtype=tensor.dtype, dim=tensor.dim(), device=tensor.device)


def plan(keys: Sequence[Key], steps: Sequence[RecordedStep], **parts: Any) -> RecordedCall:
    """A plan on the CPU that gives nothing unless `parts` say more."""
    nothing: dict[str, Any] = {
        "guards": (),
        "allocations": (),
        "launches": (),
        "results": (),
        "single": True,
    }
    return RecordedCall(keys=tuple(keys), device=CPU, steps=tuple(steps), **nothing | parts)


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


def doubling() -> RecordedCall:
    """An operator on a float vector: makes one like it, and launches with both addresses and the size."""
    steps = Steps()
    n, one, block = steps.add(StepOp.NUMEL), steps.constant(1), steps.constant(256)
    blocks = steps.add(StepOp.NEG, steps.add(StepOp.FLOORDIV, steps.add(StepOp.NEG, n), block))
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


def writing(kind: FieldKind, argument: Argument) -> RecordedCall:
    """An operator that writes its one number into a field of a kind."""
    steps, is_float = Steps(), argument.makes_float
    number = steps.add(StepOp.FLOAT_ARGUMENT if is_float else StepOp.INT_ARGUMENT)
    launched = launch(steps, Field(offset=0, kind=kind, step=number))
    return plan([float if is_float else int], steps, launches=(launched,))


def returning(keys: Sequence[Key], number: int) -> RecordedCall:
    """A plan that launches nothing, and tells itself by the size of its result."""
    steps = Steps()
    size, one = steps.constant(number), steps.constant(1)
    made = Allocation(dtype=torch.float32, device=CPU, sizes=(size,), strides=(one,))
    return plan(keys, steps, allocations=(made,), results=(0,))

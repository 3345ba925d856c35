"""The call cache of an operator that launches: a call is served from a recording, or runs the body.

The first call on a CUDA tensor puts an `entry` before what torch calls for the operator. The entry is
native code. Where nothing watches or transforms the call, it serves the call from a recorded one that fits,
or runs the body. Everything else goes through the dispatcher. A body without a recording for such a call
runs once under `trace`, which makes one, or reports why there can be none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dotcu import settings
from dotcu.call_cache import native
from dotcu.call_cache.evaluate import compare, evaluate, matches
from dotcu.call_cache.native import Argument, NativeCallCache, read_arguments
from dotcu.call_cache.purity import dependencies, guards_on
from dotcu.call_cache.record import RecordedCall, Unsupported
from dotcu.call_cache.trace import Trace, trace
from dotcu.errors import CallCacheMismatch
from dotcu.kernel.arguments.tensor_map import MAP_ALIGNMENT
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.fork import ForkSafeLock
from dotcu.kernel.scope import Scope, in_body
from dotcu.operator import execution
from dotcu.operator.autograd import Recorder, WholeCall
from dotcu.operator.schema import Body, Signature

MOST_REFUSALS = 2
"""Traces in a row of one kind of call that give no recording; then the body runs untraced: a trace takes
milliseconds. A kind is the dtypes and dimensions of the tensors, and the types of the other arguments."""

MOST_BRANCHES_REFUSED = 16
"""The same, where the body had looked at the arguments before: others may be recorded. Then a kind
is refused in two steps: at first with the layouts of the tensors."""


@dataclass(frozen=True, kw_only=True)
class CallCacheInfo:
    """The state of an overload's call cache. `str()` is for a person.

    Attributes:
        status: "native" once the operator was called on a GPU; else why no call is cached.
        recorded: The number of recorded calls.
        reasons: Why calls were not recorded, each reason once.
    """

    status: str
    recorded: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        calls = "1 recorded call" if self.recorded == 1 else f"{self.recorded} recorded calls"
        return "\n".join([f"{calls}, {self.status}", *self.reasons])


class CallCache:
    """The recorded calls of one overload.

    Args:
        operator: Returns the OpOverload, whose schema has the arguments and their defaults.
        recorder: Records calls for autograd.
        enabled: False if the author declared `cache_calls=False`.
    """

    def __init__(
        self,
        signature: Signature,
        body: Body,
        operator: Callable[[], Any],
        recorder: Recorder,
        *,
        enabled: bool,
    ) -> None:
        self.signature = signature
        self.arguments: tuple[Argument, ...] = read_arguments(operator()._schema, body)
        self.native: NativeCallCache | None = None
        self.enabled = enabled
        self.body = body
        self.record: Callable[..., Any] = self._call_through_dispatcher
        self._name = signature.qualified_name
        self._recorder = recorder
        self._call = WholeCall(signature)
        self._operator = operator
        self._status = "not called on a GPU yet"
        self._lock = ForkSafeLock()
        self._recorded: list[RecordedCall] = []
        self._compared: list[RecordedCall] = []
        self._reasons: dict[str, None] = {}
        self._refusals: dict[tuple[Any, ...], int] = {}

    def info(self) -> CallCacheInfo:
        """Return the state of the cache."""
        off = () if settings.current().replay else ("DOTCU_REPLAY=0",)
        return CallCacheInfo(
            status=self._status, recorded=len(self._recorded), reasons=(*self._reasons, *off)
        )

    def open(self) -> NativeCallCache:
        """Let native code run the body and serve recorded calls."""
        if self.native is None:
            self._status = "native"
            has_lists = any(self.signature.lists)
            if not (self.signature.mutates or has_lists):
                self.record = self._recorder.whole(self._call)
            self.native = native.make(
                self.arguments, self, returns=-1 if has_lists else self.signature.returns
            )
            self._call.below = self.native.run
            self.stale()
        return self.native

    def refuse(self, reason: str) -> None:
        """Note why native code takes no calls."""
        if self.native is None:
            self._status = reason

    def compare(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body, and compare what it does with the recorded calls.

        Raises:
            CallCacheMismatch: They differ.
        """
        by_name = dict(zip((a.name for a in self.arguments), args, strict=False)) | kwargs
        values = tuple(by_name[a.name] if a.name in by_name else a.default[0] for a in self.arguments)
        traced = self._trace(values)
        if traced.effects is None:
            return traced.result
        for recorded in (*self._recorded, *self._compared):
            expected = evaluate(recorded, values) if matches(recorded, values) else None
            difference = compare(expected, traced.effects) if expected is not None else None
            if difference is not None:
                raise CallCacheMismatch(
                    f"a recorded call of {self.signature} differs from its body: {difference}.\n"
                    "The body must depend on nothing but its arguments; where it must, do not cache its "
                    f'calls.\nType: @dotcu.op("{self.signature.packet_name}", ..., cache_calls=False)'
                )
        if traced.recorded is not None and traced.recorded not in self._compared:
            self._compared.append(traced.recorded)
        return traced.result

    def _trace(self, values: tuple[Any, ...]) -> Trace:
        arguments = dict(zip((a.name for a in self.arguments), values, strict=True))
        traced = trace(
            self.body, arguments, keyword_only=self.signature.keyword_only, writes=self.signature.mutates
        )
        if traced.recorded is None:
            self._reasons.setdefault(traced.reason)
        return traced

    def _call_through_dispatcher(self, *values: Any) -> Any:
        """Call through the dispatcher, which refuses to write what has a gradient, and records lists."""
        called = self._operator()._op
        called = getattr(called, "fallback", called)
        args, kwargs = self._call.arguments(values)
        return called(*args, **kwargs)

    # What native code calls.

    def scope(self, gpu: int) -> Scope:
        """Return the scope of the body on tensors of a GPU; of the CPU where the number is less than 0."""
        return in_body(self._name, gpu)

    def trace(self, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        """Run the body under `trace`, unless that has been refused too often; keep the recorded call.

        Returns:
            The body's result; and False if the body ran untraced, but may be traced for calls of this kind.
        """
        values = (*args, *kwargs.values())
        kind = tuple((x.dtype, x.dim()) if isinstance(x, Tensor) else type(x) for x in values)
        layouts = (kind, *map(_layout, values))
        of_kind, of_layouts = (self._refusals.get(each, 0) for each in (kind, layouts))
        if of_kind >= MOST_BRANCHES_REFUSED or of_layouts >= MOST_REFUSALS:
            return self.body(*args, **kwargs), of_kind >= MOST_BRANCHES_REFUSED
        traced = self._trace(values)
        recorded = traced.recorded
        by = 1 if traced.branched else MOST_BRANCHES_REFUSED // MOST_REFUSALS
        self._refusals[kind] = 0 if recorded is not None else of_kind + by
        self._refusals[layouts] = 0 if recorded is not None else of_layouts + 1
        if recorded is not None:
            is_cuda = recorded.device.type == "cuda"
            current = cuda.primary_context(recorded.device.index) if is_cuda else 0
            with self._lock:  # native code numbers the calls as this list does
                if self.native is not None and native.add(self.native, recorded, self._name, current):
                    self._recorded.append(recorded)
        return traced.result, True

    def check(self, result: Any, values: tuple[Any, ...]) -> Any:
        """Return what the body returned, if the schema promises that."""
        return execution.checked(self.signature, result, *self._call.arguments(values))

    def stale(self) -> None:
        """Drop every recorded call, and inspect again what the body reads besides its arguments."""
        assert self.native is not None
        self._recorded.clear()
        self._compared.clear()
        self._refusals.clear()
        try:
            if not self.enabled:
                raise Unsupported("cache_calls=False")
            self.native.clear(guards_on(dependencies(self.body)), True)
        except Unsupported as reason:
            self._reasons.setdefault(str(reason))
            self.native.clear((), False)

    def failure(self, number: int, launch: int, status: int) -> None:
        """Raise the driver's refusal of a launch, with the names of operator and kernel.

        Args:
            status: The driver's CUresult.
        """
        known = number < len(self._recorded)
        kernel = self._recorded[number].launches[launch].kernel if known else "a kernel"
        cuda.fail(status, f"Launching {kernel} of {self._name}, as recorded,")

    def error(self, error: BaseException) -> None:
        """Raise what a fault that torch found in the body means; return if there is no more to say."""
        execution.explain(self._name, error)


def _layout(value: Any) -> Any:
    """Return what of an argument a body may branch on: of a tensor its sizes, strides and alignment."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.data_ptr() % MAP_ALIGNMENT
    return tuple(map(_layout, value)) if type(value) in (list, tuple) else value

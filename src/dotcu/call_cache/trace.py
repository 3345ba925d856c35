"""Tracing: run a body once, and record what it does for later calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dotcu import kernel
from dotcu.call_cache.arithmetic import operands
from dotcu.call_cache.evaluate import Effects, compare, evaluate
from dotcu.call_cache.launches import expressed
from dotcu.call_cache.layouts import Layout, all_identical, is_contiguous, is_in_order
from dotcu.call_cache.purity import compares_tensors
from dotcu.call_cache.record import Allocation, Field, Launch, RecordedCall, RecordedStep, Step, Unsupported
from dotcu.call_cache.rules import RULES
from dotcu.call_cache.state import TracedTensor, TraceState
from dotcu.call_cache.symbols import pinned, plain, step_of
from dotcu.kernel import active_run
from dotcu.kernel.compiled import CompilationUnit
from dotcu.kernel.scope import LaunchPolicy, RecordedLaunch, current_scope, entering_scope

Body = Callable[..., Any]

_LIBRARIES = (str(Path(__file__).parent), str(Path(torch.__file__).parent), str(Path(kernel.__file__).parent))


class _Abandoned(BaseException):
    """Ends a body that runs without launches, once it cannot be recorded: its values are not computed."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The outcome of a traced body.

    Attributes:
        result: The body's result.
        recorded: The recorded call; None if there is none.
        reason: Why there is none.
        effects: The effects in this call, as observed; None if the trace ended early.
        branched: True if the reason may be one of the arguments' sizes, strides, numbers or alignment alone:
            the body had looked at some before.
        units: For each recorded launch, the unit that its kernel is compiled in.
        uses_occupancy: True if the recorded call depends on how many blocks the GPU holds.
    """

    result: Any
    recorded: RecordedCall | None = None
    reason: str = ""
    branched: bool = False
    effects: Effects | None = None
    units: tuple[CompilationUnit, ...] = ()
    uses_occupancy: bool = False


def trace(
    body: Body,
    arguments: Mapping[str, Any],
    *,
    keyword_only: Collection[str],
    writes: Sequence[str],
    runs: bool = True,
) -> Trace:
    """Run a body once, and record what it does.

    Args:
        body: A body that `purity.dependencies` accepts.
        arguments: A value for each argument of the schema, in its order.
        keyword_only: The arguments that the body takes by keyword.
        writes: The arguments that the schema declares as written.
        runs: False to skip its launches. The recording then holds for any number of multiprocessors.
    """
    distinct = compares_tensors(body)
    tensors = [id(value) for value in arguments.values() if isinstance(value, Tensor)]
    try:
        if distinct and len(set(tensors)) < len(tensors):
            raise Unsupported("it compares tensors by identity, and one of them is passed twice")
        state = TraceState(list(arguments.values()))
        if state.device.type == "cuda" and active_run() is not None:
            raise Unsupported("a simulate() block is active, and its GPU replaces the real one")
    except Unsupported as reason:
        result = _call(body, arguments, keyword_only) if runs else None
        return Trace(result=result, reason=f"{reason}.")
    tracer = CallRecorder(state, runs=runs)
    result, error = tracer.run(body, dict(zip(arguments, state.arguments, strict=True)), keyword_only)
    if error is not None:
        # Nothing has happened yet. Tracing itself may be what the body does not bear: run it untraced.
        result = _call(body, arguments, keyword_only) if runs else None
        return Trace(result=result, reason=f"traced, it raised {error!r}.")
    written = [list(arguments).index(name) for name in writes]
    try:
        return tracer.finish(result, written, distinct=distinct)
    except _Abandoned:
        return Trace(result=None, reason=tracer.reason, branched=tracer.branched)


def _call(
    body: Body,
    arguments: Mapping[str, Any],
    keyword_only: Collection[str],
    recorder: CallRecorder | None = None,
) -> Any:
    args = [value for name, value in arguments.items() if name not in keyword_only]
    kwargs = {name: arguments[name] for name in keyword_only}
    now = current_scope()
    with entering_scope(LaunchPolicy.BODY, operator=now.operator, recorder=recorder, gpu=now.gpu):
        return body(*args, **kwargs)


class CallRecorder(TorchFunctionMode):
    """Intercepts the body's calls of torch and of dotcu, which finds it in the scope.

    Attributes:
        runs: True if launches happen; else they are only recorded.
        plain: Returns a value with plain numbers.
        pinned: Returns the same, and makes the record valid for these numbers alone.
    """

    def __init__(self, state: TraceState, *, runs: bool) -> None:
        super().__init__()
        self.state = state
        self.runs = runs
        self.units: list[CompilationUnit] = []
        self.uses_occupancy = False
        self.reason = ""
        self.branched = False
        self.had_effect = False
        self.launches: list[Launch] = []
        self.concrete: list[Launch] = []

    def run(
        self, body: Body, arguments: Mapping[str, Any], keyword_only: Collection[str]
    ) -> tuple[Any, Exception | None]:
        """Return the body's result; or the error that it raised before it had an effect.

        Args:
            body, arguments, keyword_only: As `trace` takes them.
        """
        try:
            with self:
                if not torch._C._is_torch_function_mode_enabled():
                    self.refuse("torch disables function modes here")
                return _call(body, arguments, keyword_only, recorder=self), None
        except _Abandoned:
            return None, None
        except Exception as error:
            if self.runs and self.had_effect:
                raise
            return None, error

    def refuse(self, reason: str) -> None:
        """Stop recording; the first reason stays."""
        if not self.reason:
            self.reason = f"{reason}{_where()}."
            self.branched = bool(self.state.builder.guards)
        if not self.runs:
            raise _Abandoned

    def _attempt(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what may fail to trace the body, without failing the body; return None if it does."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            unsupported = isinstance(error, Unsupported)
            self.refuse(str(error) if unsupported else f"it could not be traced: {error!r}")
            return None

    # Calls of torch.

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        answer = None  # to a query; else the expected tensor or a list of them; None if it is refused
        if not self.reason:
            if func in RULES:
                answer = self._attempt(RULES[func], self.state, *args, **kwargs)
            else:
                self.refuse(f"it calls {_name(func)}, which cannot be recorded")
        expects = isinstance(answer, (TracedTensor, list))
        if answer is not None and not expects:
            return answer
        self.had_effect |= answer is None
        result = func(*plain(tuple(args)), **plain(dict(kwargs)))
        if expects:
            self._attempt(self.state.add_results, result, answer)
        return result

    # Calls of dotcu.

    plain: Callable[[Any], Any] = staticmethod(plain)
    pinned: Callable[[Any], Any] = staticmethod(pinned)

    def aligned(self, tensor: Tensor, bytes: int) -> bool:
        """Ask if a tensor is aligned to `bytes`, and guard the answer."""
        with torch._C.DisableTorchFunction():
            bytes = pinned(bytes)
            real = tensor.data_ptr() % bytes == 0
            if not self.reason:
                expected = self._attempt(lambda: self.state.is_aligned(self.state.known(tensor), bytes))
                if expected is not None and expected is not real:
                    self.refuse(f"an alignment of {bytes} bytes is not as expected")
            return real

    def multiprocessors(self, count: int) -> int:
        """Return the number; without launches, as a step that each call evaluates."""
        return count if self.runs else self.state.multiprocessors(count)

    def asked_device(self) -> None:
        """Refuse an answer that depends on which GPU is asked, if GPUs differ."""
        self.uses_occupancy = True
        if self.state.device.type == "cuda":
            gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
            if len({(gpu.major, gpu.minor, gpu.multi_processor_count) for gpu in gpus}) > 1:
                self.refuse("it asks about the current GPU, and the GPUs here differ")

    def launching(self) -> None:
        """Note that from here on the body has an effect."""
        self.had_effect = True

    def launched(self, launch: RecordedLaunch) -> None:
        """Record a launch."""
        rows = None if self.reason else self._attempt(expressed, self.state, launch)
        if rows is not None:
            self.launches.append(rows[0])
            self.concrete.append(rows[1])
            self.units.append(launch.unit)

    def finish(self, result: Any, writes: Sequence[int], *, distinct: bool) -> Trace:
        """Return the trace of a body that has returned.

        Args:
            result, writes: What it returned, and the arguments that it may write.
            distinct: It compares tensors by identity.
        """
        recorded = None
        if not self.reason:
            recorded = self._attempt(_record, self.state, self.launches, result, writes, distinct=distinct)
        if recorded is None:
            return Trace(result=result, reason=self.reason, branched=self.branched)
        effects = Effects(
            allocations=tuple(_allocation(self.state, each, plain) for each in self.state.allocations),
            launches=tuple(self.concrete),
            results=recorded.results,
        )
        evaluated = evaluate(recorded, plain(self.state.arguments))
        wrong = "it does not fit its own call" if evaluated is None else compare(evaluated, effects)
        if wrong is not None:
            return Trace(result=result, reason=f"its recording is wrong: {wrong}.", effects=effects)
        return Trace(
            result=result,
            recorded=recorded,
            effects=effects,
            units=tuple(self.units),
            uses_occupancy=self.uses_occupancy,
        )


def _name(func: Any) -> str:
    if getattr(func, "__name__", "") == "__get__":
        return f"Tensor.{getattr(func.__self__, '__name__', '?')}"
    name = str(getattr(func, "__qualname__", None) or getattr(func, "__name__", func))
    return name.replace("TensorBase.", "Tensor.")


def _where() -> str:
    """Return the line of the body that is running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return f", in {Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""


# The recorded call of a body that has returned: its results, and the steps that they need.


def _record(
    state: TraceState, launches: Sequence[Launch], result: Any, writes: Sequence[int], *, distinct: bool
) -> RecordedCall:
    results = _results(state, result, bool(writes))
    step = partial(step_of, state.builder)
    layouts = [memory.layout for memory in state.allocations]
    roots = {step(number) for layout in layouts for number in (*layout.sizes, *layout.strides)}
    for launch in launches:
        fields = (*launch.fields, *(field for field, _ in launch.maps))
        roots.update(launch.grid, (field.step for field in fields if field.step >= 0))
        roots.update(number for _, tiled in launch.maps for number in (*tiled.sizes, *tiled.strides_bytes))
    live = state.builder.live(roots)
    renumbered = {-1: -1, **{step: index for index, step in enumerate(live)}}
    steps = []
    for instruction in map(state.builder.steps.__getitem__, live):
        of = [renumbered[operand] for operand in operands(instruction)]
        steps.append(RecordedStep(instruction.op, *of) if of else instruction)
    return RecordedCall(
        keys=tuple(state.keys),
        device=state.device,
        steps=tuple(steps),
        guards=tuple(sorted((renumbered[step], value) for step, value in state.builder.guards.items())),
        allocations=tuple(
            _allocation(state, memory, lambda number: renumbered[step(number)])
            for memory in state.allocations
        ),
        launches=tuple(_renumber_launch(launch, renumbered) for launch in launches),
        results=results,
        single=isinstance(result, Tensor),
        writes=tuple(writes),
        distinct=distinct,
    )


def _results(state: TraceState, result: Any, writes: bool) -> tuple[int, ...]:
    """Return the indices of the returned allocations; each takes the layout that it is returned in."""
    if result is None and writes:
        return ()
    if not isinstance(result, Tensor) and (type(result) is not tuple or len(result) < 2):
        raise Unsupported(f"it returns a {type(result).__name__}")
    returned = [state.known(tensor) for tensor in (result if isinstance(result, tuple) else (result,))]
    if any(known.argument for known in returned) or len({known.source for known in returned}) < len(returned):
        raise Unsupported("it returns memory that is not new, or the same memory twice")
    for known in returned:
        own, layout = state.allocations[known.source].layout, known.layout
        if not all_identical(_numbers(layout), _numbers(own)):
            if not (known.whole and is_in_order(own) and is_contiguous(layout)):
                raise Unsupported("it returns a part of what it allocates, or in another order")
            state.allocations[known.source] = known
    return tuple(known.source for known in returned)


def _numbers(layout: Layout) -> tuple[Any, ...]:
    return (*layout.sizes, *layout.strides, layout.offset)


def _allocation(state: TraceState, memory: TracedTensor, number: Callable[[Any], int]) -> Allocation:
    return Allocation(
        dtype=memory.dtype,
        device=state.device,
        sizes=tuple(map(number, memory.layout.sizes)),
        strides=tuple(map(number, memory.layout.strides)),
        zeroed=memory.zeroed,
    )


def _renumber_launch(launch: Launch, renumbered: Mapping[Step, Step]) -> Launch:
    x, y, z = (renumbered[step] for step in launch.grid)

    def at(field: Field) -> Field:
        return replace(field, step=renumbered[field.step])

    maps = ((at(field), tiled.with_layout(renumbered.__getitem__)) for field, tiled in launch.maps)
    return replace(launch, grid=(x, y, z), fields=tuple(map(at, launch.fields)), maps=tuple(maps))

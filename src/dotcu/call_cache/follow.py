"""Follow a body: run it once, for real, and write down what it did as a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dotcu.call_cache.effects import Effects, Ran, compare
from dotcu.call_cache.evaluate import evaluate
from dotcu.call_cache.finish import finished, seen
from dotcu.call_cache.launches import is_aligned, planned, ran
from dotcu.call_cache.plan import Launch, Plan, Unfollowed
from dotcu.call_cache.purity import tells_tensors_apart
from dotcu.call_cache.rules import RULES
from dotcu.call_cache.tracer import Answer, Tracer, Untold
from dotcu.call_cache.values import pinned, plain
from dotcu.kernel import active_run, context
from dotcu.kernel.recording import Launched, Recorder
from dotcu.kernel.units import Unit

Body = Callable[..., Any]

_OURS = (str(Path(__file__).parent), str(Path(torch.__file__).parent), str(Path(context.__file__).parent))


class _Abandoned(BaseException):
    """Ends a body whose launches do not happen, as soon as it has no plan: what it reads is not computed."""


@dataclass(frozen=True, kw_only=True)
class Followed:
    """A body that was run.

    Attributes:
        result: What it returned.
        plan: What it did, for other calls too; or why that cannot be said.
        effects: What it did in this call, as seen; None where it was not followed to its end.
        units: Where the kernel of each launch of the plan is compiled.
        occupancy: Whether the plan depends on how many blocks the GPU holds.
    """

    result: Any
    plan: Plan | Unfollowed
    effects: Effects | None = None
    units: tuple[Unit, ...] = ()
    occupancy: bool = False


def follow(
    body: Body,
    arguments: Mapping[str, Any],
    *,
    keyword_only: Collection[str],
    writes: Sequence[str],
    runs: bool = True,
) -> Followed:
    """Run a body once and say what it did.

    Args:
        body: One that `purity.reads` found nothing against.
        arguments: All of the schema's, in its order.
        keyword_only: Those that the body takes by keyword.
        writes: Those that the schema says are written.
        runs: Whether its launches happen. Where not, the plan holds whatever multiprocessors a GPU has.

    Raises:
        Exception: What the body raises.
    """
    distinct = tells_tensors_apart(body)
    try:
        tracer = _begin(list(arguments.values()), distinct=distinct)
    except Untold as reason:
        result = _call(body, arguments, keyword_only) if runs else None
        return Followed(result=result, plan=Unfollowed(reason=f"{reason}."))
    follower = _Follower(tracer, runs=runs)
    result, error = follower.run(body, dict(zip(arguments, tracer.handed, strict=True)), keyword_only)
    if error is not None:
        # Nothing has happened yet. It may be following that the body does not bear, so ask again without.
        result = _call(body, arguments, keyword_only) if runs else None
        return Followed(result=result, plan=Unfollowed(reason=f"followed, it raised {error!r}."))
    written = [list(arguments).index(name) for name in writes]
    try:
        return follower.followed(result, written, distinct=distinct)
    except _Abandoned:
        return Followed(result=None, plan=Unfollowed(reason=follower.reason or ""))


def _begin(values: Sequence[Any], *, distinct: bool) -> Tracer:
    tensors = [id(value) for value in values if isinstance(value, Tensor)]
    if distinct and len(set(tensors)) < len(tensors):
        raise Untold("it tells tensors apart, and was given one of them twice")
    tracer = Tracer(values)
    if tracer.device.type == "cuda" and active_run() is not None:
        raise Untold("a simulate() block is active, whose GPU answers for the real one")
    return tracer


def _call(
    body: Body,
    arguments: Mapping[str, Any],
    keyword_only: Collection[str],
    recorder: Recorder | None = None,
) -> Any:
    args = [value for name, value in arguments.items() if name not in keyword_only]
    kwargs = {name: arguments[name] for name in keyword_only}
    now = context.current()
    with context.entering(context.Place.BODY, operator=now.operator, recorder=recorder, gpu=now.gpu):
        return body(*args, **kwargs)


class _Follower(TorchFunctionMode):
    """Sees what a body asks of torch and of dotcu; a `kernel.recording.Recorder`."""

    def __init__(self, tracer: Tracer, *, runs: bool) -> None:
        super().__init__()
        self.tracer = tracer
        self.runs = runs
        self.units: list[Unit] = []
        self.occupancy = False
        self.reason: str | None = None
        self.had_effect = False
        self.launches: list[Launch] = []
        self.ran: list[Ran] = []

    def run(
        self, body: Body, arguments: Mapping[str, Any], keyword_only: Collection[str]
    ) -> tuple[Any, Exception | None]:
        """The body's result; or what it raised, where it had no effect before that."""
        try:
            with self:
                if not torch._C._is_torch_function_mode_enabled():
                    self.refuse("torch hides its functions from modes here")
                return _call(body, arguments, keyword_only, recorder=self), None
        except _Abandoned:
            return None, None
        except Exception as error:
            if self.runs and self.had_effect:
                raise
            return None, error

    def refuse(self, reason: str) -> None:
        """Give up on a plan; the first reason stays."""
        if self.reason is None:
            self.reason = f"{reason}{_where()}."
        if not self.runs:
            raise _Abandoned

    # torch

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        foreseen = self._foreseen(func, args, kwargs) if self.reason is None else None
        if isinstance(foreseen, Answer):
            return foreseen.value
        self.had_effect |= foreseen is None
        result = func(*plain(tuple(args)), **plain(dict(kwargs)))
        if foreseen is not None:
            self._guarded(self.tracer.learn, result, foreseen)
        return result

    def _foreseen(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        rule = RULES.get(func)
        if rule is None:
            self.refuse(f"it calls {_name(func)}, which no plan can say")
            return None
        return self._guarded(rule, self.tracer, *args, **kwargs)

    def _guarded(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what may fail to follow the body, without failing the body."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.refuse(str(error) if isinstance(error, Untold) else f"it could not be followed: {error!r}")
            return None

    # dotcu

    def plain(self, value: Any) -> Any:
        """A value with plain numbers."""
        return plain(value)

    def pinned(self, value: Any) -> Any:
        """The same; the plan is from then on for these numbers alone."""
        return pinned(value)

    def aligned(self, tensor: Tensor, bytes: int) -> bool:
        """Whether a tensor starts at an address divisible by `bytes`, as a guard."""
        with torch._C.DisableTorchFunction():
            bytes = pinned(bytes)
            real = tensor.data_ptr() % bytes == 0
            if self.reason is None:
                said = self._guarded(lambda: is_aligned(self.tracer, self.tracer.known(tensor), bytes))
                if said is not None and said is not real:
                    self.refuse(f"{bytes} bytes of alignment are not as foreseen")
            return real

    def multiprocessors(self, count: int) -> int:
        """The number; where no launch runs, one that the plan asks for anew."""
        return count if self.runs else self.tracer.multiprocessors(count)

    def asked_device(self) -> None:
        """Refuse an answer that depends on which GPU is asked, where GPUs differ."""
        self.occupancy = True
        if self.tracer.device.type == "cuda" and _gpus_differ():
            self.refuse("it asks about the current GPU, and the GPUs here differ")

    def launching(self) -> None:
        """From here on the body has an effect."""
        self.had_effect = True

    def launched(self, launch: Launched) -> None:
        """Write a launch down."""
        if self.reason is None:
            self._guarded(self._write, launch)

    def _write(self, launch: Launched) -> None:
        self.launches.append(planned(self.tracer, launch, self.tracer.device))
        self.ran.append(ran(self.tracer, launch))
        self.units.append(launch.unit)

    # The end.

    def followed(self, result: Any, writes: Sequence[int], *, distinct: bool) -> Followed:
        """The plan of a body that returned."""
        plan = None
        if self.reason is None:
            plan = self._guarded(finished, self.tracer, self.launches, result, writes, distinct=distinct)
        if plan is None:
            return Followed(result=result, plan=Unfollowed(reason=self.reason or ""))
        effects = seen(self.tracer, self.ran, plan.results)
        said = evaluate(plan, plain(self.tracer.handed))
        wrong = "it does not fit the call it was made of" if said is None else compare(said, effects)
        if wrong is not None:
            return Followed(
                result=result, plan=Unfollowed(reason=f"its plan is wrong: {wrong}."), effects=effects
            )
        return Followed(
            result=result, plan=plan, effects=effects, units=tuple(self.units), occupancy=self.occupancy
        )


def _gpus_differ() -> bool:
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return len({(gpu.major, gpu.minor, gpu.multi_processor_count) for gpu in found}) > 1


def _name(func: Any) -> str:
    if getattr(func, "__name__", "") == "__get__":
        return f"Tensor.{getattr(func.__self__, '__name__', '?')}"
    name = str(getattr(func, "__qualname__", None) or getattr(func, "__name__", func))
    return name.replace("TensorBase.", "Tensor.")


def _where() -> str:
    """The line of the body that is running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f", in {Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""

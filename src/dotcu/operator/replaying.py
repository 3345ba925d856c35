"""Which calls of an operator are replayed from plans, and how plans come about.

The first call on a CUDA tensor puts an `entry` before what torch calls for the operator. The entry
replays a call whose arguments a plan fits; all else goes the ordinary way, through the dispatcher.
A call that found no plan runs its body once under `follow`, which makes one, or learns why not.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dotcu import settings
from dotcu.errors import ReplayMismatch
from dotcu.kernel import context, cuda
from dotcu.kernel.forked import forked_with_cuda
from dotcu.kernel.tensors import count_writes
from dotcu.operator.autograd import Recorder, WholeCall
from dotcu.operator.schema import Body, Signature
from dotcu.replay import native, portable
from dotcu.replay.arguments import Argument, Fallback, Plans, read_arguments
from dotcu.replay.effects import compare
from dotcu.replay.evaluate import evaluate, matches
from dotcu.replay.follow import Followed, follow
from dotcu.replay.plan import Plan, Unfollowed
from dotcu.replay.purity import reads
from dotcu.replay.rows import NoPlace, Row, rows

MOST_ATTEMPTS = 16
"""How often a body is followed for arguments of the same types: its branches may be endless."""

_to_follow: ContextVar[Replays | None] = ContextVar("dotcu_to_follow", default=None)
_made_current: ContextVar[bool] = ContextVar("dotcu_made_current", default=False)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How an overload's calls are replayed, so far. `str()` tells a person.

    Attributes:
        path: "native" or "portable", once it was called on a GPU.
        plans: How many there are.
        reasons: Why a call had none, each once.
    """

    path: str
    plans: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.plans} plans, {self.path}", *self.reasons]
        return "\n".join(lines)


class Replays:
    """The plans of one overload, and what a call by plan asks of it (`arguments.Caller`).

    Args:
        operator: Gives the OpOverload, whose schema has the arguments and their defaults.
        wanted: Whether the author lets calls be replayed.
    """

    def __init__(
        self,
        signature: Signature,
        body: Body,
        operator: Callable[[], Any],
        recorder: Recorder,
        *,
        wanted: bool,
    ) -> None:
        self.signature = signature
        self.arguments: tuple[Argument, ...] = read_arguments(operator()._schema, body)
        self.plans: Plans | None = None
        self._body = body
        self._recorded = WholeCall(signature, replay=lambda values: NotImplemented, compute=self._compute)
        self.record = self._refuse_gradient if signature.mutates else recorder.whole(self._recorded)
        self.wanted = wanted
        self._operator = operator
        self._provider: ModuleType | None = None
        self._kept: list[Plan] = []
        self._attempts: Counter[tuple[object, ...]] = Counter()
        self._reasons: dict[str, None] = {}
        self._never = ""

    # What the operator asks.

    @property
    def follows(self) -> bool:
        """Whether the call that is under way is to be followed."""
        return _to_follow.get() is self or settings.current().check_replay

    def report(self) -> Replay:
        """How calls are replayed so far."""
        path = "not called on a GPU yet" if self._provider is None else _short(self._provider)
        return Replay(path=path, plans=len(self._kept), reasons=tuple(self._reasons))

    def open(self, provider: ModuleType) -> Plans:
        """Begin to keep plans. Where there will never be one, calls go on as before."""
        if self.plans is None:
            self._provider = provider
            self.plans = provider.plans(self.arguments, self)
            self._recorded.replay = self.plans.run
            self.stale()
        return self.plans

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body and follow it; keep the plan, or in the debug mode compare it with those there are."""
        token = _to_follow.set(None)
        try:
            whole = self._whole(args, kwargs)
            followed = follow(
                self._body, whole, keyword_only=self.signature.keyword_only, writes=self.signature.mutates
            )
        finally:
            _to_follow.reset(token)
        if settings.current().check_replay:
            self._compare(followed, tuple(whole.values()))
        elif isinstance(followed.plan, Plan):
            self._keep(followed.plan)
        if isinstance(followed.plan, Unfollowed):
            self._reasons.setdefault(str(followed.plan))
        return followed.result

    def _whole(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip((a.name for a in self.arguments), args, strict=False)) | kwargs
        return {a.name: given[a.name] if a.name in given else a.default[0] for a in self.arguments}

    def _keep(self, plan: Plan) -> None:
        if self.plans is None or self._provider is None:
            return
        current = cuda.primary_context(plan.device.index) if plan.device.type == "cuda" else 0
        if self._provider.add(self.plans, plan, self.signature.qualified_name, current):
            self._kept.append(plan)

    def _compare(self, followed: Followed, values: tuple[Any, ...]) -> None:
        seen = followed.effects
        if seen is None:
            return
        for plan in self._kept:
            prepared = evaluate(plan, values) if matches(plan, values) else None
            difference = compare(prepared, seen) if prepared is not None else None
            if difference is not None:
                raise ReplayMismatch(
                    f"a plan of {self.signature} differs from its body: {difference}.\n"
                    "The body must depend on nothing but its arguments; where it must, keep it from being "
                    f'replayed.\nType: @dotcu.op("{self.signature.packet_name}", ..., replay=False)'
                )
        if isinstance(followed.plan, Plan) and followed.plan not in self._kept:
            self._kept.append(followed.plan)

    # What a call by plan asks.

    def miss(self, fallback: Fallback, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call the ordinary way, and follow the body where that has not been tried too often."""
        if not self._may_try((*args, *(kwargs or {}).values())):
            return fallback(*args, **(kwargs or {}))
        token = _to_follow.set(self)
        try:
            return fallback(*args, **(kwargs or {}))
        finally:
            _to_follow.reset(token)

    def _may_try(self, values: Sequence[Any]) -> bool:
        if self._never:
            return False
        kind = tuple((v.dtype, v.dim(), v.device) if isinstance(v, Tensor) else type(v) for v in values)
        self._attempts[kind] += 1
        return self._attempts[kind] <= MOST_ATTEMPTS

    def _refuse_gradient(self, *values: Any) -> Any:
        """Call the ordinary way, which refuses to write what has a gradient."""
        called = self._operator()._op
        called = getattr(called, "fallback", called)
        args, kwargs = self._recorded.given(values)
        return called(*args, **kwargs)

    def _compute(self, values: tuple[Any, ...]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self.miss(self._operator(), *self._recorded.given(values))

    def stale(self) -> None:
        """Drop every plan, and look anew at what the body reads beside its arguments."""
        assert self.plans is not None
        self._kept.clear()
        self._attempts.clear()
        self._never = ""
        found = self._rows()
        if isinstance(found, Unfollowed):
            self._never = str(found)
            self._reasons.setdefault(self._never)
        self.plans.clear(() if isinstance(found, Unfollowed) else found)

    def _rows(self) -> tuple[Row, ...] | Unfollowed:
        found = reads(self._body) if self.wanted else Unfollowed(reason="replay=False", always=True)
        try:
            return found if isinstance(found, Unfollowed) else rows(found)
        except NoPlace as error:
            return Unfollowed(reason=str(error), always=True)

    def elsewhere(self, index: int, values: tuple[Any, ...]) -> Any:
        """Replay with a device made current, which another one was on this thread, or none."""
        if _made_current.get() or self.plans is None:
            return NotImplemented
        token = _made_current.set(True)
        try:
            with torch.cuda.device(index), cuda.entered(index):
                return self.plans.run(values)
        finally:
            _made_current.reset(token)

    def failure(self, plan: int, launch: int, status: int) -> None:
        """Raise the driver's refusal of a launch, by the names of operator and kernel."""
        known = self._kept[plan].launches[launch].kernel if plan < len(self._kept) else "a kernel"
        cuda.fail(status, f"Launching {known} of {self.signature.qualified_name}, as planned,")

    def write(self, tensors: list[Tensor]) -> None:
        """Count a write in the version of each tensor."""
        count_writes(tensors)


def _short(provider: ModuleType) -> str:
    return provider.__name__.rpartition(".")[2]


def provider(device: torch.device, *, natively: bool) -> ModuleType | str:
    """What replays calls on tensors of a device's type; or why nothing does.

    Args:
        natively: Whether native code may.
    """
    found = native if natively and not native.prepare(device) else portable
    return found.prepare(device) or found


def wanted(now: settings.Settings) -> bool:
    """Whether the settings let calls be replayed."""
    return now.replay and not (now.check_replay or now.launch_blocking)


@functools.cache
def _hold_by_settings() -> None:
    """Let nothing be replayed while the settings say so."""
    settings.watch(lambda before, after: context.held.change(wanted(before) - wanted(after)))
    context.held.change(not wanted(settings.current()))


@functools.cache
def hold_with(provider: ModuleType) -> None:
    """Let nothing be replayed while a block must see every call, or the settings say so."""
    _hold_by_settings()
    context.held.follow(provider.hold)
    os.register_at_fork(after_in_child=lambda: provider.hold(1) if forked_with_cuda() else None)

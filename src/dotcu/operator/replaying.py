"""The way of a call to its plan or its body, for operators that launch.

The first call on a CUDA tensor puts an `entry` before what torch calls for the operator. The entry is
native code. Where nothing watches or transforms the call, it replays a plan that fits, or runs the
body; all else goes the ordinary way, through the dispatcher. A body without a plan for such a call is
run once under `follow`, which makes one, or reports why there can be none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dotcu import settings
from dotcu.call_cache import native
from dotcu.call_cache.arguments import Argument, Plans, read_arguments
from dotcu.call_cache.effects import compare
from dotcu.call_cache.evaluate import evaluate, matches
from dotcu.call_cache.follow import Followed, follow
from dotcu.call_cache.plan import Plan, Unfollowed
from dotcu.call_cache.purity import reads
from dotcu.call_cache.rows import NoPlace, Row, rows
from dotcu.errors import ReplayMismatch
from dotcu.kernel import context, cuda
from dotcu.kernel.locks import ForkSafeLock
from dotcu.operator import execution
from dotcu.operator.autograd import Recorder, WholeCall
from dotcu.operator.schema import Body, Signature


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How an overload's calls are replayed, so far. `str()` tells a person.

    Attributes:
        path: "native" once the operator was called on a GPU; else why no call is replayed.
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
    """The plans of one overload, and what its calls ask of it (`arguments.Caller`).

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
        self.wanted = wanted
        self.body = body
        self._name = signature.qualified_name
        self.record: Callable[..., Any] = self._call_as_torch_does
        self._recorder = recorder
        self._call = WholeCall(signature)
        self._operator = operator
        self._path = "not called on a GPU yet"
        self._lock = ForkSafeLock()
        self._kept: list[Plan] = []
        self._compared: list[Plan] = []
        self._reasons: dict[str, None] = {}

    # What the operator asks.

    def report(self) -> Replay:
        """How calls are replayed so far."""
        off = () if settings.current().replay else ("DOTCU_REPLAY=0",)
        return Replay(path=self._path, plans=len(self._kept), reasons=(*self._reasons, *off))

    def open(self) -> Plans:
        """Let native code call the body, and keep plans of it."""
        if self.plans is None:
            self._path = "native"
            if not (self.signature.mutates or any(self.signature.lists)):
                self.record = self._recorder.whole(self._call)
            self.plans = native.plans(
                self.arguments, self, returns=-1 if any(self.signature.lists) else self.signature.returns
            )
            self._call.below = self.plans.run
            self.stale()
        return self.plans

    def refuse(self, reason: str) -> None:
        """Note why the native part takes no calls."""
        if self.plans is None:
            self._path = reason

    def compare(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body, and compare what it does with the plans that there are.

        Raises:
            ReplayMismatch: They differ.
        """
        given = dict(zip((a.name for a in self.arguments), args, strict=False)) | kwargs
        values = tuple(given[a.name] if a.name in given else a.default[0] for a in self.arguments)
        followed = self._follow(values)
        if followed.effects is None:
            return followed.result
        for plan in (*self._kept, *self._compared):
            prepared = evaluate(plan, values) if matches(plan, values) else None
            difference = compare(prepared, followed.effects) if prepared is not None else None
            if difference is not None:
                raise ReplayMismatch(
                    f"a plan of {self.signature} differs from its body: {difference}.\n"
                    "The body must depend on nothing but its arguments; where it must, keep it from being "
                    f'replayed.\nType: @dotcu.op("{self.signature.packet_name}", ..., replay=False)'
                )
        if isinstance(followed.plan, Plan) and followed.plan not in self._compared:
            self._compared.append(followed.plan)
        return followed.result

    def _follow(self, values: tuple[Any, ...]) -> Followed:
        whole = dict(zip((a.name for a in self.arguments), values, strict=True))
        followed = follow(
            self.body, whole, keyword_only=self.signature.keyword_only, writes=self.signature.mutates
        )
        if isinstance(followed.plan, Unfollowed):
            self._reasons.setdefault(str(followed.plan))
        return followed

    # What a call asks.

    def scope(self, gpu: int) -> context.Scope:
        """Return the scope of the body on tensors of a GPU; of the CPU where the number is less than 0."""
        return context.in_body(self._name, gpu)

    def follow(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body and follow it; keep the plan."""
        followed = self._follow((*args, *kwargs.values()))
        if isinstance(followed.plan, Plan):
            self._keep(followed.plan)
        return followed.result

    def _keep(self, plan: Plan) -> None:
        current = cuda.primary_context(plan.device.index) if plan.device.type == "cuda" else 0
        with self._lock:  # a plan's number is its place among those that are kept
            if self.plans is not None and native.add(self.plans, plan, self._name, current):
                self._kept.append(plan)

    def check(self, result: Any, given: tuple[Any, ...]) -> Any:
        """Return what the body returned, if that is what the schema promises."""
        return execution.checked(self.signature, result, *self._call.given(given))

    def _call_as_torch_does(self, *values: Any) -> Any:
        """Call through the dispatcher, which refuses to write what has a gradient, and records lists."""
        called = self._operator()._op
        called = getattr(called, "fallback", called)
        args, kwargs = self._call.given(values)
        return called(*args, **kwargs)

    def stale(self) -> None:
        """Drop every plan, and look anew at what the body reads beside its arguments."""
        assert self.plans is not None
        self._kept.clear()
        self._compared.clear()
        found = self._rows()
        if isinstance(found, Unfollowed):
            self._reasons.setdefault(str(found))
            self.plans.clear((), False)
        else:
            self.plans.clear(found, True)

    def _rows(self) -> tuple[Row, ...] | Unfollowed:
        if not self.wanted:
            return Unfollowed(reason="replay=False", always=True)
        found = reads(self.body)
        try:
            return found if isinstance(found, Unfollowed) else rows(found)
        except NoPlace as error:
            return Unfollowed(reason=str(error), always=True)

    def failure(self, plan: int, launch: int, status: int) -> None:
        """Raise the driver's refusal of a launch, by the names of operator and kernel."""
        known = self._kept[plan].launches[launch].kernel if plan < len(self._kept) else "a kernel"
        cuda.fail(status, f"Launching {known} of {self._name}, as planned,")

    def error(self, error: BaseException) -> None:
        """Raise what a fault that torch found in the body means; return where there is no more to say."""
        execution.explain(self._name, error)

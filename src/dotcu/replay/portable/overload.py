"""The plans of one overload: which of them takes a call, and what becomes of a call that none takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dotcu.replay.arguments import Argument, Caller, Fallback, Kinds, positional
from dotcu.replay.plan import Plan
from dotcu.replay.portable import calm
from dotcu.replay.portable.compiled import Compiled, Replay
from dotcu.replay.portable.driver import drivers
from dotcu.replay.portable.outcome import ASIDE, MISS, UNSET
from dotcu.replay.portable.rendering import Placed
from dotcu.replay.rows import Row, holds

MOST_PLANS = 256

_TENSORS = (torch.Tensor, torch.nn.Parameter)
# Plain integers: the operators of an enum's members take longer than all the rest of binding.
_OTHER = int(Kinds.OTHER)
_KINDS = {
    torch.Tensor: int(Kinds.TENSOR),
    torch.nn.Parameter: int(Kinds.TENSOR),
    type(None): int(Kinds.NONE),
    int: int(Kinds.INT),
    float: int(Kinds.FLOAT),
    bool: int(Kinds.BOOL),
    type(UNSET): 0,
}


def _miss(*values: Any) -> Any:
    """The replay where there is no plan."""
    return MISS


class Kept:
    """Plans that hold while `reads` are what they are. Replaced as one, since other threads may be in a call.

    Attributes:
        at: The plan that took the last call, which is the first to try.
        latest: Its guarded replay.
    """

    def __init__(self, reads: tuple[Row, ...]) -> None:
        self.reads = reads
        self.plans: list[Compiled] = []
        self.at = 0
        self.latest: Replay = _miss

    def hold(self) -> bool:
        """Whether what the body reads beside its arguments is still the same."""
        return all(map(holds, self.reads))

    def replay(self, values: tuple[Any, ...], *, guarded: bool) -> Any:
        """Replay by the first plan that fits."""
        plans = self.plans
        for i in range(self.at, self.at + len(plans)):
            compiled = plans[i % len(plans)]
            result = (compiled.guarded if guarded else compiled.below)(*values)
            if result is not MISS:
                self.at, self.latest = i % len(plans), compiled.guarded
                return result
        return MISS


def _is_refused(kinds: int, value: Any) -> bool:
    """Whether torch refuses a value, or may convert it."""
    if isinstance(value, (int, float)):
        return kinds == Kinds.TENSOR
    return bool(type(value) in _TENSORS and kinds and not kinds & Kinds.TENSOR and value.numel() != 1)


class Overload:
    """What `arguments.Plans` says, and a call of the overload.

    Attributes:
        most: How many arguments may be given by position.
    """

    def __init__(self, arguments: Sequence[Argument], caller: Caller) -> None:
        self._arguments = tuple(arguments)
        self._indices = {argument.name: i for i, argument in enumerate(arguments)}
        self._defaults = tuple(a.default[0] if a.default else UNSET for a in arguments)
        self._kinds = tuple(int(argument.kinds) for argument in arguments)
        self._caller = caller
        self.kept = Kept(())
        self.most = positional(arguments)

    def __len__(self) -> int:
        return len(self.kept.plans)

    def add(self, packed: tuple[Plan, str, int]) -> bool:
        """Keep a plan of an operator, whose launches need a CUcontext; False where there are too many."""
        (plan, operator, context), kept = packed, self.kept
        if len(kept.plans) == MOST_PLANS or plan.device.type not in drivers:
            return False
        placed = Placed(
            plan=plan,
            arguments=self._arguments,
            operator=operator,
            number=len(kept.plans),
            reads=kept.reads,
            context=context,
        )
        kept.plans.append(Compiled(placed, self._caller))
        return True

    def clear(self, reads: tuple[Row, ...]) -> None:
        """Drop every plan, and take what later ones read beside their arguments."""
        self.kept = Kept(reads)

    def run(self, values: tuple[Any, ...]) -> Any:
        """Replay below autograd with a value for each argument, or give NotImplemented."""
        kept = self.kept
        if len(values) != len(self._arguments) or not kept.hold():
            return NotImplemented
        result = kept.replay(values, guarded=False)
        return NotImplemented if result is MISS or result is ASIDE else result

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """A value for each argument, or None where the schema does not take these as they are."""
        given = len(args)
        if given > self.most:
            return None
        values = [*args, *self._defaults[given:]]
        for name, value in kwargs.items():
            index = self._indices.get(name, -1)
            if index < given:
                return None
            values[index] = value
        for kinds, value in zip(self._kinds, values):  # noqa: B905 - as many, and `strict` takes its time
            if not kinds & _KINDS.get(type(value), _OTHER):
                return None
        return tuple(values)

    def might(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether torch may take arguments for this overload that `bind` does not take as they are."""
        given = [
            *zip(self._kinds, args, strict=False),
            *((self._kinds[self._indices[n]], kwargs[n]) for n in kwargs if n in self._indices),
        ]
        named = set(self._indices) - set(list(self._indices)[: len(args)])
        missing = [a for a in self._arguments[len(args) :] if not a.default and a.name not in kwargs]
        fits = len(args) <= self.most and named.issuperset(kwargs) and not missing
        return fits and not any(_is_refused(kinds, value) for kinds, value in given)

    def call(
        self, values: tuple[Any, ...], fallback: Fallback, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call on a thread that nothing watches."""
        result = self.kept.latest(*values)
        if result is MISS:
            result = self._examine(values, fallback)
        if result is MISS:
            return self._caller.miss(fallback, args, kwargs or None)
        return fallback(*args, **kwargs) if result is ASIDE else result

    def _examine(self, values: tuple[Any, ...], fallback: Fallback) -> Any:
        """A call that the latest plan does not take."""
        kept = self.kept
        if not kept.hold():
            self._caller.stale()
            return MISS
        tensors = [value for value in values if type(value) in _TENSORS]
        if calm.below_autograd() or not all(map(calm.is_plain, tensors)):
            return ASIDE
        if any(tensor.requires_grad for tensor in tensors) and torch.is_grad_enabled():
            return self._caller.record(*values)
        return kept.replay(values, guarded=True)

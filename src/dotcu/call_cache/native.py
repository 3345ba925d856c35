"""Plans in native code: calls that are replayed without Python in between."""

from __future__ import annotations

from collections.abc import Sequence

from dotcu.call_cache.arguments import Argument, Caller, Fallback, Plans, positional
from dotcu.call_cache.packed import pack
from dotcu.call_cache.plan import Plan
from dotcu.kernel import native


def plans(arguments: Sequence[Argument], caller: Caller, *, returns: int) -> Plans:
    """Make what keeps the plans of an overload and calls it.

    Args:
        returns: How many tensors the schema promises; -1 where some are in lists, which Python looks at.
    """
    made: Plans = native.library().Plans(
        names=tuple(argument.name for argument in arguments),
        kinds=tuple(int(argument.kinds) for argument in arguments),
        floats=tuple(argument.makes_float for argument in arguments),
        defaults=tuple(argument.default for argument in arguments),
        written=tuple(argument.written for argument in arguments),
        positional=positional(arguments),
        returns=returns,
        body=caller.body,
        on_scope=caller.scope,
        on_follow=caller.follow,
        on_check=caller.check,
        on_record=caller.record,
        on_stale=caller.stale,
        on_failure=caller.failure,
        on_error=caller.error,
    )
    return made


def entry(plans: Sequence[Plans], fallback: Fallback, *, autocasts: bool) -> Fallback:
    """Make what calls an operator: by a plan where one fits, by its body, or as torch does.

    Args:
        plans: Those of each overload that the call chooses among.
        autocasts: Whether the operator has a rule for autocast, which only torch applies.
    """
    made: Fallback = native.library().Entry(tuple(plans), fallback, autocasts)
    return made


def add(plans: Plans, plan: Plan, operator: str, context: int) -> bool:
    """Keep a plan of an operator, whose launches need a CUcontext; False where there are too many."""
    try:
        return plans.add(pack(plan, operator, native.codes(), context))
    except (ValueError, KeyError):
        return False

"""The portable path: calls that are replayed by Python, where the native part is missing.

    entry.py        is the call an ordinary one (`calm.py`); to which overload is it bound
    overload.py     which plan takes it, and who is asked where none does
    compiled.py     a plan as a function: what `rendering.py` writes and `driver.py` provides

It has the functions of `replay/native.py`, and a call means what it means there (`src/dotcu/native/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dotcu.replay.arguments import Argument, Caller, Fallback, Plans
from dotcu.replay.plan import Plan
from dotcu.replay.portable.driver import prepare
from dotcu.replay.portable.entry import Entry, hold
from dotcu.replay.portable.overload import Overload

__all__ = ["add", "entry", "hold", "plans", "prepare"]


def plans(arguments: Sequence[Argument], caller: Caller) -> Plans:
    """Where the plans of an overload are kept."""
    return Overload(arguments, caller)


def entry(plans: Sequence[Any], fallback: Fallback, *, autocasts: bool) -> Fallback:
    """What calls an operator: by a plan where one fits, else as torch does.

    Args:
        plans: Those of each overload that the call chooses among.
        autocasts: Whether the operator has a rule for autocast, which only torch applies.
    """
    return Entry(plans, fallback, autocasts)


def add(plans: Plans, plan: Plan, operator: str, context: int) -> bool:
    """Keep a plan of an operator, whose launches need a CUcontext; False where there are too many."""
    return plans.add((plan, operator, context))

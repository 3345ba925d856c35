"""Why something is compiled: what of it changed since its source was last built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from dotcu.compile.cache import Store
from dotcu.compile.plan import BuildPlan

# How a changed ingredient is told, in the order in which it is looked for.
TOLD = (
    ("options", "the options changed"),
    ("names", "another instantiation"),
    ("simulated", "for the simulator, or no longer"),
    ("compiler", "another compiler"),
    ("headers", "other headers of dotcu or the toolkit"),
)


def identity(plan: BuildPlan) -> str:
    """The name under which the builds of one source are remembered."""
    where = str(plan.source.path or f"inline {plan.source.name}")
    return hashlib.sha256(where.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def why(plan: BuildPlan, store: Store) -> str:
    """The nearest reason that is known, against the earlier build that differs least."""
    records = store.recall(identity(plan))
    if not records:
        return "not seen before"
    changes = min((_changes(plan.ingredients, record) for record in records), key=len)
    return _tell(plan, changes)


def _changes(now: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What differs, now and before; `source` follows from its files and is left out."""
    keys = [key for key in {**now, **before} if key != "source"]
    return {
        key: (now.get(key, ""), str(before.get(key, "")))
        for key in keys
        if now.get(key, "") != before.get(key, "")
    }


def _tell(plan: BuildPlan, changes: Mapping[str, tuple[str, str]]) -> str:
    files = [key.removeprefix("file ") for key in changes if key.startswith("file ")]
    told = [_tell_file(plan, name, *changes[f"file {name}"]) for name in files]
    if "target" in changes:
        told.append(f"new target, last built for {changes['target'][1]}")
    told += [text for key, text in TOLD if key in changes]
    return "; ".join(told) or "its entry is no longer in the cache, or a header name leads elsewhere"


def _tell_file(plan: BuildPlan, virtual: str, now: str, before: str) -> str:
    name = virtual.partition("/dotcu/")[2] or virtual
    if virtual == plan.closure.main.virtual:
        return "new source" if now and before else "another source"
    return f"header {name} " + ("changed" if now and before else "is new" if now else "is gone")

"""Rows: what every call by plan looks at, and what the look costs others."""

from __future__ import annotations

import pytest

import fresh
from dotcu.call_cache import purity
from dotcu.call_cache.purity import guards_on
from dotcu.call_cache.record import Unsupported
from dotcu.kernel import native

SCRIPT = """
import sys

import torch

from dotcu.kernel import native
from dotcu.call_cache.purity import guards_on
from recorded_calls import CPU, TENSOR, VECTOR, Driver, Operator, returning

def body(by=2):
    return by

cell = (lambda held: lambda: held)(body).__closure__[0]
reads = [
    (body, "__code__", body.__code__),
    (body, "__defaults__", body.__defaults__),
    (cell, "", cell.cell_contents),
    (globals(), "body", body),
]
assert native.prepare(CPU) == ""
call, x = Operator(Driver(), [TENSOR], returning([VECTOR], 3), reads=guards_on(reads)), torch.ones(1)
events = []
sys.addaudithook(lambda event, args: events.append(event))
assert call(x).shape == (3,)
looked = [event for event in events if event == "object.__getattr__"]
assert not looked, looked
body.__code__
assert "object.__getattr__" in events, "an attribute of a function is no audit event any more"
"""


@pytest.mark.skipif(bool(native.missing()), reason=native.missing() or "the native part is there")
def test_a_look_raises_no_audit_event() -> None:
    """Where hooks are set, an event for each attribute of each function would double a call's cost."""
    done = fresh.run(SCRIPT)
    assert done.returncode == 0, done.stderr


def test_what_is_found_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purity, "_sample", lambda is_cell, name: (guards_on, object()))
    purity._offset.cache_clear()
    try:
        with pytest.raises(Unsupported, match="__code__ is found at 0 offsets in memory"):
            guards_on([(guards_on, "__code__", guards_on.__code__)])
    finally:
        purity._offset.cache_clear()

"""Processes that make first calls: what becomes of what they say, and of how they end."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dotcu.benchmark.first_call import asking, first_call
from dotcu.benchmark.first_call.child import Order
from dotcu.errors import JitDisabled, OperatorError

REST = {
    "operator": "a::b",
    "sample": "Sample()",
    "device": "simulator",
    "planned": False,
    "versions": {},
    "note": "",
    "later": [2.0, 1.0, 1.0],
}
FIRST = {"first": [["start", "interpreter", 3.0, 1], ["call", "call", 4.0, 1]], "imported": ["x"]}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Sets what the processes run; gives the orders that they were started with."""
    orders: list[Order] = []

    def run(text: str) -> list[Order]:
        file = tmp_path / "process.py"
        file.write_text(text)

        def command(order: Order) -> list[str]:
            assert Path(order.folder).is_dir()
            orders.append(order)
            return [sys.executable, "-S", str(file)]

        monkeypatch.setattr(asking, "command", command)
        return orders

    return run


def saying(*answers: Any) -> str:
    return "".join(f"print({json.dumps(answer)!r}, flush=True)\n" for answer in answers)


def test_two_processes_share_a_folder_that_is_gone_afterwards(script: Any) -> None:
    orders = script(saying(FIRST, {"rest": REST}))
    found = first_call("ops.py", "b")
    assert [run.cache for run in found.runs] == ["empty", "filled"]
    assert {order.target for order in orders} == {"ops.py:b"}
    (folder,) = {order.folder for order in orders}
    assert not Path(folder).exists()
    assert (found.operator, found.runs[0].later_ms, found.runs[0].imported) == (
        "a::b",
        (2.0, 1.0, 1.0),
        ("x",),
    )


def test_the_name_of_an_operator_takes_the_place_of_one_in_the_target(script: Any) -> None:
    orders = script(saying(FIRST, {"rest": REST}))
    first_call("ops.py:a", "b")
    first_call("ops.py:a")
    assert [order.target for order in orders] == ["ops.py:b"] * 2 + ["ops.py:a"] * 2


def test_the_whole_is_measured_here_until_the_first_result_is_told(script: Any) -> None:
    script(f"import time\ntime.sleep(0.3)\n{saying(FIRST)}time.sleep(0.5)\n{saying({'rest': REST})}")
    begun = time.perf_counter()
    (run, _) = first_call("ops.py").runs
    all_ms = (time.perf_counter() - begun) * 1e3
    assert 300 < run.whole_ms < all_ms - 1000
    assert run.remainder_ms == pytest.approx(run.whole_ms - 7.0)


def test_what_the_process_raises_is_raised_here(script: Any) -> None:
    script(saying({"raise": ["JitDisabled", "no code is there"]}))
    with pytest.raises(JitDisabled, match="no code is there"):
        first_call("ops.py")


def test_a_process_that_dies_is_told_with_its_last_words(script: Any) -> None:
    script(
        f"{saying(FIRST)}import os, sys\nprint('the last words', file=sys.stderr, flush=True)\n"
        "os.kill(os.getpid(), 11)"
    )
    with pytest.raises(OperatorError, match=re.escape("first call of ops.py:b died: SIGSEGV")) as caught:
        first_call("ops.py", "b")
    assert "\n    the last words\n" in str(caught.value)
    assert str(caught.value).endswith("dotcu check ops.py:b")


def test_a_process_that_hangs_is_ended(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LIMIT_S", 0.3)
    script("import time\ntime.sleep(60)")
    begun = time.perf_counter()
    with pytest.raises(OperatorError, match=r"gave no result within 0\.3 s"):
        first_call("ops.py")
    assert time.perf_counter() - begun < 15

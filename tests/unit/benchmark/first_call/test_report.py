"""A first call as a value: sums, the remainder, the form for programs."""

from __future__ import annotations

import json

import pytest

from first_calls import CACHED, COMPILED, report, run


def test_the_stages_and_the_remainder_add_up_to_the_whole() -> None:
    one = run("empty", COMPILED)
    assert one.stage_ms("start") == 2010.0
    assert one.stage_ms("call") == pytest.approx(988.04)
    assert one.remainder_ms == pytest.approx(0.5)
    assert one.stage_ms("start") + one.stage_ms("call") + one.remainder_ms == pytest.approx(one.whole_ms)


def test_a_phase_is_found_in_the_stage_that_it_came_in() -> None:
    one = run("empty", COMPILED, compile=7.0)
    before, within = one.find("start", "compile"), one.find("call", "compile")
    assert before is not None
    assert within is not None
    assert (before.ms, within.ms) == (7.0, 80.0)
    assert one.find("start", "launch") is None


def test_the_json_has_every_phase_with_what_takes_the_time_and_what_saves_it() -> None:
    told = json.loads(json.dumps(report().to_json(), allow_nan=False))
    assert (told["version"], told["operator"], told["planned"]) == (1, "mylib::scale_add", True)
    assert [one["cache"] for one in told["runs"]] == ["empty", "filled"]
    first = told["runs"][0]
    names = [phase["name"] for phase in first["phases"]]
    assert names == ["interpreter", "torch", *COMPILED]
    compiled = first["phases"][names.index("compile")]
    assert (compiled["stage"], compiled["ms"], compiled["times"]) == ("call", 80.0, 2)
    assert "DOTCU_CACHE_DIR" in compiled["avoid"]
    total = first["start_ms"] + first["call_ms"] + first["remainder_ms"]
    assert total == pytest.approx(first["whole_ms"])
    assert first["later_ms"][:2] == [1.5, 0.02]
    assert first["imported"] == ["torch._dynamo"]
    assert {phase["name"] for phase in told["runs"][1]["phases"]} == {"interpreter", "torch", *CACHED}

"""What a report says to programs: whether all held, and a JSON form that any reader takes."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from dotcu.checking.catalogue import Level, of_level
from dotcu.checking.report import CheckedOverload
from dotcu.checking.results import Passed, Skipped
from helpers.check_reports import NAME, failed, named, passed, report, skipped

TWO = (
    CheckedOverload(name="a::b", dtypes=("float32",)),
    CheckedOverload(name="a::b.out", dtypes=("float32",)),
)


def test_a_report_of_what_held_holds() -> None:
    assert report(passed("numerics"), skipped("graph", "needs a CUDA GPU")).passed


def test_one_shortfall_is_enough() -> None:
    found = report(passed("numerics", cases=50), failed("written"))
    assert not found.passed
    assert [one.check for one in found.failures] == ["written"]


def test_what_was_only_skipped_does_not_hold() -> None:
    assert not report(skipped("graph", "needs a CUDA GPU")).passed


def test_nothing_does_not_hold() -> None:
    assert not report().passed
    assert not report(overloads=()).passed


def test_every_overload_has_to_be_looked_at() -> None:
    assert not report(passed("numerics", overload="a::b"), overloads=TWO).passed
    both = report(passed("numerics", overload="a::b"), passed("numerics", overload="a::b.out"), overloads=TWO)
    assert both.passed


FLOATS = (CheckedOverload(name=NAME, dtypes=("float32", "float16")),)


def test_every_dtype_has_to_be_compared() -> None:
    assert not report(passed("numerics"), overloads=FLOATS).passed
    assert report(passed("numerics"), overloads=FLOATS, only=(NAME,)).passed
    half = named("written", Passed(), "float16-s0")
    assert report(passed("numerics"), [half], overloads=FLOATS).passed


def test_a_dtype_that_was_not_compared_says_why() -> None:
    found = report(passed("numerics"), overloads=FLOATS)
    assert found.not_tried(NAME) == {"float16": "no sample of it"}
    unseen = named("numerics", Skipped(reason="the simulator cannot run it"), "float16-s0")
    found = report(passed("numerics"), [unseen], overloads=FLOATS)
    assert found.not_tried(NAME) == {"float16": "nothing of it was compared"}
    assert found.to_json()["overloads"][0]["not_tried"] == {"float16": "nothing of it was compared"}


def test_a_dtype_that_is_the_beginning_of_another_is_not_taken_for_it() -> None:
    dtypes = ("float8_e4m3fnuz", "float8_e4m3fn")
    found = report(
        [named("numerics", Passed(), "float8_e4m3fnuz-s0")],
        overloads=(CheckedOverload(name=NAME, dtypes=dtypes),),
    )
    assert found.not_tried(NAME) == {"float8_e4m3fn": "no sample of it"}


def test_a_dtype_of_which_every_sample_is_empty_does_not_hold() -> None:
    one = CheckedOverload(name=NAME, dtypes=("float32",), empty=("float32",))
    assert not report(passed("numerics"), overloads=(one,)).passed


def test_derived_calls_are_counted_and_so_are_those_that_were_refused() -> None:
    refused = [named("errors", Passed(refusal=f"ValueError: {n}"), f"float32-s0-n{n}") for n in (1, 2)]
    taken = [named(check, Passed(), "float32-s0-offset-1") for check in ("numerics", "written")]
    given = [named("errors", Passed(refusal="ValueError: no"), "float32-s1")]
    found = report(refused, taken, given)
    assert found.derived(NAME) == (3, ["ValueError: 1", "ValueError: 2"])
    assert found.to_json()["overloads"][0]["derived"] == {"tried": 3, "refused": 2}


def test_a_check_that_was_interrupted_does_not_hold() -> None:
    assert not report(passed("numerics"), interrupted=True, unfinished=1).passed


def test_the_json_form_is_plain_and_has_what_the_report_has() -> None:
    found = report(
        passed("numerics", ratio=0.25), failed("written", evidence="1\n2"), skipped("vmap", "no rule"), seed=5
    )
    plain = found.to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["version"], plain["passed"], plain["level"], plain["seed"]) == (4, False, "quick", 5)
    assert plain["checks"] == list(of_level(Level.QUICK))
    assert plain["overloads"] == [
        {
            "name": NAME,
            "dtypes": ["float32"],
            "tolerance": None,
            "passed": False,
            "not_tried": {},
            "derived": {"tried": 0, "refused": 0},
        }
    ]
    first, second, third = plain["results"]
    assert (first["outcome"], first["ratio"], first["trial"]) == ("passed", 0.25, f"{NAME}/call/float32-s0")
    assert (second["outcome"], second["evidence"]) == ("failed", "1\n2")
    assert (third["outcome"], third["reason"], third["check"]) == ("skipped", "no rule", "vmap")


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null(ratio: float) -> None:
    plain = report(passed("numerics", ratio=ratio)).to_json()
    assert json.loads(json.dumps(plain, allow_nan=False))["results"][0]["ratio"] is None


def test_a_tolerance_by_dtype_is_an_object() -> None:
    one = CheckedOverload(name=NAME, dtypes=("float16",), tolerance={"float16": 0.01})
    assert report(overloads=(one,)).to_json()["overloads"][0]["tolerance"] == {"float16": 0.01}


def test_every_key_of_the_json_form_is_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "reports.md").read_text(encoding="utf-8")
    part = page.partition("## Check")[2].partition("\n## ")[0]
    found = report(passed("numerics"), failed("written"), skipped("vmap", "no rule"))
    plain = found.to_json()
    keys = {*plain, *(key for one in (*plain["overloads"], *plain["results"]) for key in one)}
    assert sorted(key for key in keys if f"`{key}`" not in part) == []
    assert set(asdict(found)) <= {*plain}

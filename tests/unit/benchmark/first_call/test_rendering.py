"""A first call as people read it."""

from __future__ import annotations

from dotcu.benchmark.first_call.report import FirstCall
from first_calls import CACHED, COMPILED, report, run


def line(found: FirstCall, label: str) -> list[str]:
    """The cells of the line of a label."""
    lines = [text for text in str(found).splitlines() if text.strip().startswith(label)]
    assert len(lines) == 1, str(found)
    return lines[0].strip().removeprefix(label).split(maxsplit=2)


def test_the_head_says_what_was_called_and_where() -> None:
    head = str(report(note="the first of 2 operators there: a, b")).splitlines()
    assert head[0] == "mylib::scale_add, called for the first time in a new process, on NVIDIA H200 (cuda:0)"
    assert head[1:3] == [
        "    Sample(float32[1]); torch 2.11.0",
        "    the first of 2 operators there: a, b",
    ]


def test_a_phase_has_its_time_in_both_processes_and_a_reason() -> None:
    assert line(report(), "launch")[:2] == ["0.04", "0.04"]
    assert line(report(), "import torch")[2].startswith("its libraries are linked")


def test_what_a_filled_cache_saves_has_no_time_there() -> None:
    *times, words = line(report(), "compile x2")
    assert times == ["80.00", "-"]
    assert words.endswith("a filled cache saves it: keep or ship DOTCU_CACHE_DIR")


def test_sums_and_what_is_not_attributed_are_told() -> None:
    found = report()
    assert line(found, "before the call")[:2] == ["2010.00", "2010.00"]
    assert line(found, "the first call")[:2] == ["988.04", "903.54"]
    assert str(found).count("op.warm() does it earlier") == 1, "of all of the call, where its sum is"
    assert line(found, "not attributed")[:2] == ["0.50", "0.50"]
    assert line(found, "in all")[:2] == ["2998.54", "2914.04"]


def test_what_was_compiled_before_the_call_stands_before_it() -> None:
    found = report(runs=(run("empty", CACHED, compile=7.0),))
    order = [text.split("  ")[1] for text in str(found).splitlines() if text.startswith("    ")]
    lines = str(found).splitlines()
    assert any("compile" in text and "7.00" in text for text in lines), order
    assert next(i for i, text in enumerate(lines) if "compile x2" in text) < next(
        i for i, text in enumerate(lines) if "before the call" in text
    )


def test_the_modules_that_the_call_imported_are_named() -> None:
    assert line(report(), "imports")[2].endswith("needed: torch._dynamo")


def test_later_calls_are_told_as_what_they_are() -> None:
    planned, plain = report(), report(planned=False)
    assert line(planned, "second call")[:2] == ["1.500", "1.500"]
    assert "plan" in line(planned, "third call")[2]
    assert "not replayed" in line(plain, "third call")[2]
    assert line(planned, "a later call") == ["0.012", "0.012", "the median of 3 more, each waited for"]


def test_the_simulator_is_not_said_to_make_plans() -> None:
    found = str(report(device="simulator", planned=False, runs=(run("empty", COMPILED),)))
    assert "plan" not in found
    assert "cubin" not in found

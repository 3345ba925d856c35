"""What a report says to people."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from dotcu.checking.report import EVIDENCE_LINES, TOO_FEW_ACCEPTED, CheckedOverload, CheckReport, failure_text
from dotcu.checking.results import WRONG_VALUES, Failed, Passed
from helpers.check_reports import NAME, failed, named, passed, report, skipped


def row(found: CheckReport, label: str) -> str:
    """What an overload's table says behind a label, "" where it has none."""
    start = f"  {label} "
    lines = [line.removeprefix(start) for line in str(found).splitlines() if line.startswith(start)]
    return lines[0].strip() if lines else ""


def test_the_head_names_level_place_seed_and_every_check_of_the_level() -> None:
    found = report(passed("numerics"), level="full", device="cuda:0", seed=4)
    head = str(found).partition("\n\n")[0]
    assert head.startswith(
        f"full on cuda:0, seed 4, {len(found.checks)} checks:\n    reference, call, numerics"
    )
    assert " ".join(head.split()).endswith(", ".join(found.checks))


def test_what_held_takes_one_line() -> None:
    found = report(passed("numerics", cases=54, ratio=0.421), passed("written", cases=54), passed("bounds"))
    assert row(found, "passed") == "3 checks in 54 cases; largest error: 42 % of the tolerance"


def test_the_worst_ratio_is_the_one_that_is_shown() -> None:
    found = report(
        passed("numerics", ratio=0.9), passed("numerics", ratio=0.1), passed("gradients", ratio=0.5)
    )
    told = "largest errors, in percent of the tolerance: numerics 90 %, gradients 50 %"
    assert told in row(found, "passed")


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        (["7 calls"] * 3, "7 calls"),
        (["no call is by plan: it copies"], "no call is by plan: it copies"),
        (["plan: a", "plan: b"], "plan"),
        (["a", "b", "c", "d", "e"], "a, b, c, ..."),
    ],
    ids=["the same", "a reason", "a reason each", "many"],
)
def test_notes_are_reported_once(notes: list[str], told: str) -> None:
    found = report(*(passed("numerics", note=note) for note in notes))
    assert row(found, "notes") == f"numerics: {told}"


def test_calls_that_were_refused_are_counted_by_check() -> None:
    refused = passed("errors", cases=3, refusal="ArgumentError: no"), passed("fake", refusal="ValueError: no")
    assert (
        row(report(passed("numerics"), *refused), "refused")
        == "4 unusual calls, each with an error that says why: 1 in fake, 3 in errors"
    )
    assert row(report(passed("numerics")), "refused") == ""


def test_a_check_that_failed_has_a_line_and_does_not_count_as_held() -> None:
    found = report(passed("written", cases=3), passed("numerics", cases=2), failed("numerics"))
    assert row(found, "numerics") == "FAILED in 1 of 3 cases"
    assert row(found, "passed") == "1 check in 3 cases"


def test_what_was_skipped_is_reported_by_reason() -> None:
    found = report(
        passed("numerics"),
        skipped("vmap", "no batching rule"),
        skipped("graph", "needs a CUDA GPU"),
        skipped("stream", "needs a CUDA GPU"),
    )
    assert row(found, "skipped") == "vmap: no batching rule; stream, graph: needs a CUDA GPU"


def test_a_check_that_was_skipped_in_some_cases_says_in_how_many() -> None:
    found = report(passed("numerics", cases=3), skipped("numerics", "too large"))
    assert row(found, "skipped") == "numerics in 1 of 4 cases: too large"
    assert row(found, "passed").startswith("1 check in 3 cases")


def test_a_check_of_the_level_without_any_case_is_named() -> None:
    found = report(passed("numerics"))
    assert row(found, "not applicable").startswith("reference, ")
    assert "written" in row(found, "not applicable")
    assert not row(report(passed("numerics"), only=("mylib::",)), "not applicable")


def test_without_a_reference_the_checks_that_ran_are_named() -> None:
    found = report(skipped("numerics", "no reference"), passed("written"), passed("bounds"))
    assert row(found, "passed") == "written, bounds in 1 case"
    assert row(found, "skipped") == "numerics: no reference"


@pytest.mark.parametrize(
    ("tolerance", "told"),
    [
        (None, "mylib::scale  float16, float32"),
        (1e-2, "mylib::scale  float16, float32; tolerance 0.01 (declared)"),
        ({"float16": 1e-1}, "mylib::scale  float16, float32; tolerance 0.1 for float16 (declared)"),
    ],
    ids=["none", "one", "by dtype"],
)
def test_a_declared_tolerance_is_shown(tolerance: float | dict[str, float] | None, told: str) -> None:
    one = CheckedOverload(name=NAME, dtypes=("float16", "float32"), tolerance=tolerance)
    assert told in str(report(passed("numerics"), overloads=(one,))).splitlines()


def test_a_shortfall_has_its_trial_reason_evidence_and_the_line_that_shows_it_again() -> None:
    (one,) = failed("numerics", reason="1 of 9 elements is wrong", evidence="output 0[3]: got 1\nexpected 2")
    assert failure_text(one) == (
        "mylib::scale/call/float32-s0 FAILED numerics: 1 of 9 elements is wrong\n"
        "    output 0[3]: got 1\n"
        "    expected 2\n"
        "    again: again 0"
    )
    assert failure_text(one) in str(report([one]))


def test_long_evidence_is_cut_and_says_so() -> None:
    (one,) = failed("numerics", evidence="\n".join(f"line {n}" for n in range(EVIDENCE_LINES + 5)))
    told = failure_text(one).splitlines()
    assert told[EVIDENCE_LINES : EVIDENCE_LINES + 2] == ["    line 19", "    ... and 5 lines more"]


def shown_failures(found: CheckReport) -> list[str]:
    """The failures that are printed in full: check and reason."""
    return [
        line.partition(" FAILED ")[2]
        for line in str(found).splitlines()
        if "/call/" in line and "FAILED" in line
    ]


def test_failures_of_a_check_that_differ_in_numbers_are_shown_once_and_counted() -> None:
    reason = "# of 9 elements are wrong, the worst by #.5e+07 times"
    found = report(failed("numerics", cases=5, reason=reason), failed("written"))
    assert shown_failures(found) == [
        "numerics: 0 of 9 elements are wrong, the worst by 0.5e+07 times",
        "written: it is wrong",
    ]
    assert "    4 more cases failed in the same way: --json has all" in str(found).splitlines()
    assert str(found).count("in the same way") == 1


CAUSE = {"place": "ops.py:11", "kind": "IndexError", "evidence": "ops.py:11: IndexError: out of range"}


def test_one_cause_is_one_failure_and_names_the_checks_that_fail_of_it() -> None:
    found = report(
        failed("numerics", reason="it raises IndexError", **CAUSE),
        failed("fake", reason="it raises IndexError", **CAUSE),
        failed("errors", cases=3, reason="it fails with IndexError", **CAUSE),
        failed("compile", **CAUSE),
        failed("numerics", cases=2, place="ops.py:12", kind="IndexError"),
    )
    assert shown_failures(found) == ["numerics: it raises IndexError", "numerics: it is wrong"]
    lines = str(found).splitlines()
    assert "    3 other checks failed for the same reason: fake, errors (3 cases), compile" in lines
    assert "    1 more case failed for the same reason: --json has all" in lines
    assert len(found.failures) == 8


def test_one_cause_in_two_overloads_is_one_failure() -> None:
    both = ("mylib::scale", "mylib::scale.out")
    found = report(
        *(failed("sanitizer-bounds", overload=name, place="k.cu:5", kind="out-of-bounds") for name in both),
        overloads=tuple(CheckedOverload(name=name, dtypes=("float32",)) for name in both),
    )
    assert len(shown_failures(found)) == 1
    assert "1 other check failed for the same reason: mylib::scale.out sanitizer-bounds" in str(found)


def test_a_body_that_returns_no_result_is_one_failure_and_comes_first() -> None:
    found = report(
        failed("errors", reason="it fails with IndexError", **CAUSE),
        failed("result", cases=2, reason="the body returns an invalid result", kind="BodyError"),
        failed("fake", reason="it raises BodyError", kind="BodyError"),
    )
    assert shown_failures(found) == [
        "result: the body returns an invalid result",
        "errors: it fails with IndexError",
    ]
    assert "    1 more case and 1 other check failed for the same reason: fake" in str(found).splitlines()


def test_errors_that_a_library_raises_at_one_line_of_torch_are_not_one_cause() -> None:
    found = report(*(failed("numerics", kind="RuntimeError", evidence=f"_ops.py:9: {e}") for e in "ab"))
    assert len(shown_failures(found)) == 2


def test_a_failure_at_a_line_of_a_kernel_comes_first() -> None:
    found = report(
        failed("reference"),
        failed("fake", reason="it raises IndexError", **CAUSE),
        failed("sanitizer-race", place="k.cu:5", kind="race"),
        failed("gradients", place="ops.py:9", kind="CompileError"),
    )
    assert [line.partition(":")[0] for line in shown_failures(found)] == [
        "sanitizer-race",
        "gradients",
        "fake",
        "reference",
    ]


def test_shortfalls_come_in_the_order_of_the_checks() -> None:
    shown = str(report(failed("written"), failed("numerics")))
    assert shown.index("FAILED numerics") < shown.index("FAILED written")


def test_the_authors_own_sample_comes_first_and_wrong_arguments_come_last() -> None:
    own = named(
        "written", Failed(reason="leaves 1 of 700 elements unwritten, the first at [0, 0]"), "float32-s0"
    )
    alike = named(
        "written", Failed(reason="leaves 1 of 9 elements unwritten, the first at [0]"), "float32-s0-n9"
    )
    found = Failed(reason="out-of-bounds in the simulator", place="k.cu:5", kind="out-of-bounds")
    at_a_line = [named("sanitizer-bounds", found, "float32-s0-n33")]
    taken = [
        named("errors", Failed(reason=reason, kind=kind), f"{NAME}/errors/float32-s0-{word}")
        for word, reason, kind in (
            ("x-0d", "it accepts arguments that it must refuse", ""),
            ("x-wider", "1 of 701 elements are wrong", WRONG_VALUES),
            ("x-bool", "it fails with IndexError, and its reference accepts the call", "IndexError"),
        )
    ]
    shown = str(report(taken, at_a_line, [alike], [own]))
    heads = [
        line.partition(" FAILED")[0].rpartition("/")[2] for line in shown.splitlines() if " FAILED " in line
    ]
    assert heads[-4:] == ["float32-s0", "float32-s0-n33", "float32-s0-x-0d", "float32-s0-x-bool"]
    first, last = shown.index("leaves 1 of 700"), shown.index("Calls with wrong arguments:")
    assert first < shown.index("1 more case failed in the same way") < shown.index("out-of-bounds") < last
    assert last < shown.index("it accepts arguments")
    assert "1 of 701" not in shown, "as wrong as the sample"
    assert "errors            FAILED in 2 of 2 cases" in shown
    assert "not judged        1 unusual call gave wrong values, as your own samples do" in shown


def test_an_overload_that_was_not_tried_says_what_to_do() -> None:
    told = row(report(skipped("vmap", "no samples")), "not tried")
    assert told.endswith("give the operator samples, with @scale.samples")
    assert row(report(), "not tried") == told
    assert str(report()).splitlines()[-1] == "NOT TRIED: 1 of 1 overload; 0 cases, 0.0 s"
    assert "not tried" not in str(report(interrupted=True, unfinished=3)).lower()


def test_a_dtype_that_was_not_tried_has_a_line() -> None:
    one = CheckedOverload(name=NAME, dtypes=("float32", "float16"))
    found = report(passed("numerics"), overloads=(one,))
    assert row(found, "not tried") == "float16: no sample of it"
    assert str(found).splitlines()[-1].startswith("NOT TRIED: 1 of 1 overload")
    assert "not tried" not in str(report(passed("numerics"), overloads=(one,), only=(NAME,))).lower()


@pytest.mark.parametrize(("number", "told"), [(TOO_FEW_ACCEPTED, True), (TOO_FEW_ACCEPTED - 1, False)])
def test_an_overload_that_refuses_every_derived_call_holds_and_has_a_line(number: int, told: bool) -> None:
    refused = [named("errors", Passed(refusal="TypeError: no"), f"float32-s0-n{n}") for n in range(number)]
    found = report(passed("numerics"), refused)
    assert found.passed
    assert (
        row(found, "little tested").startswith(
            "all 5 derived calls were refused, so only your samples were tested. "
            "The first error: TypeError: no."
        )
        is told
    )
    one_taken = report(passed("numerics"), refused, [named("numerics", Passed(), "float32-s0-transposed")])
    assert row(one_taken, "little tested") == ""


def test_an_overload_that_refuses_every_non_contiguous_input_says_so() -> None:
    refusal = Passed(refusal="ArgumentError: takes a contiguous float32 tensor")
    strided = [named("errors", refusal, f"float32-s0-{name}") for name in ("2d-transposed", "sliced")]
    taken = [named("numerics", Passed(), f"float32-s0-n{n}") for n in (7, 9)]
    found = report(passed("numerics"), taken, strided)
    assert found.passed
    assert row(found, "layouts") == (
        "refuses non-contiguous inputs: transposed, sliced. "
        "To accept them, call .contiguous() before the launch."
    )
    one_taken = [named("numerics", Passed(), "float32-s0-expanded")]
    assert not row(report(passed("numerics"), taken, strided, one_taken), "layouts")


def test_where_the_samples_fail_they_are_not_said_to_be_tested() -> None:
    refused = [
        named("errors", Passed(refusal="ValueError: got 8."), f"float32-s0-n{n}")
        for n in range(TOO_FEW_ACCEPTED)
    ]
    assert row(report(failed("numerics"), refused), "little tested").startswith(
        "all 5 derived calls were refused. The first error: ValueError: got 8. Add samples"
    )


def test_the_last_line_says_how_it_ended() -> None:
    def last(found: CheckReport) -> str:
        return str(found).splitlines()[-1]

    assert last(report(passed("numerics", cases=2), seconds=1.25)) == "passed: 1 overload, 2 cases, 1.2 s"
    assert last(report(failed("numerics"))) == "FAILED: 1 of 1 overload; 1 case, 0.0 s"
    stopped = report(passed("numerics"), interrupted=True, unfinished=7)
    assert last(stopped).startswith("interrupted: 7 not run; ")


def test_what_a_message_has_in_brackets_is_no_markup() -> None:
    assert "got [bold]x[/bold]" in str(report(failed("numerics", evidence="got [bold]x[/bold]")))


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_wraps_at_words_and_keeps_paths_whole(width: int) -> None:
    path = f"/home/somebody/{'a/long/way/down/' * 6}ops.py:soft_cap"
    words = "the kernel reads a value that nobody wrote, in a call that dotcu derived from the sample"
    (one,) = failed("numerics", reason=words, evidence=f"{path}:12: {words}")
    found = report([msgspec.structs.replace(one, reproduce=f"dotcu check {path} --device simulator")])
    console = Console(width=width, file=io.StringIO(), force_jupyter=False)
    with console.capture() as captured:
        console.print(found, crop=False)
    shown = captured.get()
    assert set(words.split()) <= set(shown.split()), "no word is broken"
    assert f"    again: dotcu check {path} --device simulator" in shown.splitlines(), "to be pasted"
    assert f"{path}:12:" in shown.split()
    assert all(len(line.rstrip()) <= width for line in shown.splitlines() if path not in line)

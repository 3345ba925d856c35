"""The report of a check: prints itself, and has a JSON form for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.checking.cases.derived import STRIDED
from dotcu.checking.catalogue import CHECKS, Level, of_level
from dotcu.checking.results import WRONG_VALUES, CheckResult, Failed, Passed, Skipped
from dotcu.errors import BodyError, CompileError, escaped
from dotcu.report_base import Grid, Line
from dotcu.serialize import plain

VERSION = 4
"""The version of the JSON form; docs/reference/reports.md has its keys."""

_COMPARING = {"numerics", "written"}  # the checks of a call that look at its values


@dataclass(frozen=True, kw_only=True)
class CheckedOverload:
    """An overload that was checked.

    Attributes:
        name: The qualified name: `mylib::scale_add.out`.
        dtypes: Those that it says it takes: `float32`.
        tolerance: What its author declared, for all dtypes or by dtype; None if the bounds are dotcu's.
        empty: The dtypes whose samples have no element, all of them.
    """

    name: str
    dtypes: tuple[str, ...]
    tolerance: float | Mapping[str, float] | None = None
    empty: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckReport(report_base.Report):
    """The result of `dotcu.check`. `str()` of it is a table.

    Attributes:
        device: Where kernels ran: `simulator`, `cuda:0`.
        level: `quick`, `standard` or `full`.
        seed: What random numbers started from.
        only: The names that picked some of the trials; empty where all were to run.
        overloads: What was checked.
        results: Every result, in the order in which trials were planned.
        interrupted: True if the user interrupted; what was found until then is there.
        unfinished: How many trials had not come to their end then.
        seconds: From the first trial to the last.
    """

    device: str
    level: str
    seed: int
    only: tuple[str, ...] = ()
    overloads: tuple[CheckedOverload, ...]
    results: tuple[CheckResult, ...]
    interrupted: bool = False
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True if nothing failed, something of each overload was tried, and the check was not interrupted."""
        passed = all(self.passed_by(overload.name) for overload in self.overloads)
        return bool(self.overloads) and passed and not self.interrupted

    @property
    def failures(self) -> tuple[Failed, ...]:
        """The results that failed."""
        return tuple(result for result in self.results if isinstance(result, Failed))

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the checks of the level."""
        return of_level(Level[self.level.upper()])

    def passed_by(self, overload: str) -> bool:
        """Return whether an overload was tried in each of its dtypes, and nothing of it failed."""
        kinds = {type(result) for result in self.results if result.trial.overload == overload}
        return bool(kinds - {Skipped}) and Failed not in kinds and not self.not_tried(overload)

    def not_tried(self, overload: str) -> dict[str, str]:
        """The dtypes of an overload in which no call was compared, and why; none where `only` is given."""
        (one,) = (each for each in self.overloads if each.name == overload)
        reasons: dict[str, str] = {}
        for dtype in () if self.only else one.dtypes:
            calls = [r for r in self._calls(overload) if r.trial.dtype == dtype]
            compared = {type(r) for r in calls if r.check in _COMPARING or isinstance(r, Failed)}
            if dtype in one.empty:
                reasons[dtype] = "every sample is empty"
            elif not compared - {Skipped}:
                reasons[dtype] = "nothing of it was compared" if calls else "no sample of it"
        return reasons

    def derived(self, overload: str) -> tuple[int, list[str]]:
        """The number of calls that dotcu derived of an overload's samples, and why some were refused."""
        calls = [result for result in self._calls(overload) if result.trial.variant]
        refusals = [result.refusal for result in calls if isinstance(result, Passed) and result.refusal]
        return len({result.trial for result in calls if not isinstance(result, Skipped)}), refusals

    def refused_layouts(self, overload: str) -> list[str]:
        """The layouts of non-contiguous inputs, if an overload refused every call with such."""
        calls = self._calls(overload)
        strided = {
            result.trial: layout
            for result in calls
            for layout in STRIDED
            if f"-{result.trial.variant}".endswith(f"-{layout}")
        }
        refused = {result.trial for result in calls if isinstance(result, Passed) and result.refusal}
        return list(dict.fromkeys(strided.values())) if strided.keys() <= refused else []

    def _calls(self, overload: str) -> list[CheckResult]:
        return [r for r in self.results if r.trial.overload == overload and r.trial.kind == "call"]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does.

        A number that is not finite is None, so every reader of JSON takes it.
        """
        overloads = []
        for one in self.overloads:
            tried, refusals = self.derived(one.name)
            overloads.append(
                {
                    "name": one.name,
                    "dtypes": one.dtypes,
                    "tolerance": one.tolerance,
                    "passed": self.passed_by(one.name),
                    "not_tried": self.not_tried(one.name),
                    "derived": {"tried": tried, "refused": len(refusals)},
                }
            )
        report = {
            "version": VERSION,
            "passed": self.passed,
            "device": self.device,
            "level": self.level,
            "seed": self.seed,
            "only": self.only,
            "checks": self.checks,
            "interrupted": self.interrupted,
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 6),
            "overloads": overloads,
            "results": list(map(result_json, self.results)),
        }
        document: dict[str, Any] = plain(report)
        return document

    def __rich__(self) -> RenderableType:
        return table(self)


def result_json(result: CheckResult) -> dict[str, Any]:
    """Return a result as the JSON form of a report has it, its trial by name."""
    named = {"overload": result.trial.overload, "check": result.check, "trial": str(result.trial)}
    return {**plain(result), **named, "seconds": round(result.seconds, 6)}


SHOWN = 3
"""The notes of one check, and the calls with wrong arguments, that are shown."""

TOO_FEW_ACCEPTED = 5
"""The report warns of an overload that refuses all of its derived calls, if it has this many."""

AGAIN = "again: "
"""What stands before the command that runs a failed trial again."""

EVIDENCE_LINES = 20
"""The lines of the evidence of a failure that are shown."""

_FOLD = 110  # characters: where the list of checks goes on in a new line, wherever it is printed
_LABEL = 9  # characters of the narrowest first column, so that the tables of overloads mostly line up


def table(report: CheckReport) -> RenderableType:
    """Return the whole report."""
    checks = report.checks
    parts: list[RenderableType] = [
        Text(f"{report.level} on {report.device}, seed {report.seed}, {len(checks)} checks:"),
        Constrain(Padding(Text(", ".join(checks)), (0, 0, 0, 4)), _FOLD),
    ]
    for overload in report.overloads:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=_LABEL)
        grid.add_column(overflow="fold")
        for label, text, style in _rows(report, overload.name):
            grid.add_row(Text(label), Text(text, style=style))
        head = Text.assemble((overload.name, "bold"), _declared(overload))
        parts += [Text(), head, Padding(grid, (0, 0, 0, 2))]
    for failure in _failures(report):
        parts += [Text(), failure]
    return Group(*parts, Text(), _conclusion(report))


def failure_text(result: Failed) -> str:
    """Return a failure as text: the trial, the check, the reason, the evidence, the line to run again."""
    lines = result.evidence.splitlines()
    rest = len(lines) - EVIDENCE_LINES
    shown = lines if rest <= 0 else [*lines[:EVIDENCE_LINES], f"... and {_count(rest, 'line')} more"]
    again = [AGAIN + result.reproduce] if result.reproduce else []
    head = f"{result.trial} FAILED {result.check}: {result.reason}"
    return escaped("\n".join([head, *(f"    {line}".rstrip() for line in (*shown, *again))]))


def nothing_tried(overload: str) -> str:
    """Say what to do about an overload of which nothing was tried."""
    name = overload.rpartition("::")[2].partition(".")[0]
    return f"not tested: give the operator samples, with @{name}.samples"


def _declared(overload: CheckedOverload) -> str:
    tolerance = overload.tolerance
    if isinstance(tolerance, Mapping):
        text = ", ".join(f"{value:g} for {dtype}" for dtype, value in tolerance.items())
    else:
        text = "" if tolerance is None else f"{tolerance:g}"
    return f"  {', '.join(overload.dtypes)}" + (f"; tolerance {text} (declared)" if text else "")


def _rows(report: CheckReport, overload: str) -> Iterator[tuple[str, str, str]]:
    """Yield the label, the text and the style of each line of an overload's table."""
    results = [result for result in report.results if result.trial.overload == overload]
    broken = _broken(report)
    explained = sum(is_explained(result, broken) for result in results)
    results = [result for result in results if not is_explained(result, broken)]
    by_check = {name: some for name in CHECKS if (some := [r for r in results if r.check == name])}
    kinds = {name: set(map(type, some)) for name, some in by_check.items()}
    yield from _outcomes(by_check, kinds)
    if explained:
        wrong = f"{_count(explained, 'unusual call')} gave wrong values, as your own samples do"
        yield "not judged", wrong, "dim"
    if skipped := _skipped_text(by_check):
        yield "skipped", skipped, "dim"
    if report.only or report.interrupted:
        return
    idle = [name for name in report.checks if name not in by_check]
    if idle and results:
        yield "not applicable", ", ".join(idle), "dim"
    if all(of == {Skipped} for of in kinds.values()):
        yield "not tried", nothing_tried(overload), "bold red"
        return
    for dtype, why in report.not_tried(overload).items():
        yield "not tried", f"{dtype}: {why}", "bold red"
    tried, refusals = report.derived(overload)
    if len(refusals) == tried >= TOO_FEW_ACCEPTED:
        refused = f"all {tried} derived calls were refused"
        rest = "" if overload in broken else ", so only your samples were tested"
        remedy = "Add samples of other inputs that it accepts, or accept more inputs."
        first = _without_stop(refusals[0])
        yield "little tested", f"{refused}{rest}. The first error: {first}. {remedy}", "yellow"
    elif layouts := report.refused_layouts(overload):
        remedy = "To accept them, call .contiguous() before the launch."
        yield "layouts", f"refuses non-contiguous inputs: {', '.join(layouts)}. {remedy}", "yellow"


def _outcomes(
    by_check: Mapping[str, Sequence[CheckResult]], kinds: Mapping[str, set[type[CheckResult]]]
) -> Iterator[tuple[str, str, str]]:
    """Yield a line for each check that failed, and lines for those that passed."""
    for name, some in by_check.items():
        if failed := sum(isinstance(result, Failed) for result in some):
            yield name, f"FAILED in {failed} of {_count(len(some), 'case')}", "bold red"
    passed = {
        name: [result for result in by_check[name] if isinstance(result, Passed)]
        for name, of in kinds.items()
        if Passed in of and Failed not in of
    }
    if passed:
        by_name = kinds.get("numerics", {Skipped}) == {Skipped}  # values were compared with nothing
        yield "passed", _passed_text(passed, by_name=by_name), ""
    if refused := _refused_text(passed):
        yield "refused", refused, ""
    if notes := _notes_text(passed):
        yield "notes", notes, "dim"


def _passed_text(passed: Mapping[str, Sequence[Passed]], *, by_name: bool) -> str:
    """Return how many checks, or which, passed in how many cases, and the largest errors."""
    cases = {result.trial for results in passed.values() for result in results}
    largest = {
        name: max(ratios)
        for name, results in passed.items()
        if (ratios := [result.ratio for result in results if result.ratio is not None])
    }
    count = ", ".join(passed) if by_name else _count(len(passed), "check")
    text = f"{count} in {_count(len(cases), 'case')}"
    if len(largest) > 1:
        each = ", ".join(f"{name} {_percent(ratio)}" for name, ratio in largest.items())
        return f"{text}; largest errors, in percent of the tolerance: {each}"
    return text + "".join(f"; largest error: {_percent(r)} of the tolerance" for r in largest.values())


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2g} %" if ratio < 1 else f"{100 * ratio:.0f} %"


def _refused_text(passed: Mapping[str, Sequence[Passed]]) -> str:
    """Return how many calls were refused as they may be, by check."""
    counts = {name: sum(bool(result.refusal) for result in results) for name, results in passed.items()}
    each = ", ".join(f"{count} in {name}" for name, count in counts.items() if count)
    calls = _count(sum(counts.values()), "unusual call")
    return f"{calls}, each with an error that says why: {each}" if each else ""


def _notes_text(passed: Mapping[str, Sequence[Passed]]) -> str:
    """Return the notes of each check, each once."""
    texts = []
    for name, results in passed.items():
        notes = list(dict.fromkeys(_without_stop(result.note) for result in results if result.note))
        if len(notes) > 1:
            notes = list(dict.fromkeys(note.partition(":")[0] for note in notes))
        shown = notes if len(notes) <= SHOWN else [*notes[:SHOWN], "..."]
        texts += [f"{name}: {', '.join(shown)}"] if shown else []
    return "; ".join(texts)


def _skipped_text(found: Mapping[str, Sequence[CheckResult]]) -> str:
    """Return checks by the reason for which they were skipped, in all cases or in some."""
    reasons: dict[str, list[str]] = {}
    for name, some in found.items():
        why = Counter(_without_stop(r.reason.partition("\n")[0]) for r in some if isinstance(r, Skipped))
        for reason, count in why.items():
            part = "" if count == len(some) else f" in {count} of {_count(len(some), 'case')}"
            reasons.setdefault(reason, []).append(name + part)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def _without_stop(sentence: str) -> str:
    """Return a sentence of an error, for use inside a line."""
    return sentence.removesuffix(".")


def cause_of(result: Failed) -> str:
    """Return what a failure has in common with those of the same cause.

    It is the line of the user's code at fault, with the kind of error or finding. A body that returns no new
    memory, for example, has no such line, and fails every check. Without either it is the overload, the
    check and the reason, but for the numbers.
    """
    if result.place:
        return f"{result.place}: {result.kind}"
    if _is_located(result):
        return f"{result.trial.overload}: {result.kind}"
    evidence = result.evidence.partition("\n")[0] if result.kind else ""
    words = _NUMBER.sub("#", f"{result.reason} {evidence}").replace("[#]", "[]")
    return f"{result.trial.overload} {result.check}: {words}"


_NUMBER = re.compile(r"-?\d(?:[\d.]|,(?=\d))*(?:e[+-]?\d+)?(?:, -?\d+)*")  # or several: an index


def _is_located(result: Failed) -> bool:
    """Return whether what is at fault is known: a line, or all that a body returns."""
    return bool(result.place) or result.kind == BodyError.__name__


def _broken(report: CheckReport) -> set[str]:
    """Return the overloads that fail on a sample of their author's."""
    return {failure.trial.overload for failure in report.failures if of_sample(failure)}


def is_explained(result: CheckResult, broken: Collection[str]) -> bool:
    """Return whether an unusual call merely gave wrong values, as the samples of its overload do."""
    wrong = isinstance(result, Failed) and result.check == "errors" and result.kind == WRONG_VALUES
    return wrong and result.trial.overload in broken


def _failures(report: CheckReport) -> Iterator[RenderableType]:
    """Yield the first failure of each cause, those of the author's samples first, and count what follows.

    Then come those of a kernel or of a body. Last are wrong arguments that an operator takes, of which a few
    are shown: they are many where it looks at none.
    """
    order, broken = list(CHECKS), _broken(report)
    causes: dict[str, list[Failed]] = {}
    for failure in sorted(report.failures, key=lambda each: (not of_sample(each), order.index(each.check))):
        if not is_explained(failure, broken):
            causes.setdefault(cause_of(failure), []).append(failure)

    def rank(failures: Sequence[Failed]) -> tuple[bool, bool, int]:
        """Return the place: a line of CUDA C++ or what a body returns, then a line of Python, then others."""
        first = failures[0]
        in_kernel = not first.place.rpartition(":")[0].endswith(".py") or first.kind == CompileError.__name__
        return of_arguments(failures), not of_sample(first), 2 - _is_located(first) * (1 + in_kernel)

    def of_arguments(failures: Sequence[Failed]) -> bool:
        return all(failure.trial.kind == "errors" for failure in failures)

    shown = sorted(causes.values(), key=rank)
    arguments = [failures for failures in shown if of_arguments(failures)]
    for failures in [*shown[: len(shown) - len(arguments)], *arguments[:SHOWN]]:
        if arguments and failures is arguments[0]:
            yield Text("Calls with wrong arguments:", style="bold")
        yield _shown(failures)
    if count := sum(map(len, arguments[SHOWN:])):
        yield Text(f"{_count(count, 'more call')} with wrong arguments failed: --json has all", style="dim")


def _shown(failures: Sequence[Failed]) -> RenderableType:
    """Return the first of the failures of one cause, and how many others there are."""
    head, *others = [*failure_text(failures[0]).splitlines(), *_followers(failures)]
    lines = [Line(words=Text(head, style="bold", overflow="ignore"))]
    for line in others:
        text = line.lstrip()
        in_one_piece = text.startswith(AGAIN)  # to be pasted
        words = Text(text, no_wrap=in_one_piece, overflow="ignore")
        lines.append(Line(indent=len(line) - len(text), words=words))
    return Grid(columns=(), lines=lines)


def of_sample(result: Failed) -> bool:
    """Return whether it is a failure of a plain call of a sample of the author's."""
    return result.trial.kind == "call" and not result.trial.variant


def _followers(failures: Sequence[Failed]) -> Iterator[str]:
    """Yield how many failures have the cause of the first one, and of which checks."""
    first = failures[0]
    counts = Counter((failure.trial.overload, failure.check) for failure in failures)
    own = counts.pop((first.trial.overload, first.check)) - 1
    others = [
        ("" if overload == first.trial.overload else f"{overload} ")
        + (check if count == 1 else f"{check} ({count} cases)")
        for (overload, check), count in counts.items()
    ]
    parts = [_count(own, "more case")] if own else []
    parts += [_count(len(others), "other check")] if others else []
    if parts:
        how = "for the same reason" if _is_located(first) else "in the same way"
        yield f"    {' and '.join(parts)} failed {how}: {', '.join(others) or '--json has all'}"


def _conclusion(report: CheckReport) -> Text:
    cases = _count(len({result.trial for result in report.results}), "case")
    left_out = {r.trial for r in report.results if isinstance(r, Skipped) and r.left_out}
    left = f", {len(left_out)} left out, which the standard level runs (without --quick)" if left_out else ""
    took = f"{cases}, {report.seconds:.1f} s{left}"
    if report.interrupted:
        return Text(f"interrupted: {report.unfinished} not run; {took}", style="bold red")
    if report.passed:
        return Text(f"passed: {_count(len(report.overloads), 'overload')}, {took}", style="bold green")
    wrong = [one.name for one in report.overloads if not report.passed_by(one.name)]
    of_all = f"{len(wrong)} of {_count(len(report.overloads), 'overload')}"
    return Text(f"{'FAILED' if report.failures else 'NOT TRIED'}: {of_all}; {took}", style="bold red")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""The report of a check: prints itself, and has a JSON form for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.checking.catalogue import CHECKS, Level, of_level
from dotcu.checking.trial import LEFT_OUT, REFUSED, Failed, Passed, Result, Skipped
from dotcu.errors import BodyError, escaped
from dotcu.serialize import plain
from dotcu.tracebacks import is_user_file

VERSION = 3
"""The version of the JSON form; docs/reference/reports.md has its keys."""

_COMPARING = {"numerics", "written"}  # the checks of a call that look at its values
_SAMPLE = re.compile(r"\w+-s\d+")  # the name of a case that is a sample itself
_DERIVED = re.compile(r"\w+-s\d+-")  # how the name of a case begins that is no sample itself


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
        level: Which checks were asked for: `quick`, `standard`, `full`.
        seed: What random numbers started from.
        only: The names that picked some of the trials; empty where all were to run.
        overloads: What was checked.
        results: Every verdict, in the order in which trials were planned.
        unfinished: How many trials had not come to their end when the check was interrupted.
        seconds: From the first trial to the last.
    """

    device: str
    level: str
    seed: int
    only: tuple[str, ...] = ()
    overloads: tuple[CheckedOverload, ...]
    results: tuple[Result, ...]
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True if nothing failed, something of each overload was tried, and nothing is left to do."""
        passed = all(self.passed_by(overload.name) for overload in self.overloads)
        return bool(self.overloads) and passed and not self.unfinished

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that failed."""
        return tuple(result for result in self.results if isinstance(result.outcome, Failed))

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the checks of the level."""
        return of_level(Level[self.level.upper()])

    def passed_by(self, overload: str) -> bool:
        """Return whether an overload was tried in each of its dtypes, and nothing of it failed."""
        outcomes = {type(result.outcome) for result in self.results if result.overload == overload}
        return bool(outcomes - {Skipped}) and Failed not in outcomes and not self.not_tried(overload)

    def not_tried(self, overload: str) -> dict[str, str]:
        """The dtypes of an overload in which no call was compared, and why; none where `only` is given."""
        (one,) = (each for each in self.overloads if each.name == overload)
        reasons: dict[str, str] = {}
        for dtype in () if self.only else one.dtypes:
            calls = [r for r in self._calls(overload) if _case(r).startswith(f"{dtype}-")]
            compared = {
                type(r.outcome) for r in calls if r.check in _COMPARING or isinstance(r.outcome, Failed)
            }
            if dtype in one.empty:
                reasons[dtype] = "every sample is empty"
            elif not compared - {Skipped}:
                reasons[dtype] = "nothing of it was compared" if calls else "no sample of it"
        return reasons

    def derived(self, overload: str) -> tuple[int, list[str]]:
        """The number of calls that dotcu derived of an overload's samples, and why some were refused."""
        calls = [r for r in self._calls(overload) if _DERIVED.match(_case(r))]
        notes = [r.outcome.note for r in calls if isinstance(r.outcome, Passed)]
        refusals = [note.removeprefix(REFUSED) for note in notes if note.startswith(REFUSED)]
        return len({r.trial for r in calls if not isinstance(r.outcome, Skipped)}), refusals

    def _calls(self, overload: str) -> list[Result]:
        return [result for result in self.results if result.trial.startswith(f"{overload}/call/")]

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
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 6),
            "overloads": overloads,
            "results": list(map(result_json, self.results)),
        }
        document: dict[str, Any] = plain(report)
        return document

    def __rich__(self) -> RenderableType:
        return table(self)


def result_json(result: Result) -> dict[str, Any]:
    """Return a result as the JSON form of a report has it: its outcome's keys added to its own."""
    named = {"overload": result.overload, "check": result.check, "trial": result.trial}
    return {**named, **plain(result.outcome), "seconds": round(result.seconds, 6)}


def _case(result: Result) -> str:
    return result.trial.rpartition("/")[2]


SHOWN = 3
"""The notes of one check that are shown."""

TOO_FEW_ACCEPTED = 5
"""The report warns of an overload that refuses all of its derived calls, if it has this many."""

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


def failure_text(result: Result) -> str:
    """Return a failure as text: the trial, the check, the reason, the evidence, the line to run again."""
    assert isinstance(result.outcome, Failed)
    lines = result.outcome.evidence.splitlines()
    rest = len(lines) - EVIDENCE_LINES
    shown = lines if rest <= 0 else [*lines[:EVIDENCE_LINES], f"... and {_count(rest, 'line')} more"]
    again = [f"again: {result.outcome.reproduce}"] if result.outcome.reproduce else []
    head = f"{result.trial} FAILED {result.check}: {result.outcome.reason}"
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
    results = [result for result in report.results if result.overload == overload]
    by_check = {name: some for name in CHECKS if (some := [r for r in results if r.check == name])}
    kinds = {name: {type(r.outcome) for r in some} for name, some in by_check.items()}
    for name, some in by_check.items():
        if failed := sum(isinstance(r.outcome, Failed) for r in some):
            yield name, f"FAILED in {failed} of {_count(len(some), 'case')}", "bold red"
    passed = {name: by_check[name] for name, of in kinds.items() if Passed in of and Failed not in of}
    if passed:
        by_name = kinds.get("numerics", {Skipped}) == {Skipped}  # values were compared with nothing
        yield "passed", _passed_text(passed, by_name=by_name), ""
    if skipped := _skipped_text(by_check):
        yield "skipped", skipped, "dim"
    if report.only or report.unfinished:
        return
    idle = [name for name in report.checks if name not in by_check]
    if idle and results:
        yield "not applicable", ", ".join(idle), "dim"
    if all(of == {Skipped} for of in kinds.values()):
        yield "not tried", nothing_tried(overload), "bold red"
        return
    for dtype, why in report.not_tried(overload).items():
        yield "dtype not tried", f"{dtype}: {why}", "bold red"
    tried, refusals = report.derived(overload)
    if len(refusals) == tried >= TOO_FEW_ACCEPTED:
        refused = f"accepted none of {tried} derived calls: {refusals[0]}"
        remedy = "give samples of inputs that it accepts, or accept more inputs"
        yield "too few inputs accepted", f"{refused}; {remedy}", "yellow"


def _passed_text(checks: Mapping[str, Sequence[Result]], *, by_name: bool) -> str:
    """Say how many checks, or which, passed in how many cases."""
    cases = {r.trial for results in checks.values() for r in results if isinstance(r.outcome, Passed)}
    bounds, notes = [], []
    for name, results in checks.items():
        outcomes = [result.outcome for result in results if isinstance(result.outcome, Passed)]
        ratios = [outcome.ratio for outcome in outcomes if outcome.ratio is not None]
        bounds += [f"{name} at {max(ratios):.2g} of its bound"] if ratios else []
        text = _notes([outcome.note for outcome in outcomes if outcome.note])
        notes += [f"{name}: {text}"] if text else []
    count = ", ".join(checks) if by_name else _count(len(checks), "check")
    return "; ".join([f"{count} in {_count(len(cases), 'case')}", *bounds, *notes])


def _notes(notes: Sequence[str]) -> str:
    """Say how many calls were refused, and other notes, each once."""
    refused = sum(note.startswith(REFUSED) for note in notes)
    others = list(dict.fromkeys(note for note in notes if not note.startswith(REFUSED)))
    if len(others) > 1:
        others = list(dict.fromkeys(note.partition(":")[0] for note in others))
    shown = others if len(others) <= SHOWN else [*others[:SHOWN], "..."]
    return ", ".join([f"{refused} refused"] * bool(refused) + shown)


def _skipped_text(found: Mapping[str, Sequence[Result]]) -> str:
    """Return checks by the reason for which they were skipped, in all cases or in some."""
    reasons: dict[str, list[str]] = {}
    for name, some in found.items():
        why = Counter(r.outcome.reason for r in some if isinstance(r.outcome, Skipped))
        for reason, count in why.items():
            part = "" if count == len(some) else f" in {count} of {_count(len(some), 'case')}"
            reasons.setdefault(reason, []).append(name + part)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def cause_of(result: Result) -> tuple[str, ...]:
    """Return what a failure has in common with those of the same cause.

    It is the line of the user's code that the evidence names, with the kind of error or finding. A body that
    returns no new memory, for example, has no such line, and fails every check. Without either it is the
    overload, the check and what is said, but for the numbers.
    """
    assert isinstance(result.outcome, Failed)
    located = _LOCATED.findall(result.outcome.evidence)
    if result.outcome.evidence.startswith(f"{BodyError.__name__}: "):
        return result.overload, BodyError.__name__
    place, kind, message = located[-1] if located else ("", "", result.outcome.reason)
    if located and is_user_file(place.rpartition(":")[0]):
        return place, kind
    return result.overload, result.check, kind + _NUMBER.sub("#", message).replace("[#]", "[]")


_LOCATED = re.compile(r"^(?:caused by )?(\S.*?:\d+): ([\w.-]+)(.*)", re.MULTILINE)
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?(?:, -?\d+)*")  # or several: an index


def _failures(report: CheckReport) -> Iterator[Text]:
    """Yield the first failure of each cause, those of the author's samples first, and count what follows.

    Then come those of a kernel or of a body. Last are wrong arguments that an operator takes, of which a few
    are shown: they are many where it looks at none.
    """
    order = list(CHECKS)
    causes: dict[tuple[str, ...], list[Result]] = {}
    failures = sorted(report.failures, key=lambda result: (not _of_sample(result), order.index(result.check)))
    for result in failures:
        causes.setdefault(cause_of(result), []).append(result)
    broken = {result.overload for result in failures if _of_sample(result)}

    def rank(cause: tuple[str, ...]) -> int:
        """Return 0 for a line of CUDA C++ or for what a body returns, 1 for a line of Python, 2 for none."""
        leads = not cause[0].rpartition(":")[0].endswith(".py") or cause[1] == "CompileError"
        return 2 if len(cause) > 2 else 1 - leads

    def last(cause: tuple[str, ...]) -> bool:
        return all(_is_of(result, "errors") for result in causes[cause])

    shown = sorted(causes, key=lambda cause: (last(cause), not _of_sample(causes[cause][0]), rank(cause)))
    arguments = [cause for cause in shown if last(cause)]
    hidden = [
        cause
        for i, cause in enumerate(arguments)
        if i >= SHOWN or (causes[cause][0].overload in broken and _compares(causes[cause][0]))
    ]
    for cause in shown:
        if cause in hidden:
            continue
        if arguments and cause == arguments[0]:
            yield Text("Calls with wrong arguments:", style="bold")
        first = causes[cause][0]
        head, _, rest = failure_text(first).partition("\n")
        more = _followers(first, causes[cause])
        yield Text.assemble((head, "bold"), *(f"\n{text}" for text in (rest, more) if text))
    if hidden:
        count = sum(len(causes[cause]) for cause in hidden)
        yield Text(f"{_count(count, 'more call')} with wrong arguments failed: --json has all", style="dim")


def _is_of(result: Result, kind: str) -> bool:
    return result.trial.startswith(f"{result.overload}/{kind}/")


def _of_sample(result: Result) -> bool:
    """Return whether it is a failure of a plain call of a sample of the author's."""
    return _is_of(result, "call") and _SAMPLE.fullmatch(_case(result)) is not None


def _compares(result: Result) -> bool:
    """Return whether a wrong call gave wrong values: as its samples do, where these are wrong too."""
    assert isinstance(result.outcome, Failed)
    return result.check == "errors" and "elements" in result.outcome.reason


def _followers(first: Result, results: Sequence[Result]) -> str:
    """Say how many failures have the cause of one that is shown, and of which checks."""
    counts = Counter((result.overload, result.check) for result in results)
    counts[first.overload, first.check] -= 1
    own = counts.pop((first.overload, first.check))
    others = [
        ("" if overload == first.overload else f"{overload} ")
        + (check if count == 1 else f"{check} ({count} cases)")
        for (overload, check), count in counts.items()
    ]
    parts = [_count(own, "more case")] if own else []
    parts += [_count(len(others), "other check")] if others else []
    if not parts:
        return ""
    how = "of the same cause" if len(cause_of(first)) == 2 else "alike"
    return f"    {' and '.join(parts)} failed {how}: {', '.join(others) or '--json has all'}"


def _conclusion(report: CheckReport) -> Text:
    cases = _count(len({result.trial for result in report.results}), "case")
    reasons = {r.trial: r.outcome.reason for r in report.results if isinstance(r.outcome, Skipped)}
    skipped = sum(reason.startswith(LEFT_OUT) for reason in reasons.values())
    left = f", {skipped} left out, which the standard level runs (without --quick)" if skipped else ""
    took = f"{cases}, {report.seconds:.1f} s{left}"
    if report.unfinished:
        return Text(f"interrupted: {report.unfinished} not run; {took}", style="bold red")
    if report.passed:
        return Text(f"passed: {_count(len(report.overloads), 'overload')}, {took}", style="bold green")
    wrong = [one.name for one in report.overloads if not report.passed_by(one.name)]
    of_all = f"{len(wrong)} of {_count(len(report.overloads), 'overload')}"
    return Text(f"{'FAILED' if report.failures else 'NOT TRIED'}: {of_all}; {took}", style="bold red")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""A report as people read it: short where all held; of a shortfall, what shows it and how to run it again.

standard on simulator, seed 0, 24 checks:
    reference, numerics, written, ...

mylib::scale_add  float32, bfloat16
  written  FELL SHORT in 2 of 54 cases
  held     12 checks in 54 cases; numerics at 0.42 of its bound
  skipped  graph, stream: needs a CUDA GPU
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu.checking.catalogue import CHECKS
from dotcu.checking.outcome import REFUSED, FellShort, Held, Result, Skipped

if TYPE_CHECKING:
    from dotcu.checking.report import Checked, CheckReport

SHOWN = 3
"""How many shortfalls of one check of one overload are shown, and how many notes."""

NARROW = 5
"""An overload that refuses all of so many derived calls is told of: little of it was tried."""

EVIDENCE_LINES = 20
"""How many lines of what shows a shortfall are shown."""

_FOLD = 110  # characters: where the list of checks goes on in a new line, wherever it is printed
_LABEL = 9  # characters of the narrowest first column, so that the tables of overloads mostly line up


class Row(NamedTuple):
    """A line of an overload's table."""

    label: str
    words: str
    style: str = ""


def table(report: CheckReport) -> RenderableType:
    """The whole report."""
    parts = [*_head(report)]
    for overload in report.overloads:
        head = Text.assemble((overload.name, "bold"), _declared(overload))
        parts += [Text(), head, _grid(report, overload)]
    for text in _failures(report):
        parts += [Text(), text]
    return Group(*parts, Text(), _conclusion(report))


def shortfall(result: Result) -> str:
    """A failure in words: the trial, the check, the reason, what shows it, the line that runs it again."""
    assert isinstance(result.outcome, FellShort)
    lines = result.outcome.evidence.splitlines()
    rest = len(lines) - EVIDENCE_LINES
    shown = lines if rest <= 0 else [*lines[:EVIDENCE_LINES], f"... and {_count(rest, 'line')} more"]
    again = [f"again: {result.outcome.reproduce}"] if result.outcome.reproduce else []
    head = f"{result.trial} fell short of {result.check}: {result.outcome.reason}"
    return "\n".join([head, *(f"    {line}".rstrip() for line in (*shown, *again))])


def untried(overload: str) -> str:
    """What to do about an overload of which nothing was looked at."""
    name = overload.rpartition("::")[2].partition(".")[0]
    return f"nothing of it was tried: give the operator samples, with @{name}.samples"


# ------------------------------------------------------------------ what was checked


def _head(report: CheckReport) -> Iterator[RenderableType]:
    checks = report.checks
    yield Text(f"{report.level} on {report.device}, seed {report.seed}, {len(checks)} checks:")
    yield Constrain(Padding(Text(", ".join(checks)), (0, 0, 0, 4)), _FOLD)


def _declared(overload: Checked) -> str:
    tolerance = overload.tolerance
    if isinstance(tolerance, Mapping):
        told = ", ".join(f"{value:g} for {dtype}" for dtype, value in tolerance.items())
    else:
        told = "" if tolerance is None else f"{tolerance:g}"
    return f"  {', '.join(overload.dtypes)}" + (f"; tolerance {told} (declared)" if told else "")


def _grid(report: CheckReport, overload: Checked) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=_LABEL)
    grid.add_column(overflow="fold")
    for row in (*_rows(report, overload.name), *_unseen(report, overload.name)):
        grid.add_row(Text(row.label), Text(row.words, style=row.style))
    return Padding(grid, (0, 0, 0, 2))


# ------------------------------------------------------------------ what came of it


def _rows(report: CheckReport, overload: str) -> Iterator[Row]:
    results = [result for result in report.results if result.overload == overload]
    by_check = {name: [r for r in results if r.check == name] for name in CHECKS}
    found = {name: some for name, some in by_check.items() if some}
    for name, some in found.items():
        short = sum(isinstance(r.outcome, FellShort) for r in some)
        if short:
            yield Row(name, f"FELL SHORT in {short} of {_count(len(some), 'case')}", "bold red")
    held = {name: some for name, some in found.items() if _held(some)}
    if held:
        compared = any(not isinstance(r.outcome, Skipped) for r in by_check["numerics"])
        yield Row("held", _told_held(held, by_name=not compared))
    skipped = _told_skipped(found)
    if skipped:
        yield Row("skipped", skipped, "dim")
    idle = [name for name in report.checks if name not in found]
    if idle and results and not report.only and not report.unfinished:
        yield Row("no case", ", ".join(idle), "dim")


def _unseen(report: CheckReport, overload: str) -> Iterator[Row]:
    """What nobody may take as tried, since it was not, or only in name."""
    outcomes = [result.outcome for result in report.results if result.overload == overload]
    if report.only or report.unfinished:
        return
    if all(isinstance(outcome, Skipped) for outcome in outcomes):
        yield Row("UNTRIED", untried(overload), "bold red")
        return
    for dtype, why in report.untried(overload).items():
        yield Row("UNTRIED", f"{dtype}: {why}", "bold red")
    derived = report.derived(overload)
    if derived.refused == derived.tried >= NARROW:
        told = f"took none of {derived.tried} derived calls: {derived.words}"
        yield Row("NARROW", f"{told}; give samples of what it takes, or widen the body", "yellow")


def _held(results: Iterable[Result]) -> bool:
    outcomes = [result.outcome for result in results]
    looked = any(isinstance(outcome, Held) for outcome in outcomes)
    return looked and not any(isinstance(outcome, FellShort) for outcome in outcomes)


def _told_held(found: Mapping[str, Sequence[Result]], *, by_name: bool) -> str:
    """How many checks held, in how many cases. Where values were compared with nothing, which they are."""
    cases = {r.trial for some in found.values() for r in some if isinstance(r.outcome, Held)}
    checks = ", ".join(found) if by_name else _count(len(found), "check")
    ratios = [
        f"{name} at {ratio:.2g} of its bound"
        for name, some in found.items()
        if (ratio := _worst(some)) is not None
    ]
    notes = [f"{name}: {told}" for name, some in found.items() if (told := _notes(some))]
    return "; ".join([f"{checks} in {_count(len(cases), 'case')}", *ratios, *notes])


def _worst(results: Iterable[Result]) -> float | None:
    ratios = (result.outcome.ratio for result in results if isinstance(result.outcome, Held))
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _notes(results: Iterable[Result]) -> str:
    """What cases that held have to say: how many calls were refused, and other notes, each once."""
    notes = [r.outcome.note for r in results if isinstance(r.outcome, Held) and r.outcome.note]
    refused = sum(note.startswith(REFUSED) for note in notes)
    others = list(dict.fromkeys(note for note in notes if not note.startswith(REFUSED)))
    if len(others) > 1:
        others = list(dict.fromkeys(note.partition(":")[0] for note in others))
    shown = others if len(others) <= SHOWN else [*others[:SHOWN], "..."]
    return ", ".join([f"{refused} refused"] * bool(refused) + shown)


def _told_skipped(found: Mapping[str, Sequence[Result]]) -> str:
    """Checks by the reason for which they were skipped, in all cases or in some."""
    reasons: dict[str, list[str]] = {}
    for name, some in found.items():
        why = Counter(r.outcome.why for r in some if isinstance(r.outcome, Skipped))
        for reason, count in why.items():
            part = "" if count == len(some) else f" in {count} of {_count(len(some), 'case')}"
            reasons.setdefault(reason, []).append(name + part)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def _failures(report: CheckReport) -> Iterator[Text]:
    """Of each check of each overload the first few that differ in what they say."""
    groups: dict[tuple[str, str], list[Result]] = {
        (overload.name, check): [] for overload in report.overloads for check in CHECKS
    }
    for result in report.failures:
        groups[result.overload, result.check].append(result)
    for (overload, check), some in groups.items():
        unlike: dict[tuple[str, str], Result] = {}
        for result in some:
            assert isinstance(result.outcome, FellShort)
            unlike.setdefault((result.outcome.reason, result.outcome.evidence), result)
        shown = list(unlike.values())[:SHOWN]
        for result in shown:
            head, _, rest = shortfall(result).partition("\n")
            yield Text.assemble((head, "bold"), f"\n{rest}" if rest else "")
        more = len(some) - len(shown)
        if more:
            told = f"... and {more} more of {overload} fell short of {check}"
            yield Text(f"{told}: --json and report.failures have them all")


def _conclusion(report: CheckReport) -> Text:
    cases = _count(len({result.trial for result in report.results}), "case")
    took = f"{cases}, {report.seconds:.1f} s"
    if report.unfinished:
        return Text(f"interrupted: {report.unfinished} more to try; {took}", style="bold red")
    if report.held:
        return Text(f"held: {_count(len(report.overloads), 'overload')}, {took}", style="bold green")
    wrong = [one.name for one in report.overloads if not report.held_by(one.name)]
    of_all = f"{len(wrong)} of {_count(len(report.overloads), 'overload')}"
    return Text(f"{'FELL SHORT' if report.failures else 'UNTRIED'}: {of_all}; {took}", style="bold red")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

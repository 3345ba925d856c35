"""A report as a table.

dotcu::add  bytes: each tensor once
  limit, cold: memory, 2 reads to 1 write, 4.39 TB/s
                       µs  ± %  IQR %    n  host µs       rate  % limit  × dotcu
  float32-4096x4096  201 MB, limit 45.86 µs cold
    cold  dotcu     46.02  0.1    0.3  400      3.9  4.37 TB/s     99.7
          eager     46.21  0.1    0.3  400      4.8  4.36 TB/s     99.2     1.00
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, get_args

from rich.console import Group, RenderableType
from rich.text import Text

from dotcu.benchmark.reports.comparison import ChangeVerdict, RowComparison
from dotcu.benchmark.results import OWN, BenchRow, Machine
from dotcu.benchmark.statistics import Ratio
from dotcu.benchmark.work import Work
from dotcu.report_base import Column, Grid, Line

if TYPE_CHECKING:
    from dotcu.benchmark.estimate import Estimate, EstimatedCall
    from dotcu.benchmark.reports.report import BenchReport

_T = TypeVar("_T")


def table(report: BenchReport) -> RenderableType:
    """Return the whole report."""
    parts: list[RenderableType] = [*_head(report)]
    if report.rows:  # all in one grid, so that the figures of all operators are aligned
        operators = _grouped((row.key.op, row) for row in report.rows).items()
        lines = [line for op, rows in operators for line in _operator_lines(report, op, rows)]
        parts.append(Grid(columns=_ROW_COLUMNS, lines=lines))
    if report.estimate is not None:
        parts.append(_estimate_grid(report.estimate))
    if report.changes is not None:
        parts.append(_changes_grid(report.changes))
    return Group(*parts, Text(), _conclusion(report))


def _conclusion(report: BenchReport) -> Text:
    if report.estimate is not None:
        calls = report.estimate.calls
        broken = sum(not call.compiles for call in calls)
        if not broken:
            return Text("bounds only: no GPU was timed", style="bold yellow")
        total = f"{len(calls)} call{'' if len(calls) == 1 else 's'}"
        does = "does" if broken == 1 else "do"
        return Text(f"FAILED: {broken} of {total} {does} not compile", style="bold red")
    counts: Counter[str] = Counter(row.status for row in report.rows)
    total = f"{len(report.rows)} row{'' if len(report.rows) == 1 else 's'}"
    facts = [f"{counts.pop('measured', 0)} of {total} measured"]
    counts.update(slower=len(report.slower), lost=len(report.lost))
    facts += [f"{number} {name}" for name, number in counts.items() if number]
    facts += ["nothing compared"] if report.nothing_compared else []
    outcome = "interrupted" if report.interrupted else "passed" if report.passed else "FAILED"
    return Text(f"{outcome}: {', '.join(facts)}", style="bold green" if report.passed else "bold red")


def _grouped(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def _heads(columns: Sequence[Column]) -> Line:
    return Line(cells=tuple(Text(head, style="bold") for head, _, _ in columns))


def _words(text: str, style: str = "", *, indent: int = 2) -> Line:
    return Line(indent=indent, words=Text(text, style=style))


_MEANS = {"cupti": "by CUPTI", "events": "between CUDA events, launch included"}

_CLOCKS = (
    ("sm_mhz", "SM ", "MHz"),
    ("memory_mhz", "memory ", "MHz"),
    ("temperature_c", "", "°C"),
    ("power_w", "", "W"),
)


def _head(report: BenchReport) -> Iterator[Text]:
    """Yield the machine, the protocol, the state of the GPU, and notes."""
    yield Text(machine_line(report.machine))
    if report.rows:
        p = report.protocol
        yield Text(
            f"device time {_MEANS[report.by]}: median ± half its {p.confidence:.0%} interval; "
            f"{p.blocks} to {p.most_blocks} blocks of {p.calls} to {p.most_calls} interleaved calls, "
            f"{p.sets} sets of inputs"
        )
    if state := _state(report):
        yield Text(state)
    for note in report.notes:
        yield Text(note, style="yellow")


def machine_line(machine: Machine) -> str:
    """Return the GPU and the most important versions in one line; the JSON has all."""
    names = ("driver", "torch", "nvrtc", "dotcu")
    versions = [f"{name} {machine.versions[name]}" for name in names if machine.versions.get(name)]
    return ", ".join([machine.gpu or "no GPU", *versions])


def _state(report: BenchReport) -> str:
    """Return the ranges of clocks, temperature and power that were seen between blocks."""
    blocks = [block for row in report.rows if row.measured for block in row.measured.blocks]
    seen = [clocks for block in blocks for clocks in (block.before, block.after)]
    ranges = []
    for field, name, unit in _CLOCKS:
        if values := [value for clocks in seen if (value := getattr(clocks, field)) is not None]:
            low, high = f"{min(values):.0f}", f"{max(values):.0f}"
            ranges.append(f"{name}{low if low == high else f'{low} to {high}'} {unit}")
    if not ranges:
        return ""
    highest = [f"{'SM' if name == 'sm' else name} {mhz} MHz" for name, mhz in report.machine.clocks.items()]
    return ", ".join(ranges) + (f"; highest {', '.join(highest)}" if highest else "")


_ROW_COLUMNS: Sequence[Column] = (
    ("", False, 0),  # state of L2
    ("", False, 0),  # contender
    ("µs", True, 0), ("± %", True, 0), ("IQR %", True, 2), ("n", True, 3), ("host µs", True, 1),
    ("rate", True, 0), ("% limit", True, 0), ("× dotcu", True, 0),
    ("", False, 0),  # numbers of notes
)  # fmt: skip


def _operator_lines(report: BenchReport, op: str, rows: Sequence[BenchRow]) -> Iterator[Line]:
    source = _work_source(row.work for row in rows if row.work)
    yield Line()
    yield Line(words=Text.assemble((op, "bold"), (f"  {source}" if source else "", "dim")))
    for limit in _limits(rows):
        yield _words(limit, "dim")
    if any(row.time for row in rows):
        yield _heads(_ROW_COLUMNS)
    shown = merged([note for row in rows for note in _notes(row, report.by)])
    numbers = {note: number for number, note in enumerate(dict.fromkeys(shown.values()), 1)}
    for case, some in _grouped((row.key.case, row) for row in rows).items():
        yield Line(indent=2, words=Text.assemble(case, (_facts(some), "dim")))
        for state in _grouped((row.key.l2, row) for row in some).values():
            for at, row in enumerate(state):
                own = sorted({numbers[shown[note]] for note in _notes(row, report.by)})
                notes = Text("".join(f"[{number}]" for number in own), style="yellow")
                yield _row_line(report, row, notes, l2=row.key.l2 if at == 0 else "")
    for note, number in numbers.items():
        head, *rest = note.splitlines()
        if len(rest) >= NOTE_LINES:
            rest = [*rest[: NOTE_LINES - 1], f"... and {len(rest) - NOTE_LINES + 1} lines more"]
        yield Line(indent=2, words=Text.assemble((f"[{number}] ", "yellow"), head))
        yield from (_words(line, "dim", indent=6) for line in rest)


def _limits(rows: Sequence[BenchRow]) -> list[str]:
    """Return what sets the limits in each state of L2; once if that makes no difference."""
    whats = [(row.key.l2, row.limit.what) for row in rows if row.limit]
    by_state = {state: tuple(dict.fromkeys(merged(some).values())) for state, some in _grouped(whats).items()}
    if len(set(by_state.values())) == 1:
        return [f"limit: {what}" for what in next(iter(by_state.values()))]
    return [f"limit, {state}: {what}" for state, some in by_state.items() for what in some]


def _facts(rows: Sequence[BenchRow]) -> str:
    """Return the work of a case, and its limit."""
    work = next((row.work for row in rows if row.work), None)
    facts = [] if work is None or not work.bytes else [si(work.bytes, "B")]
    if work is not None and work.flops:
        facts.append(si(work.flops, "FLOP"))
    least = {row.key.l2: f"{us(row.limit.time_us)} µs" for row in rows if row.limit}
    if len(set(least.values())) == 1:
        facts.append(f"limit {next(iter(least.values()))}")
    elif least:
        facts.append(f"limit {', '.join(f'{time} {state}' for state, time in least.items())}")
    return f"  {', '.join(facts)}" if facts else ""


def _row_line(report: BenchReport, row: BenchRow, notes: Text, *, l2: str) -> Line:
    time, ratio = row.time, row.ratio
    own = "bold" if row.key.contender == OWN else ""
    names = (Text(l2), Text(row.key.contender, style=own))
    if time is None:
        is_skipped = row.status == "skipped"
        status = Text("skipped", style="dim") if is_skipped else Text(row.status.upper(), style="bold red")
        reason = row.reason.strip()
        reason = reason.partition("\n")[0] if reason.count("\n") >= INLINE_LINES else reason
        words = Text.assemble(status, f": {reason}" if reason else "", " " if notes else "", notes)
        return Line(indent=4, cells=names, words=words)
    style = "" if ratio is None else "green" if ratio.low > 1 else "red" if ratio.high < 1 else "dim"
    figures = (
        Text(us(time.median_us), style=own),
        Text(f"{100 * time.noise:.1f}", style="yellow" if time.noise > report.protocol.noise else ""),
        Text(f"{100 * (time.p75_us - time.p25_us) / time.median_us:.1f}"),
        Text(str(time.n)),
        Text(f"{row.host.median_us:.1f}" if row.host else ""),
        Text(reached_rate(row)),
        Text("" if row.percent is None else f"{row.percent:.1f}"),
        Text("" if ratio is None else ratio_text(ratio), style=style),
    )
    return Line(indent=4, cells=(*names, *figures, notes))


WIDE = 0.25  # a note has p5 and p95 if they differ by more than this share of the median
INLINE_LINES = 4  # a reason with more lines is a note; its first line is in the row
NOTE_LINES = 20  # that are shown of a note


def _notes(row: BenchRow, by: str) -> Iterator[str]:
    """Yield a row's marks and what its figures do not show, and a reason that is too long for the row."""
    if row.time is None and row.reason.strip().count("\n") >= INLINE_LINES:
        yield row.reason.strip()
    yield from row.marks
    if row.dropped:
        yield f"{row.dropped} samples dropped: taken while the GPU was throttled"
    if row.measured and row.measured.by != by:
        yield f"timed {_MEANS[row.measured.by]}"
    if row.time and row.time.p95_us - row.time.p5_us > WIDE * row.time.median_us:
        yield f"wide: p5 {us(row.time.p5_us)} µs, p95 {us(row.time.p95_us)} µs"


_CHANGE_COLUMNS: Sequence[Column] = (
    *[("", False, 0)] * 4,  # verdict, case, state of L2, contender
    ("× baseline", True, 0), ("interval", False, 0), ("at", False, 1),
)  # fmt: skip

_STYLES = {"slower": "bold red", "lost": "bold red", "faster": "green", "unclear": "yellow"}


def _changes_grid(changes: Sequence[RowComparison]) -> Grid:
    """Return what changed, is unclear or was lost, by operator; the others are counted."""
    counts = Counter(map(_verdict, changes))
    order = (*get_args(ChangeVerdict), "lost", "not compared")
    counted = ", ".join(f"{counts[word]} {word}" for word in order if counts[word])
    lines = [Line(), _words(f"against the baseline: {counted}", "bold", indent=0)]
    shown = [one for one in changes if one.lost or (one.change and one.change.verdict != "same")]
    if shown:
        lines.append(_heads(_CHANGE_COLUMNS))
    for op, some in _grouped((one.row.key.op, one) for one in shown).items():
        lines += [_words(op), *map(_change_line, some)]
    texts = merged(note for one in changes for note in one.notes)
    noted = _grouped((texts[note], one.row.key) for one in changes for note in dict.fromkeys(one.notes))
    for note, keys in noted.items():
        key = keys[0]
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        name = f"{key.op} {key.case} {key.contender} {key.l2}{more}"
        lines.append(_words(note if len(keys) == len(changes) else f"{name}: {note}", "yellow"))
    return Grid(columns=_CHANGE_COLUMNS, lines=lines)


def _verdict(one: RowComparison) -> str:
    return one.change.verdict if one.change else "lost" if one.lost else "not compared"


def _change_line(one: RowComparison) -> Line:
    verdict, key = _verdict(one), one.row.key
    cells = [Text(verdict, style=_STYLES[verdict]), Text(key.case), Text(key.l2), Text(key.contender)]
    if one.change is not None:
        ratio = one.change.ratio
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        cells += map(Text, (f"{ratio.value:.3f}", interval, f"{one.change.confidence:.0%}"))
    return Line(indent=4, cells=tuple(cells))


_ESTIMATE_COLUMNS: Sequence[Column] = (
    ("", False, 0),  # case
    ("moves", True, 0), ("requested", True, 1), ("sectors", True, 2), ("operations", True, 3),
    ("bound µs", True, 0), ("by", False, 0),
)  # fmt: skip


def _estimate_grid(estimate: Estimate) -> Grid:
    """Return all calls, by operator; the first line says that these are bounds."""
    sheet = estimate.sheet
    title = (
        f"bounds for {sheet.name}, no measurements: the least time that its datasheet allows for the bytes "
        "and operations of a call, which the simulator counted"
    )
    lines = [_words(title, "bold yellow", indent=0), _words(sheet.source, "dim", indent=0)]
    for op, calls in _grouped((call.op, call) for call in estimate.calls).items():
        source = _work_source(call.work for call in calls)
        lines += [Line(), Line(words=Text.assemble((op, "bold"), (f"  {source}", "dim")))]
        lines.append(_heads(_ESTIMATE_COLUMNS))
        lines += [Line(indent=2, cells=tuple(map(Text, _estimate_cells(call)))) for call in calls]
        launches = [launch for call in calls for launch in call.launches]
        for launch in {launch.kernel: launch for launch in reversed(launches)}.values():
            compiled = f"{launch.kernel} took {1e3 * launch.compile_s:.0f} ms to compile"
            lines.append(_words(f"{compiled}{' (cached since)' if launch.cached else ''}", "dim"))
        notes = merged([note for call in calls for note in call.notes]).values()
        lines += [_words(note, "yellow") for note in dict.fromkeys(notes)]
    return Grid(columns=_ESTIMATE_COLUMNS, lines=lines)


def _estimate_cells(call: EstimatedCall) -> tuple[str, ...]:
    asked = "" if call.asked_bytes is None else si(call.asked_bytes, "B")
    full = "" if call.sector_efficiency is None else f"{100 * call.sector_efficiency:.0f} % full"
    counts = {name: si(count, "").replace(" ", "") for name, count in call.operations.items() if count}
    done = ", ".join(f"{count} {name}" for name, count in counts.items())
    bound = "" if call.bound_us is None else us(call.bound_us)
    return call.case, si(call.work.bytes, "B"), asked, full, done, bound, call.what


_PREFIXES = ("", "k", "M", "G", "T", "P")

_NUMBER = re.compile(r"(?<![\w.^-])\d+(?:\.\d+)?(?![\w^])")
"""A number that stands alone: not those of `4096x4096`, `2^26` or `float32-s1`."""


def si(value: float, unit: str) -> str:
    """Return a value with three digits and the prefix that it needs: `4.37 TB/s`."""
    for prefix in _PREFIXES:
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
        value /= 1000
    digits = max(0, math.floor(math.log10(value * 1.0005))) if value > 0 else 0
    decimals = 0 if not prefix and value == int(value) else max(0, 2 - digits)
    return f"{value:.{decimals}f} {prefix}{unit}"


def us(microseconds: float) -> str:
    """Return a time with two decimals; with more where those would be 0."""
    if microseconds >= 0.1 or not microseconds:
        return f"{microseconds:.2f}"
    return f"{microseconds:.2g}" if microseconds >= 0.001 else "<0.001"


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio of times: `1.12`; `≈1.01` if its interval contains 1, so neither is faster."""
    decimals = 2 if ratio.value < 10 else 1 if ratio.value < 100 else 0
    return f"{'≈' if ratio.low <= 1 <= ratio.high else ''}{ratio.value:.{decimals}f}"


def reached_rate(row: BenchRow) -> str:
    """Return the rate of a row in the unit of its limit: `4.37 TB/s`, `785 TFLOP/s`; empty if unknown."""
    if row.time is None or row.work is None:
        return ""
    per_second = 1e6 / row.time.median_us
    if row.work.flops and ("FLOP" in row.limit.what if row.limit else not row.work.bytes):
        return si(row.work.flops * per_second, "FLOP/s")
    return si(row.work.bytes * per_second, "B/s") if row.work.bytes else ""


def _work_source(works: Iterable[Work]) -> str:
    """Return where bytes and FLOPs come from; empty without any work."""
    declared = {work.declared for work in works}
    known = "bytes and FLOPs: as its `work` says" if declared == {True} else "bytes: each tensor once"
    return known if declared else ""


def merged(texts: Iterable[str]) -> Mapping[str, str]:
    """Return for each text one for all that differ in numbers alone: "power cap in 12 to 31 of 40 blocks"."""
    shown: dict[str, str] = {}
    for alike in _grouped((_NUMBER.sub("#", text), text) for text in texts).values():
        ranges = []
        for numbers in zip(*map(_NUMBER.findall, alike), strict=True):
            low, high = min(numbers, key=float), max(numbers, key=float)
            ranges.append(low if float(low) == float(high) else f"{low} to {high}")
        one = _NUMBER.sub(lambda _: ranges.pop(0), alike[0])  # noqa: B023
        shown |= dict.fromkeys(alike, one)
    return shown

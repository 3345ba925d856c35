"""What can be said of operators without a GPU: counts, and the least time that a named GPU could take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from dotcu.benchmark.rendering.figures import claims, merged, si, us
from dotcu.benchmark.rendering.grid import Column, Grid, Line

if TYPE_CHECKING:
    from dotcu.benchmark.estimate import Compiled, Estimate, Estimated

_COLUMNS = (
    Column(right=False),  # case
    Column(head="moves"),
    Column(head="asked for", spare=1),
    Column(head="sectors", spare=2),
    Column(head="operations", spare=3),
    Column(head="bound µs"),
    Column(head="by", right=False),
)


def grid(estimate: Estimate) -> Grid:
    """All calls, by operator; it says first that nothing of it was measured."""
    said = (
        f"bounds for {estimate.gpu}, no measurements: the least time by its datasheet for what a call has to "
        "move and what its kernels computed in the simulator"
    )
    lines = [Line(words=Text(said, style="bold yellow")), Line(words=Text(estimate.source, style="dim"))]
    for op in dict.fromkeys(call.op for call in estimate.calls):
        lines += [Line(), *_operator(op, [call for call in estimate.calls if call.op == op])]
    return Grid(columns=_COLUMNS, lines=lines)


def _operator(op: str, calls: Sequence[Estimated]) -> Iterator[Line]:
    claimed = claims(call.work for call in calls)
    yield Line(words=Text.assemble((op, "bold"), (f"  {claimed}", "dim")))
    yield Line(cells=tuple(Text(column.head, style="bold") for column in _COLUMNS))
    for call in calls:
        yield Line(indent=2, cells=tuple(map(Text, _cells(call))))
    for told in _compiled([kernel for call in calls for kernel in call.kernels]):
        yield Line(indent=2, words=Text(told, style="dim"))
    for note in dict.fromkeys(merged([note for call in calls for note in call.notes]).values()):
        yield Line(indent=2, words=Text(note, style="yellow"))


def _cells(call: Estimated) -> tuple[str, ...]:
    efficiency = call.sector_efficiency
    return (
        call.case,
        si(call.work.bytes, "B"),
        "" if call.asked_bytes is None else si(call.asked_bytes, "B"),
        "" if efficiency is None else f"{100 * efficiency:.0f} % full",
        ", ".join(f"{_count(number)} {name}" for name, number in call.operations.items() if number),
        "" if call.bound_us is None else us(call.bound_us),
        call.what,
    )


def _count(number: int) -> str:
    return si(number, "").replace(" ", "")


def _compiled(kernels: Sequence[Compiled]) -> Iterator[str]:
    """Each kernel once, with the time that compiling it takes, or took when it went into the cache."""
    for kernel in {kernel.kernel: kernel for kernel in reversed(kernels)}.values():
        cached = ", from the cache now" if kernel.cached else ""
        yield f"{kernel.kernel} compiles in {1e3 * kernel.seconds:.0f} ms{cached}"

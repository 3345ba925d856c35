"""What a check found: values that print themselves."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

VERSION = 1
SHOWN_FAILURES = 3
SHOWN_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One case that fell short.

    Attributes:
        case: dtype and arguments.
        reason: What happened, in full.
    """

    case: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class OperatorReport:
    """What one overload did.

    Attributes:
        operator: The qualified name.
        kernels: The kernels that ran, with their template arguments.
        where: The devices that they ran on: `simulator`, `cuda:0`.
        compile_s: Seconds of compiling, or of fetching from the cache, all kernels together.
        cached: Whether all code came from the cache.
        cases: How many calls were compared with the reference.
        worst_error: The largest distance from the float64 reference.
        worst_ratio: The largest distance over its bound; at most 1 where all cases held.
        opcheck: `passed`, `failed`, `no sample`, or `not run` where a case's code did not compile.
        failures: What fell short.
    """

    operator: str
    kernels: tuple[str, ...]
    where: tuple[str, ...]
    compile_s: float
    cached: bool
    cases: int
    worst_error: float
    worst_ratio: float
    opcheck: str
    failures: tuple[Failure, ...]

    @property
    def held(self) -> bool:
        """Whether every case held, and there was one."""
        return self.cases > 0 and not self.failures


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What `dotcu.check` found, an entry for each overload. `str()` of it is a table."""

    operators: tuple[OperatorReport, ...]

    @property
    def held(self) -> bool:
        """Whether everything held."""
        return bool(self.operators) and all(entry.held for entry in self.operators)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does."""
        entries = [
            {
                **{name: getattr(entry, name) for name in OperatorReport.__dataclass_fields__},
                "kernels": list(entry.kernels),
                "where": list(entry.where),
                "failures": [{"case": f.case, "reason": f.reason} for f in entry.failures],
                "held": entry.held,
            }
            for entry in self.operators
        ]
        return {"version": VERSION, "held": self.held, "operators": entries}

    def __rich__(self) -> RenderableType:
        return Group(_table(self), *(_failures(entry) for entry in self.operators if not entry.held))

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=160, color_system=None)
        console.print(self)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().rstrip()


def _table(report: CheckReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("kernels", overflow="fold")
    table.add_column("ran on", no_wrap=True)
    for title in ("compile", "cases", "worst error", "of bound"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("opcheck", no_wrap=True)
    table.add_column("", no_wrap=True)
    for entry in report.operators:
        table.add_row(
            entry.operator,
            _names(entry.kernels),
            ", ".join(entry.where) or "-",
            f"{entry.compile_s * 1000:.0f} ms" + (" (cached)" if entry.cached else ""),
            str(entry.cases),
            f"{entry.worst_error:.2g}",
            f"{entry.worst_ratio:.0%}" if entry.cases else "-",
            entry.opcheck,
            Text("held", "green") if entry.held else Text("FELL SHORT", "bold red"),
        )
    return table


def _names(kernels: tuple[str, ...]) -> str:
    """Kernels without their template arguments, each with how many instantiations ran."""
    counts: dict[str, int] = {}
    for kernel in kernels:
        name = kernel.partition("<")[0]
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts.items()) or "-"


def _failures(entry: OperatorReport) -> RenderableType:
    lines = [Text(f"\n{entry.operator} fell short:", "bold")]
    if not entry.cases:
        lines.append(Text("  no case was tried: give the operator samples with @op.samples."))
    for failure in entry.failures[:SHOWN_FAILURES]:
        lines.append(Text(f"  {failure.case}"))
        lines += [Text("    " + line) for line in _shortened(failure.reason)]
    if len(entry.failures) > SHOWN_FAILURES:
        more = len(entry.failures) - SHOWN_FAILURES
        lines.append(Text(f"  ... and {more} more cases; --json has them all"))
    return Group(*lines)


def _shortened(reason: str) -> list[str]:
    lines = reason.splitlines()
    return lines if len(lines) <= SHOWN_LINES else [*lines[:SHOWN_LINES], "..."]

"""Plots of a report: time and percent of the limit against size, one line a contender.

Contenders differ in colour, marker and dashes. Rows with L2 cold and warm stand in panels of their own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu.benchmark.reports import table
from dotcu.benchmark.results import BenchRow
from dotcu.benchmark.statistics import Summary
from dotcu.errors import EnvironmentFault, UsageError, quoted

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport

SUFFIXES = (".svg", ".png")

_LEAST_RANGE = 4.0  # an axis of times goes from one to so many times it, at least: noise is to look small

_INK, _FAINT = "#333333", "#bbbbbb"
_LIMIT: Mapping[str, Any] = {"color": _FAINT, "linewidth": 3, "zorder": 1}


# Okabe and Ito, Color Universal Design, 2008; yellow last, since it is pale
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
_LINES = ("-", "--", ":", "-.")
_STYLES: Sequence[Mapping[str, Any]] = tuple(
    {"color": color, "marker": marker, "linestyle": _LINES[place % len(_LINES)]}
    for place, (color, marker) in enumerate(zip(_COLORS, "os^DvPX*", strict=True))
)

_Styles = Mapping[str, Mapping[str, Any]]  # of each contender's line, by its name


def require(path: Path) -> None:
    """Raise a UsageError or EnvironmentFault for what would keep a plot from being drawn."""
    if path.suffix.lower() not in SUFFIXES:
        suffix = f"the suffix {path.suffix}" if path.suffix else "no suffix"
        raise UsageError(
            f"a plot cannot be written to {path}: it has {suffix}.\n"
            f"A plot is {' or '.join(SUFFIXES)}.\nType: --plot {quoted(path.with_suffix('.svg'))}"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"a plot cannot be written to {path}: there is no folder {path.parent}.\n"
            f"Make it: mkdir -p {quoted(path.parent)}"
        )
    _matplotlib()


def plot(report: BenchReport, to: Path | io.BytesIO) -> None:
    """Draw a report's rows to a file, or as SVG to memory; raises also if there is nothing to draw."""
    shown, format = "SVG", "svg"
    if isinstance(to, Path):
        require(to)
        shown, format = str(to), to.suffix.lower().removeprefix(".")
    rows = [row for row in report.rows if row.time and row.elements]
    if not rows:
        raise UsageError(
            f"there is nothing to draw in {shown}: no row has both a time and a size.\n"
            "A plot needs tensors with elements, and at least one row that was measured."
        )
    matplotlib = _matplotlib()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "dotcu", "font.size": 9, "axes.edgecolor": _FAINT}
    with matplotlib.rc_context(settings):
        figure = _figure(matplotlib, rows, caption=table.machine_line(report.machine))
        dated = {"Date": None} if format == "svg" else {}  # equal reports give equal files
        figure.savefig(to, format=format, dpi=150, metadata=dated)


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
        import matplotlib.ticker
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            "a plot needs matplotlib, which is not installed.\n"
            "It comes with dotcu's tools:\n"
            "    pip install 'dotcu[tools]'"
        ) from error
    return matplotlib


def _figure(matplotlib: Any, rows: Sequence[BenchRow], *, caption: str) -> Any:
    contenders = dict.fromkeys(row.key.contender for row in rows)
    styles = {name: _STYLES[place % len(_STYLES)] for place, name in enumerate(contenders)}
    panels: dict[str, list[BenchRow]] = {}
    for row in rows:
        scalars = re.search(r"-([A-Za-z_]\w*=.*)", row.key.case)  # `causal=True`
        parts = (row.key.op, row.dtype, scalars[1] if scalars else "", f"L2 {row.key.l2}")
        panels.setdefault(", ".join(filter(None, parts)), []).append(row)
    size = (11.0, 3.3 * len(panels) + 0.7)  # inches: a pair of panels, and the legend and the line below
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    every = figure.subplots(len(panels), 2, squeeze=False)
    for (left, right), (title, some) in zip(every, panels.items(), strict=True):
        left.set_title(title, loc="left", fontweight="bold")
        _draw_times(matplotlib.ticker, left, some, styles)
        right.axhline(100, **_LIMIT)
        limited = [row for row in some if row.limit]
        _draw(right, limited, styles, lambda row, us: 100 * row.limit.time_us / us if row.limit else 0)
        right.set_ylim(bottom=0, top=max(105, right.get_ylim()[1]))
        right.set_ylabel("percent of the limit")
        for axes in (left, right):
            _frame(matplotlib.ticker, axes)
    handles = {h.get_label(): h for axes in every.flat for h in axes.get_legend_handles_labels()[0]}
    columns = min(len(handles), 7)
    figure.legend(handles=list(handles.values()), loc="outside upper left", ncols=columns, frameon=False)
    figure.supxlabel(caption, x=0.01, ha="left", color=_INK, fontsize=8)
    return figure


def _draw_times(ticker: Any, axes: Any, rows: Sequence[BenchRow], styles: _Styles) -> None:
    limits = {row.elements: row.limit.time_us for row in rows if row.limit}
    if len(limits) == 1:
        axes.axhline(*limits.values(), **_LIMIT, label="limit")
    elif limits:
        axes.plot(*zip(*sorted(limits.items()), strict=True), **_LIMIT, label="limit")
    _draw(axes, rows, styles, lambda row, us: us)
    medians = [row.time.median_us for row in rows if row.time]
    low, high = min(medians), max(medians)
    room = max(1.6, (_LEAST_RANGE * low / high) ** 0.5)  # a limit far below what a launch takes is not shown
    axes.set_yscale("log")
    axes.set_ylim(low / room, high * room)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda us, _: f"{us:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_ylabel("time of a call, µs")


def _draw(
    axes: Any, rows: Sequence[BenchRow], styles: _Styles, of: Callable[[BenchRow, float], float]
) -> None:
    """A line for each contender, the operator's own above the others: medians, each with its interval."""
    lines: dict[str, list[tuple[BenchRow, Summary]]] = {}
    for row in sorted(rows, key=lambda row: row.elements):
        if row.time:
            lines.setdefault(row.key.contender, []).append((row, row.time))
    alone = len({row.elements for row in rows}) == 1  # points of one size, side by side
    for place, name in enumerate(name for name in styles if name in lines):
        aside = 2 ** (0.2 * (place - (len(lines) - 1) / 2)) if alone else 1.0
        y = [of(row, time.median_us) for row, time in lines[name]]
        ends = [sorted((of(row, time.low_us), of(row, time.high_us))) for row, time in lines[name]]
        below = [max(0.0, middle - low) for middle, (low, _) in zip(y, ends, strict=True)]
        above = [max(0.0, high - middle) for middle, (_, high) in zip(y, ends, strict=True)]
        axes.errorbar(
            [row.elements * aside for row, _ in lines[name]], y, yerr=(below, above), label=name,
            **styles[name], markersize=5.5, markeredgecolor="white", markeredgewidth=0.6, linewidth=1.6,
            capsize=2.5, elinewidth=1, zorder=3 + len(styles) - place,
        )  # fmt: skip


def _frame(ticker: Any, axes: Any) -> None:
    """Sizes as powers of two, and a frame that leaves the lines alone."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    if high < _LEAST_RANGE * low:
        axes.set_xlim(low / 2, high * 2)
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=12))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("elements of the largest tensor")
    axes.grid(visible=True, color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

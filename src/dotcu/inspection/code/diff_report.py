"""Two reports beside each other: what changed in the kernels that both have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dotcu import report_base
from dotcu.inspection.code.diff import CodeDiff, compare
from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.report import InspectReport

VERSION = 1
"""Of the JSON form."""

MOST_OPCODES = 20
"""How many changed opcodes are listed in words; the JSON form has all."""

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_SAME = "the same, but for addresses and the numbers of registers"


@dataclass(frozen=True, kw_only=True)
class DiffReport(report_base.Report):
    """What changed from one report to another. `str()` of it is for people.

    Attributes:
        changes: Of each pair of kernels.
        before, after: Kernels that the other report has not, as `name arch`.
    """

    changes: tuple[CodeDiff, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both have the same kernels, and these are the same."""
        return not self.before and not self.after and all(change.same for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "same": self.same,
            "changes": [change.to_json() for change in self.changes],
            "before": list(self.before),
            "after": list(self.after),
        }

    def __rich__(self) -> RenderableType:
        parts = [part for change in self.changes for part in (*_kernel(change), Text())]
        parts += [Text(f"only before: {name}", style="red") for name in self.before]
        parts += [Text(f"only after: {name}", style="green") for name in self.after]
        return Group(*parts) if parts else Text("no kernels to compare")


def diff(before: InspectReport, after: InspectReport) -> DiffReport:
    """Compare kernels of the same name and architecture; the only one of each side in any case."""
    if len(before.kernels) == len(after.kernels) == 1:
        return DiffReport(changes=(compare(before.kernels[0], after.kernels[0]),))
    others = {name_of(one): one for one in after.kernels}
    ours = {name_of(one): one for one in before.kernels}
    return DiffReport(
        changes=tuple(compare(one, others[name]) for name, one in ours.items() if name in others),
        before=tuple(name for name in ours if name not in others),
        after=tuple(name for name in others if name not in ours),
    )


def name_of(one: InspectedKernel) -> str:
    """A kernel's name with its architecture: `scale<float> sm_90`."""
    return f"{one.code.name} {one.code.arch}"


def _kernel(change: CodeDiff) -> Iterator[RenderableType]:
    yield Text(change.title, style="bold")
    if change.same:
        yield Padding(Text(_SAME, style="dim"), (0, 0, 0, 2))
        return
    yield Padding(Text("\n").join(_numbers(change)), (0, 0, 0, 2))
    for line in change.lines:
        yield Text(line, style=_STYLES.get(line[:1], ""))


def _numbers(change: CodeDiff) -> Iterator[Text]:
    for resource in change.resources:
        if resource.by:
            yield Text(str(resource))
    for opcode in change.opcodes[:MOST_OPCODES]:
        yield Text(str(opcode))
    rest = len(change.opcodes) - MOST_OPCODES
    if rest > 0:
        yield Text(f"and {rest} more opcodes", style="dim")

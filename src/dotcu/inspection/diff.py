"""Differences between two reports: resources, opcodes and listing of the kernels that both have."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dotcu import report_base
from dotcu.inspection.assembly import SassInstruction
from dotcu.inspection.report import InspectedKernel, InspectReport

VERSION = 1
"""The version of the JSON form."""

MAX_OPCODES = 20
"""How many changed opcodes are listed in words; the JSON form has all."""

_RESOURCES = (
    "registers", "smem_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "barriers"
)  # fmt: skip
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_SAME = "the same, except for addresses and register numbers"
_REGISTER = re.compile(r"\b(UR|R|UP|P|B|SB)\d+(\.reuse)?\b")
_LABEL = re.compile(r"`\([^)]*\)|^\.L_x_\d+$")


@dataclass(frozen=True)
class CountChange:
    """A number before and after. `str()` is `registers: 32 -> 40 (+8)`."""

    name: str
    before: int
    after: int

    @property
    def by(self) -> int:
        """The difference."""
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} ({self.by:+})"


@dataclass(frozen=True, kw_only=True)
class KernelDiff:
    """The difference of two kernels, or of two versions of one.

    Attributes:
        before, after: Their names, each with its architecture.
        resources: Registers, bytes and the like, also those that are equal.
        opcodes: The machine instructions whose number differs, the most different first.
        lines: A unified diff of the machine instructions, without addresses and register numbers.
    """

    before: str
    after: str
    resources: tuple[CountChange, ...]
    opcodes: tuple[CountChange, ...]
    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        """The kernel's name, both where they differ."""
        return self.before if self.before == self.after else f"{self.before} -> {self.after}"

    @property
    def same(self) -> bool:
        """True if nothing differs but addresses and the numbers of registers."""
        return not self.lines and not self.opcodes and all(change.by == 0 for change in self.resources)

    @property
    def numbers(self) -> tuple[CountChange, ...]:
        """The numbers that differ: resources, then opcodes."""
        return (*(change for change in self.resources if change.by), *self.opcodes)


@dataclass(frozen=True, kw_only=True)
class DiffReport(report_base.Report):
    """The difference of two reports. `str()` of it is for people.

    Attributes:
        changes: Of each pair of kernels.
        before, after: Kernels that the other report has not, as `name arch`.
    """

    changes: tuple[KernelDiff, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if both have the same kernels, and these are the same."""
        return not self.before and not self.after and all(change.same for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "same": self.same,
            "changes": [{**asdict(change), "same": change.same} for change in self.changes],
            "before": list(self.before),
            "after": list(self.after),
        }

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for change in self.changes:
            parts += [Text(change.title, style="bold"), *_changes(change), Text()]
        parts += [Text(f"only before: {name}", style="red") for name in self.before]
        parts += [Text(f"only after: {name}", style="green") for name in self.after]
        return Group(*parts) if parts else Text("no kernels to compare")


def diff(before: InspectReport, after: InspectReport) -> DiffReport:
    """Compare kernels of the same name and architecture; the only one of each side in any case."""
    if len(before.kernels) == len(after.kernels) == 1:
        return DiffReport(changes=(compare(before.kernels[0], after.kernels[0]),))
    theirs = {_name(one): one for one in after.kernels}
    ours = {_name(one): one for one in before.kernels}
    return DiffReport(
        changes=tuple(compare(one, theirs[name]) for name, one in ours.items() if name in theirs),
        before=tuple(name for name in ours if name not in theirs),
        after=tuple(name for name in theirs if name not in ours),
    )


def compare(before: InspectedKernel, after: InspectedKernel) -> KernelDiff:
    """Return the difference of one kernel to another."""
    old, new = before.instructions, after.instructions
    unified = difflib.unified_diff(
        list(normalised(old)), list(normalised(new)), _name(before), _name(after), lineterm="", n=2
    )
    counts = Counter(i.mnemonic for i in old), Counter(i.mnemonic for i in new)
    changes = [CountChange(name, *(count[name] for count in counts)) for name in {**counts[0], **counts[1]}]
    changed = [change for change in changes if change.by]
    return KernelDiff(
        before=_name(before),
        after=_name(after),
        resources=tuple(_resources(before, after)),
        opcodes=tuple(sorted(changed, key=lambda change: (-abs(change.by), change.name))),
        lines=tuple(unified),
    )


def _name(one: InspectedKernel) -> str:
    """Return a kernel's name with its architecture: `scale<float> sm_90`."""
    return f"{one.code.name} {one.code.arch}"


def _resources(before: InspectedKernel, after: InspectedKernel) -> Iterator[CountChange]:
    old, new = before.code.resources, after.code.resources
    if old is not None and new is not None:
        yield from (CountChange(name, getattr(old, name), getattr(new, name)) for name in _RESOURCES)
    if before.function is not None and after.function is not None:
        yield CountChange("instructions", len(before.instructions), len(after.instructions))


def normalised(instructions: Sequence[SassInstruction]) -> Iterator[str]:
    """Yield the listing without what changes with every edit: addresses, labels, register numbers."""
    for instruction in instructions:
        if instruction.labels:
            yield ".L:"
        yield _LABEL.sub("`(.L)", _REGISTER.sub(r"\1", instruction.text))


def _changes(change: KernelDiff) -> list[RenderableType]:
    if change.same:
        return [Padding(Text(_SAME, style="dim"), (0, 0, 0, 2))]
    rest = max(len(change.opcodes) - MAX_OPCODES, 0)
    numbers = [Text(str(number)) for number in change.numbers[: len(change.numbers) - rest]]
    numbers += [Text(f"and {rest} more opcodes", style="dim")] if rest else []
    lines = [Text(line, style=_STYLES.get(line[:1], "")) for line in change.lines]
    return [Padding(Text("\n").join(numbers), (0, 0, 0, 2)), *lines]

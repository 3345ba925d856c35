"""What changed from one kernel to another: resources, opcodes, and the listing itself."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.sass import Instruction

_REGISTER = re.compile(r"\b(UR|R|UP|P|B|SB)\d+(\.reuse)?\b")
_LABEL = re.compile(r"`\([^)]*\)|^\.L_x_\d+$")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A number before and after. `str()` is `registers: 32 -> 40 (+8)`."""

    name: str
    before: int
    after: int

    @property
    def by(self) -> int:
        """How much more there is."""
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} ({self.by:+})"


@dataclass(frozen=True, kw_only=True)
class CodeDiff:
    """Two kernels, or two versions of one.

    Attributes:
        before, after: What they are called, each with its architecture.
        resources: Registers, bytes and the like, also those that are equal.
        opcodes: How often each machine instruction stands in the code, where that differs; the most
            different first.
        lines: A unified diff of the machine instructions, without addresses and register numbers.
    """

    before: str
    after: str
    resources: tuple[Change, ...]
    opcodes: tuple[Change, ...]
    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        """The kernel's name, both where they differ."""
        return self.before if self.before == self.after else f"{self.before} -> {self.after}"

    @property
    def same(self) -> bool:
        """Whether nothing differs but addresses and the numbers of registers."""
        return not self.lines and not self.opcodes and all(change.by == 0 for change in self.resources)

    def to_json(self) -> dict[str, Any]:
        """The difference as plain values."""
        return {**asdict(self), "same": self.same}


def compare(before: InspectedKernel, after: InspectedKernel) -> CodeDiff:
    """What changed from one kernel to another."""
    old, new = _instructions(before), _instructions(after)
    first, second = (f"{one.code.name} {one.code.arch}" for one in (before, after))
    texts = list(normalised(old)), list(normalised(new))
    unified = difflib.unified_diff(*texts, first, second, lineterm="", n=2)
    return CodeDiff(
        before=first,
        after=second,
        resources=tuple(_resources(before, after)),
        opcodes=_opcodes(old, new),
        lines=tuple(unified),
    )


def _instructions(one: InspectedKernel) -> Sequence[Instruction]:
    return one.function.instructions if one.function is not None else ()


def _resources(before: InspectedKernel, after: InspectedKernel) -> Iterator[Change]:
    old, new = before.code.resources, after.code.resources
    if old is not None and new is not None:
        for name in ("registers", "smem_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes",
                     "barriers"):  # fmt: skip
            yield Change(name=name, before=getattr(old, name), after=getattr(new, name))
    if before.function is not None and after.function is not None:
        sizes = len(before.function.instructions), len(after.function.instructions)
        yield Change(name="instructions", before=sizes[0], after=sizes[1])


def _opcodes(old: Sequence[Instruction], new: Sequence[Instruction]) -> tuple[Change, ...]:
    before, after = (Counter(i.mnemonic for i in some) for some in (old, new))
    changes = [Change(name=name, before=before[name], after=after[name]) for name in {*before, *after}]
    return tuple(
        sorted((change for change in changes if change.by), key=lambda change: (-abs(change.by), change.name))
    )


def normalised(instructions: Sequence[Instruction]) -> Iterator[str]:
    """The listing without what changes whenever anything does: addresses, labels, register numbers."""
    for instruction in instructions:
        if instruction.labels:
            yield ".L:"
        text = _LABEL.sub("`(.L)", _REGISTER.sub(r"\1", instruction.text))
        yield text

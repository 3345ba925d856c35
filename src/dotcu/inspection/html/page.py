"""What the page shows, as plain values: kernels with their source, PTX and SASS, tied together by places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Place: TypeAlias = tuple[str, int]
"""A file's name, as `SourceFile.name` has it, and a line of it, from 1."""

Tone: TypeAlias = Literal["", "good", "warn", "bad"]
PaneName: TypeAlias = Literal["source", "ptx", "sass"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One value of a kernel: its registers, say, or its occupancy.

    Attributes:
        note: What limits it, or what the next step would need; stands below the value.
        tone: How it is coloured.
    """

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A finding about emitted code; one with a place is marked at its line, and leads there.

    Attributes:
        text: Short: it stands on one line.
    """

    text: str
    place: Place | None = None
    tone: Tone = "warn"


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of source, without its end."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file, or those lines of it that matter: numbers ascend, and a gap is shown as one.

    Attributes:
        name: Unique within a kernel.
    """

    name: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, kw_only=True)
class CodeLine:
    """A line of PTX or SASS.

    Attributes:
        text: Shown as it is; a tab is four columns wide.
        label: What stands in front: a line number, or an address.
        places: Where it comes from, innermost first: the line itself, then the calls into which it was
            inlined. Empty where the compiler says nothing, and for labels and directives. A place may
            lie in a file that the page does not show.
        control: Stall, yield and barriers of an instruction; shown where the pane has any.
    """

    text: str
    label: str = ""
    places: tuple[Place, ...] = ()
    control: str = ""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Counts by source line, which colour the lines: instructions executed, say.

    Attributes:
        told: What is counted, in a sentence.
    """

    name: str
    told: str
    counts: Mapping[Place, float] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class KernelPane:
    """A kernel, or an instantiation, on one architecture.

    Attributes:
        name: As a person says it, `scale<float, 256>`; the same for each architecture.
        facts: In the order in which they are shown.
        metrics: The first is shown at the beginning. How many SASS instructions (or PTX, without SASS) a
            line became is always there too, and need not be given.
        missing: Why a pane has no lines, such as the line that installs a disassembler. A pane without lines
            and without a reason is not shown.
        failure: The compiler's message where this architecture has no code; shown instead of the panes.
    """

    name: str
    arch: str
    facts: tuple[Fact, ...] = ()
    notes: tuple[Note, ...] = ()
    source: tuple[SourceFile, ...] = ()
    ptx: tuple[CodeLine, ...] = ()
    sass: tuple[CodeLine, ...] = ()
    metrics: tuple[Metric, ...] = ()
    missing: Mapping[PaneName, str] = field(default_factory=dict, hash=False)
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What became of a kernel since it was compared with another.

    Attributes:
        name: The kernel, or `before -> after` where these differ.
        changes: A number each, before and after; none where nothing changed.
    """

    name: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole page.

    Attributes:
        rows: Name and value of what holds for all kernels: the compiler, its options, the sample that ran.
        kernels: At least one; the first is shown at the beginning.
        changed: What differs from what it was compared with; stands above all else.
    """

    title: str
    kernels: tuple[KernelPane, ...]
    rows: tuple[tuple[str, str], ...] = ()
    changed: tuple[Changed, ...] = ()

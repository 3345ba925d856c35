"""What a report says of one launch: figures, what limits it, and why its warps wait at which line. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dotcu.profiling.catalogue import COMPUTE, FIGURES, LIMITS, MEMORY, SELECTED, UNITS, Figure
from dotcu.profiling.pages import Instruction, Launched, Listing

BUSY, ALIKE = 60.0, 10.0
"""Percent of the peak from which a unit bounds a kernel, and the distance up to which two bound it alike.
Source: the rule SpeedOfLight of Nsight Compute."""

TextOf = Callable[[str, int], str]
"""Gives a source line by the file's real path and the line's number; empty where it is not known."""


@dataclass(frozen=True, kw_only=True)
class HotLine:
    """A source line at which warps were seen.

    Attributes:
        file: Its real path where that is known; empty for instructions of no line.
        samples: How often a sampled warp stood at one of its instructions.
        stalls: The same for those that did not issue, by reason, the most frequent first.
        executed: How many instructions of it warps executed.
    """

    file: str
    line: int
    text: str
    samples: int
    stalls: Mapping[str, int]
    executed: int


@dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One launch of a kernel.

    Attributes:
        name: As ncu prints it, with its parameters.
        own: Whether dotcu or the operator's library launched it; else torch did, for one of them.
        figures: By the key of `catalogue.FIGURES`; None for what the report lacks.
        limits: How many blocks fit a multiprocessor by each resource.
        samples: Of all its instructions.
        stalls: Of all its instructions, as a `HotLine` has them.
        lines: The one with the most samples first.
        listed: Whether the report has its instructions.
    """

    name: str
    own: bool
    grid: str
    block: str
    figures: Mapping[str, float | None]
    limits: Mapping[str, int]
    samples: int
    stalls: Mapping[str, int]
    lines: tuple[HotLine, ...]
    listed: bool

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that limit how many blocks fit; several where they do alike."""
        least = min(self.limits.values(), default=0)
        return tuple(name for name, blocks in self.limits.items() if blocks == least)

    @property
    def bound(self) -> str:
        """What bounds it: memory, compute, both, or neither; empty where the report does not tell."""
        compute, memory = self.figures.get(COMPUTE), self.figures.get(MEMORY)
        if compute is None or memory is None:
            return ""
        if max(compute, memory) < BUSY:
            return "neither"
        if abs(compute - memory) < ALIKE:
            return "both"
        return "memory" if memory > compute else "compute"


def profiles(
    launches: Sequence[Launched],
    listings: Sequence[Listing],
    *,
    kernels: Sequence[str],
    files: Mapping[str, str],
    text_of: TextOf,
    native: bool = False,
) -> tuple[KernelProfile, ...]:
    """What two pages of a report say together, launch by launch.

    Args:
        kernels: Names of dotcu's kernels: `square<float>`.
        files: The real path of each file name in line tables.
        native: Whether a library launched them: then all are its own but those with a name of torch's.
    """
    names = {kernel.partition("<")[0] for kernel in kernels}

    def own(name: str) -> bool:
        return not _OF_TORCH.match(name) if native else is_of(name, names)

    return tuple(
        _profile(launched, listing, own=own(launched.name), files=files, text_of=text_of)
        for launched, listing in _joined(launches, listings)
    )


_OF_TORCH = re.compile(r"(?:void )?at::")
"""How the names of torch's kernels begin."""

_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|_GLOBAL__N__\w+::")
"""How tools spell a namespace without a name, in which dotcu knows a kernel by its own name."""


def is_of(name: str, kernels: set[str]) -> bool:
    """Whether a name with template arguments and parameters is that of one of some kernels."""
    name = _UNNAMED.sub("", name)
    plain = re.split(r"[<(]", name, maxsplit=1)[0].split()[-1:]  # `void` may stand before it
    return bool(plain) and plain[0].removeprefix("::") in kernels


def _joined(
    launches: Sequence[Launched], listings: Sequence[Listing]
) -> list[tuple[Launched, Listing | None]]:
    """Each launch with its instructions: in order where there are as many, else by name."""
    if len(launches) == len(listings):
        return list(zip(launches, listings, strict=True))
    left = list(listings)
    found: list[tuple[Launched, Listing | None]] = []
    for launched in launches:
        match = next((listing for listing in left if listing.name == launched.name), None)
        if match is not None:
            left.remove(match)
        found.append((launched, match))
    return found


def _profile(
    launched: Launched, listing: Listing | None, *, own: bool, files: Mapping[str, str], text_of: TextOf
) -> KernelProfile:
    instructions = listing.instructions if listing is not None else []
    limits = {
        words: int(metric.value)
        for name, words in LIMITS.items()
        if (metric := launched.metrics.get(name)) is not None and metric.value is not None
    }
    return KernelProfile(
        name=launched.name,
        own=own,
        grid=launched.grid,
        block=launched.block,
        figures={figure.key: value_of(figure, launched) for figure in FIGURES},
        limits=limits,
        samples=sum(instruction.samples for instruction in instructions),
        stalls=_stalls(instructions),
        lines=_lines(instructions, files, text_of),
        listed=bool(instructions),
    )


def value_of(figure: Figure, launched: Launched) -> float | None:
    """A figure in our unit: microseconds, bytes, bytes a second, hertz, percent; None where it is lacking."""
    for name in figure.metrics:
        metric = launched.metrics.get(name)
        if metric is None or metric.value is None:
            continue
        scales = UNITS.get(figure.kind)
        scale = 1.0 if scales is None else scales.get(metric.unit.lower())
        if scale is not None:
            return metric.value * scale
    return None


def _stalls(instructions: Sequence[Instruction]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for instruction in instructions:
        counts.update({why: n for why, n in instruction.stalls.items() if why != SELECTED})
    return dict(counts.most_common())


def _lines(
    instructions: Sequence[Instruction], files: Mapping[str, str], text_of: TextOf
) -> tuple[HotLine, ...]:
    groups: dict[tuple[str, int], list[Instruction]] = {}
    for instruction in instructions:
        groups.setdefault(instruction.place or ("", 0), []).append(instruction)
    lines = []
    for (file, line), group in groups.items():
        path = files.get(file, file)
        lines.append(
            HotLine(
                file=path,
                line=line,
                text=text_of(path, line) if line else "",
                samples=sum(each.samples for each in group),
                stalls=_stalls(group),
                executed=sum(each.executed for each in group),
            )
        )
    return tuple(sorted((line for line in lines if line.samples), key=lambda line: -line.samples))

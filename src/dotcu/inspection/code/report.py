"""What an inspection found: a value that prints itself, and has a plain form for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.inspection.binaries.report import BinaryReport
from dotcu.inspection.code import rendering
from dotcu.inspection.code.emitted import Emitted
from dotcu.inspection.code.inspected import Counted, InspectedKernel
from dotcu.inspection.code.occupancy import Held
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.units import Failed, Template
from dotcu.simulator import Line

VERSION = 1
"""Of the JSON form."""

_COUNTS = (
    "lane_instructions", "warp_instructions", "active_lanes", "branches", "divergent_branches",
    "global_requests", "global_sectors", "ideal_sectors", "shared_requests", "shared_wavefronts",
    "ideal_wavefronts", "atomics", "flops",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class InspectReport(report_base.Report):
    """What `dotcu.inspect` found in code that it compiled. `str()` of it is a table.

    Attributes:
        target: What was inspected, as it was asked for.
        kernels: By name, then by architecture in the order in which they were asked for.
        failed: What could not be compiled for one of the architectures.
        templates: Templates of kernels of which no instantiation is known.
        notes: What could not be told, and why.
        libraries: What the files hold of libraries that compute operators.
    """

    target: str
    kernels: tuple[InspectedKernel, ...]
    failed: tuple[Failed, ...] = ()
    templates: tuple[Template, ...] = ()
    notes: tuple[str, ...] = ()
    libraries: tuple[BinaryReport, ...] = ()

    def kernel(self, name: str, arch: str | None = None) -> InspectedKernel:
        """The one of a name, and of an architecture where there are several.

        Raises:
            KeyError: There is none.
        """
        for one in self.kernels:
            if one.code.name == name and arch in (None, str(one.code.arch)):
                return one
        raise KeyError(f"{name} for {arch}" if arch else name)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "target": self.target,
            "kernels": [_kernel(one) for one in self.kernels],
            "failed": [
                {"arch": str(one.arch), "kernels": list(one.names), "message": one.message}
                for one in self.failed
            ],
            "templates": [asdict(one) for one in self.templates],
            "notes": list(self.notes),
            "libraries": [each.to_json() for each in self.libraries],
        }

    def __rich__(self) -> RenderableType:
        return rendering.table(self)


def _kernel(one: InspectedKernel) -> dict[str, Any]:
    code = one.code
    return {
        "name": code.name,
        "symbol": code.symbol,
        "arch": str(code.arch),
        "place": _place(code.place),
        "parameters": None if code.parameters is None else list(code.parameters),
        "dynamic_smem": code.takes_dynamic_smem,
        "resources": None if code.resources is None else asdict(code.resources),
        "instructions": None if one.function is None else len(one.function.instructions),
        "occupancy": [_held(each) for each in one.held],
        "level": one.level,
        "emitted": [_emitted(each) for each in one.emitted],
        "remarks": [
            {"kind": each.kind, "place": _place(each.place), "near": each.near, "message": each.message}
            for each in one.remarks
        ],
        "counts": None if one.counted is None else _counted(one.counted),
    }


def _held(held: Held) -> dict[str, Any]:
    return {
        "block": list(held.shape.block),
        "smem_bytes": held.shape.smem_bytes,
        "why": held.why,
        "blocks": held.blocks,
        "warps": held.warps,
        "most_warps": held.most_warps,
        "limits": dict(held.limits),
        "limiters": list(held.limiters),
        "steps": [asdict(step) for step in held.steps],
    }


def _emitted(emitted: Emitted) -> dict[str, Any]:
    return {
        "group": emitted.group,
        "label": emitted.label,
        "meaning": emitted.meaning,
        "count": emitted.count,
        "places": [{**place._asdict(), "count": count} for place, count in emitted.places],
    }


def _counted(counted: Counted) -> dict[str, Any]:
    return {
        "call": counted.call,
        "total": _line(counted.total),
        "lines": [{**place._asdict(), **_line(line)} for place, line in sorted(counted.lines.items())],
    }


def _line(line: Line) -> Mapping[str, float]:
    return {name: getattr(line, name) for name in _COUNTS}


def _place(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else place._asdict()

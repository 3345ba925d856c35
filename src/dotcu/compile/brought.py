"""Code that a wheel brought: looked for beside a source before anything is compiled.

What is there is taken if it was made of this very source, with these options, for these kernels,
and if the GPU and its driver can load it. Otherwise each variant has its reason.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile import manifest
from dotcu.compile.manifest import FOLDER, Built, Load, Manifest, Record, Variant, digest_of
from dotcu.compile.objects import ObjectCode
from dotcu.compile.options import CompileOptions
from dotcu.compile.source import Source
from dotcu.compile.target import Target, Version

_log = logging.getLogger("dotcu")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What code is wanted for.

    Attributes:
        capability: Of the GPU, or of the one that the simulator stands for.
        driver: The driver's CUDA version; None where there is none, so that nothing will be loaded.
        simulated: The simulator is to run it.
        assembled: Machine code alone will do: registers are asked for.
    """

    capability: Version
    driver: Version | None = None
    simulated: bool = False
    assembled: bool = False


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Why what a wheel brought cannot be used.

    Attributes:
        reasons: A line each; empty where no wheel brought anything.
    """

    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join(f"\n    {reason}" for reason in self.reasons)


NOTHING = Missing()


def look(
    source: Source, options: CompileOptions, names: Sequence[str], wanted: Wanted
) -> ObjectCode | Missing:
    """Find the code that a wheel brought for some kernels of a source.

    Args:
        names: The kernels' name expressions, without those of variables.

    Raises:
        BroughtCodeError: There is some, and it is not what the wheel held.
    """
    brought = _beside(source.path.parent) if source.path is not None else None
    if brought is None or source.name not in brought.manifest.loads:
        return NOTHING
    key, wanted_names = manifest.load_key(source, options), tuple(sorted(names))
    load = next((one for one in brought.manifest.loads[source.name] if one.key == key), None)
    built = next((one for one in load.built if one.names == wanted_names), None) if load else None
    if load is None or built is None:
        return Missing(reasons=(f"{brought.folder} has no code for {', '.join(wanted_names)}",))
    changed = brought.changed(source, load, built)
    if changed:
        return Missing(reasons=(f"{changed} is not what {brought.folder} was compiled from",))
    return brought.choose(source, built, wanted)


def covers(path: Path) -> bool:
    """Whether a wheel brought code for a source: then headers that it lacks are not missed yet."""
    brought = _beside(path.parent)
    return brought is not None and path.name in brought.manifest.loads


@functools.cache
def _beside(folder: Path) -> _Brought | None:
    found = manifest.read(folder / FOLDER)
    return _Brought(folder / FOLDER, found) if found is not None else None


class _Brought:
    """A folder of code, and what of it was opened."""

    def __init__(self, folder: Path, found: Manifest) -> None:
        self.folder = folder
        self.manifest = found
        self._packs: dict[str, bytes] = {}

    def changed(self, source: Source, load: Load, built: Built) -> str:
        """The first file of a source that is not what was compiled; "" where all are."""
        if manifest.text_digest(source) != built.text:
            return source.name
        for name, digest in load.headers.items():
            path = self.folder.parent / name
            if not (path.is_file() and digest_of(path.read_bytes()) == digest):
                return name
        return ""

    def choose(self, source: Source, built: Built, wanted: Wanted) -> ObjectCode | Missing:
        """The best variant that can be used, else why none can."""
        some = [variant for variant in built.variants if variant.simulated == wanted.simulated]
        judged = {variant: refuse(variant, wanted, self.manifest.compiler) for variant in some}
        fit = [variant for variant, reason in judged.items() if not reason]
        if not fit:
            reasons = [f"{variant}: {reason}" for variant, reason in judged.items()]
            what = "for the simulator" if wanted.simulated else "that fits"
            return Missing(reasons=(f"{self.folder} has no {', '.join(built.names)} {what}", *reasons))
        best = max(fit, key=lambda v: (v.target.kind == "sm", v.target.number, v.target.suffix))
        _log.info("%s for %s: brought by its wheel (%s)", source.name, best, self.folder)
        return self._object_code(best)

    def _data(self, number: int) -> bytes:
        name, start, length = self.manifest.places[number]
        if name not in self._packs:
            self._packs[name] = manifest.open_pack(self.folder, self.manifest, name)
        return self._packs[name][start : start + length]

    def _object_code(self, variant: Variant) -> ObjectCode:
        data, inside = self._data(variant.record), self.folder.parent
        record = Record.from_bytes(data)
        files = {name: str(inside / path) if path else name for name, path in record.files.items()}
        return ObjectCode(
            target=variant.target, ptx=record.ptx, cubin=record.cubin, lowered=record.lowered,
            signatures=record.signatures, resources=record.resources, warnings=(), log="",
            command=f"brought by {self.folder}", files=files, source_digest="",
            build_digest=digest_of(data), cached=True, seconds=0.0,
        )  # fmt: skip


def refuse(variant: Variant, wanted: Wanted, compiler: Version) -> str:
    """Why a variant cannot be used; "" where it can.

    Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility"; CUDA
    Compatibility guide, "Minor version compatibility".
    """
    target, capability = variant.target, wanted.capability
    if wanted.simulated:
        same = (target.major, target.minor) == capability
        return "" if same else f"the simulator is asked to be {_dotted(capability)}"
    if wanted.assembled and target.kind != "sm":
        return "it is no machine code, which alone tells of registers"
    if not _runs_on(target, capability):
        return f"the GPU's compute capability is {_dotted(capability)}"
    needed = (compiler[0], 0) if target.kind == "sm" else compiler
    if wanted.driver is not None and wanted.driver < needed:
        return f"it needs a driver of CUDA {_dotted(needed)}, and this one has CUDA {_dotted(wanted.driver)}"
    return ""


def _runs_on(target: Target, capability: Version) -> bool:
    if target.suffix == "a":
        return (target.major, target.minor) == capability
    if target.kind == "sm" or target.suffix == "f":
        return target.major == capability[0] and target.minor <= capability[1]
    return target.number <= capability[0] * 10 + capability[1]


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"

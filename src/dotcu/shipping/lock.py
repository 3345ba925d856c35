"""dotcu.lock: what a wheel must hold, written down so that it can be compiled without torch.

It is committed. Its digests are of the sources as they were when bodies were traced, so a source
that was edited since is seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dotcu.compile import CompileOptions, Source, Target, read_source
from dotcu.compile.include_graph import IncludeGraph, include_graph, system_headers
from dotcu.compile.object_code import is_kernel
from dotcu.errors import UsageError, reason
from dotcu.files import read_file

NAME = "dotcu.lock"
FORMAT = 1

SIMULATED_TARGET = Target.parse("compute_80")
"""What the simulator stands for unless it is asked otherwise."""

SIMULATED = "simulated"
"""Instead of an architecture: the kernels that the bodies reach in the simulator."""


@dataclass(frozen=True, kw_only=True, order=True)
class LockedUnit:
    """Kernels that are compiled together.

    Attributes:
        names: Their name expressions, sorted.
        headers: Those that their template arguments need and the source lacks.
        architectures: For which of the lock's they were reached, and whether by the simulator.
        late: Those that only the compiler sees, since macros make them: kernels, and `&variables`.
    """

    names: tuple[str, ...]
    headers: tuple[str, ...]
    architectures: tuple[str, ...]
    late: tuple[str, ...] = ()

    @property
    def kernels(self) -> list[str]:
        """All of its kernels."""
        return [name for name in (*self.names, *self.late) if is_kernel(name)]


@dataclass(frozen=True, kw_only=True)
class LockedSource:
    """A source, how it is compiled, and the kernels of it that a wheel contains.

    Attributes:
        path: From the project's folder, with slashes.
        include: Its include folders, likewise.
        digest: Of it and every header of the user's that it reaches.
        variables: Its `__constant__` and `__device__` variables.
        objects: The digest of each compiled object by its key in the cache: what a store may send.
    """

    path: str
    include: tuple[str, ...]
    options: CompileOptions
    digest: str
    variables: tuple[str, ...]
    units: tuple[LockedUnit, ...]
    objects: Mapping[str, str] = field(default_factory=dict, compare=False)

    def read(self, root: Path) -> Source:
        return read_source(root / self.path, [root / folder for folder in self.include])


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The kernels that a wheel must hold.

    Attributes:
        architectures: Those for which bodies were traced: `sm_80`, and `simulated`.
    """

    architectures: tuple[str, ...]
    sources: tuple[LockedSource, ...]

    def to_text(self) -> str:
        """The lock as it is committed: a line for each instantiation."""
        values = {
            "format": FORMAT,
            "about": "Written by `dotcu build`: what the wheel holds. Commit it; do not edit it.",
            "architectures": self.architectures,
            "sources": [
                {
                    "path": source.path,
                    "include": source.include,
                    "std": source.options.std,
                    "define": dict(source.options.define),
                    "options": source.options.options,
                    "debug": source.options.debug,
                    "digest": source.digest,
                    "variables": source.variables,
                    "kernels": [self._kernels(unit) for unit in source.units],
                    **({"objects": dict(sorted(source.objects.items()))} if source.objects else {}),
                }
                for source in self.sources
            ],
        }
        return json.dumps(values, indent=2) + "\n"

    def _kernels(self, unit: LockedUnit) -> dict[str, tuple[str, ...]]:
        headers = {"headers": unit.headers} if unit.headers else {}
        late = {"late": unit.late} if unit.late else {}
        differs = {"architectures": unit.architectures} if unit.architectures != self.architectures else {}
        return {"names": unit.names, **late, **headers, **differs}

    def with_objects_of(self, before: Lock | None) -> Lock:
        """Return the lock with the objects that another has of sources that are the same."""

        def identity(one: LockedSource) -> tuple[object, ...]:
            return one.path, one.include, one.options, one.digest

        known = {identity(one): one.objects for one in before.sources} if before else {}
        sources = [replace(one, objects=known.get(identity(one), {})) for one in self.sources]
        return replace(self, sources=tuple(sources))

    def kernels(self) -> set[tuple[str, str, str, str]]:
        """Return every kernel: its source, how that is loaded, its name, and an architecture."""
        return {
            (source.path, repr((source.options.key, source.include)), name, arch)
            for source in self.sources
            for unit in source.units
            for name in unit.kernels
            for arch in unit.architectures
        }


def read(root: Path) -> Lock:
    file = root / NAME
    try:
        values = json.loads(read_file(file))
        if values.get("format") != FORMAT:
            raise ValueError(f"its format is {values.get('format')!r}, and this dotcu reads {FORMAT}")
        architectures = tuple(values["architectures"])
        sources = tuple(_read_source(source, architectures) for source in values["sources"])
        return Lock(architectures=architectures, sources=sources)
    except FileNotFoundError as error:
        raise UsageError(f"There is no {file}: it lists what a wheel contains.\nType: dotcu build") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {reason(error)}.\nWrite a new one: dotcu build") from error


def _read_source(values: Mapping[str, Any], architectures: tuple[str, ...]) -> LockedSource:
    options = {name: values[name] for name in ("std", "define", "options", "debug")}
    units = tuple(
        LockedUnit(
            names=tuple(unit["names"]),
            headers=tuple(unit.get("headers", ())),
            architectures=tuple(unit.get("architectures", architectures)),
            late=tuple(unit.get("late", ())),
        )
        for unit in values["kernels"]
    )
    return LockedSource(
        path=values["path"], include=tuple(values["include"]), options=CompileOptions(**options),
        digest=values["digest"], variables=tuple(values["variables"]), units=units,
        objects=dict(values.get("objects", {})),
    )  # fmt: skip


def write(lock: Lock, root: Path) -> None:
    """Write a project's lock, whole or not at all."""
    whole = root / f".{NAME}.{os.urandom(4).hex()}"
    try:
        whole.write_text(lock.to_text(), encoding="utf-8")
        whole.replace(root / NAME)
    finally:
        whole.unlink(missing_ok=True)


def reached_by(source: Source, options: CompileOptions) -> IncludeGraph:
    """Find the user's headers that a source reaches, without a compiler."""
    return include_graph(source, system_headers(()), options=options)


def require_current(lock: Lock, root: Path, wanted: Sequence[Target]) -> None:
    """Refuse a lock that is older than the sources, or was made for other architectures than those wanted."""
    for source in lock.sources:
        if reached_by(source.read(root), source.options).digest != source.digest:
            raise UsageError(
                f"{source.path}, or a header of it, has changed since {NAME} was written.\n"
                "Trace the operators again: dotcu build"
            )
    lacking = [str(t) for t in wanted if t.kind == "sm" and str(t) not in lock.architectures]
    if lacking:
        raise UsageError(
            f"{NAME} was written for {', '.join(lock.architectures)}; {', '.join(lacking)} is requested.\n"
            f"Trace the operators again: dotcu build --arch {','.join(lacking)}"
        )

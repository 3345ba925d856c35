"""From a lock to the folders of code that go into a wheel; needs neither torch nor a GPU.

Machine code is compiled without line tables and without probes. PTX keeps its lines, since the
simulator's findings name them. It is compiled for drivers, and for the GPU that the simulator stands
for; where both come to the same, which is the rule, the wheel holds it once.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dotcu.__about__ import __version__
from dotcu.compile import ObjectCode, Source, Target, build_visible, toolchain
from dotcu.compile.manifest import (
    FOLDER,
    INDEX,
    Built,
    Load,
    Manifest,
    Record,
    Variant,
    digest_of,
    load_key,
    pack,
    text_digest,
)
from dotcu.compile.skeleton import skeleton, without_probes
from dotcu.errors import SourceError, UsageError
from dotcu.shipping.lock import SIMULATED, SIMULATED_TARGET, Lock, LockedSource, LockedUnit, reached_by

Tell = Callable[[str], object]
"""Hears of each build that is done."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One compile.

    Attributes:
        simulated: For the simulator.
    """

    locked: LockedSource
    source: Source
    unit: LockedUnit
    target: Target
    simulated: bool

    def __str__(self) -> str:
        kind = ", simulated" if self.simulated else ""
        return f"{self.locked.path}: {', '.join(self.unit.names)} for {self.target}{kind}"


def plan(lock: Lock, root: Path, targets: Sequence[Target]) -> list[Job]:
    """Every compile that a wheel needs."""
    jobs = []
    for locked in lock.sources:
        source = locked.read(root)
        for unit in locked.units:
            machine = [t for t in targets if str(t) in unit.architectures]
            portable = [t for t in targets if t.kind == "compute" and machine]
            jobs += [_job(locked, source, unit, target, False) for target in (*machine, *portable)]
            if SIMULATED in unit.architectures:
                jobs.append(_job(locked, source, unit, SIMULATED_TARGET, True))
    return jobs


def _job(locked: LockedSource, source: Source, unit: LockedUnit, target: Target, simulated: bool) -> Job:
    return Job(
        locked=locked, source=source.with_headers(unit.headers), unit=unit, target=target, simulated=simulated
    )


def compile_all(jobs: Sequence[Job], tell: Tell = lambda _: None) -> dict[Job, ObjectCode]:
    """Compile, on every core.

    What does not compile for the simulator alone is left out: it may be for a later GPU than that one.

    Raises:
        SourceError: A kernel does not compile; says which, and for which architecture.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = {}
        try:
            for job, code in zip(jobs, pool.map(_compiled, jobs), strict=True):
                if code is not None:
                    made[job] = code
                tell(str(job))
        finally:
            pool.shutdown(cancel_futures=True)
    return made


def _compiled(job: Job) -> ObjectCode | None:
    try:
        return _compile(job)
    except SourceError:
        if not job.simulated:
            raise
        return None


def _compile(job: Job, *, probed: bool = False) -> ObjectCode:
    names = (*job.unit.names, *("&" + name for name in job.locked.variables))
    machine = job.target.kind == "sm"
    return build_visible(
        job.source, options=job.locked.options, target=job.target, names=names, simulated=job.simulated,
        probed=probed or not machine, lines=not machine,
    )  # fmt: skip


def assemble(made: Mapping[Job, ObjectCode], in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """The files to add to a wheel, by their path in it.

    Args:
        in_wheel: The paths in the wheel of the files that it holds otherwise.

    Raises:
        UsageError: The wheel does not hold a source.
    """
    folders: dict[str, dict[Job, ObjectCode]] = {}
    for job, code in made.items():
        assert job.source.path is not None
        place = in_wheel.get(job.source.path.resolve())
        if place is None:
            raise UsageError(
                f"{job.locked.path} is not in the wheel, and the installed package loads it by its name.\n"
                "Let the wheel hold it, in pyproject.toml: [tool.hatch.build.targets.wheel]"
            )
        folders.setdefault(posixpath.dirname(place), {})[job] = code
    return {
        posixpath.join(folder, FOLDER, name): data
        for folder, some in sorted(folders.items())
        for name, data in _folder(folder, some, in_wheel).items()
    }


def _folder(folder: str, made: Mapping[Job, ObjectCode], in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    told = {(job.locked, job.unit): code.signatures for job, code in made.items() if code.signatures}
    records = {}
    for job, code in made.items():
        signatures = told.get((job.locked, job.unit))
        if signatures is None:  # there is no PTX, which has them
            signatures = told[job.locked, job.unit] = _compile(job, probed=True).signatures
        records[job] = _record(code, signatures, folder, in_wheel).to_bytes()
    alike: dict[str, list[bytes]] = {}  # GPUs of one major: what one compiles to says most of the others'
    for job in sorted(records, key=lambda job: (job.locked.path, job.unit, job.target, job.simulated)):
        alike.setdefault(f"{job.target.kind}_{job.target.major}x", []).append(records[job])
    places, files = pack(alike)
    numbers = {digest: number for number, digest in enumerate(places)}
    numbered = {job: numbers[digest_of(data)] for job, data in records.items()}
    described = Manifest(
        made_by=__version__,
        compiler=toolchain.nvrtc().version,
        loads=_loads(numbered, folder, in_wheel),
        places=tuple(places.values()),
        packs={name: digest_of(data) for name, data in files.items()},
    )
    return {INDEX: described.to_json().encode(), **files}


def _record(
    code: ObjectCode, signatures: Mapping[str, str], folder: str, in_wheel: Mapping[Path, str]
) -> Record:
    machine = code.cubin is not None
    places = {name: in_wheel.get(Path(path).resolve()) for name, path in code.files.items()}
    shown = {name: posixpath.relpath(place, folder) if place else "" for name, place in places.items()}
    return Record(
        lowered=code.lowered,
        signatures={name: text for name, text in signatures.items() if name in code.lowered},
        resources=code.resources,
        files={} if machine else shown,
        ptx=skeleton(code.ptx) if machine else without_probes(code.ptx),
        cubin=code.cubin,
    )


def _loads(
    records: Mapping[Job, int], folder: str, in_wheel: Mapping[Path, str]
) -> dict[str, tuple[Load, ...]]:
    by_load: dict[tuple[str, str], list[Job]] = {}
    for job in records:
        key = job.source.name, load_key(job.source, job.locked.options)
        by_load.setdefault(key, []).append(job)
    found: dict[str, tuple[Load, ...]] = {}
    for (name, told), jobs in sorted(by_load.items()):
        headers = _headers(jobs[0], folder, in_wheel)
        load = Load(key=told, headers=headers, built=tuple(_built(jobs, records)))
        found[name] = (*found.get(name, ()), load)
    return found


def _headers(job: Job, folder: str, in_wheel: Mapping[Path, str]) -> dict[str, str]:
    """The digest of each header that a source reaches and the wheel holds, by its path from the source."""
    found = {}
    for file in reached_by(job.source, job.locked.options).headers.values():
        assert file.path is not None
        place = in_wheel.get(file.path.resolve())
        if place is not None:
            found[posixpath.relpath(place, folder)] = digest_of(file.path.read_bytes())
    return dict(sorted(found.items()))


def _built(jobs: Sequence[Job], records: Mapping[Job, int]) -> Iterator[Built]:
    by_unit: dict[LockedUnit, list[Job]] = {}
    for job in jobs:
        by_unit.setdefault(job.unit, []).append(job)
    for unit, some in sorted(by_unit.items()):
        variants = tuple(
            Variant(target=job.target, simulated=job.simulated, record=records[job]) for job in some
        )
        yield Built(names=tuple(sorted(unit.names)), text=text_digest(some[0].source), variants=variants)

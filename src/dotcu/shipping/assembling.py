"""From a lock to the folders of code that go into a wheel; needs neither torch nor a GPU.

Machine code is compiled without line tables and without probes. PTX keeps its lines, since the
simulator's findings name them. It is compiled for drivers, and for the GPU that the simulator stands
for; where both come to the same, which is the rule, the wheel holds it once.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu.__about__ import __version__
from dotcu.compile import ObjectCode, Source, Target, parameter_layouts, tile, toolchain
from dotcu.compile.object_code import is_kernel, skeleton, without_probes
from dotcu.compile.plan import BuildInputs
from dotcu.compile.pool import build_all
from dotcu.compile.prebuilt import (
    FOLDER,
    INDEX,
    PrebuiltKernels,
    PrebuiltManifest,
    PrebuiltSource,
    PrebuiltVariant,
    compress_records,
    digest_of,
    load_key,
    record_bytes,
    text_digest,
)
from dotcu.compile.source.declarations import has_tile_code
from dotcu.errors import SourceError, UsageError
from dotcu.files import read_file
from dotcu.ptx.debug_info import TypeRow
from dotcu.shipping.lock import SIMULATED, SIMULATED_TARGET, Lock, LockedSource, LockedUnit, reached_by


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

    @property
    def inputs(self) -> BuildInputs:
        """Machine code has neither line tables nor probes."""
        names = (*self.unit.names, *self.unit.late, *("&" + name for name in self.locked.variables))
        portable = self.target.kind != "sm"
        return BuildInputs(
            source=self.source, options=self.locked.options, target=self.target, names=names,
            simulated=self.simulated, probed=portable, lines=portable,
        )  # fmt: skip

    def __str__(self) -> str:
        kind = ", simulated" if self.simulated else ""
        return f"{self.locked.path}: {', '.join(self.unit.kernels)} for {self.target}{kind}"


def plan(lock: Lock, root: Path, targets: Sequence[Target]) -> list[Job]:
    """List every compile that a wheel needs, with sources from the project's folder, `root`."""
    jobs = []
    for locked in lock.sources:
        text = locked.read(root)
        is_tile = has_tile_code(file.text for file in reached_by(text, locked.options).files)
        for unit in locked.units:
            machine = [t for t in targets if str(t) in unit.architectures]
            portable = [t for t in targets if t.kind == "compute" and machine]
            if is_tile:  # no driver assembles tile kernels
                machine, portable = [t for t in machine if not tile.refuse_target(t)], []
            variants = [(target, False) for target in (*machine, *portable)]
            variants += [(SIMULATED_TARGET, True)] if SIMULATED in unit.architectures else []
            source = text.with_headers(unit.headers)
            jobs += [
                Job(locked=locked, source=source, unit=unit, target=target, simulated=simulated)
                for target, simulated in variants
            ]
    return jobs


def compile_all(
    jobs: Sequence[Job], report: Callable[[str], object] = lambda _: None
) -> dict[Job, ObjectCode]:
    """Compile what is not in the cache, on every core.

    What does not compile for the simulator alone is left out: it may be for a later GPU than that one.

    Raises:
        SourceError: A kernel does not compile; says which, and for which architecture.
    """
    by_inputs = {job.inputs: job for job in jobs}
    codes = build_all(list(by_inputs), lambda inputs: report(str(by_inputs[inputs])))
    done = {}
    for inputs, job in by_inputs.items():
        code = codes[inputs]
        if not isinstance(code, SourceError):
            done[job] = _for_every_host(code)
        elif not job.simulated:
            raise code
    return done


def _for_every_host(code: ObjectCode) -> ObjectCode:
    """Return code whose tile kernels, if it has any, are assembled for hosts of every processor."""
    if not code.tile_cubins:
        return code
    others = [host for host in tile.HOSTS if host not in code.tile_cubins]
    made = tile.cubins_for(code.tile_ir, code.target, others)
    return replace(code, tile_cubins={**code.tile_cubins, **made})


def assemble(codes: Mapping[Job, ObjectCode], in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """Return the files to add to a wheel by their path in it; `in_wheel` has the paths of its other files."""
    folders: dict[str, dict[Job, ObjectCode]] = {}
    for job, code in codes.items():
        assert job.source.path is not None
        place = in_wheel.get(job.source.path.resolve())
        if place is None:
            raise UsageError(
                f"{job.locked.path} is not in the wheel, and the installed package loads it by its name.\n"
                "Include it in the wheel, in pyproject.toml: [tool.hatch.build.targets.wheel]"
            )
        folders.setdefault(posixpath.dirname(place), {})[job] = code
    return {
        posixpath.join(folder, FOLDER, name): data
        for folder, some in sorted(folders.items())
        for name, data in _folder(folder, some, in_wheel).items()
    }


def _folder(folder: str, codes: Mapping[Job, ObjectCode], in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    known = {(job.locked, job.unit): code.signatures for job, code in codes.items() if code.signatures}
    records = {}
    layouts: dict[tuple[LockedSource, LockedUnit], Mapping[str, Sequence[TypeRow]]] = {}
    for job, code in codes.items():
        unit = job.locked, job.unit
        if unit not in layouts:
            names = [name for name in job.unit.kernels if takes_struct(code, name)]
            layouts[unit] = {}
            with suppress(SourceError):  # then such a struct takes its bytes alone
                layouts[unit] = parameter_layouts(
                    job.source, job.locked.options, job.target, names, simulated=job.simulated
                )
        signatures = known.get((job.locked, job.unit))
        if signatures is None:  # there is no PTX, which has them
            probed = replace(job.inputs, probed=True)
            (code_with,) = build_all([probed]).values()
            assert not isinstance(code_with, SourceError)  # as it compiled before
            signatures = known[job.locked, job.unit] = code_with.signatures
        records[job] = _record(code, signatures, layouts[unit], folder, in_wheel)
    alike: dict[str, list[bytes]] = {}  # GPUs of one major: what one compiles to says most of the others'
    for job in sorted(records, key=lambda job: (job.locked.path, job.unit, job.target, job.simulated)):
        alike.setdefault(f"{job.target.kind}_{job.target.major}x", []).append(records[job])
    positions, files = compress_records(alike)
    numbers = {digest: number for number, digest in enumerate(positions)}
    numbered = {job: numbers[digest_of(data)] for job, data in records.items()}
    described = PrebuiltManifest(
        made_by=__version__,
        compiler=toolchain.nvrtc().version,
        sources=_loads(numbered, codes, folder, in_wheel),
        positions=tuple(positions.values()),
        packs={name: digest_of(data) for name, data in files.items()},
    )
    return {INDEX: described.to_json().encode(), **files}


def takes_struct(code: ObjectCode, kernel: str) -> bool:
    """Return whether a kernel has a parameter that is a struct: an array of bytes in PTX."""
    symbol = code.lowered.get(kernel)
    head = re.search(rf"\.entry {re.escape(symbol)}\((.*?)\)", code.ptx, re.DOTALL) if symbol else None
    return head is not None and ".b8 " in head[1]


def _record(
    code: ObjectCode,
    signatures: Mapping[str, str],
    layouts: Mapping[str, Sequence[TypeRow]],
    folder: str,
    in_wheel: Mapping[Path, str],
) -> bytes:
    machine = code.target.kind == "sm"
    places = {name: in_wheel.get(Path(path).resolve()) for name, path in code.files.items()}
    shown = {name: posixpath.relpath(place, folder) if place else "" for name, place in places.items()}
    kept = replace(
        code, layouts=layouts, files={} if machine else shown,
        signatures={name: text for name, text in signatures.items() if name in code.lowered},
        ptx=skeleton(code.ptx) if machine else without_probes(code.ptx),
    )  # fmt: skip
    return record_bytes(kept)


def _loads(
    records: Mapping[Job, int], codes: Mapping[Job, ObjectCode], folder: str, in_wheel: Mapping[Path, str]
) -> dict[str, tuple[PrebuiltSource, ...]]:
    by_load: dict[tuple[str, str], dict[LockedUnit, list[Job]]] = {}
    for job in records:
        load = job.source.name, load_key(job.source, job.locked.options)
        by_load.setdefault(load, {}).setdefault(job.unit, []).append(job)
    sources: dict[str, tuple[PrebuiltSource, ...]] = {}
    for (name, key), by_unit in sorted(by_load.items()):
        kernels = tuple(
            PrebuiltKernels(
                names=tuple(sorted(unit.names)),
                text=text_digest(jobs[0].source),
                variants=tuple(
                    PrebuiltVariant(target=job.target, simulated=job.simulated, record=records[job])
                    for job in jobs
                ),
                is_tile=any(codes[job].tile_ir for job in jobs),
                late=tuple(name for name in unit.late if is_kernel(name)),
            )
            for unit, jobs in sorted(by_unit.items())
        )
        headers = _headers(next(iter(by_unit.values()))[0], folder, in_wheel)
        sources[name] = (*sources.get(name, ()), PrebuiltSource(key=key, headers=headers, kernels=kernels))
    return sources


def _headers(job: Job, folder: str, in_wheel: Mapping[Path, str]) -> dict[str, str]:
    """Return the digest of each header that a source reaches and the wheel holds, by its path from it."""
    digests = {}
    for file in reached_by(job.source, job.locked.options).headers.values():
        assert file.path is not None
        place = in_wheel.get(file.path.resolve())
        if place is not None:
            digests[posixpath.relpath(place, folder)] = digest_of(read_file(file.path))
    return dict(sorted(digests.items()))


# Compiled kernels as plain files, for programs that have neither Python nor torch.


MANIFEST = "manifest.tsv"
COLUMNS = ("kernel", "target", "file", "symbol", "sha256")


def export(codes: Mapping[Job, ObjectCode], folder: Path) -> None:
    """Write machine code and PTX into a new folder, whole or not at all."""
    lines = []
    with replacing(folder, MANIFEST, "Name another folder, or remove it.") as new:
        for job, code in codes.items():
            if job.simulated or not job.unit.kernels:
                continue
            data = code.cubin if code.cubin is not None else without_probes(code.ptx).encode()
            suffix = "cubin" if code.cubin is not None else "ptx"
            tiles = {f"{host}.cubin": cubin for host, cubin in code.tile_cubins.items()}
            stem = re.sub(r"\W+", "_", job.unit.kernels[0].split("<")[0])
            stem = f"{stem}-{digest_of(repr(job.unit.names).encode())[:8]}.{job.target}"
            visible = {kernel: code.lowered[kernel] for kernel in job.unit.kernels if kernel in code.lowered}
            for ending, file in {suffix: data, **tiles}.items():
                some = {
                    k: symbol for k, symbol in visible.items() if code.is_tile(symbol) == (ending in tiles)
                }
                if not some and tiles:
                    continue
                (new / f"{stem}.{ending}").write_bytes(file)
                lines += [
                    (kernel, str(job.target), f"{stem}.{ending}", symbol, digest_of(file))
                    for kernel, symbol in some.items()
                ]
        text = "".join("\t".join(line) + "\n" for line in [COLUMNS, *sorted(lines)])
        (new / MANIFEST).write_text(text, encoding="utf-8")


@contextmanager
def replacing(folder: Path, mark: str, remedy: str) -> Iterator[Path]:
    """Yield a new folder, which replaces another when the block succeeds, and is removed when it fails.

    A folder without a file `mark` is someone else's: that is a UsageError, with `remedy`.
    """
    if folder.exists() and not (folder / mark).is_file():
        raise UsageError(f"{folder} exists already and has no {mark}: it is not replaced.\n{remedy}")
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        yield new
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)

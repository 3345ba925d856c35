"""The kernels that operators may compile, and a pack of them for machines that should not compile.

The kernels are those that samples reach, those that bodies ask after, and declared instantiations, as a call
asks for them: with signatures and lines, and the layouts of structs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dotcu import settings
from dotcu.checking.target import resolve
from dotcu.compile import Rejected, Target, cache, sharing, tile, toolchain
from dotcu.compile.cache import CacheEntry, Store
from dotcu.compile.plan import BuildInputs, is_reproducible, layout_inputs, lock_folder
from dotcu.compile.pool import build_all
from dotcu.compile.target import plan_target
from dotcu.errors import CompileError, SourceError, UsageError
from dotcu.inspection.operators import trace_operators
from dotcu.shipping import lock
from dotcu.shipping.assembling import takes_struct
from dotcu.shipping.lock import SIMULATED, SIMULATED_TARGET, LockedSource, reached_by
from dotcu.shipping.project import targets_of
from dotcu.shipping.tracing import declared

_CAPABILITY = re.compile(r"(?:sm_)?(\d{1,2})\.?(\d)")


def plan(place: str, architectures: Sequence[str]) -> tuple[tuple[BuildInputs, ...], tuple[str, ...]]:
    """Return what the calls of some operators may compile.

    Args:
        place: A file or a module, with `:name` for one operator.
        architectures: GPUs by their compute capability, `9.0`, or targets, `sm_90a`; `simulated` for the CPU.

    Returns:
        The compiles, without those of structs' layouts, which follow from their results; what could not be
        traced, and why.
    """
    operators = [operator for _, operator in resolve(place, verb="cache plan")]
    bodies = [overload.body for one in operators for overload in one.overloads.values()]
    folders = {Path(inspect.unwrap(body).__code__.co_filename).parent for body in bodies if body is not None}
    requests: dict[BuildInputs, None] = {}
    notes: dict[str, None] = {}
    for name in architectures:
        simulated = name == SIMULATED
        own = SIMULATED_TARGET if simulated else _target(name, of_tiles=False)
        reply = trace_operators(operators, own)
        if reply.compile_errors:
            raise CompileError(f"For {own}:\n" + "\n".join(reply.compile_errors))
        notes |= dict.fromkeys(reply.notes)
        for unit in {
            **reply.kernels,
            **reply.queried,
            **dict.fromkeys(declared(lambda path: path.parent in folders)),
        }:
            if unit.source.is_compiled or (not unit.names and not unit.late):
                continue
            wanted = own if simulated or not unit.is_tile else _target(name, of_tiles=True)
            inputs = unit.inputs(wanted, simulated=simulated)
            alone = (replace(inputs, names=(each,)) for each in unit.late)  # as `CompilationUnit.alone` asks
            requests |= dict.fromkeys((inputs, *alone))
    return tuple(requests), tuple(notes)


def _target(name: str, *, of_tiles: bool) -> Target:
    """Return what a machine compiles for, by its GPU's compute capability; a target as it is named."""
    compiler = tile.compiler() if of_tiles else toolchain.nvrtc()
    match, known = _CAPABILITY.fullmatch(name), toolchain.supported(compiler)
    if match is None:
        return targets_of([name], known)[0]
    found = plan_target((int(match[1]), int(match[2])), compiler.version, compiler.version, known)
    if isinstance(found, Rejected):
        raise UsageError(f"Nothing can be compiled for {name}. {found}")
    return found


def locked_project(requests: Sequence[BuildInputs]) -> Path:
    """Return the folder of the dotcu.lock that the sources have."""
    folder = next(filter(None, (lock_folder(request.source.path) for request in requests)), None)
    if folder is None:
        raise UsageError(
            f"No {lock.NAME} of yours lies beside these sources, nor above them in their project, so there "
            "is none to write digests into.\nWrite one: dotcu build --lock-only"
        )
    return folder


def pack(
    requests: Sequence[BuildInputs],
    out: Path,
    *,
    project: Path | None = None,
    report: Callable[[BuildInputs], object] = lambda _: None,
) -> tuple[int, str, int | None, tuple[str, ...]]:
    """Compile what is planned, and write it as a pack.

    Args:
        requests: The compiles.
        out: The file to write.
        project: The folder of a dotcu.lock that gets the digests of what is in the pack. All of it is then
            compiled afresh: code that a cache, a layer or a store has need not come from the source.
        report: Is called with each compile that is done.

    Returns:
        The number of its entries; its SHA-256; the number of entries whose digest is in dotcu.lock now, None
        without a project; and the first line of each compile that was refused.

    Raises:
        UsageError: There is nothing to pack, the file cannot be written, or the lock is not of these sources.
    """
    before = lock.read(project) if project is not None else None
    with _afresh() if project is not None else contextlib.nullcontext():
        codes = build_all(requests, report)
        of_structs = {
            layout_inputs(request, (name,)): request
            for request, code in codes.items() if not isinstance(code, SourceError)
            for name in request.kernels if takes_struct(code, name)
        }  # fmt: skip
        codes |= build_all(list(of_structs))
        failed = [str(code).partition("\n")[0] for code in codes.values() if isinstance(code, SourceError)]
        objects = {
            code.build_digest: of_structs.get(request, request)
            for request, code in codes.items() if not isinstance(code, SourceError)
        }  # fmt: skip
        entries = {digest: _entry(digest) for digest in objects}
    if not entries:
        raise UsageError(
            "There is nothing to pack: no kernel in CUDA C++ was reached, or none compiles. "
            "PTX and cubins are compiled already.\n"
            "Give operators samples, which show what they launch: @name.samples"
        )
    digest = _write(out, entries)
    locked = _lock(before, project, objects, entries) if before and project else None
    return len(entries), digest, locked, tuple(failed)


@contextlib.contextmanager
def _afresh() -> Iterator[None]:
    """Let nothing that was compiled before be found, by this process or by the workers that it starts."""
    with (
        tempfile.TemporaryDirectory(prefix="dotcu-") as folder,
        settings.override(cache_dir=Path(folder), cache_dirs=(), cache_remote=None),
    ):
        yield


def _entry(digest: str) -> CacheEntry:
    store = Store(cache.location())
    entry = cache.get_from_memory(store.directory, digest)
    for place in (store, *cache.layers()):
        read = functools.partial(cache.read_entry, is_mine=place.private)
        entry = entry or place.get(digest, read)
    if entry is None:
        raise UsageError(
            f"The cache {store.directory} has not kept the entry {digest[:16]}: it is too small, or cannot "
            "be written.\nGive it room, or another folder: export DOTCU_CACHE_DIR=DIRECTORY"
        )
    return entry


def _write(out: Path, entries: dict[str, CacheEntry]) -> str:
    new = out.with_name(f".{out.name}.{os.urandom(4).hex()}")  # another process may write the same pack
    try:
        with new.open("w+b") as file:
            sharing.write_pack(file, {digest: entry.files() for digest, entry in entries.items()})
            file.seek(0)
            digest = hashlib.sha256()
            while part := file.read(1 << 20):
                digest.update(part)
        new.replace(out)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {(error.strerror or str(error)).lower()}.\n"
            "Name another file: --out FILE"
        ) from error
    finally:
        new.unlink(missing_ok=True)
    return digest.hexdigest()


def _lock(
    before: lock.Lock, project: Path, objects: dict[str, BuildInputs], entries: dict[str, CacheEntry]
) -> int:
    """Write the digests of a pack's entries into a lock; return their number."""
    count, sources = 0, list(before.sources)
    for number, locked in enumerate(sources):
        own = {key: request for key, request in objects.items() if _is_of(request, locked, project)}
        if not own:
            continue
        if reached_by(locked.read(project), locked.options).digest != locked.digest:
            raise UsageError(
                f"{locked.path}, or a header of it, has changed since {lock.NAME} was written.\n"
                "Trace the operators again: dotcu build --lock-only"
            )
        # what holds the working directory has another digest on each machine
        digests = {key: entries[key].digest for key, one in own.items() if is_reproducible(one)}
        sources[number] = replace(locked, objects={**locked.objects, **digests})
        count += len(digests)
    lock.write(replace(before, sources=tuple(sources)), project)
    return count


def _is_of(request: BuildInputs, locked: LockedSource, project: Path) -> bool:
    path = request.source.path
    include = tuple(project / folder for folder in locked.include)
    return (path, request.source.include, request.options) == (project / locked.path, include, locked.options)

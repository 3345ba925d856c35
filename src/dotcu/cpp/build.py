"""From a request to a library: objects from the cache, where all that they were made of is unchanged, else
from the compilers.

    units (one per source) -> precompiled torch/extension.h, where it saves time -> objects -> library

The precompiled header is large, 0.8 GB with GCC 12 and torch 2.13, so it has a store of its own, of the same
bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from dotcu import process, serialize, settings
from dotcu.compile import cache, diagnostics
from dotcu.compile.cache import DamagedEntry, Store
from dotcu.compile.diagnostics import count
from dotcu.cpp.load_check import require_loadable
from dotcu.cpp.plan import (
    HEADER,
    CppRequest,
    CppTools,
    TranslationUnit,
    host_words,
    key,
    link_inputs,
    link_words,
    units,
)
from dotcu.errors import CacheError, CompileError, Diagnostic, JitDisabled
from dotcu.files import read_file, read_text
from dotcu.process import Finished
from dotcu.workers import Worker

_SYSTEM = ("/usr/include", "/usr/lib", "/usr/share")
_HAS_INCLUDE = re.compile(r"__has_include\s*\(\s*[<\"]([^>\"]+)[>\"]")
_WORD = re.compile(r"(?:\\.|[^\s\\]|\\(?=\s))+")


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The state of the files that a compile depends on.

    Attributes:
        user: The digest of the content of each of the user's files.
        system: Size in bytes and time in nanoseconds of each other.
        absent: Files that do not exist and would have been read.
    """

    user: Mapping[str, str]
    system: Mapping[str, tuple[int, int]]
    absent: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.user, *self.system)

    def changed(self) -> str:
        """Return the first file that is no longer what it was, "" where all are."""
        for path, digest in self.user.items():
            if content(path) != digest:
                return path
        for path, known in self.system.items():
            if _stat(path) != known:
                return path
        return next((path for path in self.absent if Path(path).exists()), "")

    def touched_since(self, time_ns: int) -> str:
        """Return a user's file that was written since a time, or is gone; "" if there is none."""
        return next((path for path in self.user if _stat(path)[1] >= time_ns or _stat(path)[0] < 0), "")


def content(path: str | Path) -> str:
    """Return the digest of a file, "" where it cannot be read."""
    try:
        return hashlib.sha256(read_file(path, MAX_BYTES)).hexdigest()
    except OSError:
        return ""


def _stat(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of files: a Path of each costs more than the call
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def read_depfile(depfile: str) -> tuple[str, ...]:
    _, _, after = depfile.replace("\\\n", " ").partition(": ")
    rule = after.partition("\n")[0]
    words = (re.sub(r"\\([\s\\#])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rule))
    return tuple(dict.fromkeys(words))


def gather(files: Sequence[str], *, folders: Sequence[Path], toolkits: Sequence[Path]) -> Dependencies:
    """Note the state of the files of a depfile.

    Args:
        folders: The user's include folders, in the order of the search.
        toolkits: Folders whose files are not the user's: torch, CUDA, Python.
    """
    roots = tuple(f"{root}/" for root in (*_SYSTEM, *toolkits, *(path.resolve() for path in toolkits)))
    users = [file for file in files if not os.path.abspath(file).startswith(roots)]  # noqa: PTH100
    others = set(files).difference(users)
    return Dependencies(
        user={file: content(file) for file in users},
        system={file: _stat(file) for file in files if file in others},
        absent=tuple(sorted(_absent(users, files, folders))),
    )


def _absent(users: Sequence[str], files: Iterable[str], folders: Sequence[Path]) -> set[str]:
    """Return missing paths that come before a file that was found, or that `__has_include` names."""
    siblings = list(dict.fromkeys(str(Path(file).parent) for file in users))
    searched = list(map(str, folders))
    candidates = set()
    for file in users:
        with suppress(OSError):
            for name in _HAS_INCLUDE.findall(read_text(file, "replace")):
                candidates |= {f"{place}/{name}" for place in (*siblings, *searched)}
    for file in files:
        index = next((index for index, place in enumerate(searched) if file.startswith(f"{place}/")), None)
        if index is not None:  # it could have been found before in these
            name = file[len(searched[index]) :]
            candidates |= {f"{place}{name}" for place in (*siblings, *searched[:index])}
    return {path for path in candidates if not os.path.exists(path)}  # noqa: PTH110


_log = logging.getLogger("dotcu")

COMPILE_S = 3600.0
_OBJECT, _DEPENDENCIES = "unit.o", "json"
_TEXT, _PRECOMPILED = "extension.h", "extension.h.gch"

_SAME_FLAGS = ("-m", "-f", "-std", "-g", "-O0", "-pthread")
"""Flags that GCC wants to be the same as in a precompiled header. With another macro it reads the header
itself, and no harm is done."""

_NAME = "-DTORCH_EXTENSION_NAME="
"""A macro that is in the header's own command would have to be the same in each file's."""


CompiledObject = tuple[bytes, Dependencies]
"""An object file, and the state of the files that it was made of."""

PrecompiledHeader = tuple[Path, Dependencies]
"""The path to include, next to which GCC finds the precompiled header, and what that was made of."""


@dataclass(frozen=True, kw_only=True)
class CppBuild:
    """A request, built.

    Attributes:
        path: The library or the program, in the cache.
        objects: The object files that it was linked of.
        compiled: The names of the sources that were compiled for it now.
    """

    path: Path
    objects: tuple[bytes, ...]
    compiled: tuple[str, ...]


def build_request(request: CppRequest, tools: CppTools, loader: Worker | None = None) -> CppBuild:
    """Build the library of a request, or its program where torch takes no part.

    Args:
        loader: Loads a library that was linked now, before the cache takes it: see `load_check`.

    Raises:
        CompileError: A source, or the link, was refused, or the loader died of the library.
        JitDisabled: Something would have to be compiled and `DOTCU_JIT=error` forbids that.
        CacheError: The cache cannot be written: a library has to be in a file.
    """
    started = time.perf_counter()
    store = Store(cache.location())
    planned = units(request, tools)
    objects = {unit.key: _cached_object(store, unit) for unit in planned}
    missing = [unit for unit in planned if objects[unit.key] is None]
    if missing:
        _require_jit(", ".join(unit.source.name for unit in missing), "compiling")
        if loader is not None:
            loader.start()  # it is ready when the compilers are
        header = precompiled_header(request, tools) if any(unit.precompiled for unit in missing) else None
        compiled = run_jobs(lambda unit: _object(store, unit, tools, header), missing)
        objects |= {unit.key: one for unit, one in zip(missing, compiled, strict=True)}
    contents = tuple(one[0] for one in objects.values() if one is not None)
    path = _library(store, request, tools, contents, loader)
    names = tuple(unit.source.name for unit in missing)
    _log.info(
        "%s: %s, %.1f s: %s", request.name, f"compiled {', '.join(names)}" if names else "cache hit",
        time.perf_counter() - started, path,
    )  # fmt: skip
    return CppBuild(path=path, objects=contents, compiled=names)


def _require_jit(name: str, doing: str) -> None:
    if settings.current().jit == "error":
        raise JitDisabled(
            f"{name} is not built, and DOTCU_JIT=error forbids {doing} it.\n"
            "Build it where that is allowed, or allow it here: unset DOTCU_JIT"
        )


MAX_BYTES = 4 << 30
"""The most bytes of an object or a library that are read: those with machine code for many GPUs are large."""


def _open(folder: Path) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    return cache.open_entry(folder, is_mine=True, most_bytes=MAX_BYTES)


def _read_object(folder: Path) -> CompiledObject | None:
    entry = _open(folder)
    return None if entry is None else (entry[1][_OBJECT], _read_state(entry[1][_DEPENDENCIES]))


def _read_state(data: bytes) -> Dependencies:
    return serialize.from_json(Dependencies, data.decode("utf-8", "surrogateescape"))


def _cached_object(store: Store, unit: TranslationUnit, *, again: bool = False) -> CompiledObject | None:
    """Return the unit's object, if everything that it was made of is unchanged."""
    cached = store.get(unit.key, _read_object, again=again)
    if cached is None:
        return None
    changed = cached[1].changed()
    if changed and not again:
        _log.info("%s: compiled again: %s changed", unit.source.name, changed)
    return None if changed else cached


def _object(
    store: Store, unit: TranslationUnit, tools: CppTools, header: PrecompiledHeader | None
) -> CompiledObject:
    """Compile a unit under its key's lock, unless another thread or process was faster."""
    with store.lock(unit.key) as locked:
        cached = _cached_object(store, unit, again=True)
        if cached is not None:
            return cached
        started_ns = time.time_ns()
        data, state = compiled = _compile(store, unit, tools, header if unit.precompiled else None)
        touched = state.touched_since(started_ns)
        if touched:
            _log.info("%s: not cached: %s was written meanwhile", unit.source.name, touched)
        else:
            files = {_OBJECT: data, _DEPENDENCIES: serialize.to_json(state).encode()}
            about = {"source": unit.source.name, "target": "object", "names": str(unit.source)}
            store.put(unit.key, cache.with_index(files, about=about), locked=locked)
        return compiled


def _compile(
    store: Store, unit: TranslationUnit, tools: CppTools, header: PrecompiledHeader | None
) -> CompiledObject:
    with store.scratch() as scratch:
        output, depfile = scratch / _OBJECT, scratch / "unit.d"
        forced = ("-Winvalid-pch", "-include", str(header[0])) if header else ()
        done = process.run(
            [*unit.words, *forced, "-c", unit.source, "-MD", "-MF", depfile, "-o", output],
            timeout_s=COMPILE_S,
        )
        if done.status != 0 or not output.is_file():
            raise explain(unit.source.name, done, store, unit.key)
        if done.stderr.strip():
            _log.info("%s: %s", unit.source.name, done.stderr.strip())
        files = read_depfile(read_text(depfile, "surrogateescape"))
        data = read_file(output, MAX_BYTES)
    # GCC names no header that it read in precompiled form
    if header:
        files = tuple(file for file in dict.fromkeys((*files, *header[1].files)) if file != str(header[0]))
    return data, gather(files, folders=unit.include, toolkits=tools.folders())


def _library(
    store: Store,
    request: CppRequest,
    tools: CppTools,
    objects: Sequence[bytes],
    loader: Worker | None,
) -> Path:
    words = link_words(request, tools)
    digests = [hashlib.sha256(data).hexdigest() for data in objects]
    digests += [content(path) for path in link_inputs(request)]
    digest = key("link" if loader is None else "link and try", words, [request.name, *digests], tools)
    name = f"{request.name}.so" if tools.torch else request.name
    if store.get(digest, _open) is None:
        _require_jit(request.name, "linking")
        with store.lock(digest) as locked:
            if store.get(digest, _open, again=True) is None:
                files = {name: _link(store, request, name, words, objects, digest, loader)}
                about = {"source": name, "target": "library" if tools.torch else "program", "names": ""}
                if not store.put(digest, cache.with_index(files, about=about), locked=locked):
                    raise CacheError(
                        f"{name} is built, and {store.directory} cannot be written: a library has to lie in "
                        "a file.\nChoose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
                    )
    return store.path(digest) / name


def _link(
    store: Store,
    request: CppRequest,
    name: str,
    words: Sequence[str],
    objects: Sequence[bytes],
    digest: str,
    loader: Worker | None,
) -> bytes:
    with store.scratch() as scratch:
        files = [scratch / f"{index}.o" for index in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        output = scratch / name
        # objects first: the linker takes of a library what those before it lack
        first = next((i for i, word in enumerate(words) if word.startswith(("-L", "-l"))), len(words))
        done = process.run([*words[:first], *files, *words[first:], "-o", output], timeout_s=COMPILE_S)
        if done.status != 0 or not output.is_file():
            raise explain(f"linking {request.name}", done, store, digest)
        if loader is not None:
            require_loadable(loader, output, request.compiled)
        return read_file(output, MAX_BYTES)


def precompiled_header(request: CppRequest, tools: CppTools) -> PrecompiledHeader | None:
    """Return the precompiled `torch/extension.h` for the files of a request, compiled where it is missing.

    None if it cannot be kept or does not compile: then the compile of each file shows why.
    """
    store = Store(cache.precompiled_location())
    # the command of a file of the request, without what only that file wants
    plain = CppRequest(name="extension", sources=(), debug=request.debug, cuda=request.cuda)
    common = (word for word in host_words(plain, tools) if not word.startswith(_NAME))
    words = (*common, *(flag for flag in request.flags if flag.startswith(_SAME_FLAGS)))
    digest = key("precompiled", words, [], tools)
    header = store.get(digest, _read_header)
    if header is not None and not header[1].changed():
        return header
    with store.lock(digest) as locked:
        header = store.get(digest, _read_header, again=True)
        if header is not None and not header[1].changed():
            return header
        files = _precompile(store, words, tools)
        if files is None or not store.put(digest, files, locked=locked):
            return None
    return _read_header(store.path(digest))


def _read_header(folder: Path) -> PrecompiledHeader | None:
    """Read a header, checked by its index and size: reading all of it costs more than a second."""
    opened = cache.open_entry(folder, is_mine=True, unread=_PRECOMPILED)
    if opened is None:
        return None
    (index, files), size = opened, (folder / _PRECOMPILED).stat().st_size
    if str(size) != index["about"]["bytes"]:
        raise DamagedEntry(f"{_PRECOMPILED} is not what was written")
    return folder / _TEXT, _read_state(files[_DEPENDENCIES])


def _precompile(store: Store, words: tuple[str, ...], tools: CppTools) -> Mapping[str, bytes] | None:
    _log.warning(
        "%s is compiled in advance, once for this compiler and torch, which takes a minute or two; a file "
        "that includes it then takes about 20 s. On LibTorch's stable ABI a file takes 3 s, and kernels by "
        "dotcu.load 0.1 s: see docs/howto/cpp.md",
        HEADER,
    )
    started = time.perf_counter()
    with store.scratch() as scratch:
        source, output, depfile = scratch / _TEXT, scratch / _PRECOMPILED, scratch / "extension.d"
        source.write_text(f"#include <{HEADER}>\n")
        done = process.run(
            [*words, "-x", "c++-header", source, "-MD", "-MF", depfile, "-o", output], timeout_s=COMPILE_S
        )
        if done.status != 0 or not output.is_file():
            log = f"{done.line}\n{done.stdout}{done.stderr}"
            keep_log(store, key("log", words, [], tools), log)
            return None
        read = [file for file in read_depfile(read_text(depfile)) if file != str(source)]
        state = gather(read, folders=(), toolkits=tools.folders())
        files = {
            _TEXT: read_file(source),
            _PRECOMPILED: read_file(output, MAX_BYTES),
            _DEPENDENCIES: serialize.to_json(state).encode(),
        }
    size = len(files[_PRECOMPILED])
    _log.info("%s: %d MB in %.0f s", HEADER, size >> 20, time.perf_counter() - started)
    about = {"source": HEADER, "target": "precompiled", "names": "", "bytes": str(size)}
    return cache.with_index(files, about=about)


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

JOB_BYTES = 2 << 30
"""Room for one compile. Source: 1.6 GB measured for `torch/extension.h`, GCC 12.2, torch 2.13."""

_CGROUP = Path("/sys/fs/cgroup")


def run_jobs(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Do the work for each item, as many at once as there are cores and memory; raise the first error."""
    if not items:
        return []
    jobs = job_count(len(items), cores=len(os.sched_getaffinity(0)), free_bytes=free_bytes())
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(work, items))  # after an error no further one begins
        except Exception:
            raise
        except BaseException:
            process.kill_running()
            raise


def job_count(count: int, *, cores: int, free_bytes: int | None) -> int:
    """Return the jobs to run at once, at least one; memory does not count where it is unknown."""
    fitting = count if free_bytes is None else free_bytes // JOB_BYTES
    return max(1, min(count, cores, fitting))


def free_bytes() -> int | None:
    """Return the free memory of the machine, or what a container may still take; None where unknown."""
    known = []
    with suppress(OSError, ValueError):
        amounts = re.search(r"^MemAvailable: +(\d+) kB", read_text("/proc/meminfo"), re.MULTILINE)
        known += [int(amounts[1]) << 10] if amounts else []
    with suppress(OSError, ValueError):  # without a limit it says "max"
        limit = int(read_text(_CGROUP / "memory.max"))
        known.append(max(0, limit - int(read_text(_CGROUP / "memory.current"))))
    return min(known, default=None)


LOGS = 16
"""The number of logs of failed compiles that stay, the newest."""

_HOST = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_LINKER = re.compile(r"(?P<text>(?:undefined reference to|multiple definition of|cannot find) .*)$")
_NVCC = re.compile(r"^nvcc fatal +: (?P<text>.*)$")
_TOOL = re.compile(r"^\S+: (?:fatal )?error: (?P<text>.*)$")

_QUALIFIER = re.compile(r"__attribute__\(\((global|device|host|shared|constant|managed)\)\)")
"""What `__global__` and its like are when the compiler shows a line. Source: crt/host_defines.h."""

# A pattern in the output, and what to do about it.
_REMEDIES = (
    (r"Python\.h: No such file", "Python's headers are missing. Install them: apt install python3-dev"),
    (r"unsupported GNU version", "This nvcc does not take this g++. Choose an older one: export CXX=g++-12"),
    (
        r"Unsupported gpu architecture",
        "This nvcc makes no code for it. Name another: arch='sm_80', or take a newer nvcc.",
    ),
    (
        r"No space left on device",
        "The disk is full. Make room, or choose another: export DOTCU_CACHE_DIR=DIRECTORY",
    ),
    (
        r"Killed signal|out of memory",
        "Memory ran out. A file on the stable ABI takes a tenth: docs/howto/cpp.md",
    ),
)


def explain(step: str, done: Finished, store: Store, key: str) -> CompileError:
    """Return the error for a command that failed: its first complaint, and the file with the whole output.

    `step` is a source's name, or "linking scale".
    """
    log = f"{done.line}\n{done.stdout}{done.stderr}"
    complaints = parse(f"{done.stdout}{done.stderr}")
    errors = [one for one in complaints if "error" in one.severity]
    first = str(errors[0]) if errors else (done.stderr or done.stdout).strip()[-2000:]
    head = f"{step}: {count(len(errors))}" + (", the first of them" if len(errors) > 1 else "")
    remedies = [remedy for pattern, remedy in _REMEDIES if re.search(pattern, log)]
    lines = [f"{head}:" if errors else f"{step}: status {done.status}:", first, *remedies[:1]]
    kept = keep_log(store, key, log)
    return CompileError(
        "\n".join([*lines, f"The whole output: {kept}" if kept else f"The command: {done.line}"]),
        diagnostics=complaints, log=log, command=done.line,
    )  # fmt: skip


def keep_log(store: Store, key: str, log: str) -> Path | None:
    """Write a log where it stays until others have come; None if the cache cannot be written.

    Args:
        key: The cache key of the step that failed.
    """
    folder = store.root / "logs"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{key[:16]}.log"
        file.write_text(log, errors="surrogateescape")
        for old in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime)[LOGS:]:
            old.unlink()
        return file
    return None


def parse(log: str) -> tuple[Diagnostic, ...]:
    """Read the output of GCC, Clang, nvcc and the linker, in its order."""
    host = _of_host(log.splitlines())
    device = diagnostics.parse_log(as_written(log), str, _lines)
    if not device:
        return tuple(host or _of_tools(log.splitlines()))
    whole = (replace(one, severity="error") if "error" in one.severity else one for one in device)
    return (*whole, *host)


def as_written(log: str) -> str:
    """nvcc's output with the qualifiers in lines of source as the user wrote them, and carets moved along."""
    lines = log.splitlines()
    for index, (line, below) in enumerate(pairwise(lines)):
        if below.strip() != "^":
            continue
        caret = below.index("^")
        before, after = (_QUALIFIER.sub(r"__\1__", part) for part in (line[:caret], line[caret:]))
        lines[index : index + 2] = [before + after, " " * len(before) + "^"]
    return "\n".join(lines)


def _of_host(lines: Sequence[str]) -> list[Diagnostic]:
    complaints = []
    for line in lines:
        match = _HOST.match(line)
        if match is None or match["severity"] == "note":
            continue
        own, number = _lines(match["file"]), int(match["line"])
        complaints.append(
            Diagnostic(
                severity="warning" if match["severity"] == "warning" else "error",
                file=match["file"],
                line=number,
                column=int(match["column"] or 0),
                message=match["text"],
                source=own[number - 1].rstrip() if 0 < number <= len(own) else "",
            )
        )
    return complaints


def _of_tools(lines: Sequence[str]) -> list[Diagnostic]:
    """Return what the linker, nvcc itself, or a compiler's driver says, of no line of a source."""
    matches = [next(filter(None, (p.search(line) for p in (_LINKER, _NVCC, _TOOL))), None) for line in lines]
    return [
        Diagnostic(severity="error", file="", line=0, column=0, message=match["text"])
        for match in matches
        if match is not None and "ld returned" not in match["text"]
    ]


def _lines(file: str) -> list[str]:
    try:
        return read_text(file, "replace").splitlines()
    except OSError:
        return []

"""From units to object files and a library: what the cache holds and still holds true, else the compilers."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu import process, settings
from dotcu.compile import cache
from dotcu.compile import entry as entries_on_disk
from dotcu.compile.cache import Store
from dotcu.errors import CacheError, JitDisabled
from dotcu.extension import dependencies, failing, jobs, precompiled
from dotcu.extension.dependencies import Dependencies
from dotcu.extension.units import Request, Tools, Unit, key, link_inputs, link_words, units

_log = logging.getLogger("dotcu")

COMPILE_S = 3600.0
_OBJECT, _STATE = "unit.o", "dependencies.json"


@dataclass(frozen=True, kw_only=True)
class Object:
    """An object file, as the cache keeps it."""

    about: Mapping[str, str]
    data: bytes
    state: Dependencies

    def files(self) -> dict[str, bytes]:
        state = json.dumps(self.state.to_json()).encode("utf-8", "surrogateescape")
        return entries_on_disk.sealed({_OBJECT: self.data, _STATE: state}, about=self.about)


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A library or a program, as the cache keeps it."""

    about: Mapping[str, str]
    name: str
    data: bytes

    def files(self) -> dict[str, bytes]:
        return entries_on_disk.sealed({self.name: self.data}, about=self.about)


@dataclass(frozen=True, kw_only=True)
class Built:
    """What became of a request.

    Attributes:
        path: The library or the program, in the cache.
        objects: What it was linked of.
        compiled: The names of the sources that were compiled for it now.
    """

    path: Path
    objects: tuple[bytes, ...]
    compiled: tuple[str, ...]


def build(request: Request, tools: Tools) -> Built:
    """Give the library of a request, or its program where torch takes no part.

    Raises:
        CompileError: A source, or the link, was refused.
        JitDisabled: Something would have to be compiled and `DOTCU_JIT=0` forbids that.
        CacheError: The cache cannot be written: a library has to lie in a file.
    """
    started = time.perf_counter()
    store = Store(cache.location())
    planned = units(request, tools)
    found = {unit.key: _current(store, unit) for unit in planned}
    missing = [unit for unit in planned if found[unit.key] is None]
    if missing:
        _require_jit(missing)
        header = precompiled.obtain(request, tools) if any(unit.precompiled for unit in missing) else None
        made = jobs.each(lambda unit: _make(store, unit, tools, header), missing)
        found |= {unit.key: one for unit, one in zip(missing, made, strict=True)}
    objects = tuple(one.data for one in found.values() if one is not None)
    path = _link(store, request, tools, objects)
    names = tuple(unit.source.name for unit in missing)
    _log.info(
        "%s: %s, %.1f s: %s", request.name, f"compiled {', '.join(names)}" if names else "cache hit",
        time.perf_counter() - started, path,
    )  # fmt: skip
    return Built(path=path, objects=objects, compiled=names)


def _require_jit(missing: Sequence[Unit]) -> None:
    if not settings.current().jit:
        names = ", ".join(unit.source.name for unit in missing)
        raise JitDisabled(
            f"{names} is not compiled, and DOTCU_JIT=0 forbids to compile it.\n"
            "Compile it where that is allowed, or allow it here: unset DOTCU_JIT"
        )


def _read(folder: Path) -> Object | None:
    found = entries_on_disk.opened(folder)
    if found is None:
        return None
    index, files = found
    state = Dependencies.from_json(json.loads(files[_STATE].decode("utf-8", "surrogateescape")))
    return Object(about=index["about"], data=files[_OBJECT], state=state)


def _current(store: Store, unit: Unit, *, again: bool = False) -> Object | None:
    """The unit's object, if everything that it was made of is what it was."""
    found = store.find(unit.key, _read, again=again)
    if found is None:
        return None
    changed = found.state.changed()
    if changed and not again:
        _log.info("%s: compiled again: %s changed", unit.source.name, changed)
    return None if changed else found


def _make(store: Store, unit: Unit, tools: Tools, header: precompiled.Header | None) -> Object:
    """Compile a unit under its key's lock, unless another was faster."""
    with store.lock(unit.key) as locked:
        found = _current(store, unit, again=True)
        if found is not None:
            return found
        started_ns = time.time_ns()
        made = _compile(store, unit, tools, header if unit.precompiled else None)
        touched = made.state.touched_since(started_ns)
        if touched:
            _log.info("%s: not kept: %s was written meanwhile", unit.source.name, touched)
        else:
            store.put(unit.key, made, locked=locked)
        return made


def _compile(store: Store, unit: Unit, tools: Tools, header: precompiled.Header | None) -> Object:
    with store.scratch() as scratch:
        target, depfile = scratch / _OBJECT, scratch / "unit.d"
        forced = ("-Winvalid-pch", "-include", str(header.path)) if header else ()
        done = process.run(
            [*unit.words, *forced, "-c", unit.source, "-MD", "-MF", depfile, "-o", target],
            timeout_s=COMPILE_S,
        )
        if done.status != 0 or not target.is_file():
            raise failing.explain(unit.source.name, done, store, unit.key)
        if done.stderr.strip():
            _log.info("%s: %s", unit.source.name, done.stderr.strip())
        files = dependencies.read(depfile.read_text(errors="surrogateescape"))
        data = target.read_bytes()
    return Object(about=_about(unit), data=data, state=_state(files, unit, tools, header))


def _state(files: Sequence[str], unit: Unit, tools: Tools, header: precompiled.Header | None) -> Dependencies:
    """The unit's own files and, since GCC names no header that it read in precompiled form, those of that."""
    both = dict.fromkeys((*files, *(header.state.files if header else ())))
    if header:
        both.pop(str(header.path), None)
    return dependencies.gather(tuple(both), folders=unit.include, toolkits=tools.folders())


def _about(unit: Unit) -> dict[str, str]:
    return {"source": unit.source.name, "target": "object", "names": str(unit.source)}


def _link(store: Store, request: Request, tools: Tools, objects: Sequence[bytes]) -> Path:
    words = link_words(request, tools)
    digests = [hashlib.sha256(data).hexdigest() for data in objects]
    digests += [dependencies.content(path) for path in link_inputs(request)]
    digest = key("link", words, [request.name, *digests], tools)
    name = f"{request.name}.so" if tools.torch else request.name
    if store.find(digest, entries_on_disk.opened) is None:
        _require_link(request)
        with store.lock(digest) as locked:
            if store.find(digest, entries_on_disk.opened, again=True) is None:
                made = _linked(store, request.name, name, words, objects, digest)
                if not store.put(digest, made, locked=locked):
                    raise CacheError(
                        f"{name} is made, and {store.directory} cannot be written: a library has to lie in a "
                        "file.\nChoose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
                    )
    return store.path(digest) / name


def _require_link(request: Request) -> None:
    if not settings.current().jit:
        raise JitDisabled(
            f"{request.name} is not linked, and DOTCU_JIT=0 forbids to.\nAllow it here: unset DOTCU_JIT"
        )


def _linked(
    store: Store, shown: str, name: str, words: Sequence[str], objects: Sequence[bytes], digest: str
) -> Linked:
    with store.scratch() as scratch:
        files = [scratch / f"{index}.o" for index in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        target = scratch / name
        # objects first: the linker takes of a library what those before it lack
        place = next((i for i, word in enumerate(words) if word.startswith(("-L", "-l"))), len(words))
        done = process.run([*words[:place], *files, *words[place:], "-o", target], timeout_s=COMPILE_S)
        if done.status != 0 or not target.is_file():
            raise failing.explain(f"linking {shown}", done, store, digest)
        about = {"source": name, "target": "library" if name.endswith(".so") else "program", "names": ""}
        return Linked(about=about, name=name, data=target.read_bytes())

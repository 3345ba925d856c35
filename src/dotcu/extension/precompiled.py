"""`torch/extension.h` in the form that GCC reads in a moment, kept apart from the other entries.

It is large, 0.8 GB with GCC 12 and torch 2.13, so that it has a store of its own, of the same bound.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu import process
from dotcu.compile import cache
from dotcu.compile import entry as entries_on_disk
from dotcu.compile.cache import Store
from dotcu.compile.entry import Damaged
from dotcu.extension import dependencies, failing
from dotcu.extension.dependencies import Dependencies
from dotcu.extension.units import HEADER, Request, Tools, host_words, key

_log = logging.getLogger("dotcu")

_TEXT, _PRECOMPILED, _STATE = "extension.h", "extension.h.gch", "dependencies.json"
_KEPT = ("-m", "-f", "-std", "-g", "-O0", "-pthread")
"""Flags that GCC wants to be the same. With another macro it reads the header itself, and no harm is done."""

_NAME = "-DTORCH_EXTENSION_NAME="
"""A macro that is in the header's own command would have to be the same in each file's."""

_TIMEOUT_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Header:
    """A precompiled header: the path to include, beside which GCC finds it, and what it was made of."""

    path: Path
    state: Dependencies


@dataclass(frozen=True, kw_only=True)
class _Made:
    about: Mapping[str, str]
    data: bytes
    state: Dependencies

    def files(self) -> dict[str, bytes]:
        state = json.dumps(self.state.to_json()).encode("utf-8", "surrogateescape")
        text = f"#include <{HEADER}>\n".encode()
        return entries_on_disk.sealed({_TEXT: text, _PRECOMPILED: self.data, _STATE: state}, about=self.about)


def obtain(request: Request, tools: Tools) -> Header | None:
    """The precompiled header for the files of a request; made where it is not there.

    None where it cannot be kept or the header does not compile: then each file shows why.
    """
    store = Store(cache.precompiled_location())
    words = _words(request, tools)
    digest = key("precompiled", words, [], tools)
    found = store.find(digest, _read)
    if found is not None and not found.state.changed():
        return found
    with store.lock(digest) as locked:
        found = store.find(digest, _read, again=True)
        if found is not None and not found.state.changed():
            return found
        made = _make(store, words, tools)
        if made is None or not store.put(digest, made, locked=locked):
            return None
    return _read(store.path(digest))


def _words(request: Request, tools: Tools) -> tuple[str, ...]:
    """The command of a file of the request, without what only that file wants."""
    plain = Request(name="extension", sources=(), debug=request.debug, cuda=request.cuda)
    common = (word for word in host_words(plain, tools) if not word.startswith(_NAME))
    return (*common, *(flag for flag in request.flags if flag.startswith(_KEPT)))


def _read(folder: Path) -> Header | None:
    """A header that is there whole, by its index and size: reading all of it costs more than a second."""
    about = entries_on_disk.read_about(folder)
    if not about:
        return None
    try:
        size = (folder / _PRECOMPILED).stat().st_size
        state = Dependencies.from_json(json.loads((folder / _STATE).read_text(errors="surrogateescape")))
    except (OSError, ValueError) as error:
        raise Damaged(f"{_PRECOMPILED} or {_STATE} cannot be read") from error
    if str(size) != about["bytes"]:
        raise Damaged(f"{_PRECOMPILED} is not what was written")
    return Header(path=folder / _TEXT, state=state)


def _make(store: Store, words: tuple[str, ...], tools: Tools) -> _Made | None:
    _log.warning(
        "%s is compiled in advance, once for this compiler and torch, which takes a minute or two; a file "
        "that includes it then takes about 20 s. On LibTorch's stable ABI a file takes 3 s, and kernels by "
        "dotcu.load 0.1 s: see docs/native.md",
        HEADER,
    )
    started = time.perf_counter()
    with store.scratch() as scratch:
        source, target, depfile = scratch / _TEXT, scratch / _PRECOMPILED, scratch / "extension.d"
        source.write_text(f"#include <{HEADER}>\n")
        done = process.run(
            [*words, "-x", "c++-header", source, "-MD", "-MF", depfile, "-o", target], timeout_s=_TIMEOUT_S
        )
        if done.status != 0 or not target.is_file():
            failing.keep_log(store, key("log", words, [], tools), f"{done.line}\n{done.stdout}{done.stderr}")
            return None
        files = [file for file in dependencies.read(depfile.read_text()) if file != str(source)]
        state = dependencies.gather(files, folders=(), toolkits=tools.folders())
        data = target.read_bytes()
    seconds = time.perf_counter() - started
    _log.info("%s: %d MB in %.0f s", HEADER, len(data) >> 20, seconds)
    about = {"source": HEADER, "target": "precompiled", "names": "", "bytes": str(len(data))}
    return _Made(about=about, data=data, state=state)

"""A build, decided with nothing compiled: headers, compiler, options, and a digest of all of that.

The digest is the cache's key; it holds no path of this machine. The parts of it that differ from an earlier
build are the reason why a source is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dotcu.compile import toolchain
from dotcu.compile.include_graph import (
    IncludeGraph,
    SystemHeaders,
    bundled_headers_identity,
    include_graph,
    system_headers,
)
from dotcu.compile.object_code import is_kernel
from dotcu.compile.options import CompileOptions, arguments, command_line
from dotcu.compile.source.declarations import has_tile_code
from dotcu.compile.source.source import Source
from dotcu.compile.target import Target
from dotcu.compile.toolchain import Compiler
from dotcu.errors import ToolchainError
from dotcu.files import is_file, others, read_file, upwards

_log = logging.getLogger("dotcu")

FORMAT = "dotcu build 4"
"""Changed when the same inputs give different code, as when the probe or the virtual names change."""

LOCK = "dotcu.lock"

_CLOCK = re.compile(r"\b__(?:DATE|TIME)__\b")
_NAMES_FOLDER = re.compile(r"-G|-{1,2}device-debug")
"""Options by which code contains the working directory."""
_MAX_OF_LOCK = 64 << 20


@dataclass(frozen=True, kw_only=True)
class BuildInputs:
    """The object code that is wanted.

    Attributes:
        names: Name expressions: kernels, `scale_add<float>` or `ns::plain`, and addresses of
            `__constant__` and `__device__` variables, `&table`.
        simulated: Compile for the simulator: `DOTCU_SIMULATED` is defined to be 1.
        probed: Get the kernels' signatures too, by a probe next to each; else the code holds nothing but
            the source's own.
        lines: Let the code name source lines.
        layouts: Get the types of the kernels' parameters instead of code; `options` debug.
    """

    source: Source
    options: CompileOptions
    target: Target
    names: tuple[str, ...]
    simulated: bool = False
    probed: bool = True
    lines: bool = True
    layouts: bool = False

    @property
    def kernels(self) -> list[str]:
        """The names without those of variables."""
        return [name for name in self.names if is_kernel(name)]


@dataclass(frozen=True, kw_only=True)
class BuildPlan(BuildInputs):
    """A build, decided.

    Attributes:
        includes: The headers that the source reaches.
        arguments: NVRTC's options.
        build_digest: The digest of all that decides the code: the cache's key.
        ingredients: All that the build depends on, by a name to show.
        tile: The compiler of its tile kernels; None if it has none.
        found: What calls of the compiler have found out, as `include_graph` takes it; and `implicit` where
            functions without annotation are device code.
        before: Included before the source, since they did: what nvcc has from the host.
        aliases: By the name that the compiler asks for, what it gets.
    """

    compiler: Compiler
    system_headers: SystemHeaders
    includes: IncludeGraph
    arguments: tuple[str, ...]
    build_digest: str
    ingredients: Mapping[str, str]
    tile: Compiler | None = None
    found: Mapping[str, Any] = field(default_factory=dict)
    before: str = ""
    aliases: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_assembled(self) -> bool:
        """Tile IR becomes machine code; the simulator runs it as it is."""
        return self.tile is not None and self.target.kind == "sm" and not self.simulated

    @property
    def is_reproducible(self) -> bool:
        """Every machine compiles this to the same bytes: see docs/explanation/decisions.md."""
        from dotcu.compile.nvrtc_server import FIRST_WITH_A_SEED  # only a shared store asks

        is_seeded = self.compiler.version >= FIRST_WITH_A_SEED
        names_folder = self.options.debug or any(_NAMES_FOLDER.fullmatch(o) for o in self.options.options)
        names_folder &= not self.layouts  # which hold names and numbers only
        return is_seeded and not names_folder and not any(_CLOCK.search(f.text) for f in self.includes.files)

    @property
    def display(self) -> str:
        """The source as messages call it."""
        return self.source.display

    @property
    def command(self) -> str:
        """The options as a command line."""
        folders = tuple(str(folder) for folder in self.source.include)
        return command_line(self.display, self.arguments, folders)

    @property
    def shown_files(self) -> dict[str, str]:
        """The path, or the name to show, of each of the user's files, by its virtual name."""
        return {file.virtual: str(file.path or self.display) for file in self.includes.files}


def plan_build(source: Source, *, options: CompileOptions, target: Target, names: Sequence[str]) -> BuildPlan:
    """Read the headers that a source reaches and decide its build; compile nothing.

    Args:
        source: The text.
        options: What the user asks of the compiler.
        target: The architecture.
        names: Name expressions, as in `BuildInputs`.

    Raises:
        ToolchainError: There is no compiler that fits.
        SourceNotFound: A header cannot be read.
    """
    return plan_of(BuildInputs(source=source, options=options, target=target, names=tuple(names)))


def plan_of(
    request: BuildInputs, found: Mapping[str, Any] = {}, before: str = "", aliases: Mapping[str, bytes] = {}
) -> BuildPlan:
    """Decide a build; `found`, `before` and `aliases` are what compiling it has found out."""
    names = tuple(sorted(set(request.names)))
    compiler, headers, graph = _reach(request, None, found)
    of_tiles = None
    if has_tile_code(file.text for file in graph.files):
        of_tiles = _tile_compiler(request)
        compiler, headers, graph = _reach(request, of_tiles, found)
    system = ""  # what headers of dotcu and the toolkit add to the key: nothing where none is reached
    if graph.system:
        # dotcu's stand-ins lead to the toolkit's headers as well
        parts = [*graph.system, bundled_headers_identity(), compiler.headers_identity]
        system = _digest({"system": repr(parts)})
    ingredients = {
        "source": graph.digest,
        "options": repr(request.options.key),
        "names": repr(names),
        "simulated": repr(request.simulated),
        "compiler": compiler.identity,
        "headers": system,
        "target": str(request.target),
        **({} if request.probed else {"probe": "none"}),
        **({} if request.lines else {"lines": "none"}),
        **({"layouts": "only"} if request.layouts else {}),
    }
    if of_tiles is not None and request.target.kind == "sm":
        from dotcu.compile import tile

        ingredients["tile"] = f"{tile.assembler_identity(of_tiles)}, for hosts of {tile.host()}"
    files = {f"file {file.virtual}": text_digest(file.text)[:16] for file in graph.files}
    wanted = {one.name: getattr(request, one.name) for one in fields(BuildInputs)}
    return BuildPlan(
        **{**wanted, "names": names},
        compiler=compiler,
        system_headers=headers,
        includes=graph,
        arguments=arguments(
            request.options,
            request.target,
            simulated=request.simulated,
            lines=request.lines,
            tile=of_tiles is not None,
            implicit="implicit" in found,
        ),
        build_digest=_digest(ingredients),
        ingredients={**files, **ingredients},
        tile=of_tiles,
        found=found,
        before=before,
        aliases=aliases,
    )


def _reach(
    request: BuildInputs, compiler: Compiler | None, found: Mapping[str, Any]
) -> tuple[Compiler, SystemHeaders, IncludeGraph]:
    """Return a compiler, by default that of ordinary kernels, its headers, and what a source reaches."""
    used = compiler or toolchain.nvrtc()
    headers = system_headers(used.include)
    known = {name: value for name, value in found.items() if name != "implicit"}
    return used, headers, include_graph(request.source, headers, options=request.options, **known)


def _tile_compiler(request: BuildInputs) -> Compiler:
    """Return the compiler of a source with tile kernels."""
    from dotcu.compile import tile  # few sources have any

    refusal = tile.refuse_target(request.target)
    if refusal:
        raise ToolchainError(
            f"{request.source.display} has tile kernels and is compiled for {request.target}.\n{refusal}.\n"
            "Write its kernels with __global__ instead, which any GPU runs."
        )
    return tile.compiler()


def _digest(parts: Mapping[str, str]) -> str:
    return text_digest(repr((FORMAT, sorted(parts.items()))))


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def layout_inputs(inputs: BuildInputs, names: Sequence[str]) -> BuildInputs:
    """Return the build that gives the types of some kernels' parameters: a compile for debugging."""
    return replace(
        inputs, options=replace(inputs.options, debug=True), target=inputs.target.virtual,
        names=tuple(names), probed=False, lines=True, layouts=True,
    )  # fmt: skip


def is_reproducible(inputs: BuildInputs) -> bool:
    """Return whether every machine compiles this to the same bytes."""
    return plan_of(inputs).is_reproducible


# dotcu.lock: digests of the objects that a project trusts.


def locked_digest(source: Path | None, digest: str) -> str | None:
    """Return the content digest that the lock of a source's project has for a key, if any."""
    folder = lock_folder(source)
    with contextlib.suppress(OSError):
        return _objects(folder / LOCK, (folder / LOCK).stat().st_mtime_ns).get(digest) if folder else None
    return None


def lock_folder(source: Path | None) -> Path | None:
    """Return the nearest folder around a source that has a dotcu.lock, up to the project's root.

    That is the folder of a pyproject.toml or the root of a repository. A lock that another user may have put
    there does not let code of a store in: it is ignored, with a warning.
    """
    if source is None or not any(is_file(folder / LOCK) for folder in source.parents):
        return None  # most sources have none, and pay for nothing else
    for folder in upwards(source.parent):
        lock = folder / LOCK
        if is_file(lock):
            owner = others(lock)
            if not owner:
                return folder
            if lock not in _told_of:
                _told_of.add(lock)
                _log.warning(
                    "%s belongs to %s, so it is not used. If you trust it, make it yours: "
                    "sudo chown $(id -un) %s", lock, owner, lock,
                )  # fmt: skip
            return None
        if is_file(folder / "pyproject.toml"):
            return None
    return None


_told_of: set[Path] = set()


@functools.lru_cache(maxsize=16)
def _objects(lock: Path, changed_ns: int) -> Mapping[str, str]:
    """Return the digests of objects in a lock, by key; none if it cannot be read."""
    try:
        sources = json.loads(read_file(lock, _MAX_OF_LOCK, is_mine=True))["sources"]
        return {key: str(value) for each in sources for key, value in each.get("objects", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _log.warning(
            "%s cannot be read (%s), so it covers no object. Write it again: dotcu build", lock, error
        )
        return {}

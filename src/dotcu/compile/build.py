"""From a source to object code: memory, cache, or the compiler, in that order.

A build is planned first, with nothing compiled: the headers that the source reaches, the compiler, its
options, and a digest of all that decides the code. That digest is the cache's key; it holds no path of this
machine. The parts of it that differ from an earlier build are the reason why a source is compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from dotcu import settings, telemetry
from dotcu.compile import cache, nvrtc, tile, toolchain
from dotcu.compile.cache import CacheEntry, DamagedEntry, Store
from dotcu.compile.host_split.detect import FOR_NVRTC_TOO, NOT_FOUND, Refusal, is_host_include
from dotcu.compile.include_graph import (
    VIRTUAL_ROOT,
    IncludeGraph,
    SystemHeaders,
    bundled_headers_identity,
    include_graph,
    system_headers,
)
from dotcu.compile.nvrtc_server import FIRST_WITH_A_SEED
from dotcu.compile.object_code import (
    ObjectCode,
    Resources,
    is_kernel,
    parse_resources,
    probe_of,
    tile_resources,
    with_probe,
    with_probes,
)
from dotcu.compile.options import CompileOptions, arguments, command_line
from dotcu.compile.remote import LOCK, fetch, locked_digest, push, shown
from dotcu.compile.source.declarations import device_arrays, offset_in_tile_code
from dotcu.compile.source.source import Source, printable
from dotcu.compile.target import Target
from dotcu.compile.toolchain import Compiler
from dotcu.errors import (
    CompileError,
    Diagnostic,
    DotcuError,
    JitDisabled,
    KernelNotFound,
    SourceError,
    ToolchainError,
    UsageError,
)
from dotcu.ptx.debug_info import TypeRow, parameter_types
from dotcu.telemetry import count
from dotcu.tracebacks import caller_line

if TYPE_CHECKING:
    from pathlib import Path


_log = logging.getLogger("dotcu")

FORMAT = "dotcu build 4"
"""Changed when the same inputs give different code, as when the probe or the virtual names change."""

_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
_CLOCK = re.compile(r"\b__(?:DATE|TIME)__\b")
_NAMES_FOLDER = re.compile(r"-G|-{1,2}device-debug")
"""Options by which code contains the working directory."""
_RETRIES = 16
"""The number of headers with macro-made names that a source may include."""


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
    return _plan(BuildInputs(source=source, options=options, target=target, names=tuple(names)))


def _plan(
    request: BuildInputs, found: Mapping[str, Any] = {}, before: str = "", aliases: Mapping[str, bytes] = {}
) -> BuildPlan:
    """Decide a build; `found`, `before` and `aliases` are what compiling it has found out."""
    names = tuple(sorted(set(request.names)))
    compiler, headers, graph = _reach(request, None, found)
    of_tiles = None
    if tile.is_tile(file.text for file in graph.files):
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
        ingredients["tile"] = f"{tile.assembler_identity(of_tiles)}, for hosts of {tile.host()}"
    files = {f"file {file.virtual}": _text_digest(file.text)[:16] for file in graph.files}
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
    refusal = tile.refuse_target(request.target)
    if refusal:
        raise ToolchainError(
            f"{request.source.display} has tile kernels and is compiled for {request.target}.\n{refusal}.\n"
            "Write its kernels with __global__ instead, which any GPU runs."
        )
    return tile.compiler()


def _digest(parts: Mapping[str, str]) -> str:
    return _text_digest(repr((FORMAT, sorted(parts.items()))))


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def build(
    source: Source,
    *,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    simulated: bool = False,
    probed: bool = True,
    lines: bool = True,
    layouts: bool = False,
    visible: bool = False,
) -> ObjectCode:
    """Return a source's object code for a target: from memory, from the cache, or compiled.

    Args:
        source: The text.
        options: What the user asks of the compiler.
        target: The architecture.
        names: Name expressions, as in `BuildInputs`; so are the others.
        simulated: Compile for the simulator.
        probed: Get the kernels' signatures too.
        lines: Let the code name source lines.
        layouts: Get the types of the kernels' parameters instead of code.
        visible: Leave out plain names that the preprocessor has hidden.

    Raises:
        CompileError: The compiler refused the source, or an instantiation.
        HostCodeError: Its host code and its device code cannot be separated.
        KernelNotFound: One of the names is not there.
        JitDisabled: It would have to be compiled and `DOTCU_JIT=error` forbids that.
        ToolchainError: There is no compiler that fits.
    """
    inputs = BuildInputs(
        source=source, options=options, target=target, names=tuple(names), simulated=simulated,
        probed=probed, lines=lines, layouts=layouts,
    )  # fmt: skip
    return _build_visible(inputs) if visible else _build(inputs)


build_visible = functools.partial(build, visible=True)
"""`build`, leaving out plain names that the preprocessor has hidden."""


def layout_inputs(inputs: BuildInputs, names: Sequence[str]) -> BuildInputs:
    """Return the build that gives the types of some kernels' parameters: a compile for debugging.

    Args:
        inputs: The build of their code.
        names: Their name expressions.
    """
    return replace(
        inputs, options=replace(inputs.options, debug=True), target=inputs.target.virtual,
        names=tuple(names), probed=False, lines=True, layouts=True,
    )  # fmt: skip


def is_reproducible(inputs: BuildInputs) -> bool:
    """Return whether every machine compiles this to the same bytes."""
    return _plan(inputs).is_reproducible


def parameter_layouts(
    source: Source, options: CompileOptions, target: Target, names: Sequence[str], *, simulated: bool
) -> Mapping[str, Sequence[TypeRow]]:
    """Return the types of kernels' parameters as `parameter_types` has them, by a compile for debugging.

    Args:
        source, options, target, names, simulated: As `build` takes them.

    Raises:
        SourceError: The debug information lacks a kernel.
    """
    if not names:
        return {}
    inputs = BuildInputs(
        source=source, options=options, target=target, names=tuple(names), simulated=simulated
    )
    found = _build(layout_inputs(inputs, names)).layouts
    missing = [name for name in names if not found.get(name)]
    if missing:
        raise SourceError(f"The debug information that NVRTC writes with {options.options} lacks {missing}.")
    return found


def _build(request: BuildInputs) -> ObjectCode:
    started = time.perf_counter()
    with telemetry.during("build"):
        return _get_or_compile(_plan(request), started)


def _build_visible(request: BuildInputs) -> ObjectCode:
    names = request.names
    try:
        return _build(request)
    except SourceError as caught:
        error = caught  # what is raised below has no other error as its context
    from dotcu.compile.diagnostics import is_about

    complaints = error.diagnostics if isinstance(error, CompileError) else ()
    blamed = {name for name in names if "<" not in name and any(is_about(name, one) for one in complaints)}
    if blamed:
        with suppress(SourceError):
            return _build(replace(request, names=tuple(name for name in names if name not in blamed)))
    _build(replace(request, names=()))  # raises where the source itself is at fault
    visible = []
    for name in names:
        try:
            _build(replace(request, names=(name,)))
            visible.append(name)
        except (KernelNotFound, CompileError):
            if "<" in name:
                raise
    if len(visible) == len(names):
        raise error
    return _build(replace(request, names=tuple(visible)))


def _get_or_compile(plan: BuildPlan, started: float) -> ObjectCode:
    store = Store(cache.location())
    with telemetry.during("cache", **_about_span(plan)) as seen:
        entry, outcome = _get(plan, store)
        seen["outcome"] = outcome or "miss"
    if entry is not None:
        return _finish(plan, entry, started, outcome, store)
    remote = settings.current().cache_remote if plan.is_reproducible else None
    if not remote and settings.current().jit == "error":
        raise _jit_disabled(plan, store)
    made = store.path(plan.build_digest)
    is_made = functools.partial(os.path.isdir, made)
    with telemetry.during("store"), store.lock(plan.build_digest, is_made) as locked:
        entry, outcome = _get(plan, store, again=True)  # another thread or process may have been faster
        if entry is None and remote:
            with telemetry.during("store", **_about_span(plan), store=shown(remote)) as seen:
                entry = fetch(store, plan.build_digest, plan.source.path, functools.partial(_fits, plan))
                seen["outcome"] = "hit" if entry is not None else "miss"
            outcome = f"cache hit in the store {shown(remote)}"
        if entry is not None:
            return _finish(plan, entry, started, outcome, store)
        if settings.current().jit == "error":
            raise _jit_disabled(plan, store)
        builds = _text_digest(str(plan.source.path or f"inline {plan.source.name}"))[:32]
        reason = _rebuild_reason(plan, store.history(builds))
        began = time.perf_counter()
        with telemetry.during("compile", **_about_span(plan), reason=reason):
            entry, is_covered = _compile(plan)
        cause = _cause_of_compile(plan, store, reason, time.perf_counter() - began)
        if not is_covered:
            outcome = "compiled, not cached: a macro expands to the name of a header"
            return _finish(plan, entry, started, outcome, cause=cause)
        _warn_of_lock(plan, entry)
        store.put(plan.build_digest, entry.files(), locked=locked)
        store.add_history(builds, plan.ingredients)
    if remote:
        push(store, plan.build_digest, entry.files())
    return _finish(plan, entry, started, f"compiled: {reason}", store, cause)


def _warn_of_lock(plan: BuildPlan, entry: CacheEntry) -> None:
    """Warn where a lock has another object than this machine compiles: each process compiles it again."""
    if locked_digest(plan.source.path, plan.build_digest) not in (None, entry.digest):
        _log.warning(
            "%s has another object for %s (%s, %s) than this machine compiles of the same source, with the "
            "same compiler. The one that was compiled here is used, and compiled again in each process. "
            "Write the digests again: dotcu cache pack TARGET --lock",
            LOCK, plan.display, ", ".join(plan.names), plan.target,
        )  # fmt: skip


def _about_span(plan: BuildPlan) -> dict[str, str]:
    """Return the attributes of a build's spans."""
    target = f"{plan.target}, simulated" if plan.simulated else str(plan.target)
    return {"file": plan.display, "kernels": ", ".join(plan.kernels), "target": target}


def _looked_in(plan: BuildPlan, store: Store) -> list[str]:
    """Return the places that a build was looked for in."""
    remote = settings.current().cache_remote if plan.is_reproducible else None
    folders = [str(place.directory) for place in (store, *cache.layers())]
    return [*folders, shown(remote)] if remote else folders


_LAST = "last-compile"


def _cause_of_compile(plan: BuildPlan, store: Store, reason: str, seconds: float) -> Mapping[str, Any]:
    """Count a compile, note its cause for `dotcu cache why`, and return it."""
    cause = {
        **_about_span(plan),
        "kernels": plan.kernels,
        "arguments": " ".join(plan.arguments),
        "reason": reason,
        "caller": caller_line(),
        "seconds": seconds,
        "key": plan.build_digest,
        "looked_in": _looked_in(plan, store),
    }
    note_compile(cause)
    store.add_history(_LAST, {**cause, "time": time.time()})
    return cause


def note_compile(cause: Mapping[str, Any]) -> None:
    """Count a compile: one of this process, or of a worker that it started."""
    count("compiles")
    count("compile_seconds", cause["seconds"])


def last_compile() -> Mapping[str, Any] | None:
    """Return the cause of the last compile into this cache, by any process; None if none is noted."""
    return next((one for one in Store(cache.location()).history(_LAST) if _is_cause(one)), None)


_CAUSE = dict.fromkeys(("file", "target", "arguments", "reason", "caller"), str) | {
    "kernels": list, "looked_in": list, "seconds": float, "time": float,
}  # fmt: skip


def _is_cause(noted: Mapping[str, Any]) -> bool:
    are_typed = all(isinstance(noted.get(name), kind) for name, kind in _CAUSE.items())
    return are_typed and all(isinstance(each, str) for each in (*noted["kernels"], *noted["looked_in"]))


def _jit_disabled(plan: BuildPlan, store: Store) -> JitDisabled:
    arch = "simulated" if plan.simulated else plan.target
    error = JitDisabled(
        f"{plan.display} is not compiled for {_about_span(plan)['target']} ({', '.join(plan.names)}), "
        "and DOTCU_JIT=error forbids compiling it.\n"
        f"It was looked for in {', '.join(_looked_in(plan, store))}.\n"
        f"Compile it where that is allowed: dotcu cache pack TARGET --arch {arch}\n"
        "Or allow it here: unset DOTCU_JIT"
    )
    error.key = plan.build_digest
    return error


def _fits(plan: BuildPlan, entry: CacheEntry) -> bool:
    """Return whether an entry of someone else has all that is wanted, for this machine."""
    is_loadable = entry.tile_cubin is None or tile.is_loadable(entry.tile_cubin)
    return is_loadable and _is_of(plan, entry)


def _is_of(plan: BuildPlan, entry: CacheEntry) -> bool:
    """Return whether an entry has all that a build makes."""
    names = with_probes(plan.names) if plan.probed else plan.names
    has_code = (entry.cubin is not None) == (plan.target.kind == "sm")
    has_types = not plan.layouts or entry.layouts.keys() >= set(plan.kernels)
    try:
        _resources(entry)
    except (UsageError, ValueError):  # of a file that is no cubin, and a number of more digits than any has
        return False
    return has_code and has_types and entry.lowered.keys() >= set(names)


def _resources(entry: CacheEntry) -> dict[str, Resources]:
    return parse_resources(entry.log, entry.cubin) | tile_resources(entry.tile_cubin)


def _get(plan: BuildPlan, store: Store, *, again: bool = False) -> tuple[CacheEntry | None, str]:
    """Return what is in memory, in the store or in a layer, and which of them has it."""
    expected = locked_digest(plan.source.path, plan.build_digest)
    entry = cache.get_from_memory(store.directory, plan.build_digest)
    if entry is not None and expected in (None, entry.digest):
        count("cache_hits", place="memory")
        return entry, "in memory"
    outcome = "cache hit, compiled meanwhile by another" if again else "cache hit"
    for place in (store, *(() if again else cache.layers())):
        read = functools.partial(_read_whole, plan, expected, is_mine=place.private)
        entry = place.get(plan.build_digest, read, again=again)
        # not one of another machine that shares the directory: it would end this process
        if entry is not None and (entry.tile_cubin is None or tile.is_loadable(entry.tile_cubin)):
            count("cache_hits", place="disk" if place is store else "layer")
            return entry, outcome if place is store else f"cache hit in the layer {place.directory}"
    return None, ""


def _read_whole(plan: BuildPlan, expected: str | None, folder: Path, *, is_mine: bool) -> CacheEntry | None:
    """Return the entry in a folder; a damaged one is what whoever wrote it has not compiled of this build."""
    entry = cache.read_entry(folder, is_mine=is_mine, expected=expected)
    if entry is not None and not _is_of(plan, entry):
        raise DamagedEntry("it lacks what this build has")
    return entry


# The message for a changed ingredient, in the order in which they are looked for.
_CHANGES = (
    ("options", "the options changed"),
    ("names", "another instantiation"),
    ("simulated", "for the simulator, or no longer"),
    ("layouts", "for the members of a struct"),
    ("compiler", "another compiler"),
    ("headers", "other headers of dotcu or the toolkit"),
)


def _rebuild_reason(plan: BuildPlan, records: Sequence[Mapping[str, Any]]) -> str:
    """Say why a source is compiled: what changed since the build in the records that differs least."""
    if not records:
        return "not seen before"
    changed: dict[str, tuple[str, str]] = {}  # the ingredients that differ, now and before
    for number, record in enumerate(records):
        pairs = {
            name: (plan.ingredients.get(name, ""), str(record.get(name, "")))
            for name in {**plan.ingredients, **record} if name != "source"  # follows from its files
        }  # fmt: skip
        differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if number == 0 or len(differing) < len(changed):
            changed = differing
    reasons = []
    for name, (now, before) in changed.items():
        kind, _, virtual = name.partition(" ")
        if virtual == plan.includes.main.virtual:
            reasons.append("new source" if now and before else "another source")
        elif kind == "file":
            header = virtual.partition("/dotcu/")[2] or virtual
            reasons.append(
                f"header {header} {'changed' if now and before else 'is new' if now else 'is gone'}"
            )
    if "target" in changed:
        reasons.append(f"new target, last built for {changed['target'][1]}")
    reasons += [text for name, text in _CHANGES if name in changed]
    return "; ".join(reasons) or "its entry is no longer in the cache, or a header name has another file"


def _compile(plan: BuildPlan) -> tuple[CacheEntry, bool]:
    """Call the compiler until it takes the source, or nothing more can be left out.

    Left out are headers that are nowhere, and host code that only the compiler recognises: what it refuses
    and no annotation claims for the device. A header that no scan can see, since macros put its name
    together, is added when the compiler asks for it.

    Returns:
        The result; False where a user's header came in that the plan's digest does not cover.
    """
    key = (plan.includes.digest, repr(plan.options.key))
    attempt = _plan(plan, *_found_out[key]) if key in _found_out else plan
    failures: list[tuple[BuildPlan, str]] = []
    for _ in range(_RETRIES):
        reply = _call(attempt)
        if isinstance(reply, CacheEntry):
            if failures and _EXTERN.search(reply.ptx):  # of PTX nothing is linked
                break
            return _with_tiles(plan, _entry(plan, reply)), not attempt.found.get("extra")
        failures.append((attempt, reply))
        following = _following(attempt, reply)
        if following is None:
            break
        attempt = following
        # another target or instantiation may take what this one refuses
        kept = {name: value for name, value in attempt.found.items() if name != "refused"}
        _found_out[key] = kept, attempt.before, attempt.aliases
        if len(_found_out) > _MAX_FOUND_OUT:
            _found_out.pop(next(iter(_found_out)), None)
    raise _explained(failures)


def _explained(failures: Sequence[tuple[BuildPlan, str]]) -> DotcuError:
    """Return the last failure, or where it is of a name that was left out for an error, that error."""
    from dotcu.compile import diagnostics

    if _UNRESOLVED in failures[-1][1] and len(failures) > 1:  # it names no line
        failures = failures[:-1]
    undefined = set(_UNDEFINED.findall(failures[-1][1]))
    for failed, log in reversed(failures):
        plan, shown = failed, log
        if undefined.isdisjoint(one.name for one in failed.includes.parts.removed):
            break
    else:
        plan, shown = failures[-1]
    return diagnostics.explain_failure(plan, shown, _diagnostics(plan, shown))


# What nvcc has from the host's compiler and its headers and NVRTC lacks, by what shows that it is needed.
_FROM_THE_HOST = (
    (r"#error directive", "#define __linux__ 1\n#define __x86_64__ 1\n#define __GNUC__ 11\n"),
    (r"\b__extension__\b", "#define __extension__\n"),
    (r'"__(asm|volatile)__" is undefined', "#define __asm__ asm\n#define __volatile__ volatile\n"),
    (r'"CLOCKS_PER_SEC" is undefined', "#define CLOCKS_PER_SEC 1000000\n"),
    (r'use of the "register" storage class specifier', "#define register\n"),
)

# What builds of PyTorch's extensions define, where CUDA's half types and PyTorch's are ambiguous otherwise.
# Source: COMMON_NVCC_FLAGS in torch/utils/cpp_extension.py.
_OF_PYTORCHS_BUILDS = (
    (
        (
            r"more than one (?:operator|user-defined|conversion|instance|constructor)[^$]{0,2000}?"
            r"\b__(?:half|nv_bfloat16)\b|operator[^\n]*__half[^\n]*has already been defined"
        ),
        (
            "#define __CUDA_NO_HALF_OPERATORS__ 1\n#define __CUDA_NO_HALF_CONVERSIONS__ 1\n"
            "#define __CUDA_NO_HALF2_OPERATORS__ 1\n#define __CUDA_NO_BFLOAT16_CONVERSIONS__ 1\n"
        ),
    ),
    # some undefine those of operators
    (
        r'no operator "[^"]+" matches these operands[^$]{0,200}?\b__half2?\b',
        "#undef __CUDA_NO_HALF_OPERATORS__\n#undef __CUDA_NO_HALF2_OPERATORS__\n",
    ),
)

_BEFORE_THE_FIRST_LINE = (
    "algorithm",
    "climits",
    "cmath",
    "cstddef",
    "cstdint",
    "cstdlib",
    "limits",
    "type_traits",
    "utility",
)
"""Headers that nvcc has included before a source's first line: by its `cuda_runtime.h`, and by what that
includes of the host's library. Source: cuda_runtime.h and driver_types.h of CUDA 13.0; <cmath> of GCC 13."""
_UNRESOLVED = "Unresolved extern function"
_EXTERN = re.compile(r"^\.extern \.func[^;]*\b_Z\w+", re.MULTILINE)
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_FOR_LAMBDAS = re.compile(
    r"inferred to be __host__ \(based on context\)"
    r"|is considered a host function[^\n]*\n[^\n]*\]\s*(?:<[^\n]*>)?\s*\([^\n]*\bauto\b"
)
"""A lambda outside of functions, or a generic one, which NVRTC takes with an option alone."""
_IN_FILE = re.compile(r"(?m)^([^\s(]+)\(\d+\): error: A function without execution space annotations")
_NO_MEMBER = re.compile(r'namespace "std" has no member "(\w+)"')
_DECLARED = re.compile(r"(?:\busing (?:::)?|\bstruct |#define )(\w+)|\b(\w+)\(")
_FROM_THE_HOST_NAME = f"{VIRTUAL_ROOT}/@host"


def _call(plan: BuildPlan) -> CacheEntry | str:
    """Call the compiler once; return its log where it refuses the source."""
    main, user = plan.includes.main, plan.includes.headers.values()
    crash = "" if plan.tile is None else _crash(plan)
    if crash:
        return crash
    headers = {
        **plan.system_headers.reachable(plan.includes.system),
        **{file.virtual: file.rewritten.encode("utf-8", "surrogateescape") for file in user},
        **plan.aliases,
        _FROM_THE_HOST_NAME: plan.before.encode(),
    }
    before = (f"--pre-include={_FROM_THE_HOST_NAME}",) if plan.before else ()
    return nvrtc.compile(
        plan.compiler.path,
        main.virtual,
        with_probe(main.rewritten) if plan.probed else main.rewritten,
        headers=headers,
        arguments=(*plan.arguments, *before),
        expressions=with_probes(plan.names) if plan.probed else plan.names,
    )


def _crash(plan: BuildPlan) -> str:
    """Return the error that NVRTC should report where it ends the process; "" if there is no such place.

    Source: seen with NVRTC 13.5: an array of the device's that tile code adds a tile to.
    """
    files, defined = plan.includes.files, plan.options.defined
    names = frozenset(name for file in files for name in device_arrays(file.text, defined))
    for file in files if names else ():
        use = offset_in_tile_code(file.text, names, defined)
        if use is not None:
            what = f'a non-__tile__ variable ("{use[0]}") cannot be used in tile code'
            return f"{file.virtual}({use[1]}): error: {what}\n"
    return ""


def _following(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Return what to try after a failure; None if nothing is left to try."""
    from dotcu.compile.diagnostics import unopened

    missing = unopened(log)
    if missing is None:
        return _with_hosts(plan, log) or _with_wanted(plan, log) or _without_refused(plan, log)
    return None if missing[1] in plan.aliases else _with_header(plan, *missing)


def _with_hosts(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Give the compiler what nvcc has from the host's compiler and by its own options, if it lacks that."""
    from dotcu.compile.diagnostics import undefined_names

    is_of_library = any(FOR_NVRTC_TOO.search(name) for name in _IN_FILE.findall(log))
    if (is_of_library or _FOR_LAMBDAS.search(log)) and "implicit" not in plan.found:
        names = (file.virtual for file in plan.includes.files)
        files = frozenset(name for name in names if not FOR_NVRTC_TOO.search(name))
        return _with(plan, implicit=True, suspects=plan.found.get("suspects", frozenset()) | files)
    seen = "\n".join([log, *(file.text for file in plan.includes.files)])
    before = [text for pattern, text in _FROM_THE_HOST if re.search(pattern, seen)]
    if any(name.endswith(("left_out/torch", "left_out/float8")) for name in plan.includes.system):
        before += [text for pattern, text in _OF_PYTORCHS_BUILDS if re.search(pattern, log)]
    named = [plan.system_headers.find(header) for header in _BEFORE_THE_FIRST_LINE]
    headers = plan.system_headers.reachable([name for name in named if name])
    declared = itertools.chain.from_iterable(_DECLARED.findall(text.decode()) for text in headers.values())
    if undefined_names(log).intersection(itertools.chain.from_iterable(declared)):
        before.append("".join(f'#include "{name}"\n' for name in named))
    new = "".join(text for text in before if text not in plan.before)
    if not new:
        return None
    return replace(plan, before=plan.before + new, aliases={**plan.aliases, **headers})


def _with_wanted(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Keep what was left out since no device code names it, and a template argument does."""
    from dotcu.compile.diagnostics import undefined_names

    known = plan.found.get("wanted", frozenset())
    removed = {one.name for one in plan.includes.parts.removed if "__device__" not in one.what}
    wanted = removed.intersection(undefined_names(log)) - known
    return _with(plan, wanted=known | wanted) if wanted else None


def _with(plan: BuildPlan, **found: Any) -> BuildPlan:
    """Return a build that knows more."""
    return _plan(plan, {**plan.found, **found}, plan.before, plan.aliases)


def _with_header(plan: BuildPlan, including: str, spelled: str) -> BuildPlan | None:
    """Give the compiler a header that no scan saw, or stand-ins for all that are nowhere."""
    from dotcu.compile.diagnostics import package_of

    after, virtual, headers = plan, "system", plan.system_headers
    if including in plan.shown_files:
        extra = plan.found.get("extra", {})
        after = _with(plan, extra={**extra, including: (*extra.get(including, ()), spelled)})
        edges = {(file, name): leads_to for file, name, leads_to in after.includes.edges}
        virtual = edges[including, spelled]
    found = headers.find(spelled) if virtual == "system" else virtual
    if found is not None:
        aliases = {**plan.aliases, spelled: f'#include "{found}"\n'.encode("utf-8", "surrogateescape")}
        if found not in after.includes.headers:
            aliases |= headers.reachable([found])
        return replace(after, aliases=aliases)
    absent = {spelled, *plan.includes.missing} - plan.includes.optional
    if including not in plan.shown_files or package_of(spelled):
        return None
    stand_in = headers.find("left_out/std")
    assert stand_in is not None
    text = f'#warning {NOT_FOUND}\n#include "{stand_in}"\n'.encode()
    named = {name: text for name in absent if not package_of(name)}
    return replace(after, aliases={**plan.aliases, **named, **headers.reachable([stand_in])})


def _without_refused(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Leave out what the compiler refused, if it is host code or may be."""
    from dotcu.compile.diagnostics import refused_lines

    if plan.options.all_is_device:
        return None
    lines, called = refused_lines(log, plan)
    suspects = {virtual for virtual, _ in lines if virtual in plan.shown_files}
    lacking = set(_NO_MEMBER.findall(log))  # the compiler stops at a hundred errors: where else are they?
    suspects |= {one.virtual for one in plan.includes.files if any(name in one.text for name in lacking)}
    after = plan
    if suspects - plan.includes.parts.looked:
        after = _with(plan, suspects=plan.found.get("suspects", frozenset()) | suspects)
        if after.includes.digest != plan.includes.digest:
            return after
    pieces, known = after.includes.parts.pieces, plan.found.get("refused", frozenset())
    refused: set[Refusal] = set()
    for file, line in lines:
        on_it = (key for key, first, last in pieces if key[0] == file and first <= line <= last)
        refused.update(itertools.islice(on_it, 1))
    for file, line in called:
        on_it = (key for key, first, last in pieces if key[0] == file and first <= line <= last)
        refused.update((*key[:2], "inline") for key in on_it if key[2] == "head")
    if any(key[2] == "assert" for key in refused) and "Error limit reached" in log:
        refused.update(key for key, _, _ in pieces if key[2] == "assert")  # the host's to check, too
    return _with(after, refused=known | refused) if refused - known else None


_MAX_FOUND_OUT = 16
_found_out: dict[tuple[str, str], tuple[Mapping[str, Any], str, Mapping[str, bytes]]] = {}
"""By source and options, what was found out: other names, and other architectures, begin with it."""


def _entry(plan: BuildPlan, reply: CacheEntry) -> CacheEntry:
    """Return what a compile has made as the cache keeps it."""
    about = {
        "source": plan.source.name,
        "target": str(plan.target),
        "names": ", ".join(plan.names),
        "compiler": "NVRTC {}.{}".format(*plan.compiler.version),
        "arguments": " ".join(plan.arguments),
        "build_digest": plan.build_digest,
    }
    if plan.layouts:
        types = {name: parameter_types(reply.ptx, reply.lowered[name]) for name in plan.kernels}
        return replace(reply, about=about, ptx="", cubin=None, tile_ir=b"", layouts=types)
    return replace(reply, about=about, tile_ir=tile.without_folder(reply.tile_ir))


def _with_tiles(plan: BuildPlan, entry: CacheEntry) -> CacheEntry:
    """Return an entry with the machine code of its tile kernels, if it has such and they are to run here."""
    if not entry.tile_ir or not plan.is_assembled:
        return entry
    assert plan.tile is not None
    cubin, log, command = tile.assemble(
        plan.tile, entry.tile_ir, plan.target, processor=tile.host(), lines=plan.lines,
        debug=plan.options.debug,
    )  # fmt: skip
    if cubin is None:
        from dotcu.compile import diagnostics

        raise diagnostics.explain_assembler(plan, log, _diagnostics(plan, log), command)
    return replace(entry, tile_cubin=cubin, log=f"{entry.log}\n{log}" if log else entry.log)


def _finish(
    plan: BuildPlan,
    entry: CacheEntry,
    started: float,
    outcome: str,
    store: Store | None = None,
    cause: Mapping[str, Any] | None = None,
) -> ObjectCode:
    """Keep an entry in memory, if it is in a store, log its outcome, and return its object code.

    The log record of a compile has its cause as `dotcu_compile`; under `DOTCU_JIT=warn` it is a warning.
    """
    if store is not None and outcome != "in memory":
        cache.keep_in_memory(store.directory, plan.build_digest, entry)
    if NOT_FOUND in entry.log and outcome != "in memory":
        _warn_of_absent(plan, entry.log)
    code = ObjectCode(
        target=plan.target,
        ptx=entry.ptx,
        cubin=entry.cubin,
        lowered={name: entry.lowered[name] for name in plan.names},
        signatures={
            name: entry.lowered[probe_of(name)] for name in plan.names if plan.probed and is_kernel(name)
        },
        resources=_resources(entry),
        warnings=tuple(one for one in _diagnostics(plan, entry.log) if one.severity == "warning")
        if "warning" in entry.log  # most have none, and are not parsed
        else (),
        log=entry.log,
        command=plan.command,
        files={
            **{name: str(plan.system_headers.path(name) or name) for name in _FILE.findall(entry.ptx)},
            **plan.shown_files,
        },
        build_digest=plan.build_digest,
        cached=not outcome.startswith("compiled"),
        seconds=time.perf_counter() - started,
        layouts=entry.layouts,
        tile_ir=entry.tile_ir,
        tile_cubins={} if entry.tile_cubin is None else {tile.host(): entry.tile_cubin},
    )
    if outcome != "in memory":
        _show_warnings(plan, code.warnings)
    caller = ""
    if cause is not None:
        caller = f"; {', '.join(plan.kernels)}, called from {cause['caller'] or 'no line of yours'}"
    _log.log(
        logging.WARNING if cause is not None and settings.current().jit == "warn" else logging.INFO,
        "%s for %s: %s, %.3f s: %s%s",
        plan.source.name, plan.target, outcome, code.seconds, plan.command, caller,
        extra={"dotcu_compile": cause},
    )  # fmt: skip
    return code


_warned: set[tuple[str, tuple[str, ...]]] = set()


def _warn_of_absent(plan: BuildPlan, log: str) -> None:
    from dotcu.compile.diagnostics import left_out_headers

    absent = tuple(
        name for name in left_out_headers(log) if not is_host_include(name, quoted=False, device=())
    )
    if absent and (plan.display, absent) not in _warned:
        _warned.add((plan.display, absent))  # once, and not for each instantiation of a file's templates
        _log.warning(
            "%s compiles without headers that were not found: %s. If its kernels need them: "
            "load(..., include=[FOLDER])", plan.display, ", ".join(absent),
        )  # fmt: skip


_shown_warnings: set[tuple[str, int, str]] = set()


def _show_warnings(plan: BuildPlan, warnings: Sequence[Diagnostic]) -> None:
    """Log what the compiler warns of in the user's files, each once in a process."""
    for one in warnings:
        place = plan.includes.main.original, one.line, f"{one.file} {one.message}"
        if place not in _shown_warnings and not _is_known(plan, one):
            _shown_warnings.add(place)
            _log.warning("%s", one)


_SPILLS = "Registers are spilled"
_UNUSED = re.compile(r"\[#(?:177|550)-D\]$")


def _is_known(plan: BuildPlan, warning: Diagnostic) -> bool:
    """Return whether a warning tells nothing: of a header, a spill, or what removed host code used."""
    is_users = not warning.file or warning.file in plan.shown_files.values()
    is_unused = bool(plan.includes.parts.texts and _UNUSED.search(warning.message))
    return not is_users or warning.message.startswith(_SPILLS) or is_unused


def _diagnostics(plan: BuildPlan, log: str) -> tuple[Diagnostic, ...]:
    if not log:
        return ()
    from dotcu.compile import diagnostics

    files = {file.virtual: file for file in plan.includes.files}

    def lines(name: str) -> list[str]:
        """Return the user's lines, as many as were compiled."""
        file = files.get(name)
        return _lines(file.original)[: len(_lines(file.text))] if file else []

    def shown(name: str) -> str:
        return plan.shown_files.get(name) or str(plan.system_headers.path(name) or name)

    found = diagnostics.parse_log(log, shown, lines, main=plan.includes.main.virtual)
    return tuple(one for one in found if NOT_FOUND not in one.message)


def _lines(text: str) -> list[str]:
    """Return a text's lines as the compiler counts them: a form feed ends none."""
    return [line.rstrip("\r") for line in printable(text).removesuffix("\n").split("\n")] if text else []

"""From a source to object code: memory, cache, or the compiler, in that order.

inputs -> plan (plan.py) -> memory, cache, layers (cache.py), a shared store (sharing.py)
       -> or calls of the compiler (compiling.py) -> ObjectCode
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu import settings, telemetry
from dotcu.compile import cache
from dotcu.compile.cache import CacheEntry, DamagedEntry, Store
from dotcu.compile.host_split.detect import NOT_FOUND, is_host_include
from dotcu.compile.object_code import (
    ObjectCode,
    Resources,
    is_kernel,
    parse_resources,
    probe_of,
    tile_resources,
    with_probes,
)
from dotcu.compile.options import CompileOptions
from dotcu.compile.plan import (
    LOCK,
    BuildInputs,
    BuildPlan,
    layout_inputs,
    locked_digest,
    plan_of,
    text_digest,
)
from dotcu.compile.source.source import Source
from dotcu.compile.target import Target
from dotcu.errors import CompileError, Diagnostic, JitDisabled, KernelNotFound, SourceError, UsageError
from dotcu.telemetry import count

if TYPE_CHECKING:
    from dotcu.ptx.debug_info import TypeRow

_log = logging.getLogger("dotcu")

_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)


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
    return build_of(inputs, visible=visible)


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
    found = build_of(layout_inputs(inputs, names)).layouts
    missing = [name for name in names if not found.get(name)]
    if missing:
        raise SourceError(f"The debug information that NVRTC writes with {options.options} lacks {missing}.")
    return found


def build_of(request: BuildInputs, *, visible: bool = False) -> ObjectCode:
    """Return the object code of a build, as `build` does."""
    if visible:
        return _build_visible(request)
    started = time.perf_counter()
    with telemetry.during("build"):
        return _get_or_compile(plan_of(request), started)


def _build_visible(request: BuildInputs) -> ObjectCode:
    names = request.names
    try:
        return build_of(request)
    except SourceError as caught:
        error = caught  # what is raised below has no other error as its context
    from dotcu.compile.diagnostics import is_about

    complaints = error.diagnostics if isinstance(error, CompileError) else ()
    blamed = {name for name in names if "<" not in name and any(is_about(name, one) for one in complaints)}
    if blamed:
        with suppress(SourceError):
            return build_of(replace(request, names=tuple(name for name in names if name not in blamed)))
    build_of(replace(request, names=()))  # raises where the source itself is at fault
    visible = []
    for name in names:
        try:
            build_of(replace(request, names=(name,)))
            visible.append(name)
        except (KernelNotFound, CompileError):
            if "<" in name:
                raise
    if len(visible) == len(names):
        raise error
    return build_of(replace(request, names=tuple(visible)))


def _get_or_compile(plan: BuildPlan, started: float) -> ObjectCode:
    store = Store(cache.location())
    with telemetry.during("cache", **_about_span(plan)) as seen:
        entry, outcome = _get(plan, store)
        seen["outcome"] = outcome or "miss"
    if entry is not None:
        return _finish(plan, entry, started, outcome, store)
    remote = _remote(plan)
    if not remote and settings.current().jit == "error":
        raise _jit_disabled(plan, store)
    made = store.path(plan.build_digest)
    is_made = functools.partial(os.path.isdir, made)
    with telemetry.during("store"), store.lock(plan.build_digest, is_made) as locked:
        entry, outcome = _get(plan, store, again=True)  # another thread or process may have been faster
        if entry is None and remote:
            from dotcu.compile.sharing import fetch, shown

            with telemetry.during("store", **_about_span(plan), store=shown(remote)) as seen:
                expected = locked_digest(plan.source.path, plan.build_digest)
                entry = fetch(store, plan.build_digest, expected, functools.partial(_fits, plan))
                seen["outcome"] = "hit" if entry is not None else "miss"
            outcome = f"cache hit in the store {shown(remote)}"
        if entry is not None:
            return _finish(plan, entry, started, outcome, store)
        if settings.current().jit == "error":
            raise _jit_disabled(plan, store)
        builds = text_digest(str(plan.source.path or f"inline {plan.source.name}"))[:32]
        reason = _rebuild_reason(plan, store.history(builds))
        began = time.perf_counter()
        with telemetry.during("compile", **_about_span(plan), reason=reason):
            from dotcu.compile.compiling import compile_plan  # nothing that the cache has needs it

            entry, is_covered = compile_plan(plan)
        cause = _cause_of_compile(plan, store, reason, time.perf_counter() - began)
        if not is_covered:
            outcome = "compiled, not cached: a macro expands to the name of a header"
            return _finish(plan, entry, started, outcome, cause=cause)
        _warn_of_lock(plan, entry)
        store.put(plan.build_digest, entry.files(), locked=locked)
        store.add_history(builds, plan.ingredients)
    if remote:
        from dotcu.compile.sharing import push

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
    target = f"{plan.target}, simulated" if plan.simulated else str(plan.target)
    return {"file": plan.display, "kernels": ", ".join(plan.kernels), "target": target}


def _remote(plan: BuildPlan) -> str | None:
    """Return the store that machines share, where an entry of it is what this machine would compile."""
    remote = settings.current().cache_remote
    return remote if remote and plan.is_reproducible else None


def _looked_in(plan: BuildPlan, store: Store) -> list[str]:
    remote = _remote(plan)
    folders = [str(place.directory) for place in (store, *cache.layers())]
    if not remote:
        return folders
    from dotcu.compile.sharing import shown

    return [*folders, shown(remote)]


_LAST = "last-compile"


def _cause_of_compile(plan: BuildPlan, store: Store, reason: str, seconds: float) -> Mapping[str, Any]:
    """Count a compile, note its cause for `dotcu cache why`, and return it."""
    from dotcu import tracebacks

    cause = {
        **_about_span(plan),
        "kernels": plan.kernels,
        "arguments": " ".join(plan.arguments),
        "reason": reason,
        "caller": tracebacks.caller_line(),
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
    return _is_loadable(entry) and _is_of(plan, entry)


def _is_loadable(entry: CacheEntry) -> bool:
    """Return whether this machine loads the machine code of an entry's tile kernels, if it has such."""
    if entry.tile_cubin is None:
        return True
    from dotcu.compile import tile

    return tile.is_loadable(entry.tile_cubin)


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
        if entry is not None and _is_loadable(entry):
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
        warnings=_warnings(plan, entry.log),
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
        tile_cubins={} if entry.tile_cubin is None else {platform.machine(): entry.tile_cubin},
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


def _warnings(plan: BuildPlan, log: str) -> tuple[Diagnostic, ...]:
    if "warning" not in log:  # most have none, and are not parsed
        return ()
    from dotcu.compile import diagnostics

    return tuple(one for one in diagnostics.of_plan(plan, log) if one.severity == "warning")


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

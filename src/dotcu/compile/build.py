"""From a source to object code: memory, cache, or the compiler, in that order."""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dotcu import settings, stopwatch
from dotcu.compile import cache
from dotcu.compile.cache import Store
from dotcu.compile.entry import Entry
from dotcu.compile.objects import ObjectCode, is_kernel, parse_resources, probe_of, with_probe, with_probes
from dotcu.compile.options import CompileOptions
from dotcu.compile.plan import BuildPlan, plan_build, remembered_as, why_built
from dotcu.compile.source import Source, printable
from dotcu.compile.target import Target
from dotcu.errors import CompileError, JitDisabled, KernelNotFound, SourceError

if TYPE_CHECKING:
    from dotcu.compile.diagnostics import Diagnostic
    from dotcu.compile.nvrtc import Reply, Request

_log = logging.getLogger("dotcu")

_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
_RETRIES = 16
"""How many headers whose names macros put together a source may have."""


def build(
    source: Source,
    *,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    simulated: bool = False,
    probed: bool = True,
    lines: bool = True,
) -> ObjectCode:
    """Give a source's object code for a target: from memory, from the cache, or compiled.

    Args:
        names: Name expressions: kernels, `scale_add<float>` or `ns::plain`, and addresses of
            `__constant__` and `__device__` variables, `&table`.
        simulated: Compile for the simulator: `DOTCU_SIMULATED` is defined to be 1.
        probed: Learn the kernels' signatures too; else the code holds nothing but the source's own.
        lines: Let the code name source lines.

    Raises:
        CompileError: The compiler refused the source, or an instantiation.
        HostCodeError: There is host code in it.
        KernelNotFound: One of the names is not there.
        JitDisabled: It would have to be compiled and `DOTCU_JIT=0` forbids that.
        ToolchainError: There is no compiler that fits.
    """
    started = time.perf_counter()

    def planned(parted: bool) -> BuildPlan:
        return plan_build(
            source, options=options, target=target, names=names, simulated=simulated, probed=probed,
            lines=lines, parted=parted,
        )  # fmt: skip

    with stopwatch.during("build"):
        plan = planned(False)
        try:
            return _look(plan, started)
        except (SourceError, JitDisabled):
            again = planned(True)  # there may be a host part without a sign of it
            if again.build_digest == plan.build_digest:
                raise
        return _look(again, started)


def build_visible(
    source: Source,
    *,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    simulated: bool = False,
    probed: bool = True,
    lines: bool = True,
) -> ObjectCode:
    """Give a source's object code, leaving out plain names that the preprocessor has hidden.

    Args:
        names, simulated, probed, lines: As `build` takes them.

    Raises:
        SourceError: The source does not compile, or an instantiation is not possible.
    """

    def made(some: Sequence[str]) -> ObjectCode:
        return build(
            source, options=options, target=target, names=some, simulated=simulated, probed=probed,
            lines=lines,
        )  # fmt: skip

    def sees(name: str) -> bool:
        try:
            made((name,))
        except (KernelNotFound, CompileError):
            if "<" in name:
                raise
            return False
        return True

    try:
        return made(names)
    except SourceError as error:
        blamed = _blamed(error, names)
        if blamed:
            with suppress(SourceError):
                return made([name for name in names if name not in blamed])
        made(())  # where the source itself is at fault, this says how
        seen = [name for name in names if sees(name)]
        if len(seen) == len(names):
            raise
        return made(seen)


def _blamed(error: SourceError, names: Sequence[str]) -> set[str]:
    """The plain names that the compiler complains of by name."""
    from dotcu.compile.failure import is_about

    found = error.diagnostics if isinstance(error, CompileError) else ()
    return {name for name in names if "<" not in name and any(is_about(name, one) for one in found)}


def _look(plan: BuildPlan, started: float) -> ObjectCode:
    store = Store(cache.location())
    kept = cache.recollect(store.directory, plan.build_digest)
    if isinstance(kept, Entry):
        return _finish(plan, kept, started, "in memory")
    with stopwatch.during("cache"):
        found = store.get(plan.build_digest)
    if found is not None:
        return _finish(plan, found, started, "cache hit", store)
    return _make(plan, store, started)


def _make(plan: BuildPlan, store: Store, started: float) -> ObjectCode:
    """Compile under the key's lock, unless another was faster."""
    if not settings.current().jit:
        raise JitDisabled(_jit_disabled(plan))
    with stopwatch.during("store"), store.lock(plan.build_digest) as locked:
        found = store.get(plan.build_digest, again=True)
        kept = cache.recollect(store.directory, plan.build_digest)
        if found is None and isinstance(kept, Entry):
            return _finish(plan, kept, started, "in memory")
        if found is not None:
            return _finish(plan, found, started, "cache hit, made meanwhile by another", store)
        why = why_built(plan, store.recall(remembered_as(plan)))
        made, complete = _compile(plan)
        if not complete:
            return _finish(
                plan, made, started, "compiled, not kept: a macro makes the name of a header", cached=False
            )
        store.put(plan.build_digest, made, locked=locked)
        store.remember(remembered_as(plan), dict(plan.ingredients))
    return _finish(plan, made, started, f"compiled: {why}", store, cached=False)


def _jit_disabled(plan: BuildPlan) -> str:
    return (
        f"{plan.display} is not compiled for {plan.target} ({', '.join(plan.names)}), "
        "and DOTCU_JIT=0 forbids to compile it.\n"
        f"The cache {cache.location()} has no entry {plan.build_digest[:16]}.\n"
        "Compile it where that is allowed, or allow it here: unset DOTCU_JIT"
    )


def _compile(plan: BuildPlan) -> tuple[Entry, bool]:
    """Call the compiler; False where a header came in that the plan's digests do not cover.

    A header that no scan can see, since macros put its name together, is added when the
    compiler asks for it, and the compile is tried again.
    """
    from dotcu.compile.nvrtc import load

    seen = _Unseen(plan)
    for _ in range(_RETRIES):
        with stopwatch.during("compile"):
            reply = load(plan.compiler.path).compile(_request(seen.plan, seen.aliases))
        if reply.ok:
            return _entry(plan, reply), not seen.by_user
        from dotcu.compile.failure import explain_failure, unopened

        missing = unopened(reply.log)
        if missing is None or not seen.add(*missing):
            break
    raise explain_failure(plan, reply.log, _diagnostics(seen.plan, reply.log))


class _Unseen:
    """Headers that the scan did not see and that the compiler asked for."""

    def __init__(self, plan: BuildPlan) -> None:
        self.plan = plan
        self.aliases: dict[str, bytes] = {}
        self.by_user: dict[str, tuple[str, ...]] = {}

    def add(self, including: str, spelled: str) -> bool:
        """Hand over a header under the name that it was asked for by; False where there is none."""
        if spelled in self.aliases:
            return False
        user = any(file.virtual == including for file in self.plan.closure.files)
        virtual = self._by_user(including, spelled) if user else self.plan.shelf.find(spelled)
        if virtual is None:
            return False
        self.aliases[spelled] = f'#include "{virtual}"\n'.encode("utf-8", "surrogateescape")
        if virtual not in self.plan.closure.headers:
            self.aliases |= self.plan.shelf.closure([virtual])
        return True

    def _by_user(self, including: str, spelled: str) -> str | None:
        extra = {**self.by_user, including: (*self.by_user.get(including, ()), spelled)}
        plan = plan_build(
            self.plan.source, options=self.plan.options, target=self.plan.target, names=self.plan.names,
            simulated=self.plan.simulated, probed=self.plan.probed, lines=self.plan.lines, extra=extra,
        )  # fmt: skip
        edges = {(file, name): leads_to for file, name, leads_to in plan.closure.edges}
        leads_to = edges[including, spelled]
        self.plan, self.by_user = plan, extra
        return plan.shelf.find(spelled) if leads_to == "system" else leads_to


def _request(plan: BuildPlan, aliases: Mapping[str, bytes]) -> Request:
    from dotcu.compile.nvrtc import Request

    user = {
        file.virtual: file.rewritten.encode("utf-8", "surrogateescape")
        for file in plan.closure.headers.values()
    }
    return Request(
        name=plan.closure.main.virtual,
        text=with_probe(plan.closure.main.rewritten) if plan.probed else plan.closure.main.rewritten,
        headers={**plan.shelf.closure(plan.closure.system), **user, **aliases},
        arguments=plan.arguments,
        expressions=with_probes(plan.names) if plan.probed else plan.names,
    )


def _entry(plan: BuildPlan, reply: Reply) -> Entry:
    about = {
        "source": plan.source.name,
        "target": str(plan.target),
        "names": ", ".join(plan.names),
        "compiler": "NVRTC {}.{}".format(*plan.compiler.version),
        "arguments": " ".join(plan.arguments),
        "source_digest": plan.source_digest,
        "build_digest": plan.build_digest,
    }
    return Entry(about=about, lowered=reply.lowered, ptx=reply.ptx, cubin=reply.cubin, log=reply.log)


def _finish(
    plan: BuildPlan,
    entry: Entry,
    started: float,
    outcome: str,
    store: Store | None = None,
    *,
    cached: bool = True,
) -> ObjectCode:
    if store is not None:
        cache.keep(store.directory, plan.build_digest, entry)
    made = _object_code(plan, entry, cached)
    made = dataclasses.replace(made, seconds=time.perf_counter() - started)
    _log.info("%s for %s: %s, %.3f s: %s", plan.source.name, plan.target, outcome, made.seconds, plan.command)
    return made


def _object_code(plan: BuildPlan, entry: Entry, cached: bool) -> ObjectCode:
    return ObjectCode(
        target=plan.target,
        ptx=entry.ptx,
        cubin=entry.cubin,
        lowered={name: entry.lowered[name] for name in plan.names},
        signatures={
            name: entry.lowered[probe_of(name)] for name in plan.names if plan.probed and is_kernel(name)
        },
        resources=parse_resources(entry.log, entry.cubin),
        warnings=_warnings(plan, entry.log),
        log=entry.log,
        command=plan.command,
        files=_files(plan, entry.ptx),
        source_digest=plan.source_digest,
        build_digest=plan.build_digest,
        cached=cached,
        seconds=0.0,
    )


def _files(plan: BuildPlan, ptx: str) -> dict[str, str]:
    """Real path, or name to show, of the user's files and of every file that the PTX names."""
    files = {file.virtual: str(file.path or plan.display) for file in plan.closure.files}
    for name in _FILE.findall(ptx):
        files.setdefault(name, str(plan.shelf.path(name) or name))
    return files


def _warnings(plan: BuildPlan, log: str) -> tuple[Diagnostic, ...]:
    """The warnings in a log; most have none, and are not parsed."""
    if "warning" not in log:
        return ()
    return tuple(found for found in _diagnostics(plan, log) if found.severity == "warning")


def _diagnostics(plan: BuildPlan, log: str) -> tuple[Diagnostic, ...]:
    if not log:
        return ()
    from dotcu.compile import diagnostics

    files = {file.virtual: file for file in plan.closure.files}

    def lines(name: str) -> list[str]:
        """The user's lines, as many as were compiled."""
        if name not in files:
            return []
        compiled = len(printable(files[name].text).splitlines())
        return printable(files[name].whole).splitlines()[:compiled]

    return diagnostics.parse(log, _Display(plan), lines, main=plan.closure.main.virtual)


class _Display(Mapping[str, str]):
    """What to show for each virtual name; made for the names that a log has, not for all."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self._user = _files(plan, "")

    def __getitem__(self, name: str) -> str:
        if name in self._user:
            return self._user[name]
        path: Path | None = self._plan.shelf.path(name)
        if path is None:
            raise KeyError(name)
        return str(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._user)

    def __len__(self) -> int:
        return len(self._user)

"""Everything that decides a build, before anything is compiled: what to ask, and two digests.

`source_digest` holds the user's files, the options and the names. `build_digest` adds compiler,
headers and target: it is the cache's key. No path of this machine is in either. What differs from an
earlier plan is why a source is compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dotcu.compile import headers, toolchain
from dotcu.compile.closure import Closure, closure
from dotcu.compile.compilers import Compiler
from dotcu.compile.headers import Shelf
from dotcu.compile.options import CompileOptions, arguments, command_line
from dotcu.compile.source import Source
from dotcu.compile.target import Target

FORMAT = "dotcu build 1"
"""Changed when the same inputs come to give other code: when the probe or the virtual names change."""


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """A build, decided.

    Attributes:
        names: The name expressions asked for, each once, sorted.
        probed: Whether the kernels' signatures are asked for, too, by a probe beside each.
        lines: Whether the code names source lines.
        arguments: NVRTC's options.
        ingredients: What the build depends on, by a name to show: the reason for a compile is the
            one that changed.
    """

    source: Source
    options: CompileOptions
    target: Target
    names: tuple[str, ...]
    simulated: bool
    probed: bool
    lines: bool
    compiler: Compiler
    shelf: Shelf
    closure: Closure
    arguments: tuple[str, ...]
    source_digest: str
    build_digest: str
    ingredients: Mapping[str, str]

    @property
    def display(self) -> str:
        """The source as messages call it."""
        return self.source.display

    @property
    def command(self) -> str:
        """The options as a command line."""
        return command_line(
            self.display, self.arguments, tuple(str(folder) for folder in self.source.include)
        )


def plan_build(
    source: Source,
    *,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    simulated: bool = False,
    probed: bool = True,
    lines: bool = True,
    extra: Mapping[str, tuple[str, ...]] | None = None,
    parted: bool = False,
) -> BuildPlan:
    """Read the headers that a source reaches and decide its build; compiles nothing.

    Args:
        extra: Names that a file includes and no scan can see, by its virtual name.
        parted: Look for a host part even where no sign of one is seen.

    Raises:
        ToolchainError: There is no compiler that fits.
        SourceNotFound: A header cannot be read.
    """
    compiler = toolchain.nvrtc()
    shelf = headers.shelf(compiler.include)
    reached = closure(source, shelf, extra, options=options, parted=parted)
    wanted = tuple(sorted(set(names)))
    asked = _asked(reached, options, wanted, simulated)
    made = {
        "compiler": toolchain.identity(compiler),
        "headers": _system_identity(reached, compiler),
        "target": str(target),
        **({} if probed else {"probe": "none"}),
        **({} if lines else {"lines": "none"}),
    }
    source_digest = digest(asked)
    return BuildPlan(
        source=source, options=options, target=target, names=wanted, simulated=simulated,
        probed=probed, lines=lines, compiler=compiler, shelf=shelf, closure=reached,
        arguments=arguments(options, target, simulated=simulated, lines=lines),
        source_digest=source_digest, build_digest=digest({"source_digest": source_digest, **made}),
        ingredients={**_files(reached), **asked, **made},
    )  # fmt: skip


def source_digest(
    source: Source, *, options: CompileOptions, names: Sequence[str], simulated: bool = False
) -> str:
    """The digest of what is asked for, whatever compiles it; needs no compiler."""
    reached = closure(source, headers.shelf(()), options=options)
    return digest(_asked(reached, options, tuple(sorted(set(names))), simulated))


def _asked(
    reached: Closure, options: CompileOptions, names: tuple[str, ...], simulated: bool
) -> dict[str, str]:
    return {
        "source": reached.digest,
        "options": repr(options.key),
        "names": repr(names),
        "simulated": repr(simulated),
    }


def digest(parts: Mapping[str, str]) -> str:
    """One digest of some named parts."""
    return hashlib.sha256(
        repr((FORMAT, sorted(parts.items()))).encode("utf-8", "surrogateescape")
    ).hexdigest()


def _system_identity(reached: Closure, compiler: Compiler) -> str:
    """What the headers of dotcu and the toolkit add to the key: nothing where none is reached."""
    if not reached.system:
        return ""
    parts = [*reached.system, headers.own_identity()]
    parts.append(toolchain.headers_identity(compiler))  # the stand-ins lead to the toolkit's as well
    return digest({"system": repr(parts)})


def _files(reached: Closure) -> dict[str, str]:
    return {
        f"file {file.virtual}": hashlib.sha256(file.text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        for file in reached.files
    }


# How a changed ingredient is told, in the order in which it is looked for.
_TOLD = (
    ("options", "the options changed"),
    ("names", "another instantiation"),
    ("simulated", "for the simulator, or no longer"),
    ("compiler", "another compiler"),
    ("headers", "other headers of dotcu or the toolkit"),
)


def remembered_as(plan: BuildPlan) -> str:
    """The name under which the builds of one source are remembered."""
    where = str(plan.source.path or f"inline {plan.source.name}")
    return hashlib.sha256(where.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def why_built(plan: BuildPlan, records: Sequence[Mapping[str, Any]]) -> str:
    """Why a source is compiled: what changed since the earlier build that differs least.

    Args:
        records: The ingredients of earlier builds.
    """
    if not records:
        return "not seen before"
    changes = min((_changes(plan.ingredients, record) for record in records), key=len)
    return _tell(plan, changes)


def _changes(now: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What differs, now and before; `source` follows from its files and is left out."""
    keys = [key for key in {**now, **before} if key != "source"]
    return {
        key: (now.get(key, ""), str(before.get(key, "")))
        for key in keys
        if now.get(key, "") != before.get(key, "")
    }


def _tell(plan: BuildPlan, changes: Mapping[str, tuple[str, str]]) -> str:
    files = [key.removeprefix("file ") for key in changes if key.startswith("file ")]
    told = [_tell_file(plan, name, *changes[f"file {name}"]) for name in files]
    if "target" in changes:
        told.append(f"new target, last built for {changes['target'][1]}")
    told += [text for key, text in _TOLD if key in changes]
    return "; ".join(told) or "its entry is no longer in the cache, or a header name leads elsewhere"


def _tell_file(plan: BuildPlan, virtual: str, now: str, before: str) -> str:
    name = virtual.partition("/dotcu/")[2] or virtual
    if virtual == plan.closure.main.virtual:
        return "new source" if now and before else "another source"
    return f"header {name} " + ("changed" if now and before else "is new" if now else "is gone")

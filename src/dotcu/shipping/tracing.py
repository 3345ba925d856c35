"""The trace of a project: the instantiations that samples reach, and those named by `instantiate=`.

Every operator's body is traced with its launches skipped, for each sample, dtype and architecture.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dotcu.checking.target import resolve
from dotcu.compile import CompileOptions, Target
from dotcu.errors import CompileError, UsageError
from dotcu.files import read_text
from dotcu.inspection.operators import trace_operators
from dotcu.kernel.compiled import CompilationUnit
from dotcu.kernel.module import find_macro_made, live_modules
from dotcu.operator import Operator
from dotcu.operator.configurations import Configurations
from dotcu.operator.operator import defined
from dotcu.shipping.lock import SIMULATED, SIMULATED_TARGET, Lock, LockedSource, LockedUnit, reached_by
from dotcu.shipping.project import Project
from dotcu.tracebacks import as_user_error

_INSTALLED = {"site-packages", "dist-packages"}
_TRACEBACK = "For the whole traceback, run the command again with DOTCU_DEBUG=1."
_INCLUDE = re.compile(r"#include <(.+?)>")


def trace(
    project: Project, targets: Sequence[Target], report: Callable[[str], object] = lambda _: None
) -> tuple[Lock, tuple[Operator, ...], tuple[str, ...]]:
    """Trace every operator of a project for each architecture and for the simulator.

    PTX and cubins are not among the kernels: a wheel has their files, or the text in Python, as they are.

    Returns:
        The kernels that samples launch; the operators that the project's modules define; what could not be
        traced, and why.
    """
    machine = [target for target in targets if target.kind == "sm"]
    architectures = (*map(str, machine), SIMULATED)
    operators: list[Operator] = []
    for name in project.modules:
        with importing(project.root, name):
            operators += [operator for _, operator in resolve(name, verb="build")]
    # and those that only a backward or another body calls, which no module need export
    registered = defined(lambda origin: _is_in(Path(origin.file), project.root))
    operators = list(dict.fromkeys([*operators, *registered]))
    units: dict[CompilationUnit, dict[str, None]] = {}
    notes: dict[str, None] = {}
    for target in machine:
        for unit in _reached(operators, target, notes, report):
            units.setdefault(unit, {})[str(target)] = None
    with suppress(CompileError):  # kernels for later GPUs than the one that the simulator stands for
        for unit in _reached(operators, SIMULATED_TARGET, notes, report):
            units.setdefault(unit, {})[SIMULATED] = None
    for unit in declared(lambda path: _is_in(path, project.root)):
        units.setdefault(unit, {}).update(dict.fromkeys(architectures))
    return _lock(project, units, architectures), tuple(operators), tuple(notes)


@contextmanager
def importing(root: Path, module: str) -> Iterator[None]:
    """Let the project's own module be found, in src or next to pyproject.toml, before an installed one."""
    top = module.split(".")[0]
    in_src = any((root / "src" / name).exists() for name in (top, f"{top}.py"))
    entry = str(root / "src" if in_src else root)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _reached(
    operators: Sequence[Operator], target: Target, notes: dict[str, None], report: Callable[[str], object]
) -> Iterator[CompilationUnit]:
    replies = []
    with as_user_error(UsageError, f"An operator could not be traced for {target}", _TRACEBACK):
        replies.append(trace_operators(operators, target, report, backwards=True))
        for operator, tunable, configuration in _tuned(operators, target):
            with tunable.trying(configuration):
                replies.append(trace_operators([operator], target))
    for reply in replies:
        if reply.compile_errors:
            raise CompileError(f"For {target}:\n" + "\n".join(reply.compile_errors))
        notes.update(dict.fromkeys(reply.notes))
        yield from {**reply.kernels, **reply.queried}


def _tuned(operators: Sequence[Operator], target: Target) -> Iterator[tuple[Operator, Configurations, Any]]:
    """Yield each configuration that a tuned file has for a capability, whichever the sizes."""
    for operator in operators:
        for overload in operator.overloads.values():
            tunable: Configurations | None = getattr(overload, "tunable", None)
            tables = tunable.tables() if tunable is not None else {}
            found = (each for gpu, table in tables.items() for each in table.values()
                     if gpu.capability == f"{target.major}.{target.minor}")  # fmt: skip
            yield from ((operator, tunable, each) for each in dict.fromkeys(found) if tunable is not None)


def declared(is_own: Callable[[Path], bool]) -> Iterator[CompilationUnit]:
    """Yield the plain kernels of some files, of macros too, and the instantiations that `load` was given."""
    for module in list(live_modules):
        path = module.source.path
        if path is None or not is_own(path):
            continue
        find_macro_made(module)
        yield module.units()[0]
        for name, rows in module.instantiate.items():
            for row in rows:
                yield module.instantiation(module.kernels[name].declaration, row).unit


def _lock(
    project: Project, units: Mapping[CompilationUnit, Iterable[str]], architectures: tuple[str, ...]
) -> Lock:
    by_source: dict[tuple[str, CompileOptions, tuple[str, ...]], dict[LockedUnit, CompilationUnit]] = {}
    for unit, reached_for in units.items():
        if unit.source.is_compiled or (not unit.names and not unit.late):
            continue
        if unit.source.path is None:
            raise UsageError(
                f"The kernels of {unit.source.name} are text in Python, and a wheel contains kernels from "
                "files.\n"
                'Write the text into a .cu file next to the module, and load it: dotcu.load("kernels.cu")'
            )
        if not _is_in(unit.source.path, project.root):  # of another package, whose wheel has its code
            continue
        outside = [each for each in unit.source.include if not each.is_relative_to(project.root)]
        if outside:
            raise UsageError(
                f"{unit.source.name} has the include folder {outside[0]}, which is not in the project "
                f"{project.root}.\n"
                "A wheel is built from the project alone: put the headers there, as a submodule or a copy."
            )
        path = unit.source.path.relative_to(project.root).as_posix()
        include = tuple(each.relative_to(project.root).as_posix() for each in unit.source.include)
        headers = _headers(unit.source.path, unit.source.text)
        names = tuple(sorted(unit.names))
        locked = LockedUnit(names=names, headers=headers, architectures=tuple(reached_for), late=unit.late)
        by_source.setdefault((path, unit.options, include), {})[locked] = unit
    sources = []
    for (path, options, include), of_source in by_source.items():
        source = LockedSource(
            path=path, include=include, options=options, digest="",
            variables=next(iter(of_source.values())).variables.names, units=tuple(sorted(of_source)),
        )  # fmt: skip
        digest = reached_by(source.read(project.root), options).digest
        sources.append(dataclasses.replace(source, digest=digest))
    sources.sort(key=lambda one: (one.path, repr(one.options.key)))
    return Lock(architectures=architectures, sources=tuple(sources))


def _is_in(path: Path, root: Path) -> bool:
    """Return whether a file is the project's, and not of a package that is installed in its folder."""
    return path.is_relative_to(root) and _INSTALLED.isdisjoint(path.relative_to(root).parts)


def _headers(path: Path, text: str) -> tuple[str, ...]:
    """Return the headers that are behind a source's own text, for its template arguments."""
    last = re.search(r"(?:\n#include <[^>]+>)+\n\Z", text)
    own = read_text(path, "surrogateescape").removeprefix("\ufeff")
    return tuple(_INCLUDE.findall(last[0])) if last and not own.endswith(last[0]) else ()

"""`dotcu.inspect`: what the kernels of a file, or of operators, take and hold."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu import _without_torch
from dotcu.compile import CompileOptions, Target, read_source
from dotcu.compile.options import Define
from dotcu.errors import UsageError
from dotcu.inspection.binaries import read
from dotcu.inspection.code.assembling import Assembled, Wanted, assemble, looked_at
from dotcu.inspection.code.inspected import Counted
from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.code.sources import kernels_of
from dotcu.inspection.code.targets import resolve
from dotcu.inspection.code.units import Failed, Shape, Template, Unit
from dotcu.kernel import templates

if TYPE_CHECKING:
    from dotcu.kernel import Kernel, Module

SOURCES = (".cu", ".cuh")
"""The endings of files of kernels."""

_MOST_THREADS = 1024


def inspect(
    target: Any,
    *,
    arch: str | Sequence[str] | None = None,
    instantiate: Sequence[str] = (),
    block: int | Sequence[int] | None = None,
    smem_bytes: int = 0,
    include: Sequence[str | Path] = (),
    define: Mapping[str, Define] | None = None,
    options: Sequence[str] = (),
    counts: bool = True,
) -> InspectReport:
    """Compile kernels for some architectures, and tell what they take and what was emitted.

    Needs no GPU. Without nvdisasm there are no machine instructions, and the report says so.

    Args:
        target: A `.cu` file, an operator, several operators in a list, or `ops.py` or a module that
            defines some; the last three with `:name` for one kernel, or one operator, of it. Of an operator
            that a library computes, what the library's file holds is told. Or what `dotcu.load` gave, or
            one kernel of it: an instantiation, where that is of a template.
        arch: `sm_90a`, or several; `compute_90` for PTX alone. By default this machine's GPU, or sm_90.
        instantiate: Templates of a `.cu` with their arguments: `scale[float32,256]`. Operators need none:
            their samples say which they launch.
        block: The threads of a block, an int or up to three, that occupancy is told for; by default those
            that samples launch, or the launch bounds, or 256.
        smem_bytes: The dynamic shared memory that goes with `block`.
        include, define, options: How a `.cu` is compiled, as `dotcu.load` takes them. A relative folder
            is taken from the working directory.
        counts: Whether, for each kernel of an operator, a sample is run in the simulator.

    Raises:
        UsageError: There is no such target, kernel, template or architecture.
        EnvironmentFault: There is no compiler; or torch is missing, which operators need.
    """
    asked = _shape(block, smem_bytes)
    targets = resolve(arch)
    if _is_source(target):
        how = CompileOptions(define=define or {}, options=options)
        return _of_source(str(target), targets, asked, how, include, instantiate)
    _refuse_source_options(instantiate=instantiate, include=include, define=define, options=options)
    if _is_loaded(target):
        return _of_loaded(target, targets, asked)
    return _of_operators(target, targets, asked, counts, listed=() if arch is None else map(str, targets))


def _is_source(target: Any) -> bool:
    return isinstance(target, (str, Path)) and Path(_split(target)[0]).suffix in SOURCES


def _of_source(
    target: str,
    targets: Sequence[Target],
    asked: Shape | None,
    how: CompileOptions,
    include: Sequence[str | Path],
    instantiate: Sequence[str],
) -> InspectReport:
    place, name = _split(target)
    source = read_source(place, include)
    found = kernels_of(source, how, instantiate)
    wanted = [Wanted(unit=found.plain, target=each, shapes={}) for each in targets]
    wanted += [
        Wanted(unit=unit, target=each, shapes={}, only=unit.names)
        for unit in found.instances
        for each in targets
    ]
    report = _report(target, assemble(wanted), {}, asked, templates=found.left)
    return _only(report, name) if name else report


def _is_loaded(target: Any) -> bool:
    """Whether it is a module of kernels, or a kernel; without torch there is none."""
    loaded = sys.modules.get("dotcu.kernel.module")
    return loaded is not None and isinstance(target, (loaded.Module, loaded.Kernel))


def _of_loaded(target: Kernel | Module, targets: Sequence[Target], asked: Shape | None) -> InspectReport:
    """A kernel; or all of a module: its plain kernels, and the instantiations so far."""
    units, notes = _loaded(target)
    wanted = [
        Wanted(unit=unit, target=each, shapes={}, only=only) for unit, only in units for each in targets
    ]
    return _report(target.name, assemble(wanted), {}, asked, notes=tuple(notes))


def _loaded(target: Kernel | Module) -> tuple[list[tuple[Unit, tuple[str, ...] | None]], Iterable[str]]:
    """The units to look at, with the kernels of each, None for all; and notes."""
    from dotcu.kernel import Kernel  # needs torch, which is there where the target is

    if isinstance(target, Kernel):
        return [(target.unit, (target.name,))], ()
    plain, *instances = target.units()
    names = [name for unit in instances for name in unit.names]
    return [(plain, None), *((unit, unit.names) for unit in instances)], _uninstantiated(target, names)


def _uninstantiated(module: Module, instances: Sequence[str]) -> Iterator[str]:
    known = {name.partition("<")[0] for name in instances}
    for kernel in module.kernels.values():
        if kernel.is_template and kernel.name not in known:
            example = templates.example(kernel.declaration).removesuffix("(...)")
            yield f"{kernel.name} is a template: inspect an instantiation of it, {example}"


def _of_operators(
    target: Any, targets: Sequence[Target], asked: Shape | None, counts: bool, *, listed: Iterable[str]
) -> InspectReport:
    try:  # what follows operators needs torch, which a file of kernels does not
        following = import_module("dotcu.inspection.code.operators")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise _without_torch(f"dotcu.inspect({_shown(target)!r})") from error
    operators = _operators(target)
    found = following.kernels_of(operators, targets, counts)
    report = _report(
        _shown(target), assemble(found.wanted), found.counts.kernels, asked,
        failed=found.failed, notes=found.notes,
    )  # fmt: skip
    files = dict.fromkeys(o.library for each in operators for o in each.overloads.values() if o.library)
    archs = tuple(listed)
    return replace(report, libraries=tuple(read(path, kernels=archs) for path in files))


def _report(
    target: str,
    assembled: Sequence[Assembled],
    counted: Mapping[str, Counted],
    asked: Shape | None,
    *,
    templates: tuple[Template, ...] = (),
    failed: tuple[Failed, ...] = (),
    notes: tuple[str, ...] = (),
) -> InspectReport:
    said = dict.fromkeys([*notes, *(note for one in assembled for note in one.notes)])
    return InspectReport(
        target=target,
        kernels=tuple(looked_at(assembled, counted, asked)),
        failed=_merged([*failed, *(each for one in assembled for each in one.failed)]),
        templates=templates,
        notes=tuple(said),
    )


def _merged(failed: Sequence[Failed]) -> tuple[Failed, ...]:
    """What failed for the same reason as one: a fault of the source shows in each of its units."""
    names: dict[tuple[Target, str], dict[str, None]] = {}
    for one in failed:
        names.setdefault((one.arch, one.message), {}).update(dict.fromkeys(one.names))
    return tuple(Failed(arch=arch, names=tuple(some), message=why) for (arch, why), some in names.items())


def _only(report: InspectReport, name: str) -> InspectReport:
    """What a report says of one kernel, and of the templates of that name."""
    kernels = tuple(one for one in report.kernels if name in (one.code.name, _plain(one.code.name)))
    templates = tuple(one for one in report.templates if name in (one.name, _plain(one.name)))
    failed = [
        replace(one, names=tuple(each for each in one.names if name in (each, _plain(each))))
        for one in report.failed
    ]
    if any(one.names for one in failed):
        report = replace(report, failed=tuple(one for one in failed if one.names))
    elif kernels or templates:
        report = replace(report, failed=())
    if not kernels and not templates and not report.failed:
        all_names = [one.code.name for one in report.kernels] + [one.name for one in report.templates]
        names = list(dict.fromkeys(map(_plain, all_names)))
        near = difflib.get_close_matches(name, names, n=1, cutoff=0) or ["NAME"]
        raise UsageError(
            f"{report.target} has no kernel {name!r}; it has {', '.join(names) or 'none'}.\n"
            f"Type: dotcu inspect {report.target.rpartition(':')[0]}:{near[0]}"
        )
    return replace(report, kernels=kernels, templates=templates)


def _plain(name: str) -> str:
    """A kernel's name without its namespace and template arguments."""
    return name.partition("<")[0].rpartition("::")[2]


def _split(target: str | Path) -> tuple[str, str]:
    """A place, and the name after its colon."""
    place, _, name = str(target).partition(":")
    return place, name


def _shape(block: int | Sequence[int] | None, smem_bytes: int) -> Shape | None:
    if block is None:
        if smem_bytes:
            raise UsageError(f"smem_bytes={smem_bytes} goes with a block.\nType: --block 256")
        return None
    sizes = (block,) if isinstance(block, int) else tuple(block)
    x, y, z = (*sizes, 1, 1)[:3]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or not x * y * z <= _MOST_THREADS or smem_bytes < 0:
        raise UsageError(
            f"block={block!r}, smem_bytes={smem_bytes}: a block has from 1 to {_MOST_THREADS} threads in up "
            "to three dimensions, and no memory is negative.\nType: --block 256"
        )
    return Shape(block=(x, y, z), smem_bytes=smem_bytes)


def _refuse_source_options(**given: object) -> None:
    named = [name for name, value in given.items() if value]
    if named:
        raise UsageError(
            f"{named[0]} is for a .cu file: operators say themselves how their kernels are compiled.\n"
            "Leave it out, or name the file of kernels."
        )


def _operators(target: Any) -> list[Any]:
    if isinstance(target, (str, Path)):
        resolved = import_module("dotcu.checking.target").resolve(str(target))
        return [operator for _, operator in resolved]
    found: list[Any] = import_module("dotcu.checking.checker").operators_of(target)
    return found


def _shown(target: Any) -> str:
    if isinstance(target, (str, Path)):
        return str(target)
    some = target if isinstance(target, Iterable) else [target]
    return ", ".join(str(getattr(one, "qualified_name", one)) for one in some)

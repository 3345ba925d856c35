"""`dotcu.inspect`: the resources and instructions of the kernels of a file, or of operators."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu import _without_torch
from dotcu.compile import CompileOptions, Rejected, Target, read_source, toolchain
from dotcu.compile.driver import gpus
from dotcu.compile.options import Define
from dotcu.compile.target import FIRST_SPECIFIC_MAJOR
from dotcu.errors import UsageError
from dotcu.inspection.binaries import read
from dotcu.inspection.code.build import (
    BuildRequest,
    BuildResult,
    CompileUnit,
    FailedBuild,
    LaunchShape,
    build_all,
)
from dotcu.inspection.code.occupancy import kernel_occupancy
from dotcu.inspection.code.report import (
    InspectedKernel,
    InspectReport,
    SimulatedCounts,
    UninstantiatedTemplate,
)
from dotcu.inspection.code.source_kernels import kernels_in_source
from dotcu.kernel.declarations import template_example

if TYPE_CHECKING:
    from dotcu.kernel import Kernel, Module

SOURCES = (".cu", ".cuh")
"""The endings of files of kernels."""

DEFAULT_ARCH = "sm_90"
"""The architecture if there is no GPU that code can be compiled for."""

FIRST_FAMILY_MAJOR = 10
"""The first major compute capability with code for a family of GPUs, `sm_100f`.

Source: CUDA C++ Programming Guide, "Family-specific features"; NVRTC 13.0 takes no other.
"""

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
    """Compile kernels for some architectures, and report their resources and emitted instructions.

    Needs no GPU. Without nvdisasm there are no machine instructions, and the report says so.

    Args:
        target: A `.cu` file, an operator, several operators in a list, or `ops.py` or a module that
            defines some; the last three with `:name` for one kernel, or one operator, of it. Of an operator
            that a library computes, the contents of the library's file are reported. Or the result of
            `dotcu.load`, or one kernel of it: an instantiation, where that is of a template.
        arch: `sm_90a`, or several; `compute_90` for PTX only. By default this machine's GPU, or sm_90.
        instantiate: Templates of a `.cu` with their arguments: `scale[float32,256]`. Operators need none:
            their samples say which they launch.
        block: The threads of a block, an int or up to three, to compute occupancy for; by default those
            that samples launch, or the launch bounds, or 256.
        smem_bytes: The dynamic shared memory of `block`.
        include: Folders of headers of a `.cu`; relative ones start at the working directory.
        define: Macros of a `.cu`, as `dotcu.load` takes them.
        options: NVRTC options of a `.cu`, as `dotcu.load` takes them.
        counts: Whether, for each kernel of an operator, a sample is run in the simulator.

    Raises:
        UsageError: There is no such target, kernel, template or architecture.
        EnvironmentFault: There is no compiler; or torch is missing, which operators need.
    """
    asked = _shape(block, smem_bytes)
    targets = resolve_targets(arch)
    if _is_source(target):
        how = CompileOptions(define=define or {}, options=options)
        return _of_source(str(target), targets, asked, how, include, instantiate)
    _refuse_source_options(instantiate=instantiate, include=include, define=define, options=options)
    if _is_loaded(target):
        return _of_loaded(target, targets, asked)
    return _of_operators(target, targets, asked, counts, listed=() if arch is None else map(str, targets))


def resolve_targets(arch: str | Sequence[str] | None) -> tuple[Target, ...]:
    """Return the targets that were asked for, each once; else that of this machine's GPU.

    Raises:
        UsageError: The compiler makes no code for one; names those that it does.
    """
    if arch is None:
        return (_own_target() or Target.parse(DEFAULT_ARCH),)
    asked = [arch] if isinstance(arch, str) else list(arch)
    valid = target_names(toolchain.supported(toolchain.nvrtc()))
    for name in asked:
        if name.replace("compute_", "sm_") not in valid:
            raise UsageError(
                f"the compiler does not support the architecture {name!r}.\n"
                f"It is one of {', '.join(valid)}, or compute_ instead of sm_ for PTX only.\n"
                f"Type: --arch {DEFAULT_ARCH}"
            )
    return tuple(dict.fromkeys(Target.parse(name) for name in asked))


def target_names(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return the names of the targets for some architectures, such as 80 and 90: `sm_90`, `sm_90a`."""

    def suffixes(major: int) -> tuple[str, ...]:
        if major < FIRST_SPECIFIC_MAJOR:
            return ("",)
        return ("", "a") if major < FIRST_FAMILY_MAJOR else ("", "a", "f")

    return tuple(f"sm_{number}{suffix}" for number in sorted(numbers) for suffix in suffixes(number // 10))


def _own_target() -> Target | None:
    for gpu in gpus():
        target = toolchain.native_target(gpu.capability)
        if not isinstance(target, Rejected):
            return target
    return None


def _is_source(target: Any) -> bool:
    return isinstance(target, (str, Path)) and Path(_split(target)[0]).suffix in SOURCES


def _of_source(
    target: str,
    targets: Sequence[Target],
    asked: LaunchShape | None,
    how: CompileOptions,
    include: Sequence[str | Path],
    instantiate: Sequence[str],
) -> InspectReport:
    file, name = _split(target)
    found = kernels_in_source(read_source(file, include), how, instantiate)
    units = [(found.plain, None), *((unit, unit.names) for unit in found.instances)]
    built = build_all(_requests(units, targets))
    report = _report(target, built, {}, asked, templates=found.uninstantiated)
    return _only(report, name) if name else report


def _requests(
    units: Iterable[tuple[CompileUnit, tuple[str, ...] | None]], targets: Sequence[Target]
) -> list[BuildRequest]:
    """Return a request for each unit and target; of a unit the kernels of some names, None for all."""
    return [BuildRequest(unit=unit, target=each, only=only) for unit, only in units for each in targets]


def _is_loaded(target: Any) -> bool:
    """Return whether it is a module of kernels, or a kernel; without torch there is none."""
    loaded = sys.modules.get("dotcu.kernel.module")
    return loaded is not None and isinstance(target, (loaded.Module, loaded.Kernel))


def _of_loaded(
    target: Kernel | Module, targets: Sequence[Target], asked: LaunchShape | None
) -> InspectReport:
    """Report a kernel; or all of a module: its plain kernels, and the instantiations so far."""
    from dotcu.kernel import Kernel  # needs torch, which is there where the target is

    units: list[tuple[CompileUnit, tuple[str, ...] | None]]
    notes: Iterable[str] = ()
    if isinstance(target, Kernel):
        units = [(target.unit, (target.name,))]
    else:
        plain, *instances = target.units()
        units = [(plain, None), *((unit, unit.names) for unit in instances)]
        notes = _uninstantiated(target, [name for unit in instances for name in unit.names])
    return _report(target.name, build_all(_requests(units, targets)), {}, asked, notes=tuple(notes))


def _uninstantiated(module: Module, instances: Sequence[str]) -> Iterator[str]:
    known = {name.partition("<")[0] for name in instances}
    for kernel in module.kernels.values():
        if kernel.is_template and kernel.name not in known:
            example = template_example(kernel.declaration).removesuffix("(...)")
            yield f"{kernel.name} is a template: inspect an instantiation of it, {example}"


def _of_operators(
    target: Any,
    targets: Sequence[Target],
    asked: LaunchShape | None,
    counts: bool,
    *,
    listed: Iterable[str],
) -> InspectReport:
    try:  # tracing operators needs torch, which a file of kernels does not
        tracing = import_module("dotcu.inspection.code.operators")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise _without_torch(f"dotcu.inspect({_shown(target)!r})") from error
    operators = _operators(target)
    found = tracing.kernels_of(operators, targets, counts)
    report = _report(
        _shown(target), build_all(found.requests), found.counts, asked,
        failed=found.failed, notes=found.notes,
    )  # fmt: skip
    files = dict.fromkeys(o.library for each in operators for o in each.overloads.values() if o.library)
    archs = tuple(listed)
    return replace(report, libraries=tuple(read(path, kernels=archs) for path in files))


def _report(
    target: str,
    built: BuildResult,
    counts: Mapping[str, SimulatedCounts],
    asked: LaunchShape | None,
    *,
    templates: tuple[UninstantiatedTemplate, ...] = (),
    failed: tuple[FailedBuild, ...] = (),
    notes: tuple[str, ...] = (),
) -> InspectReport:
    """Return the report, with the kernels of one name together."""
    by_name: dict[str, list[InspectedKernel]] = {}
    for code, function in built.kernels:
        one = InspectedKernel(
            code=code,
            function=function,
            occupancy=kernel_occupancy(code, asked),
            counts=counts.get(code.name),
        )
        by_name.setdefault(code.name, []).append(one)
    return InspectReport(
        target=target,
        kernels=tuple(one for kernels in by_name.values() for one in kernels),
        failed=_merged([*failed, *built.failed]),
        templates=templates,
        notes=tuple(dict.fromkeys([*notes, *built.notes])),
    )


def _merged(failed: Sequence[FailedBuild]) -> tuple[FailedBuild, ...]:
    """Join failures for the same reason: a fault of the source shows in each of its units."""
    names: dict[tuple[Target, str], dict[str, None]] = {}
    for one in failed:
        names.setdefault((one.arch, one.message), {}).update(dict.fromkeys(one.names))
    return tuple(
        FailedBuild(arch=arch, names=tuple(some), message=why) for (arch, why), some in names.items()
    )


def _only(report: InspectReport, name: str) -> InspectReport:
    """Return the report on one kernel, and on the templates of that name."""

    def fits(full: str) -> bool:
        return name in (full, _plain(full))

    kernels = tuple(one for one in report.kernels if fits(one.code.name))
    templates = tuple(one for one in report.templates if fits(one.name))
    failed = [replace(one, names=tuple(filter(fits, one.names))) for one in report.failed]
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
    """Return a kernel's name without its namespace and template arguments."""
    return name.partition("<")[0].rpartition("::")[2]


def _split(target: str | Path) -> tuple[str, str]:
    """Return a file or module, and the name after its colon."""
    file, _, name = str(target).partition(":")
    return file, name


def _shape(block: int | Sequence[int] | None, smem_bytes: int) -> LaunchShape | None:
    if block is None:
        if smem_bytes:
            raise UsageError(f"smem_bytes={smem_bytes} needs a block.\nType: --block 256")
        return None
    sizes = (block,) if isinstance(block, int) else tuple(block)
    x, y, z = (*sizes, 1, 1)[:3]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or not x * y * z <= _MOST_THREADS or smem_bytes < 0:
        raise UsageError(
            f"block={block!r}, smem_bytes={smem_bytes}: a block has from 1 to {_MOST_THREADS} threads in up "
            "to three dimensions, and smem_bytes is not negative.\nType: --block 256"
        )
    return LaunchShape(block=(x, y, z), smem_bytes=smem_bytes)


def _refuse_source_options(**values: object) -> None:
    named = [name for name, value in values.items() if value]
    if named:
        raise UsageError(
            f"{named[0]} is for a .cu file: operators define how their kernels are compiled.\n"
            "Leave it out, or name the file of kernels."
        )


def _operators(target: Any) -> list[Any]:
    if isinstance(target, (str, Path)):
        resolved = import_module("dotcu.checking.target").resolve(str(target), verb="inspect")
        return [operator for _, operator in resolved]
    found: list[Any] = import_module("dotcu.checking.checker").operators_of(target)
    return found


def _shown(target: Any) -> str:
    if isinstance(target, (str, Path)):
        return str(target)
    some = target if isinstance(target, Iterable) else [target]
    return ", ".join(str(getattr(one, "qualified_name", one)) for one in some)

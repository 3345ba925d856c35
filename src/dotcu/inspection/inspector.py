"""`dotcu.inspect`: the resources and instructions of the kernels of a file, or of operators."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu.compile import CompileOptions, Rejected, Target, read_source, toolchain
from dotcu.compile.driver import gpus
from dotcu.compile.options import Define
from dotcu.compile.source.source import CUBIN, PTX
from dotcu.compile.target import FIRST_SPECIFIC_MAJOR, meant_by
from dotcu.errors import UsageError, quoted, without_torch
from dotcu.inspection.binary import read
from dotcu.inspection.build import (
    BuildRequest,
    BuildResult,
    CompileUnit,
    FailedBuild,
    LaunchShape,
    build_all,
    instantiation,
    kernels_in_source,
)
from dotcu.inspection.report import InspectedKernel, InspectReport, SimulatedCounts, kernel_occupancy
from dotcu.kernel.declarations import template_example, template_head
from dotcu.tracebacks import shortens_tracebacks

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

_MAX_THREADS = 1024


@shortens_tracebacks
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
            that a library computes, the contents of the library's file are reported. Or a `.ptx` or
            `.cubin` file; or the result of `dotcu.load`, or one kernel of it: an instantiation, where that
            is of a template.
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
    if isinstance(target, (str, Path)) and Path(str(target).partition(":")[0]).suffix in SOURCES:
        how = CompileOptions(define=define or {}, options=options)
        return _of_source(str(target), targets, asked, how, include, instantiate)
    for_source = {"instantiate": instantiate, "include": include, "define": define, "options": options}
    named = [name for name, value in for_source.items() if value]
    if named:
        raise UsageError(
            f"{named[0]} is for a .cu file: operators define how their kernels are compiled.\n"
            "Leave it out, or name the file of kernels."
        )
    if isinstance(target, (str, Path)) and Path(target).suffix in (PTX, CUBIN):
        target = _compiled_module(target)
    loaded = sys.modules.get("dotcu.kernel.module")  # without torch there is no module of kernels, nor kernel
    if loaded is not None and isinstance(target, (loaded.Module, loaded.Kernel)):
        return _of_loaded(target, targets, asked)
    return _of_operators(target, targets, asked, counts, listed=[] if arch is None else [*map(str, targets)])


def _compiled_module(path: str | Path) -> Module:
    """Return the module of a file of PTX or machine code."""
    try:
        from dotcu.kernel import load
    except ModuleNotFoundError as error:
        raise without_torch(f"dotcu.inspect({str(path)!r})") from error
    return load(Path(path).absolute())


def resolve_targets(arch: str | Sequence[str] | None) -> tuple[Target, ...]:
    """Return the requested targets, each once; by default that of this machine's GPU.

    Raises:
        UsageError: The compiler makes no code for one; names those that it does.
    """
    if arch is None:
        found = (toolchain.target_of_gpu(gpu.capability) for gpu in gpus())
        own = next((target for target in found if not isinstance(target, Rejected)), None)
        return (own or Target.parse(DEFAULT_ARCH),)
    asked = [arch] if isinstance(arch, str) else list(arch)
    valid = target_names(toolchain.supported(toolchain.nvrtc()))
    for name in asked:
        if name.replace("compute_", "sm_") not in valid:
            meant = meant_by(name)
            raise UsageError(
                f"the compiler does not support the architecture {name!r}.\n"
                f"It is one of {', '.join(valid)}, or compute_ instead of sm_ for PTX only.\n"
                f"Type: --arch {meant if meant in valid else DEFAULT_ARCH}"
            )
    return tuple(dict.fromkeys(Target.parse(name) for name in asked))


def target_names(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return the names of the targets for some architectures, such as 80 and 90: `sm_90`, `sm_90a`."""
    first_major = {"": 0, "a": FIRST_SPECIFIC_MAJOR, "f": FIRST_FAMILY_MAJOR}
    return tuple(
        f"sm_{number}{suffix}"
        for number in sorted(numbers)
        for suffix, first in first_major.items()
        if number // 10 >= first
    )


def _of_source(
    target: str,
    targets: Sequence[Target],
    asked: LaunchShape | None,
    how: CompileOptions,
    include: Sequence[str | Path],
    instantiate: Sequence[str],
) -> InspectReport:
    file, _, name = target.partition(":")
    plain, instances, templates = kernels_in_source(read_source(file, include), how, instantiate)
    report = replace(_report(target, _built(plain, instances, targets), {}, asked), templates=templates)
    report = _only(report, name) if name else report
    if report.templates and not report.kernels and not report.failed:
        declarations = ", ".join(map(template_head, report.templates))
        raise UsageError(
            f"{target} has no kernel to compile, only templates without an instantiation: {declarations}.\n"
            "Required: the arguments of one.\n"
            f"Type: dotcu inspect '{file}:{instantiation(report.templates[0])}'"
        )
    return report


def _built(plain: CompileUnit, instances: Sequence[CompileUnit], targets: Sequence[Target]) -> BuildResult:
    """Build the plain kernels of a file, and of each other unit the kernels that it names."""
    units = [(plain, None), *((unit, unit.names) for unit in instances)]
    return build_all(
        [BuildRequest(unit=unit, target=each, only=only) for unit, only in units for each in targets]
    )


def _of_loaded(
    target: Kernel | Module, targets: Sequence[Target], asked: LaunchShape | None
) -> InspectReport:
    """Report a kernel; or all of a module: its plain kernels, and the instantiations so far."""
    from dotcu.kernel import Kernel  # needs torch, which is there where the target is

    if isinstance(target, Kernel):
        only = (target.name,)
        built = build_all([BuildRequest(unit=target.unit, target=each, only=only) for each in targets])
        return _report(target.name, built, {}, asked)
    plain, *instances = target.units()
    known = {name.partition("<")[0] for unit in instances for name in unit.names}
    notes = [
        f"{kernel.name} is a template: inspect an instantiation of it, "
        + template_example(kernel.declaration).removesuffix("(...)")
        for kernel in target.kernels.values()
        if kernel.is_template and kernel.name not in known
    ]
    built = _built(plain, instances, targets)
    return _report(target.name, replace(built, notes=(*notes, *built.notes)), {}, asked)


def _of_operators(
    target: Any, targets: Sequence[Target], asked: LaunchShape | None, counts: bool, *, listed: Sequence[str]
) -> InspectReport:
    try:  # tracing operators needs torch, which a file of kernels does not
        tracing = import_module("dotcu.inspection.operators")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise without_torch(f"dotcu.inspect({_shown(target)!r})") from error
    if isinstance(target, (str, Path)):
        resolved = import_module("dotcu.checking.target").resolve(str(target), verb="inspect")
        operators = [operator for _, operator in resolved]
    else:
        operators = import_module("dotcu.checking.target").operators_of(target)
    built, counted = tracing.kernels_of(operators, targets, counts)
    files = dict.fromkeys(o.library for each in operators for o in each.overloads.values() if o.library)
    libraries = tuple(read(path, kernels=listed) for path in files)
    return replace(_report(_shown(target), built, counted, asked), libraries=libraries)


def _report(
    target: str, built: BuildResult, counts: Mapping[str, SimulatedCounts], asked: LaunchShape | None
) -> InspectReport:
    """Return the report, with the kernels of one name together."""
    by_name: dict[str, list[InspectedKernel]] = {}
    for code, function in built.kernels:
        occupancy, counted = kernel_occupancy(code, asked), counts.get(code.name)
        kernel = InspectedKernel(code=code, function=function, occupancy=occupancy, counts=counted)
        by_name.setdefault(code.name, []).append(kernel)
    # A fault of the source shows in each of its units: failures for the same reason are one.
    failed: dict[tuple[Target, str], FailedBuild] = {}
    for one in built.failed:
        known = failed.get((one.arch, one.message), one)
        names = tuple(dict.fromkeys((*known.names, *one.names)))
        failed[one.arch, one.message] = replace(known, names=names)
    return InspectReport(
        target=target,
        kernels=tuple(kernel for kernels in by_name.values() for kernel in kernels),
        failed=tuple(failed.values()),
        notes=tuple(dict.fromkeys(built.notes)),
    )


def _only(report: InspectReport, name: str) -> InspectReport:
    """Return the report on one kernel, and on the templates of that name."""

    def plain(full: str) -> str:
        return full.partition("<")[0].rpartition("::")[2]

    def fits(full: str) -> bool:
        return name in (full, plain(full))

    kernels = tuple(one for one in report.kernels if fits(one.code.name))
    templates = tuple(one for one in report.templates if fits(one.name))
    failed = [replace(one, names=tuple(filter(fits, one.names))) for one in report.failed]
    if any(one.names for one in failed):
        report = replace(report, failed=tuple(one for one in failed if one.names))
    elif kernels or templates:
        report = replace(report, failed=())
    if not kernels and not templates and not report.failed:
        all_names = [one.code.name for one in report.kernels] + [one.name for one in report.templates]
        names = list(dict.fromkeys(map(plain, all_names)))
        near = difflib.get_close_matches(name, names, n=1, cutoff=0) or ["NAME"]
        raise UsageError(
            f"{report.target} has no kernel {name!r}; it has {', '.join(names) or 'none'}.\n"
            f"Type: dotcu inspect {quoted(report.target.rpartition(':')[0])}:{near[0]}"
        )
    return replace(report, kernels=kernels, templates=templates)


def _shape(block: int | Sequence[int] | None, smem_bytes: int) -> LaunchShape | None:
    if smem_bytes < 0:
        raise UsageError(
            f"smem_bytes={smem_bytes} is not a number of bytes, 0 or more.\nType: --smem-bytes 1024"
        )
    if block is None:
        if smem_bytes:
            raise UsageError(f"smem_bytes={smem_bytes} needs a block.\nType: --block 256")
        return None
    sizes = (block,) if isinstance(block, int) else tuple(block)
    x, y, z = (*sizes, 1, 1)[:3]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or not x * y * z <= _MAX_THREADS:
        raise UsageError(
            f"block={block!r}: a block has from 1 to {_MAX_THREADS} threads in up to three dimensions.\n"
            "Type: --block 256"
        )
    return LaunchShape(block=(x, y, z), smem_bytes=smem_bytes)


def _shown(target: Any) -> str:
    if isinstance(target, (str, Path)):
        return str(target)
    some = target if isinstance(target, Iterable) else [target]
    return ", ".join(str(getattr(one, "qualified_name", one)) for one in some)

"""A project's operators in C++: their source, written whole or not at all, and the library made of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile import ObjectCode, Target
from dotcu.errors import ToolchainError, UsageError
from dotcu.extension import build, tools
from dotcu.extension.plan import NativeRequest, NativeTools
from dotcu.kernel.compiled import CompilationUnit
from dotcu.operator import Operator
from dotcu.shipping.assembling import Job
from dotcu.shipping.audit import audit
from dotcu.shipping.building import WheelPlan, pip_wheel
from dotcu.shipping.contents import Contents, contents
from dotcu.shipping.cpp import writing
from dotcu.shipping.cpp.planning import MOST_TARGETS, plan_all
from dotcu.shipping.cpp.writing import Codes
from dotcu.shipping.native_wheel import repair


@dataclass(frozen=True, kw_only=True)
class CppSource:
    """The C++ of a project's operators.

    Attributes:
        operators: The qualified names of the overloads in it.
        notes: The calls that C++ cannot run, and why.
        files: By name.
    """

    operators: tuple[str, ...]
    notes: tuple[str, ...]
    files: Mapping[str, str]


def written_source(
    package: str, operators: Sequence[Operator], made: Mapping[Job, ObjectCode], targets: Sequence[Target]
) -> CppSource:
    """Write the C++ of a project's operators, with the code that was compiled for its wheel, as text.

    Args:
        package: The name of the project's package.
        operators: All of them; a name may be imported twice.
        made: The code of each compile.
        targets: The architectures that the wheel has code for.

    Raises:
        UsageError: C++ can run none of them.
    """
    chosen = targets[:MOST_TARGETS]
    once = {operator.qualified_name: operator for operator in operators}  # a name may be imported twice
    codes = _codes(made)
    found = plan_all(list(once.values()), chosen, has_code=lambda unit, target: _has(codes, unit, target))
    if not found.planned:
        reasons = "\n".join(found.notes)
        raise UsageError(
            f"No operator of {package} can be in C++: none has a plan.\n{reasons}\n"
            "A body that only allocates and launches has one; so has its sample's call."
        )
    return CppSource(
        operators=tuple(one.overload.qualified_name for one in found.planned),
        notes=found.notes,
        files=writing.write(package, found.planned, chosen, codes),
    )


def _has(codes: Codes, unit: CompilationUnit, target: Target) -> bool:
    return (writing.place(unit.names, unit.source, unit.options), target) in codes


def _codes(made: Mapping[Job, ObjectCode]) -> Codes:
    return {
        (writing.place(job.unit.names, job.source, job.locked.options), job.target): code
        for job, code in made.items()
        if not job.simulated
    }


def save(written: CppSource, folder: Path) -> None:
    """Write the files into their own folder, whole or not at all.

    Raises:
        UsageError: There is something else in its place.
    """
    if folder.exists() and not (folder / writing.SOURCE).is_file():
        raise UsageError(
            f"{folder} exists already and has no {writing.SOURCE}: it is not replaced.\nRemove it."
        )
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        for name, text in written.files.items():
            (new / name).write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def library(folder: Path, package: str, *, flags: Sequence[str] = ()) -> Path:
    """Compile what `save` has written, for every torch; return the library, in the cache.

    Args:
        folder: The folder that `save` has written.
        package: The name of the project's package.
        flags: More flags for the compiler.

    Raises:
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    torch = tools.find_torch()
    here = [f"-ffile-prefix-map={path}/=" for path in (folder, torch.include[0])]
    request = NativeRequest(
        name=f"lib{package}_operators", sources=(folder / writing.SOURCE,), portable=True,
        flags=("-fvisibility=hidden", "-ffp-contract=off", *here, *flags),
        link_flags=("-Xlinker", "--strip-all"),
    )  # fmt: skip
    return build.build_request(request, NativeTools(host=tools.host(), nvcc=None, torch=torch)).path


# A wheel that has its operators in C++ and its kernels: for Linux, tagged by auditwheel, audited.


@dataclass(frozen=True, kw_only=True)
class CppFiles:
    """Operators in C++.

    Attributes:
        folder: With their source and library.
        operators: The qualified names of the overloads in it.
        notes: The calls that C++ cannot run, and why.
    """

    folder: Path
    operators: tuple[str, ...]
    notes: tuple[str, ...]


def write(planned: WheelPlan, made: Mapping[Job, ObjectCode]) -> CppFiles:
    """Write a project's operators into its build/cpp, and compile them there.

    Raises:
        UsageError: C++ can run none of them, or something else is in that place.
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    package = planned.project.modules[0].split(".")[0]
    source = written_source(package, planned.operators, made, planned.targets)
    folder = planned.project.root / "build" / "cpp"
    save(source, folder)
    shutil.copy(library(folder, package), folder)
    return CppFiles(folder=folder, operators=source.operators, notes=source.notes)


def make(planned: WheelPlan, written: CppFiles, out: Path, *, isolated: bool = True) -> Contents:
    """Let pip build the wheel, tag it for the systems that it runs on, and put it into its place.

    Args:
        planned: The wheel.
        written: The operators in C++, which go into it.
        out: The folder for the wheel.
        isolated: Whether pip makes an environment for the build.

    Raises:
        ToolchainError: pip or auditwheel failed, or the wheel breaks a rule of its tags.
    """
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        given = {"DOTCU_CPP": str(written.folder)}
        made = pip_wheel(planned.project.root, Path(folder), isolated=isolated, given=given)
        repaired = repair(made, Path(folder) / "repaired")
        found = audit(repaired, {})
        if not found.passed:
            raise ToolchainError(f"The wheel would not run where its tags say:\n{found}")
        place = out / repaired.name
        shutil.move(repaired, place)
    return contents(place)

"""A project's operators in C++: their source, written whole or not at all, and the library made of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from dotcu.compile import ObjectCode, Target
from dotcu.cpp import build, tools
from dotcu.cpp.plan import CppRequest, CppTools
from dotcu.errors import ToolchainError, UsageError
from dotcu.kernel.compiled import CompilationUnit
from dotcu.operator import Operator
from dotcu.shipping.assembling import Job, replacing
from dotcu.shipping.audit import audited_wheel
from dotcu.shipping.building import Contents, WheelPlan, contents
from dotcu.shipping.cpp import writing
from dotcu.shipping.cpp.planning import MAX_TARGETS, plan_all


def write_source(
    folder: Path,
    package: str,
    operators: Sequence[Operator],
    compiled: Mapping[Job, ObjectCode],
    targets: Sequence[Target],
) -> tuple[str, ...]:
    """Write the C++ of a project's operators, with the code for its wheel, into a folder of its own.

    Args:
        folder: Written whole or not at all.
        package: The name of the project's package.
        operators: All of them.
        compiled: The code of each compile.
        targets: The architectures of the wheel's code.

    Returns:
        The calls that C++ cannot run, and why.

    Raises:
        UsageError: C++ can run none of the operators, or there is something else in the folder's place.
    """
    chosen = targets[:MAX_TARGETS]
    once = {operator.qualified_name: operator for operator in operators}  # a name may be imported twice
    codes = {
        (writing.place(job.unit.names, job.source, job.locked.options), job.target): code
        for job, code in compiled.items()
        if not job.simulated
    }

    def has_code(unit: CompilationUnit, target: Target) -> bool:
        return (writing.place(unit.names, unit.source, unit.options), target) in codes

    planned, notes = plan_all(list(once.values()), chosen, has_code)
    if not planned:
        reasons = "\n".join(notes)
        raise UsageError(
            f"No operator of {package} can be in C++: none has a plan.\n{reasons}\n"
            "A body that only allocates and launches has one; so has its sample's call."
        )
    files = writing.write(package, planned, chosen, codes)
    with replacing(folder, writing.SOURCE, "Remove it.") as new:
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
    return notes


def library(folder: Path, package: str, *, flags: Sequence[str] = ()) -> Path:
    """Compile the C++ in a folder for every torch; return the library, in the cache.

    Args:
        folder: As `write_source` has written it.
        package: The name of the project's package.
        flags: More flags for the compiler.

    Raises:
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    torch = tools.find_torch()
    here = [f"-ffile-prefix-map={path}/=" for path in (folder, torch.include[0])]
    request = CppRequest(
        name=f"lib{package}_operators", sources=(folder / writing.SOURCE,), portable=True,
        flags=("-fvisibility=hidden", "-ffp-contract=off", *here, *flags),
        link_flags=("-Xlinker", "--strip-all"),
    )  # fmt: skip
    return build.build_request(request, CppTools(host=tools.host(), nvcc=None, torch=torch)).path


# A wheel that has its operators in C++ and its kernels: for Linux, tagged by auditwheel, audited.


def write(planned: WheelPlan, compiled: Mapping[Job, ObjectCode]) -> tuple[Path, tuple[str, ...]]:
    """Write a project's operators into its build/cpp, and compile them there.

    Returns:
        The folder with their source and library; the calls that C++ cannot run, and why.

    Raises:
        UsageError: C++ can run none of them, or something else is in that place.
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    package = planned.project.modules[0].split(".")[0]
    folder = planned.project.root / "build" / "cpp"
    notes = write_source(folder, package, planned.operators, compiled, planned.targets)
    shutil.copy(library(folder, package), folder)
    return folder, notes


def make(planned: WheelPlan, written: Path, out: Path, *, isolated: bool = True) -> Contents:
    """Let pip build the wheel, tag it for the systems that it runs on, and put it into its place.

    Args:
        planned: The wheel.
        written: The folder of the operators in C++, which go into it.
        out: The folder for the wheel.
        isolated: Whether pip makes an environment for the build.

    Raises:
        ToolchainError: pip or auditwheel failed, or the wheel breaks a rule of its tags.
    """
    result = audited_wheel(
        planned.project.root, out, {"DOTCU_OPERATOR_LIBRARY": str(written)}, {}, isolated=isolated
    )
    if not result.passed:
        raise ToolchainError(f"The wheel would not run where its tags say:\n{result}")
    return contents(result.wheel)

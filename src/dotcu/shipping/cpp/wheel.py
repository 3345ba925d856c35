"""A wheel that holds its operators in C++ beside its kernels: for Linux, tagged by auditwheel, audited."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile import ObjectCode
from dotcu.errors import ToolchainError
from dotcu.shipping.assembling import Job
from dotcu.shipping.audit import audit
from dotcu.shipping.building import Plan, pip_wheel
from dotcu.shipping.contents import Contents, contents
from dotcu.shipping.cpp import project
from dotcu.shipping.native_wheel import repair


@dataclass(frozen=True, kw_only=True)
class Written:
    """Operators in C++.

    Attributes:
        folder: With their source and library.
        operators: The qualified names of the overloads in it.
        notes: The calls that C++ cannot run, and why.
    """

    folder: Path
    operators: tuple[str, ...]
    notes: tuple[str, ...]


def write(planned: Plan, made: Mapping[Job, ObjectCode]) -> Written:
    """Write a project's operators into its build/cpp, and compile them there.

    Raises:
        UsageError: C++ can run none of them, or something else is in that place.
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    package = planned.project.modules[0].split(".")[0]
    source = project.source(package, planned.operators, made, planned.targets)
    folder = planned.project.root / "build" / "cpp"
    project.save(source, folder)
    shutil.copy(project.library(folder, package), folder)
    return Written(folder=folder, operators=source.operators, notes=source.notes)


def make(planned: Plan, written: Written, out: Path, *, isolated: bool = True) -> Contents:
    """Let pip build the wheel, tag it for the systems that it runs on, and put it into its place.

    Raises:
        ToolchainError: pip or auditwheel failed, or the wheel breaks a rule of its tags.
    """
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        given = {"DOTCU_CPP": str(written.folder)}
        made = pip_wheel(planned.project.root, Path(folder), isolated=isolated, given=given)
        repaired = repair(made, Path(folder) / "repaired")
        found = audit(repaired, {})
        if not found.held:
            raise ToolchainError(f"The wheel would not run where its tags say:\n{found}")
        place = out / repaired.name
        shutil.move(repaired, place)
    return contents(place)

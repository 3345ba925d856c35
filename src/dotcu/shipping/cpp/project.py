"""A project's operators in C++: their source, written whole or not at all, and the library made of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile import ObjectCode, Target
from dotcu.errors import UsageError
from dotcu.extension import making, tools, torch_parts
from dotcu.extension.units import Request, Tools
from dotcu.kernel.units import Unit
from dotcu.operator import Operator
from dotcu.shipping.assembling import Job
from dotcu.shipping.cpp import writing
from dotcu.shipping.cpp.planning import MOST_TARGETS, plan_all
from dotcu.shipping.cpp.writing import Codes


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is written.

    Attributes:
        operators: The qualified names of the overloads in it.
        notes: The calls that C++ cannot run, and why.
        files: By name.
    """

    operators: tuple[str, ...]
    notes: tuple[str, ...]
    files: Mapping[str, str]


def source(
    package: str, operators: Sequence[Operator], made: Mapping[Job, ObjectCode], targets: Sequence[Target]
) -> Source:
    """The C++ of a project's operators, with the code that was compiled for its wheel.

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
    return Source(
        operators=tuple(one.overload.qualified_name for one in found.planned),
        notes=found.notes,
        files=writing.write(package, found.planned, chosen, codes),
    )


def _has(codes: Codes, unit: Unit, target: Target) -> bool:
    return (writing.place(unit.names, unit.source, unit.options), target) in codes


def _codes(made: Mapping[Job, ObjectCode]) -> Codes:
    return {
        (writing.place(job.unit.names, job.source, job.locked.options), job.target): code
        for job, code in made.items()
        if not job.simulated
    }


def save(written: Source, folder: Path) -> None:
    """Write the files into a folder of their own, whole or not at all.

    Raises:
        UsageError: There is something else in its place.
    """
    if folder.exists() and not (folder / writing.SOURCE).is_file():
        raise UsageError(
            f"{folder} is there already, and has no {writing.SOURCE}: it is not replaced.\nRemove it."
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
    """Compile what `save` has written, for every torch; gives the library, in the cache.

    Raises:
        CompileError: The compiler refused it.
        ToolchainError: There is no host compiler.
    """
    torch = torch_parts.find()
    here = [f"-ffile-prefix-map={path}/=" for path in (folder, torch.include[0])]
    request = Request(
        name=f"lib{package}_operators", sources=(folder / writing.SOURCE,), portable=True,
        flags=("-fvisibility=hidden", "-ffp-contract=off", *here, *flags),
        link_flags=("-Xlinker", "--strip-all"),
    )  # fmt: skip
    return making.build(request, Tools(host=tools.host(), nvcc=None, torch=torch)).path

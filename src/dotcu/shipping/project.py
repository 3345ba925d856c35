"""A project that becomes a wheel: its pyproject.toml, the targets of its architectures, its library of C++.

Imports no torch: hatchling's hook builds with it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dotcu import pyproject, settings
from dotcu.compile.target import FIRST_SPECIFIC_MAJOR, Target, Version, dotted
from dotcu.cpp import tools
from dotcu.cpp.build import build_request
from dotcu.cpp.plan import NAME, CppRequest, CppTools, is_cuda, portable, read_project
from dotcu.errors import UsageError

DEFAULT: tuple[str, ...] = ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")

# Source: CUDA C++ Programming Guide, "Compute Capabilities".
NAMES = {
    "turing": ("7.5",),
    "ampere": ("8.0", "8.6"),
    "ada": ("8.9",),
    "hopper": ("9.0",),
    "blackwell": ("10.0", "12.0"),
}

_NUMBER = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)")


def targets_of(names: Sequence[str], supported: Iterable[int]) -> tuple[Target, ...]:
    """Return what to compile: machine code for each architecture named, and PTX for later GPUs.

    Args:
        names: `8.0`, `9.0a`, `sm_90`, `Hopper`, as TORCH_CUDA_ARCH_LIST has them too. PTX is made of
            those with `+PTX`, and if there is none, of the oldest: later GPUs of any kind take it. PTX of
            one with a letter, such as 9.0a, would be for that GPU alone, so there is none of it.
        supported: What the compiler makes code for: 80, 90, ...

    Raises:
        UsageError: A name is unknown, or the compiler has no code for it.
    """
    machine: dict[Target, None] = {}
    portable: dict[Target, None] = {}
    known = sorted(supported)
    for name in names:
        some = _read(name, known)
        machine |= dict.fromkeys(some)
        if "+ptx" in name.lower():
            portable[some[-1].virtual] = None
    if not machine:
        raise UsageError(f"No architecture was named.\n{_known(known)}")
    plain = [target for target in machine if not target.suffix]
    if not portable and plain:
        portable[min(plain, key=lambda target: target.number).virtual] = None
    return (*sorted(machine), *sorted(portable))


def split_architectures(text: str) -> tuple[str, ...]:
    """Return the names in a list such as `8.0;9.0+PTX` or `Ampere Hopper`."""
    return tuple(filter(None, re.split(r"[;,\s]+", text)))


def _read(name: str, known: Sequence[int]) -> list[Target]:
    text = name.strip().lower().partition("+ptx")[0]
    targets = []
    for number in NAMES.get(text, (text,)):
        match = _NUMBER.fullmatch(number)
        target = Target("sm", int(match[1]), int(match[2]), match[3]) if match else None
        too_old = target is not None and target.suffix and target.major < FIRST_SPECIFIC_MAJOR
        if target is None or target.number not in known or too_old:
            raise UsageError(f"The architecture {name!r} is unknown.\n{_known(known)}")
        targets.append(target)
    return targets


def _known(known: Sequence[int]) -> str:
    numbers = ", ".join(f"{number // 10}.{number % 10}" for number in known)
    names = ", ".join(name.capitalize() for name in NAMES)
    return f"The compiler supports {numbers}; names are {names}.\nFor example: dotcu build --arch 8.0,9.0+PTX"


# A project that is to become a wheel: its pyproject.toml.


_TABLE = """\
    [tool.dotcu]
    modules = ["mylib"]                 # where its operators are
    architectures = ["8.0", "9.0"]      # may be left out

    [tool.hatch.build.hooks.dotcu]"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project, as `[tool.dotcu]` of its pyproject.toml describes it.

    Attributes:
        root: The folder of its pyproject.toml.
        modules: The modules that define its operators.
        architectures: Those to compile for, as they are named.
        cpp: Its C++, None if the kernels are all there is.
    """

    root: Path
    modules: tuple[str, ...]
    architectures: tuple[str, ...]
    cpp: CppRequest | None = None


def find(start: Path) -> Project:
    remedy = f"Make a project, dotcu new mylib, or write into the pyproject.toml that there is:\n{_TABLE}"
    return read(pyproject.required(start, remedy))


def read(root: Path) -> Project:
    file = root / pyproject.FILE
    table = pyproject.section(file)
    if table is None:
        raise UsageError(f"{file} has no table [tool.dotcu].\nWrite into it:\n{_TABLE}")
    asked, architectures = settings.current().arch_list, DEFAULT
    if asked is not None:
        architectures = split_architectures(asked)
    elif "architectures" in table:
        architectures = _strings(file, table, "architectures")
    return Project(
        root=root,
        modules=_strings(file, table, "modules"),
        architectures=architectures,
        cpp=read_project(root),
    )


def _strings(file: Path, table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = table.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UsageError(
            f"{file}: {name} of [tool.dotcu] is a list of strings, got {value!r}.\nWrite into it:\n{_TABLE}"
        )
    return tuple(value)


# Its library of C++: what to compile for which GPUs, and where it is in a wheel.


OLDEST_TORCH: Version = (2, 10)
"""The first with a stable ABI that has launch checks and pointers to const."""

TAG = f"cp310-abi3-linux_{platform.machine()}"
"""The tag until auditwheel has found the oldest system. The first Python of torch 2.10 is 3.10."""

FILE = f"{NAME}.abi3.so"


def compiled_with(request: CppRequest, used: CppTools) -> str:
    """Return a sentence on the compilers and the torch that make a library."""
    assert used.torch is not None
    nvcc = " and nvcc {}.{}".format(*used.nvcc.version) if used.nvcc else ""
    left = ", ".join(path.name for path in request.left_out)
    without = f"; without CUDA, so without {left}" if left else ""
    return f"compiled by {used.host.version}{nvcc}, with torch {used.torch.version}{without}"


def cpp_build(project: Project) -> tuple[CppRequest, CppTools]:
    """Find the compilers, and decide what to compile for which GPUs: what `build_request` takes."""
    assert project.cpp is not None
    torch, host = tools.find_torch(), tools.host()
    request = replace(portable(project.cpp, project.root, torch), lines=False)
    compiler = None
    if settings.current().use_cuda and any(map(is_cuda, request.sources)):
        compiler = tools.nvcc(torch.cuda)
        targets = targets_of(project.architectures, tools.architectures(compiler))
        request = replace(request, cuda=True, targets=targets)
    if not request.compiled:
        raise UsageError(
            "Without CUDA nothing is left to compile: every source is a .cu file.\n"
            "Build it with CUDA, or add C++ for the CPU to sources in [tool.dotcu.cpp]."
        )
    return request, CppTools(host=host, nvcc=compiler, torch=torch)


def cpp_library(project: Project) -> Path:
    """Return the library: the one that `dotcu build` has made, or compiled now."""
    library = settings.current().cpp_library
    return library if library is not None else build_request(*cpp_build(project)).path


def place_of_library(project: Project) -> str:
    """Return the path of the library in a wheel: in the package of the first of the modules."""
    return f"{project.modules[0].split('.')[0]}/{FILE}"


def needed_to_build(project: Project) -> list[str]:
    """List what pip installs to build a wheel from source."""
    compiles = project.cpp is not None and settings.current().cpp_library is None
    return [f"torch>={dotted(OLDEST_TORCH)}"] if compiles else []

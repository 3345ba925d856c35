"""The NVRTCs of this machine: found on disk, none of them loaded, and one of them chosen."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu.compile.target import Rejected, Version

_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)")
_SAMPLE_BYTES = 1 << 16
_CCCL_VERSION = "cuda/std/__cccl/version.h"
_PARTS = (_CCCL_VERSION, "crt/mma.h")
"""A file of each set of headers that pip ships apart from the runtime's, and torch does not bring."""

# What some compilers make code for, so that they need not be loaded to be asked.
# Source: nvrtcGetSupportedArchs of each.
ARCHITECTURES: dict[Version, tuple[int, ...]] = {
    (13, 0): (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A libnvrtc with its headers.

    Attributes:
        version: CUDA version, from the name of its builtins; (0, 0) where they are missing.
        include: The toolkit's include folders that belong to it; empty where there are none.
        origin: Where it comes from, in words: "pip", "CUDA_HOME", "DOTCU_NVRTC", "nvcc".
    """

    path: Path
    version: Version
    include: tuple[Path, ...]
    origin: str

    def identity(self) -> str:
        """What tells this compiler from any other build of it, wherever it is installed.

        Sizes, and both ends of the libraries, where build ids and symbol tables are: reading all of
        a hundred megabytes would cost more than a compile.
        """
        files = (self.path, *builtins(self.path))
        return " ".join([_dotted(self.version), *(_fingerprint(file) for file in files)])


def _fingerprint(file: Path) -> str:
    size = file.stat().st_size
    with file.open("rb") as handle:
        head = handle.read(_SAMPLE_BYTES)
        handle.seek(max(0, size - _SAMPLE_BYTES))
        return f"{size}:{hashlib.sha256(head + handle.read()).hexdigest()[:16]}"


def builtins(library: Path) -> tuple[Path, ...]:
    """The library of built-in functions that lies beside a libnvrtc."""
    return tuple(sorted(library.parent.glob("libnvrtc-builtins.so.*.*")))[:1]


def version_of(library: Path) -> Version:
    """The CUDA version of a libnvrtc, told without loading it."""
    for file in builtins(library):
        match = _BUILTINS.match(file.name)
        if match:
            return int(match[1]), int(match[2])
    return 0, 0


def find(packages: Iterable[Path], toolkits: Iterable[tuple[str, Path]]) -> tuple[Compiler, ...]:
    """Every NVRTC in some site-packages folders and installed toolkits, in order, each once.

    Args:
        packages: Folders that hold pip's `nvidia` package.
        toolkits: Name and folder of each installed toolkit.
    """
    found: dict[Path, Compiler] = {}
    for compiler in (*_in_packages(tuple(packages)), *_in_toolkits(toolkits)):
        found.setdefault(compiler.path.resolve(), compiler)
    return tuple(_completed(compiler, tuple(found.values())) for compiler in found.values())


def _completed(compiler: Compiler, others: Sequence[Compiler]) -> Compiler:
    """The compiler with the parts of the toolkit's headers that it lacks, from another of its version."""
    near = [folder for other in others if other.version == compiler.version for folder in other.include]
    include = list(compiler.include)
    for part in _PARTS if include else ():
        if not any((folder / part).is_file() for folder in include):
            include += [folder for folder in near if (folder / part).is_file()][:1]
    return replace(compiler, include=tuple(include))


def _in_packages(packages: Sequence[Path]) -> Iterator[Compiler]:
    for package in packages:
        nvidia = package / "nvidia"
        for folder in sorted(nvidia.glob("cu[1-9]*"), reverse=True):
            # pip may have put the headers into another of the folders that Python searches
            siblings = [p / "nvidia" / folder.name for p in (package, *packages)]
            include = dict.fromkeys(path for sibling in siblings for path in _include(sibling / "include"))
            yield from _libraries(folder / "lib", tuple(include), "pip")
        split = nvidia / "cuda_nvrtc" / "lib"
        yield from _libraries(split, _include_split(split), "pip")


def _in_toolkits(toolkits: Iterable[tuple[str, Path]]) -> Iterator[Compiler]:
    for origin, home in toolkits:
        yield from _libraries(home / "lib64", _include(home / "include"), origin)


def _libraries(folder: Path, include: tuple[Path, ...], origin: str) -> Iterator[Compiler]:
    for library in sorted(folder.glob("libnvrtc.so.*")):
        yield Compiler(path=library, version=version_of(library), include=include, origin=origin)


def _include(folder: Path) -> tuple[Path, ...]:
    return _existing((folder, folder / "cccl"))


def _include_split(folder: Path) -> tuple[Path, ...]:
    """Headers of the pip packages of CUDA 12, which has a folder for each."""
    nvidia = folder.parent.parent
    parts = ("cuda_runtime", "cuda_cccl", "cuda_nvcc")  # the last has crt/, which <mma.h> includes
    return _existing([nvidia / part / "include" for part in parts])


def _include_beside(library: Path) -> tuple[Path, ...]:
    if library.parent.parent.name == "cuda_nvrtc":
        return _include_split(library.parent)
    return _include(library.parent.parent / "include")


def _existing(folders: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(folder for folder in folders if folder.is_dir())


def at(path: Path, others: Sequence[Compiler]) -> Compiler:
    """The compiler at a path that the user gave, with the headers of one of its version."""
    version = version_of(path)
    known = [other.include for other in others if other.path.resolve() == path.resolve()]
    of_version = [other.include for other in others if other.version == version]
    include = next((found for found in (*known, _include_beside(path), *of_version) if found), ())
    return Compiler(path=path, version=version, include=include, origin="DOTCU_NVRTC")


def refuse(compiler: Compiler, torch_cuda: Version | None, driver: Version | None) -> Rejected | None:
    """Why a compiler cannot be used here, None if it can.

    Args:
        torch_cuda: The CUDA that torch was built for, None for a CPU build or no torch.
        driver: The driver's CUDA version, None without a driver.
    """
    if compiler.version == (0, 0):
        return Rejected(
            f"{compiler.path} lacks its libnvrtc-builtins.",
            'Install it again: pip install --force-reinstall "nvidia-cuda-nvrtc"',
        )
    if driver is not None and compiler.version[0] > driver[0]:
        return Rejected(
            f"it is of CUDA {_dotted(compiler.version)} and the driver of CUDA {_dotted(driver)}, "
            "which loads no code of a later major version",
            f'Take the driver\'s compiler: pip install "dotcu[cu{driver[0]}]"',
        )
    if torch_cuda is not None and compiler.version > torch_cuda:
        return Rejected(
            f"it is of CUDA {_dotted(compiler.version)}, newer than torch's CUDA {_dotted(torch_cuda)}",
            f"Take torch's compiler: pip install {requirement(torch_cuda)}",
        )
    return None


def requirement(version: Version) -> str:
    """pip's name for the NVRTC of a CUDA version: CUDA 13 dropped the suffix."""
    name = "nvidia-cuda-nvrtc" if version[0] >= 13 else f"nvidia-cuda-nvrtc-cu{version[0]}"
    return f'"{name}=={version[0]}.{version[1]}.*"'


def choose(
    found: Sequence[Compiler], torch_cuda: Version | None, driver: Version | None
) -> Compiler | Rejected:
    """The newest compiler whose code the driver loads and that is no newer than torch's CUDA.

    Of two of one version the first found is taken: pip's before an installed toolkit's.
    """
    refusals = [(compiler, refuse(compiler, torch_cuda, driver)) for compiler in found]
    fitting = [compiler for compiler, refusal in refusals if refusal is None]
    if fitting:
        return max(fitting, key=lambda compiler: compiler.version)
    line = f'pip install "dotcu[cu{driver[0] if driver else 13}]"'
    if torch_cuda is not None:
        line = f"pip install {requirement(torch_cuda)}"
    if not found:
        return Rejected("No CUDA compiler (NVRTC) was found.", f"Install it: {line}")
    reasons = "\n".join(f"    {found.path}: {refusal.reason}" for found, refusal in refusals if refusal)
    return Rejected(f"No CUDA compiler (NVRTC) fits:\n{reasons}", f"Install one that does: {line}")


def header_identity(include: Sequence[Path]) -> str:
    """What tells one toolkit's headers from another's, wherever they are installed."""
    digest = hashlib.sha256()
    for folder in include:
        files = (file for file in folder.iterdir() if file.is_file())
        entries = sorted((file.name, file.stat().st_size) for file in files)
        digest.update(repr(entries).encode())
        version = folder / _CCCL_VERSION
        digest.update(version.read_bytes() if version.is_file() else b"")
    return digest.hexdigest()[:16]


def installed(distribution: str) -> str:
    """The version of a pip distribution, "" where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"

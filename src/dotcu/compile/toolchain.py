"""The compilers, headers and tools of this machine, and what to do about what does not fit.

NVRTCs are found on disk, none of them loaded, and one is chosen that fits the driver and torch. The installed
torch and its CUDA are read without importing it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu import settings
from dotcu.compile import driver
from dotcu.compile.target import Rejected, Target, Version, dotted, plan_target
from dotcu.errors import ToolchainError, UnsupportedPlatform
from dotcu.files import is_file, is_folder, matching, read_ends, read_file, read_text

# Platforms that NVRTC is published for and that dotcu runs on. Source: PyPI, nvidia-cuda-nvrtc.
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64")}

_CONTAINER = "Use a Linux container: docker run --rm -it -v $PWD:/work -w /work python:3.12 bash"
_REMEDIES = {"Darwin": _CONTAINER, "Windows": "Use the Windows Subsystem for Linux: wsl --install"}

# Programs that dotcu can use, and pip's package of each ("" where only the toolkit has it).
TOOLS = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "nvcc": "nvidia-cuda-nvcc",
    "ncu": "",
    "compute-sanitizer": "nvidia-cuda-sanitizer-api",
}


def refuse_platform() -> Rejected | None:
    """Return why nothing can be compiled on this platform, None if it can."""
    system, machine, torch = platform.system(), platform.machine(), find_torch()
    if (system, machine) not in PLATFORMS:
        known = ", ".join(f"{name} on {processor}" for name, processor in sorted(PLATFORMS))
        return Rejected(
            f"No CUDA compiler that dotcu can use is published for {system} on {machine}.\n"
            f"Required: {known}.",
            _REMEDIES.get(system, _CONTAINER),
        )
    if torch and torch.hip:
        return Rejected(
            f"The installed torch is built for ROCm {torch.hip}, and dotcu compiles for NVIDIA GPUs alone.",
            "Install a CUDA or a CPU build: pip install torch==2.13.0 --force-reinstall",
        )
    return None


def nvrtc() -> Compiler:
    """Return the compiler that is used here.

    Raises:
        UnsupportedPlatform: No compiler is published for this platform.
        ToolchainError: There is none, or none that fits the driver and torch.
    """
    now = settings.current()
    return _nvrtc(now.nvrtc, now.cuda_home)


@functools.cache
def _nvrtc(override: Path | None, cuda_home: Path | None) -> Compiler:
    refusal = refuse_platform()
    if refusal is not None:
        raise UnsupportedPlatform(str(refusal))
    compilers = _compilers(cuda_home)
    if override is not None and not is_file(override):
        raise ToolchainError(
            f"DOTCU_NVRTC={override} is not a file.\n"
            "It takes the path of a libnvrtc.so; to let dotcu choose: unset DOTCU_NVRTC"
        )
    if override is not None:
        return compiler_at(override, compilers)
    torch = find_torch()
    chosen = _choose_compiler(compilers, torch.cuda if torch else None, driver.version())
    if isinstance(chosen, Rejected):
        _compilers.cache_clear()  # one may be installed before the next call
        raise ToolchainError(str(chosen))
    return chosen


def installed() -> tuple[Compiler, ...]:
    """Return every NVRTC of this machine, also those that do not fit."""
    return _compilers(settings.current().cuda_home)


@functools.cache
def _compilers(cuda_home: Path | None) -> tuple[Compiler, ...]:
    toolkits = [("CUDA_HOME", cuda_home)] if cuda_home else []
    nvcc = shutil.which("nvcc")
    if nvcc:
        toolkits.append(("nvcc", Path(nvcc).resolve().parent.parent))
    return find_compilers([Path(entry) for entry in sys.path if entry], toolkits)


def supported(compiler: Compiler) -> tuple[int, ...]:
    """Return the architectures that the compiler makes code for: 75, 80, ..."""
    if compiler.version not in ARCHITECTURES:
        from dotcu.compile import nvrtc

        return nvrtc.architectures(compiler.path)
    return ARCHITECTURES[compiler.version]


def target_of_gpu(capability: Version) -> Target | Rejected:
    """Return the target to compile for on a GPU of this machine."""
    compiler = nvrtc()
    return plan_target(capability, driver.version(), compiler.version, supported(compiler))


def find_tool(name: str) -> Path | None:
    """Return the path of a program of `TOOLS`: pip's first, then CUDA_HOME's, then PATH's."""
    from dotcu import process  # a launch asks for no tool

    parts = ("bin", name)  # compute-sanitizer has its own folder
    patterns = [(Path(entry), f"nvidia/cu*/{part}") for entry in sys.path if entry for part in parts]
    home = settings.current().cuda_home
    toolkit = [home / "bin"] if home else []
    return process.find(
        name, [*(f for folder, pattern in patterns for f in matching(folder, pattern)), *toolkit]
    )


_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)")
_SAMPLE_BYTES = 1 << 16
CCCL_VERSION = "cuda/std/__cccl/version.h"
_PARTS = (CCCL_VERSION, "crt/mma.h", "curand_kernel.h")
"""A file of each set of headers that pip ships apart from the runtime's."""

# The architectures that some compilers make code for, so that these need not be loaded to be asked.
# Source: nvrtcGetSupportedArchs of each.
ARCHITECTURES: dict[Version, tuple[int, ...]] = {
    (13, 0): (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
    (13, 5): (75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121),
}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A libnvrtc with its headers.

    Attributes:
        version: CUDA version, from the name of its builtins; (0, 0) where they are missing.
        include: The toolkit's include folders that belong to it; empty if there are none.
        origin: Its source: "pip", "CUDA_HOME", "DOTCU_NVRTC", "nvcc".
    """

    path: Path
    version: Version
    include: tuple[Path, ...]
    origin: str

    @functools.cached_property
    def identity(self) -> str:
        """The text that distinguishes this compiler from any other build of it, wherever it is installed.

        Sizes, and both ends of the libraries, where build ids and symbol tables are: reading all of
        a hundred megabytes would cost more than a compile.
        """
        return " ".join(
            [dotted(self.version), *map(file_identity, (self.path, *builtin_libraries(self.path)))]
        )

    @functools.cached_property
    def headers_identity(self) -> str:
        """The digest that distinguishes its toolkit's headers from another's, wherever they are installed."""
        digest = hashlib.sha256()
        for folder in self.include:
            files = (file for file in matching(folder, "*") if is_file(file))
            entries = sorted((file.name, file.stat().st_size) for file in files)
            digest.update(repr(entries).encode())
            version = folder / CCCL_VERSION
            digest.update(read_file(version) if is_file(version) else b"")
        return digest.hexdigest()[:16]


def file_identity(file: Path) -> str:
    """Return the text that distinguishes a large file from any other build of it: its size and both ends."""
    digest = hashlib.sha256(read_ends(file, _SAMPLE_BYTES)).hexdigest()
    return f"{file.stat().st_size}:{digest[:16]}"


def builtin_libraries(library: Path) -> tuple[Path, ...]:
    """Return the library of built-in functions that is next to a libnvrtc."""
    return tuple(matching(library.parent, "libnvrtc-builtins.so.*.*"))[:1]


def library_version(library: Path) -> Version:
    """Return the CUDA version of a libnvrtc, found without loading it."""
    for file in builtin_libraries(library):
        match = _BUILTINS.match(file.name)
        if match:
            return int(match[1]), int(match[2])
    return 0, 0


def find_compilers(packages: Iterable[Path], toolkits: Iterable[tuple[str, Path]]) -> tuple[Compiler, ...]:
    """Return every NVRTC in some site-packages folders and installed toolkits, in order, each once."""
    compilers: dict[Path, Compiler] = {}

    def add(folder: Path, include: Iterable[Path], origin: str) -> None:
        readable = (each for each in matching(folder, "libnvrtc.so.*") if os.access(each, os.R_OK))
        for library in readable:
            compiler = Compiler(
                path=library, version=library_version(library), include=tuple(include), origin=origin
            )
            compilers.setdefault(library.resolve(), compiler)

    roots = [package / "nvidia" for package in packages]
    for nvidia in roots:
        for folder in sorted(matching(nvidia, "cu[1-9]*"), reverse=True):
            # pip may have put the headers into another of the folders that Python searches
            siblings = [root / folder.name / "lib" for root in (nvidia, *roots)]
            add(folder / "lib", dict.fromkeys(path for each in siblings for path in _include(each)), "pip")
        add(nvidia / "cuda_nvrtc" / "lib", _include(nvidia / "cuda_nvrtc" / "lib"), "pip")
    for origin, home in toolkits:
        add(home / "lib64", _include(home / "lib64"), origin)
    completed = []
    for compiler in compilers.values():  # with the parts of its headers that another of its version has
        near = [
            each
            for other in compilers.values()
            if other.version == compiler.version
            for each in other.include
        ]
        include = list(compiler.include)
        for part in _PARTS if include else ():
            if not any(is_file(folder / part) for folder in include):
                include += [folder for folder in near if is_file(folder / part)][:1]
        completed.append(replace(compiler, include=tuple(include)))
    return tuple(completed)


def _include(libraries: Path) -> tuple[Path, ...]:
    home = libraries.parent
    folders = [home / "include", home / "include" / "cccl"]
    if home.name == "cuda_nvrtc":  # a pip package of CUDA 12, which has a folder for each
        parts = ("cuda_runtime", "cuda_cccl", "cuda_nvcc", "curand")  # nvcc's has crt/ for <mma.h>
        folders = [home.parent / part / "include" for part in parts]
    return tuple(folder for folder in folders if is_folder(folder))


def compiler_at(path: Path, others: Sequence[Compiler]) -> Compiler:
    """Return the compiler at a path that the user gave, with the headers of one of its version."""
    version = library_version(path)
    known = [other.include for other in others if other.path.resolve() == path.resolve()]
    of_version = [other.include for other in others if other.version == version]
    include = next((each for each in (*known, _include(path.parent), *of_version) if each), ())
    return Compiler(path=path, version=version, include=include, origin="DOTCU_NVRTC")


def refuse_compiler(
    compiler: Compiler, torch_cuda: Version | None, driver: Version | None
) -> Rejected | None:
    """Return why a compiler cannot be used, None if it can; without torch's CUDA, or a driver, all fit it."""
    if compiler.version == (0, 0):
        return Rejected(
            f"{compiler.path} lacks its libnvrtc-builtins.",
            'Install it again: pip install --force-reinstall "nvidia-cuda-nvrtc"',
        )
    if driver is not None and compiler.version[0] > driver[0]:
        return Rejected(
            f"it is of CUDA {dotted(compiler.version)} and the driver of CUDA {dotted(driver)}, "
            "which loads no code of a later major version",
            f'Take the driver\'s compiler: pip install "dotcu[cu{driver[0]}]"',
        )
    if torch_cuda is not None and compiler.version > torch_cuda:
        return Rejected(
            f"it is of CUDA {dotted(compiler.version)}, newer than torch's CUDA {dotted(torch_cuda)}",
            f"Take torch's compiler: pip install {requirement(torch_cuda)}",
        )
    return None


def requirement(version: Version, package: str = "nvidia-cuda-nvrtc") -> str:
    """pip's name for a package of a CUDA version: CUDA 13 dropped the suffix."""
    suffix = "" if version[0] >= 13 else f"-cu{version[0]}"
    return f'"{package}{suffix}=={dotted(version)}.*"'


def _choose_compiler(
    compilers: Sequence[Compiler], torch_cuda: Version | None, driver: Version | None
) -> Compiler | Rejected:
    """Return the newest compiler whose code the driver loads and that is no newer than torch's CUDA.

    Of two of one version the first found is taken: pip's before an installed toolkit's.
    """
    refusals = [(compiler, refuse_compiler(compiler, torch_cuda, driver)) for compiler in compilers]
    fitting = [compiler for compiler, refusal in refusals if refusal is None]
    if fitting:
        return max(fitting, key=lambda compiler: compiler.version)
    line = f'pip install "dotcu[cu{driver[0] if driver else 13}]"'
    if torch_cuda is not None:
        line = f"pip install {requirement(torch_cuda)}"
    if not compilers:
        return Rejected("No CUDA compiler (NVRTC) was found.", f"Install it: {line}")
    reasons = "\n".join(f"    {compiler.path}: {refusal.reason}" for compiler, refusal in refusals if refusal)
    return Rejected(f"No CUDA compiler (NVRTC) fits:\n{reasons}", f"Install one that does: {line}")


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """An installed torch.

    Attributes:
        cuda: The CUDA that it was built for, None for a build without.
        hip: The ROCm version that it was built for, "" for a build without.
    """

    version: str
    cuda: Version | None
    hip: str


_LINE = re.compile(r"^(__version__|cuda|hip)\b[^=\n]*= *['\"]([^'\"]+)['\"]", re.MULTILINE)


def parse_torch_version(text: str) -> TorchBuild:
    """Read torch's `version.py`."""
    values = {match[1]: match[2] for match in _LINE.finditer(text)}
    cuda = re.match(r"(\d+)\.(\d+)", values.get("cuda", ""))
    return TorchBuild(
        version=values.get("__version__", ""),
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        hip=values.get("hip", ""),
    )


def find_torch() -> TorchBuild | None:
    """Return the torch that an import would give, None if there is none."""
    try:
        spec = sys.modules["torch"].__spec__ if "torch" in sys.modules else importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        return parse_torch_version(read_text(Path(spec.origin).parent / "version.py"))
    except OSError:
        return None

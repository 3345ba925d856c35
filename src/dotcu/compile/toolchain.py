"""What this machine has to compile and inspect with, and what to do about what does not fit."""

from __future__ import annotations

import functools
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dotcu import process, settings
from dotcu.compile import compilers, driver, torch_build
from dotcu.compile.compilers import Compiler, header_identity
from dotcu.compile.target import Rejected, Target, Version, plan_target
from dotcu.errors import DotcuError, ToolchainError, UnsupportedPlatform

# Platforms that NVRTC is published for and that dotcu runs on. Source: PyPI, nvidia-cuda-nvrtc.
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64")}

_CONTAINER = "Use a Linux container: docker run --rm -it -v $PWD:/work -w /work python:3.12 bash"
_REMEDIES = {
    "Darwin": _CONTAINER,
    "Windows": "Use the Windows Subsystem for Linux: wsl --install",
}

# Programs that dotcu can use, and pip's package of each ("" where only the toolkit has it).
TOOLS = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "nvcc": "nvidia-cuda-nvcc",
    "ncu": "",
    "compute-sanitizer": "nvidia-cuda-sanitizer-api",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a report on the toolchain.

    Attributes:
        version: "" where it is unknown or the thing is missing.
        path: None where it is missing, or has no place.
        fits: Whether it can be used together with the rest.
        note: Why not, or what else there is to say.
        remedy: The line to type, "" where nothing is needed.
    """

    name: str
    version: str = ""
    path: Path | None = None
    fits: bool = True
    note: str = ""
    remedy: str = ""


def refuse_platform(system: str, machine: str, hip: str = "") -> Rejected | None:
    """Why nothing can be compiled on a platform, None if it can.

    Args:
        system, machine: As `platform.system()` and `platform.machine()` name them.
        hip: The ROCm version of the installed torch, "" for another build.
    """
    if (system, machine) not in PLATFORMS:
        known = ", ".join(f"{name} on {processor}" for name, processor in sorted(PLATFORMS))
        return Rejected(
            f"No CUDA compiler that dotcu can use is published for {system} on {machine}.\n"
            f"Required: {known}.",
            _REMEDIES.get(system, _CONTAINER),
        )
    if hip:
        return Rejected(
            f"The installed torch is built for ROCm {hip}, and dotcu compiles for NVIDIA GPUs alone.",
            "Install a CUDA or a CPU build: pip install torch==2.13.0 --force-reinstall",
        )
    return None


def require_platform() -> None:
    """Raise where nothing can be compiled.

    Raises:
        UnsupportedPlatform: No compiler is published for this platform, or torch is a ROCm build.
    """
    torch = torch_build.find()
    refusal = refuse_platform(platform.system(), platform.machine(), torch.hip if torch else "")
    if refusal is not None:
        raise UnsupportedPlatform(str(refusal))


def nvrtc() -> Compiler:
    """The compiler that is used here.

    Raises:
        UnsupportedPlatform: No compiler is published for this platform.
        ToolchainError: There is none, or none that fits the driver and torch.
    """
    now = settings.current()
    return _nvrtc(now.nvrtc, now.cuda_home)


@functools.cache
def _nvrtc(override: Path | None, cuda_home: Path | None) -> Compiler:
    require_platform()
    found = _found(cuda_home)
    if override is not None:
        return _overridden(override, found)
    torch = torch_build.find()
    chosen = compilers.choose(found, torch.cuda if torch else None, driver.version())
    if isinstance(chosen, Rejected):
        raise ToolchainError(str(chosen))
    return chosen


def _overridden(path: Path, found: tuple[Compiler, ...]) -> Compiler:
    if not path.is_file():
        raise ToolchainError(
            f"DOTCU_NVRTC={path} names no file.\n"
            "It takes the path of a libnvrtc.so; to let dotcu choose: unset DOTCU_NVRTC"
        )
    return compilers.at(path, found)


def installed() -> tuple[Compiler, ...]:
    """Every NVRTC of this machine, whether or not it fits."""
    return _found(settings.current().cuda_home)


@functools.cache
def _found(cuda_home: Path | None) -> tuple[Compiler, ...]:
    packages = [Path(entry) for entry in sys.path if entry]
    return compilers.find(packages, _toolkits(cuda_home))


def _toolkits(cuda_home: Path | None) -> list[tuple[str, Path]]:
    homes = [("CUDA_HOME", cuda_home)] if cuda_home else []
    nvcc = process.find("nvcc")
    if nvcc:
        homes.append(("nvcc", nvcc.resolve().parent.parent))
    return homes


@functools.cache
def identity(compiler: Compiler) -> str:
    """What tells this compiler from another, in any build key."""
    return compiler.identity()


@functools.cache
def headers_identity(compiler: Compiler) -> str:
    """What tells this compiler's toolkit headers from others, in the keys of builds that use them."""
    return header_identity(compiler.include)


def supported(compiler: Compiler) -> tuple[int, ...]:
    """The architectures that a compiler makes code for; loads it only where the table does not know."""
    known = compilers.ARCHITECTURES.get(compiler.version)
    if known:
        return known
    from dotcu.compile.nvrtc import load

    return load(compiler.path).supported()


def native_target(capability: Version) -> Target | Rejected:
    """What to compile for a GPU of this machine."""
    compiler = nvrtc()
    return plan_target(capability, driver.version(), compiler.version, supported(compiler))


def find_tool(name: str) -> Path | None:
    """A program of `TOOLS`: pip's first, then CUDA_HOME's, then PATH's."""
    inside = ("bin", name)  # compute-sanitizer has a folder of its own
    folders = [
        folder for entry in sys.path if entry for part in inside
        for folder in Path(entry).glob(f"nvidia/cu*/{part}")
    ]  # fmt: skip
    home = settings.current().cuda_home
    return process.find(name, [*folders, *([home / "bin"] if home else [])])


def report() -> list[Row]:
    """Everything that compiling and inspecting depend on, one row each; raises nothing."""
    return [
        _platform_row(), *_driver_rows(), _torch_row(), *_compiler_rows(), *_header_rows(),
        *(_tool_row(name, package) for name, package in TOOLS.items()),
    ]  # fmt: skip


def _platform_row() -> Row:
    torch = torch_build.find()
    system, machine = platform.system(), platform.machine()
    refusal = refuse_platform(system, machine, torch.hip if torch else "")
    return _row(Row(name="platform", version=f"{system} {machine}"), refusal)


def _row(row: Row, refusal: Rejected | None) -> Row:
    if refusal is None:
        return row
    return Row(
        name=row.name, version=row.version, path=row.path, fits=False, note=refusal.reason,
        remedy=refusal.remedy,
    )  # fmt: skip


def _driver_rows() -> list[Row]:
    version = driver.version()
    if version is None:
        return [Row(name="driver", note="no NVIDIA driver: kernels run in the simulator")]
    rows = [Row(name="driver", version=f"CUDA {version[0]}.{version[1]}")]
    return rows + [_gpu_row(gpu) for gpu in driver.gpus()]


def _gpu_row(gpu: driver.Gpu) -> Row:
    major, minor = gpu.capability
    row = Row(name=f"GPU {gpu.index}", version=f"{major}.{minor}", note=gpu.name)
    try:
        target = native_target(gpu.capability)
    except DotcuError as error:
        target = Rejected(str(error))
    if isinstance(target, Rejected):
        return _row(row, target)
    return Row(name=row.name, version=row.version, note=f"{gpu.name}: code for {target}")


def _torch_row() -> Row:
    torch = torch_build.find()
    if torch is None:
        return Row(name="torch", fits=False, note="not installed", remedy='pip install "dotcu[torch]"')
    cuda = f"built for CUDA {torch.cuda[0]}.{torch.cuda[1]}" if torch.cuda else "built without CUDA"
    return Row(name="torch", version=torch.version, note=cuda)


def _compiler_rows() -> list[Row]:
    chosen: Compiler | Rejected
    try:
        chosen = nvrtc()
    except ToolchainError as error:
        chosen = Rejected(*(str(error).rsplit("\n", 1) if "\n" in str(error) else (str(error),)))
    torch, version = torch_build.find(), driver.version()
    used = _compiler_row(chosen, "used") if isinstance(chosen, Compiler) else _row(Row(name="NVRTC"), chosen)
    rows = [used]
    for compiler in _found(settings.current().cuda_home):
        if compiler != chosen:
            refusal = compilers.refuse(compiler, torch.cuda if torch else None, version)
            row = _compiler_row(compiler, "not used")
            rows.append(row if refusal is None else _row(row, Rejected(refusal.reason)))
    return rows


def _compiler_row(compiler: Compiler, note: str) -> Row:
    version = f"{compiler.version[0]}.{compiler.version[1]}"
    pip = compilers.installed(compilers.requirement(compiler.version).strip('"').split("=")[0])
    exact = pip if compiler.origin == "pip" and pip.startswith(version + ".") else version
    return Row(name="NVRTC", version=exact, path=compiler.path, note=f"{note}, from {compiler.origin}")


# A file of each set of headers, the macro in it that holds the version, and pip's package.
_HEADERS = (
    ("toolkit headers", "cuda_runtime_api.h", "CUDART_VERSION", "nvidia-cuda-runtime"),
    ("CCCL headers", "cuda/std/__cccl/version.h", "CCCL_VERSION", "nvidia-cuda-cccl"),
)


def _header_rows() -> list[Row]:
    try:
        compiler = nvrtc()
    except ToolchainError:
        return []
    return [_header_row(compiler, *row) for row in _HEADERS]


def _header_row(compiler: Compiler, name: str, file: str, macro: str, package: str) -> Row:
    for folder in compiler.include:
        if (folder / file).is_file():
            match = re.search(rf"#define {macro} +(\d+)", (folder / file).read_text(errors="replace"))
            return Row(name=name, version=_spelled(int(match[1])) if match else "", path=folder)
    major, minor = compiler.version
    suffix = "" if major >= 13 else f"-cu{major}"
    return Row(
        name=name, fits=False, note=f"not found beside {compiler.path}",
        remedy=f'pip install "{package}{suffix}=={major}.{minor}.*"',
    )  # fmt: skip


def _spelled(number: int) -> str:
    """13000 is CUDA 13.0; 3000001 is CCCL 3.0.1."""
    if number >= 1_000_000:
        return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    return f"{number // 1000}.{number % 1000 // 10}"


_RELEASE = re.compile(r"(?:release|Version:?|version) ?(\d+\.\d+(?:\.\d+)*)", re.IGNORECASE)


def _tool_row(name: str, package: str) -> Row:
    path = find_tool(name)
    if path is None:
        line = f"pip install {package}" if package else "install NVIDIA Nsight Compute"
        return Row(name=name, fits=False, note="not found; only some commands need it", remedy=line)
    try:
        shown = process.run([path, "--version"], timeout_s=20).stdout
    except ToolchainError as error:
        return Row(name=name, path=path, fits=False, note=str(error))
    match = _RELEASE.search(shown)
    return Row(name=name, version=match[1] if match else "", path=path)

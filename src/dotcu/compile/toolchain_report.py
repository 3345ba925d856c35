"""A report on the toolchain: everything that compiling and inspecting depend on, for `dotcu doctor`."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu import process
from dotcu.compile import driver, tile, toolchain
from dotcu.compile.target import Rejected, dotted
from dotcu.compile.toolchain import CCCL_VERSION, TOOLS, Compiler, TorchBuild, refuse_compiler
from dotcu.errors import DotcuError, ToolchainError
from dotcu.files import is_file, read_text


@dataclass(frozen=True, kw_only=True)
class ToolchainRow:
    """One line of a report on the toolchain.

    Attributes:
        version: "" where it is unknown or the part is missing.
        path: None if it is missing, or no file.
        fits: It can be used together with the rest.
        note: Why not, or what else there is to say.
        remedy: The line to type, "" where nothing is needed.
        optional: Most kernels do without it.
    """

    name: str
    version: str = ""
    path: Path | None = None
    fits: bool = True
    note: str = ""
    remedy: str = ""
    optional: bool = False


def report() -> list[ToolchainRow]:
    """Everything that compiling and inspecting depend on, one row each; raises nothing."""
    system = ToolchainRow(name="platform", version=f"{platform.system()} {platform.machine()}")
    torch = toolchain.find_torch()
    cuda = "built without CUDA" if torch is None or not torch.cuda else f"built for CUDA {dotted(torch.cuda)}"
    torch_row = ToolchainRow(name="torch", version=torch.version if torch else "", note=cuda)
    if torch is None:
        torch_row = _refused(torch_row, Rejected("not installed", 'pip install "dotcu[torch]"'))
    return [
        _refused(system, toolchain.refuse_platform()), *_driver_rows(), torch_row, *_compiler_rows(torch),
        *_header_rows(), *_tile_rows(),
        *(_tool_row(name, toolchain.find_tool(name), package) for name, package in TOOLS.items()),
    ]  # fmt: skip


def _refused(row: ToolchainRow, refusal: Rejected | None) -> ToolchainRow:
    """Return a row with what is wrong with it, if anything is."""
    return replace(row, fits=False, note=refusal.reason, remedy=refusal.remedy) if refusal else row


def _driver_rows() -> list[ToolchainRow]:
    version = driver.version()
    if version is None:
        return [ToolchainRow(name="driver", note="no NVIDIA driver: kernels run in the simulator")]
    rows = [ToolchainRow(name="driver", version=f"CUDA {dotted(version)}")]
    for gpu in driver.gpus():
        try:
            target = toolchain.target_of_gpu(gpu.capability)
        except DotcuError as error:
            target = Rejected(str(error))
        row = ToolchainRow(
            name=f"GPU {gpu.index}", version=dotted(gpu.capability), note=f"{gpu.name}: code for {target}"
        )
        rows.append(_refused(row, target if isinstance(target, Rejected) else None))
    return rows


def _compiler_rows(torch: TorchBuild | None) -> list[ToolchainRow]:
    used: Compiler | None = None
    try:
        used = toolchain.nvrtc()
        rows = [_compiler_row(used, "used")]
    except ToolchainError as error:
        reason, _, remedy = str(error).rpartition("\n")
        refusal = Rejected(reason, remedy) if reason else Rejected(remedy)
        rows = [_refused(ToolchainRow(name="NVRTC"), refusal)]
    for compiler in toolchain.installed():
        if compiler != used:
            refused = refuse_compiler(compiler, torch.cuda if torch else None, driver.version())
            row = _compiler_row(compiler, "not used")
            rows.append(_refused(row, Rejected(refused.reason) if refused else None))
    return rows


def _compiler_row(compiler: Compiler, note: str) -> ToolchainRow:
    version = dotted(compiler.version)
    if compiler.origin == "pip":
        with suppress(importlib.metadata.PackageNotFoundError):
            package = toolchain.requirement(compiler.version).strip('"').split("=")[0]
            exact = importlib.metadata.version(package)
            version = exact if exact.startswith(f"{version}.") else version
    note = f"{note}, from {compiler.origin}"
    return ToolchainRow(name="NVRTC", version=version, path=compiler.path, note=note)


# A file of each set of headers, the macro in it that holds the version, and pip's package.
_HEADERS = (
    ("toolkit headers", "cuda_runtime_api.h", "CUDART_VERSION", "nvidia-cuda-runtime"),
    ("CCCL headers", CCCL_VERSION, "CCCL_VERSION", "nvidia-cuda-cccl"),
)


def _header_rows() -> list[ToolchainRow]:
    try:
        compiler = toolchain.nvrtc()
    except ToolchainError:
        return []
    rows = []
    for name, file, macro, package in _HEADERS:
        folder = next((each for each in compiler.include if is_file(each / file)), None)
        if folder is not None:
            match = re.search(rf"#define {macro} +(\d+)", read_text(folder / file, "replace"))
            version = _spelled(int(match[1])) if match else ""
            rows.append(ToolchainRow(name=name, version=version, path=folder))
        else:
            line = f"pip install {toolchain.requirement(compiler.version, package)}"
            refusal = Rejected(f"not found next to {compiler.path}", line)
            rows.append(_refused(ToolchainRow(name=name), refusal))
    return rows


def _spelled(number: int) -> str:
    """13000 is CUDA 13.0; 3000001 is CCCL 3.0.1."""
    if number >= 1_000_000:
        return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    return f"{number // 1000}.{number % 1000 // 10}"


_RELEASE = re.compile(r"(?:release|Version:?|version) ?(\d+\.\d+(?:\.\d+)*)", re.IGNORECASE)


def _tile_rows() -> list[ToolchainRow]:
    """The compiler of tile kernels and its assembler; whether the driver loads what they make."""
    found = tile.find()
    row = ToolchainRow(name="tile NVRTC", optional=True)
    if isinstance(found, Rejected):
        return [replace(_refused(row, found), note="not found; only tile kernels need it")]
    row = replace(row, version=dotted(found.version), path=found.path, note="used for tile kernels")
    version = driver.version()
    if version is not None and version < tile.FIRST_DRIVER:
        too_old = f"the driver is older than r{tile.FIRST_RELEASE}, which tile kernels need"
        row = _refused(row, Rejected(too_old, "update the driver"))
    missing = tile.missing_parts(found)
    assembler = _tool_row("tileiras", tile.beside(found, "tileiras"))
    if not assembler.fits or missing:
        absent = ", ".join(missing) or "tileiras"
        reason = f"{absent} not found; only tile kernels on a GPU need it"
        assembler = _refused(assembler, Rejected(reason, tile.install_line()))
    return [row, replace(assembler, optional=True)]


def _tool_row(name: str, path: Path | None, package: str = "") -> ToolchainRow:
    if path is None:
        line = f"pip install {package}" if package else "install NVIDIA Nsight Compute"
        return ToolchainRow(name=name, fits=False, note="not found; only some commands need it", remedy=line)
    try:
        shown = process.run([path, "--version"], timeout_s=20).stdout
    except ToolchainError as error:
        return ToolchainRow(name=name, path=path, fits=False, note=str(error))
    match = _RELEASE.search(shown)
    return ToolchainRow(name=name, version=match[1] if match else "", path=path)

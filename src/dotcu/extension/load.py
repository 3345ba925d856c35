"""`load_native`: C++ and CUDA with host code, compiled, kept, and loaded into torch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from dotcu import pyproject
from dotcu.compile import driver
from dotcu.compile.target import Target
from dotcu.errors import UsageError
from dotcu.extension import library, making, project, tools, torch_parts
from dotcu.extension.library import NativeLibrary
from dotcu.extension.torch_parts import TorchParts
from dotcu.extension.units import Request, Tools, is_cuda, name_of

_log = logging.getLogger("dotcu")

WITHOUT_GPU = ("sm_80", "compute_80")
"""What `.cu` files are compiled for where there is no GPU: machine code, and PTX that later ones take."""

Paths = str | Path | Sequence[str | Path]
Names = str | Sequence[str]


def load_native(
    sources: Paths,
    *,
    include: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    arch: Names | None = None,
    debug: bool = False,
    cuda: bool | None = None,
) -> NativeLibrary | ModuleType:
    """Compile C++ and CUDA with host code, where that is not done yet, and load the library.

    The sources bind themselves, as they do for torch's own tools: by `STABLE_TORCH_LIBRARY`, by
    `TORCH_LIBRARY`, or as a module, `PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)`.

    Args:
        sources: A file or several, `.cpp` and `.cu`; relative ones are taken from the caller's file. Or
            a pyproject.toml, whose [tool.dotcu.native] names them, with include folders and flags.
        include: Folders for their headers; relative ones are taken from the caller's file too.
        flags: More flags for the host compiler.
        cuda_flags: More flags for nvcc.
        link_flags: More flags for the linker: `["-lcublas"]`.
        arch: What the `.cu` files are compiled for, `"sm_90a"` or several; None for the GPUs of this
            machine or, where there is none, sm_80 and PTX.
        debug: Compile for gdb and cuda-gdb, without optimization.
        cuda: Whether WITH_CUDA and USE_CUDA are defined and `.cu` files compiled. None: where there
            are any, and torch is built with CUDA. False leaves them out.

    Returns:
        The Python module, where the sources make one; else the library, with the operators' names.

    Raises:
        SourceNotFound: A source cannot be read.
        CompileError: The compiler or the linker refused; the first error, and where the whole output is.
        ToolchainError: No host compiler, no nvcc, or one of another CUDA major than torch's.
        DuplicateOperator: This process has loaded another build of the same namespace.
    """
    paths = _absolute([sources] if isinstance(sources, str | Path) else sources, _caller_folder())
    torch = torch_parts.find()
    asked = Request(
        name=name_of(paths[0]) if paths else "",
        sources=paths,
        include=_absolute(include, _caller_folder()),
        flags=tuple(flags),
        cuda_flags=tuple(cuda_flags),
        link_flags=tuple(link_flags),
        debug=debug,
    )
    if [path.name for path in paths] == [pyproject.FILE]:
        asked = project.named_by(asked, torch)
    request = replace(
        asked,
        cuda=_wants_cuda(cuda, asked.sources, torch),
        targets=targets(arch) if any(map(is_cuda, asked.sources)) else (),
    )
    if request.left_out:
        _log.warning("Without CUDA: %s is left out", ", ".join(path.name for path in request.left_out))
    return _load(request, Tools(host=tools.host(), nvcc=_nvcc(request, torch), torch=torch))


def _caller_folder() -> Path:
    """The folder of the file that called `load_native`; the working directory where it is in no file."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).absolute().parent if file else Path.cwd()


def _absolute(paths: Sequence[str | Path], beside: Path) -> tuple[Path, ...]:
    return tuple((beside / Path(path).expanduser()).resolve() for path in paths)


def _wants_cuda(cuda: bool | None, paths: Sequence[Path], torch: TorchParts) -> bool:
    return cuda if cuda is not None else torch.cuda is not None and any(map(is_cuda, paths))


def _nvcc(request: Request, torch: TorchParts) -> tools.Nvcc | None:
    return tools.nvcc(torch.cuda) if request.cuda else None


def targets(arch: Names | None) -> tuple[Target, ...]:
    """What device code is made for.

    Raises:
        UsageError: A name is no architecture's.
    """
    names = [arch] if isinstance(arch, str) else list(arch or ())
    if arch is not None and not names:
        raise UsageError("arch= names no architecture.\nName one, arch='sm_90a', or leave it out.")
    if not names:
        capabilities = sorted({gpu.capability for gpu in driver.gpus()})
        names = [str(Target("sm", *one, "a" if one[0] >= 9 else "")) for one in capabilities]
    return tuple(Target.parse(name) for name in names or WITHOUT_GPU)


def _load(request: Request, with_tools: Tools) -> NativeLibrary | ModuleType:
    built = making.build(request, with_tools)
    texts = [path.read_text(errors="replace") for path in request.compiled]
    operators = library.load(built.path, texts)
    made = library.module(built.path, request.name)
    if made is not None:
        return made
    return NativeLibrary(path=built.path, operators=operators, cuda=request.cuda, left_out=request.left_out)

"""Load C++ and CUDA with host code into torch, and run programs: compiled by the host compiler and nvcc."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import importlib.util
import logging
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from dotcu import process, pyproject
from dotcu.compile import driver
from dotcu.compile.target import Target
from dotcu.cpp import tools
from dotcu.cpp.build import build_request
from dotcu.cpp.load_check import NAMESPACE
from dotcu.cpp.plan import CppRequest, CppTools, is_cuda, name_of, request_of_project
from dotcu.elf import undefined_symbols
from dotcu.errors import CacheError, CompileError, DuplicateOperator, EnvironmentFault, UsageError, quoted
from dotcu.files import is_file, read_text
from dotcu.locks import ForkSafeLock
from dotcu.workers import Channel, Worker

_log = logging.getLogger("dotcu")

WITHOUT_GPU = ("sm_80", "compute_80")
"""The targets of `.cu` files if there is no GPU: machine code, and PTX that later GPUs take."""

_OPERATOR = re.compile(r"\.\s*def\s*\(\s*\"(?:\w+::)?(\w+)")
_NOEXEC = "failed to map segment from shared object"
"""The complaint of the loader about a file on such a file system. Source: glibc, elf/dl-map-segments.h."""

_UNDEFINED = re.compile(r"undefined symbol: (\S+)")
_CALLS = re.compile(r"__cudaLaunchKernel|cuda[A-Z]\w*|cu[A-Z][a-z]\w*")
"""Functions of the CUDA runtime and driver, but not those that nvcc has every file call, used or not."""

_INCLUDE = re.compile(r"[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]")
_IF = re.compile(r"[ \t]*#[ \t]*(?:if|(end)if)(?!ndef[ \t]+\w+_(?:H|HH|HPP|CUH)_*[ \t]*$)")
_TORCH_CUDA = re.compile(r"(?:ATen|c10|torch)/(?:.*/)?cuda/|ATen/native/cu|THC/")
"""Headers of torch's that a build without CUDA has, and that include what only one with CUDA has."""
_TOOLKIT = re.compile(r"(?:cu(?:da|blas|sparse|dnn|fft|rand|solver)\w*|nvToolsExt|nvrtc)\.h")


@dataclass(frozen=True, kw_only=True)
class CppLibrary:
    """A library of operators, loaded.

    Attributes:
        path: The file.
        operators: The qualified names that it registered, `ns::name` or `ns::name.overload`.
        cuda: Its `.cu` files are in it.
        left_out: The sources that are not, since CUDA was off.
    """

    path: Path
    operators: tuple[str, ...]
    cuda: bool
    left_out: tuple[Path, ...]


def load_cpp(
    sources: str | Path | Sequence[str | Path],
    *,
    include: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    arch: str | Sequence[str] | None = None,
    debug: bool = False,
    cuda: bool | None = None,
) -> CppLibrary | ModuleType:
    """Compile C++ and CUDA with host code, if that is not done yet, and load the library.

    The sources bind themselves, as they do for torch's own tools: by `STABLE_TORCH_LIBRARY`, by
    `TORCH_LIBRARY`, or as a module, `PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)`.

    Args:
        sources: A file or several, `.cpp` and `.cu`; relative ones are taken from the caller's file. Or
            a pyproject.toml, whose [tool.dotcu.cpp] names them, with include folders and flags.
        include: Folders for their headers; relative ones are taken from the caller's file too.
        flags: More flags for the host compiler.
        cuda_flags: More flags for nvcc.
        link_flags: More flags for the linker: `["-lcublas"]`.
        arch: What the `.cu` files are compiled for, `"sm_90a"` or several; None for the GPUs of this
            machine or, if there is none, sm_80 and PTX.
        debug: Compile for gdb and cuda-gdb, without optimization.
        cuda: Whether WITH_CUDA and USE_CUDA are defined and `.cu` files compiled. None: where there
            are any, and torch is built with CUDA. False leaves them out.

    Returns:
        The Python module, where the sources make one; else the library, with the operators' names.

    Raises:
        SourceNotFound: A source cannot be read.
        CompileError: The compiler or the linker refused; the first error, and where the whole output is.
        ToolchainError: No host compiler, no nvcc, or one of another CUDA major than torch's.
        EnvironmentFault: No torch, or the sources need a torch that is built with CUDA.
        DuplicateOperator: This process has loaded another build of the same namespace.
    """
    for name, words in {"flags": flags, "cuda_flags": cuda_flags, "link_flags": link_flags}.items():
        _require_words(name, words)
    if isinstance(include, str | Path):
        raise UsageError(f"include is a list of folders, got {include!r}.\nWrite include=[{str(include)!r}].")
    file = sys._getframe(1).f_globals.get("__file__")
    base = Path(file).absolute().parent if file else Path.cwd()
    paths = _absolute([sources] if isinstance(sources, str | Path) else sources, base)
    torch = tools.find_torch()
    asked = CppRequest(
        name=name_of(paths[0]) if paths else "",
        sources=paths,
        include=_absolute(include, base),
        flags=tuple(flags),
        cuda_flags=tuple(cuda_flags),
        link_flags=tuple(link_flags),
        debug=debug,
    )
    if [path.name for path in paths] == [pyproject.FILE]:
        asked = request_of_project(asked, torch)
    has_cuda = any(map(is_cuda, asked.sources))
    request = replace(
        asked,
        cuda=cuda if cuda is not None else torch.cuda is not None and has_cuda,
        targets=targets(arch) if has_cuda else (),
    )
    if torch.cuda is None and cuda is not False:
        _require_possible(request, torch)
    if request.left_out:
        _log.warning(
            "Without CUDA: %s is left out, and C++ is compiled for the CPU, where it cannot call that file",
            ", ".join(path.name for path in request.left_out),
        )
    nvcc = tools.nvcc(torch.cuda) if request.cuda else None
    with contextlib.closing(Worker(ENTRY, prelude="import torch")) as loader:
        built = build_request(request, CppTools(host=tools.host(), nvcc=nvcc, torch=torch), loader)
    texts = [read_text(path, "replace") for path in request.compiled]
    operators = load_library(built.path, texts)
    return python_module(built.path, request.name) or CppLibrary(
        path=built.path, operators=operators, cuda=request.cuda, left_out=request.left_out
    )


def _require_words(name: str, words: object) -> None:
    if isinstance(words, str):
        raise UsageError(f"{name} is a list of flags, got {words!r}.\nWrite {name}={shlex.split(words)!r}.")
    if (
        isinstance(words, bytes)
        or not isinstance(words, Iterable)
        or not all(isinstance(word, str) for word in words)
    ):
        raise UsageError(f'{name} is a list of flags, got {words!r}.\nFor example: {name}=["-O3"]')


def _require_possible(request: CppRequest, torch: tools.TorchInstall) -> None:
    """Refuse, before anything is compiled, what a torch without CUDA cannot be the base of."""
    pattern = _TORCH_CUDA if request.cuda else re.compile(f"{_TORCH_CUDA.pattern}|{_TOOLKIT.pattern}")
    found = _included(request.compiled, request.include, pattern)
    if found is None and request.compiled:
        return
    kernels = next(filter(is_cuda, request.sources), None)
    happened = f"{found} needs CUDA" if found else f"{request.sources[0].name} is CUDA"
    raise EnvironmentFault(
        f"torch {torch.version} is built without CUDA, and {happened}.\n"
        + (f"Its kernels run on CPU tensors: dotcu.load({str(kernels)!r})\n" if kernels else "")
        + (f"Their code is shown by: dotcu inspect {quoted(kernels)}\n" if kernels else "")
        + "C++ is compiled for the CPU where the includes and calls of CUDA are inside #ifdef WITH_CUDA.\n"
        "The whole needs a torch that is built with CUDA: pip install torch, and no index of CPU builds"
    )


def _included(paths: Sequence[Path], folders: Sequence[Path], pattern: re.Pattern[str]) -> str | None:
    """Return `file:line: #include <header>` of the first include of some headers, under no #if.

    Sources are followed into the headers beside them and in their include folders.
    """
    queue = list(paths)
    for path in queue:
        depth = 0
        for number, line in enumerate(read_text(path, "replace").splitlines() if is_file(path) else (), 1):
            if match := _IF.match(line):
                depth = max(0, depth - 1) if match[1] else depth + 1
            elif not depth and (match := _INCLUDE.match(line)):
                quote, header = match.groups()
                if pattern.match(header):
                    return f"{path.name}:{number}: #include <{header}>"
                near = (folder / header for folder in (path.parent, *folders) if quote == '"')
                queue += [each for each in near if is_file(each) and each not in queue][:1]
    return None


def _absolute(paths: Sequence[str | Path], base: Path) -> tuple[Path, ...]:
    return tuple((base / Path(path).expanduser()).resolve() for path in paths)


def targets(arch: str | Sequence[str] | None) -> tuple[Target, ...]:
    """Return the architectures that device code is compiled for."""
    names = [arch] if isinstance(arch, str) else list(arch or ())
    if arch is not None and not names:
        raise UsageError("arch= names no architecture.\nName one, arch='sm_90a', or leave it out.")
    if not names:
        capabilities = sorted({gpu.capability for gpu in driver.gpus()})
        names = [str(Target("sm", *one, "a" if one[0] >= 9 else "")) for one in capabilities]
    return tuple(Target.parse(name) for name in names or WITHOUT_GPU)


_loaded: dict[Path, tuple[str, ...]] = {}
_namespaces: dict[str, Path] = {}
_modules: dict[Path, ModuleType] = {}
_lock = ForkSafeLock()


def load_library(path: Path, texts: Sequence[str]) -> tuple[str, ...]:
    """Load a library, once, and return the operators that it registered; `texts` are its sources.

    Raises:
        DuplicateOperator: This process has a library of the same namespace. Torch never drops one.
        CompileError: It cannot be loaded: a symbol is defined nowhere.
    """
    with _lock:
        if path not in _loaded:
            names = {name for text in texts for name in NAMESPACE.findall(text)}
            operators = {name for text in texts for name in _OPERATOR.findall(text)}
            _require_new(path, names, {f"{name}::{operator}" for name in names for operator in operators})
            before = registered()
            _register(path)
            _loaded[path] = tuple(sorted(registered() - before))
            _namespaces.update(dict.fromkeys(names, path))
        return _loaded[path]


def registered() -> set[str]:
    """Return the qualified names of all operators of this process."""
    import torch

    return set(torch._C._dispatch_get_all_op_names())


ENTRY = f"{__name__}:load_in_worker"


def load_in_worker(libraries: Sequence[str], channel: Channel) -> None:
    """Load libraries; reply with the namespaces that are taken before the last, and once that is loaded."""
    import torch

    for library in libraries[:-1]:
        with contextlib.suppress(Exception):
            torch.ops.load_library(library)
    channel.reply(sorted({name.partition("::")[0] for name in registered()}))
    with contextlib.suppress(Exception):  # what it raises, this process meets too
        torch.ops.load_library(libraries[-1])
    channel.reply("loaded")


def library_of(operator: str) -> Path | None:
    """Return the library that registered an operator of this qualified name; None if none did here."""
    return next((path for path, operators in _loaded.items() if operator in operators), None)


def _require_new(path: Path, namespaces: set[str], operators: set[str]) -> None:
    """Refuse what torch would end the process for: it cannot refuse while a library is being loaded."""
    for name in sorted(namespaces & set(_namespaces)):
        raise DuplicateOperator(
            f"{path.name} defines the operators of {name!r}, and so does what this process has loaded "
            f"before:\n    {_namespaces[name]}\n"
            "Torch takes a namespace from one library, and keeps it until the process ends.\n"
            "After an edit start Python again: what is compiled already is loaded in a moment"
        )
    for name in sorted(operators & {name.partition(".")[0] for name in registered()}):
        raise DuplicateOperator(
            f"{path.name} defines {name}, which is an operator of this process already.\n"
            "Give one of them another name, or load only one of them."
        )


def _register(path: Path) -> None:
    import torch

    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        reason = str(error.__cause__ or error)
        if _NOEXEC in reason:
            raise CacheError(
                f"{path.name} is compiled, and cannot be loaded from {path.parent}: {_NOEXEC}.\n"
                "A library needs a file system that is not mounted with noexec.\n"
                "Choose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
            ) from error
        match = _UNDEFINED.search(reason)
        if match is not None:
            reason = (
                f"{match[1]} is used and defined nowhere.\n"
                "Add the source, or the library by link_flags=['-l...'], that defines it.\n"
                f"Its name in C++, type: c++filt {match[1]}"
            )
        raise CompileError(
            f"{path.name} is compiled, and cannot be loaded: {reason}", log=str(error)
        ) from error


def python_module(path: Path, name: str) -> ModuleType | None:
    """Return a loaded library as a Python module, None if it has no function that makes one."""
    with _lock:
        if path not in _modules and hasattr(ctypes.CDLL(str(path)), f"PyInit_{name}"):
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            spec = importlib.util.spec_from_file_location(name, path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            _modules[path] = module
        return _modules.get(path)


def compile_program(
    source: Path,
    *,
    include: Sequence[Path] = (),
    flags: Sequence[str] = (),
    arch: str | None = None,
    debug: bool = False,
) -> tuple[Path, bool, bool]:
    """Compile a program, `main` and kernels in one `.cu`, with nvcc and without torch, unless it is cached.

    Args:
        source: The `.cu`.
        include: Folders for its headers.
        flags: More flags for nvcc; `-l` and `-L` are for the linker as well.
        arch: `sm_80,sm_90a`; None for the GPUs of this machine.
        debug: Compile for gdb and cuda-gdb, without optimization.

    Returns:
        The program, in the cache; whether it launches a kernel, or calls the CUDA runtime or driver;
        and whether it was compiled now.

    Raises:
        UsageError: The source is no `.cu`.
        SourceNotFound: It cannot be read.
        CompileError: nvcc or the linker refused; the first error, and where the whole output is.
        ToolchainError: No nvcc, or no host compiler.
    """
    if not is_cuda(source):
        raise UsageError(f"{source.name} is not a .cu file.\nA program to run is one: dotcu run main.cu")
    request = CppRequest(
        name=name_of(source),
        sources=(source.resolve(),),
        include=tuple(path.resolve() for path in include),
        cuda_flags=tuple(flags),
        link_flags=tuple(flag for flag in flags if flag.startswith(("-l", "-L"))),
        targets=targets(arch.split(",") if arch else None),
        debug=debug,
        cuda=True,
    )
    built = build_request(request, CppTools(host=tools.host(), nvcc=tools.nvcc(None), torch=None))
    built.path.chmod(0o755)
    uses_cuda = any(_CALLS.fullmatch(name) for data in built.objects for name in undefined_symbols(data))
    return built.path, uses_cuda, bool(built.compiled)


def run_program(program: Path, arguments: Sequence[str], *, uses_cuda: bool) -> int:
    """Run a program on this process's own input and output, and return its exit status.

    Args:
        program: The file.
        arguments: The program's own.
        uses_cuda: Whether it needs a GPU.

    Raises:
        EnvironmentFault: It uses CUDA, and there is no GPU.
    """
    if uses_cuda and not driver.gpus():
        raise EnvironmentFault(
            f"{program.name} is compiled, and needs a GPU to run: none is here.\nThe program: {program}\n"
            "A kernel alone runs without one: dotcu.load the same file, and call it on CPU tensors"
        )
    return process.hand_over([program, *arguments])

"""What is to be compiled, and how: planned from the request and the tools, with nothing run yet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu import settings
from dotcu.compile.target import Target
from dotcu.errors import SourceNotFound, UsageError
from dotcu.extension.tools import HostCompiler, Nvcc
from dotcu.extension.torch_parts import STANDARD, TorchParts

FORMAT = 1
HOST_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")
HEADER = "torch/extension.h"

_RELEASE = ("-O2",)
_DEBUG = ("-O0", "-g")
_CUDA_MACROS = ("-DWITH_CUDA", "-DUSE_CUDA")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST = re.compile(
    rf"(?:\s|#\s*pragma\b[^\n]*|#\s*include\b[^\n]*)*?^[ \t]*#\s*include\s*[<\"]{re.escape(HEADER)}[>\"]",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller asked for, with every path absolute.

    Attributes:
        name: Of the library, and of the Python module where it is one.
        targets: What device code is made for.
        cuda: Whether WITH_CUDA is defined, and `.cu` files are compiled.
        portable: Linked for every torch, so that what was built with one loads under another.
        lines: Whether machine code has its source lines, by which profilers show it.
    """

    name: str
    sources: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    debug: bool = False
    cuda: bool = False
    portable: bool = False
    lines: bool = True

    @property
    def compiled(self) -> tuple[Path, ...]:
        """The sources that take part: without CUDA, no `.cu`."""
        return tuple(path for path in self.sources if self.cuda or not is_cuda(path))

    @property
    def left_out(self) -> tuple[Path, ...]:
        return tuple(path for path in self.sources if path not in self.compiled)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What a request is compiled with; torch is None for a program of its own."""

    host: HostCompiler
    nvcc: Nvcc | None
    torch: TorchParts | None

    def identity(self) -> list[str]:
        return [part.identity for part in (self.host, self.nvcc, self.torch) if part is not None]

    def folders(self) -> tuple[Path, ...]:
        """Folders whose headers are not the user's."""
        torch = (self.torch.folder, *self.torch.include) if self.torch else ()
        return (*torch, *((self.nvcc.home,) if self.nvcc else ()))


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One source, to be made an object file.

    Attributes:
        words: The command, up to the files that it reads and writes.
        include: The user's folders in it, in the order of the search.
        precompiled: Whether `torch/extension.h` is read from its precompiled form.
        key: The digest of all that is known before the compiler runs.
    """

    source: Path
    words: tuple[str, ...]
    include: tuple[Path, ...]
    precompiled: bool
    key: str


def is_cuda(path: Path) -> bool:
    return path.suffix == ".cu"


def name_of(source: Path) -> str:
    """A name that is an identifier, for the library of which a source is the first."""
    name = re.sub(r"\W", "_", source.stem)
    return f"_{name}" if name[:1].isdigit() else name


def units(request: Request, tools: Tools) -> tuple[Unit, ...]:
    """Plan one compile for each source that takes part.

    Raises:
        SourceNotFound: A source cannot be read.
        UsageError: A source is neither C++ nor CUDA, or none takes part.
    """
    if not request.compiled:
        raise UsageError(
            f"Nothing is left to compile: {_names(request.sources)} is CUDA, which is off here.\n"
            "Compile it with nvcc: cuda=True; or give a .cpp for the CPU beside it."
        )
    return tuple(_unit(request, tools, path) for path in request.compiled)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths) or "an empty list of sources"


def _unit(request: Request, tools: Tools, source: Path) -> Unit:
    try:
        text = source.read_bytes()
    except OSError as error:
        raise SourceNotFound(
            f"{source} cannot be read: {error.strerror}.\nCheck the path: ls {source}"
        ) from error
    words = compile_words(request, tools, source)
    precompiled = (
        tools.host.is_gcc and not is_cuda(source) and begins_with_header(text.decode(errors="replace"))
    )
    parts = [str(source), hashlib.sha256(text).hexdigest(), precompiled]
    return Unit(
        source=source, words=words, include=_folders(words), precompiled=precompiled,
        key=key("unit", words, parts, tools),
    )  # fmt: skip


def _folders(words: Sequence[str]) -> tuple[Path, ...]:
    """The user's include folders, in the order of the search, those among the flags too."""
    return tuple(Path(word[2:]) for word in words if word.startswith("-I") and len(word) > 2)


def key(kind: str, words: Sequence[str], parts: Sequence[object], tools: Tools) -> str:
    """A digest over a command, its inputs, the tools' identities and what they take of the environment."""
    whole = [
        FORMAT,
        kind,
        list(words),
        list(parts),
        tools.identity(),
        sorted(settings.of_compilers().items()),
    ]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def begins_with_header(text: str) -> bool:
    """Whether nothing but includes stand before `torch/extension.h`: only then may it be read first."""
    return _FIRST.match(_COMMENT.sub(" ", text)) is not None


def compile_words(request: Request, tools: Tools, source: Path) -> tuple[str, ...]:
    """The command for a source, without the files.

    Raises:
        UsageError: It is neither C++ nor CUDA.
    """
    if is_cuda(source) and tools.nvcc is not None:
        return (*_nvcc_words(request, tools.host, tools.nvcc), *_common(request, tools), *request.cuda_flags)
    if source.suffix in HOST_SUFFIXES:
        toolkit = ("-isystem", str(tools.nvcc.include)) if tools.nvcc else ()
        return (*host_words(request, tools), *toolkit)
    raise UsageError(
        f"{source.name} is not a source that can be compiled.\n"
        f"Required: {', '.join(HOST_SUFFIXES)} for C++, .cu for CUDA."
    )


def host_words(request: Request, tools: Tools) -> tuple[str, ...]:
    level = _DEBUG if request.debug else _RELEASE
    return (*tools.host.words, "-fPIC", *level, *_common(request, tools), *request.flags)


def _common(request: Request, tools: Tools) -> tuple[str, ...]:
    torch = tools.torch
    named = (f"-DTORCH_EXTENSION_NAME={request.name}", *torch.compile_words()) if torch else (STANDARD,)
    folders = tuple(f"-I{folder}" for folder in request.include)
    return (*folders, *named, *(_CUDA_MACROS if request.cuda else ()))


def _codes(request: Request) -> tuple[str, ...]:
    pairs = (f"arch={target.virtual},code={target}" for target in request.targets)
    return tuple(word for pair in pairs for word in ("-gencode", pair))


def _nvcc_words(request: Request, host: HostCompiler, nvcc: Nvcc) -> tuple[str, ...]:
    lines = ("-lineinfo",) if request.lines else ()
    level = ("-O0", "-g", "-G") if request.debug else ("-O2", *lines)
    return (
        str(nvcc.path), "-ccbin", host.program, "-Xcompiler", "-fPIC", *level, *_codes(request),
        "--expt-relaxed-constexpr", "--expt-extended-lambda",
    )  # fmt: skip


def link_words(request: Request, tools: Tools) -> tuple[str, ...]:
    """The command that makes a library, or a program where torch takes no part, without the files."""
    torch = _torch_words(request, tools.torch) if tools.torch else ()
    shared = ("-shared",) if tools.torch else ()
    if tools.nvcc is None or not request.cuda:
        return (*tools.host.words, *shared, "-Wl,--as-needed", *torch, *request.link_flags)
    # with the targets, or nvcc adds an empty module for an architecture of its own choice
    start = (str(tools.nvcc.path), "-ccbin", tools.host.program, *_codes(request))
    return (
        *start,
        *shared,
        "-Xlinker",
        "--as-needed",
        f"-L{tools.nvcc.library}",
        *torch,
        *request.link_flags,
    )


def _torch_words(request: Request, torch: TorchParts) -> tuple[str, ...]:
    return torch.portable_link_words() if request.portable else torch.link_words(cuda=request.cuda)


def link_inputs(request: Request) -> tuple[Path, ...]:
    """The files that the linker's flags name, by path or as `-l` in a folder of a `-L`."""
    flags = request.link_flags
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-L")]
    names = [f"lib{flag[2:]}.{kind}" for flag in flags if flag.startswith("-l") for kind in ("so", "a")]
    candidates = [*map(Path, flags), *(folder / name for name in names for folder in folders)]
    return tuple(path for path in candidates if path.is_file())

"""The commands of a request: planned from the request and the tools, with nothing run yet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dotcu import pyproject, settings
from dotcu.compile.target import Target
from dotcu.cpp.tools import STANDARD, HostCompiler, Nvcc, TorchInstall
from dotcu.errors import SourceNotFound, UsageError, quoted
from dotcu.files import is_file, matching, read_file

FORMAT = 1
HOST_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")
HEADER = "torch/extension.h"

NAME = "_cpp"
"""The name of a project's library in its package: `_cpp.abi3.so`."""

_EXAMPLE = """\
    [tool.dotcu.cpp]
    sources = ["src/mylib/csrc/*.cpp", "src/mylib/csrc/*.cu"]
    include = ["third_party/cutlass/include"]   # optional, as are the next ones
    flags = []                                  # for the host compiler
    cuda-flags = []                             # for nvcc
    link-flags = ["-lcublas"]"""

_KEYS = ("sources", "include", "flags", "cuda-flags", "link-flags")

_RELEASE = ("-O2",)
_DEBUG = ("-O0", "-g")
_CUDA_MACROS = ("-DWITH_CUDA", "-DUSE_CUDA")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST = re.compile(
    rf"(?:\s|#\s*pragma\b[^\n]*|#\s*include\b[^\n]*)*?^[ \t]*#\s*include\s*[<\"]{re.escape(HEADER)}[>\"]",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class CppRequest:
    """A caller's request, with every path absolute.

    Attributes:
        name: Of the library, and of the Python module where it is one.
        targets: The architectures that device code is compiled for.
        cuda: WITH_CUDA is defined, and `.cu` files are compiled.
        portable: Linked for every torch, so that what was built with one loads under another.
        lines: Machine code has its source lines, by which profilers show it.
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
class CppTools:
    """The compilers and torch of a request; torch is None for a program of its own."""

    host: HostCompiler
    nvcc: Nvcc | None
    torch: TorchInstall | None

    def identity(self) -> list[str]:
        return [part.identity for part in (self.host, self.nvcc, self.torch) if part is not None]

    def folders(self) -> tuple[Path, ...]:
        """Folders whose headers are not the user's."""
        torch = (self.torch.folder, *self.torch.include) if self.torch else ()
        return (*torch, *((self.nvcc.home,) if self.nvcc else ()))


@dataclass(frozen=True, kw_only=True)
class TranslationUnit:
    """The compile of one source to an object file.

    Attributes:
        words: The command, up to the files that it reads and writes.
        include: The user's folders in it, in the order of the search.
        precompiled: `torch/extension.h` is read from its precompiled form.
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
    """Return a name that is an identifier, for the library of which a source is the first."""
    name = re.sub(r"\W", "_", source.stem)
    return f"_{name}" if name[:1].isdigit() else name


def units(request: CppRequest, tools: CppTools) -> tuple[TranslationUnit, ...]:
    """Plan one compile for each source that takes part."""
    if not request.compiled:
        names = ", ".join(path.name for path in request.sources) or "an empty list of sources"
        raise UsageError(
            f"Nothing is left to compile: {names} is CUDA, which is off here.\n"
            "Compile it with nvcc: cuda=True; or add a .cpp for the CPU."
        )
    return tuple(_unit(request, tools, path) for path in request.compiled)


def _unit(request: CppRequest, tools: CppTools, source: Path) -> TranslationUnit:
    try:
        text = read_file(source)
    except OSError as error:
        raise SourceNotFound(
            f"{source} cannot be read: {error.strerror}.\nCheck the path: ls -l {quoted(source)}"
        ) from error
    words = _compile_words(request, tools, source)
    precompiled = (
        tools.host.is_gcc and not is_cuda(source) and begins_with_header(text.decode(errors="replace"))
    )
    # the user's include folders, in the order of the search, those among the flags too
    include = tuple(Path(word[2:]) for word in words if word.startswith("-I") and len(word) > 2)
    parts = [str(source), hashlib.sha256(text).hexdigest(), precompiled]
    return TranslationUnit(
        source=source, words=words, include=include, precompiled=precompiled,
        key=key("unit", words, parts, tools),
    )  # fmt: skip


def key(kind: str, words: Sequence[str], parts: Sequence[object], tools: CppTools) -> str:
    """Return the digest of a command and all that it depends on: inputs, tools, environment variables."""
    variables = sorted(settings.of_compilers().items())
    whole = [FORMAT, kind, list(words), list(parts), tools.identity(), variables]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def begins_with_header(text: str) -> bool:
    """Return whether only includes are before `torch/extension.h`: only then may it be read first."""
    return _FIRST.match(_COMMENT.sub(" ", text)) is not None


def _compile_words(request: CppRequest, tools: CppTools, source: Path) -> tuple[str, ...]:
    """Return the command for a source, without the files."""
    if is_cuda(source) and tools.nvcc is not None:
        level = ("-O0", "-g", "-G") if request.debug else ("-O2", "-lineinfo") if request.lines else ("-O2",)
        return (
            str(tools.nvcc.path), "-ccbin", tools.host.program, "-Xcompiler", "-fPIC", *level,
            *_codes(request), "--expt-relaxed-constexpr", "--expt-extended-lambda",
            *_common(request, tools), *request.cuda_flags,
        )  # fmt: skip
    if source.suffix in HOST_SUFFIXES:
        toolkit = ("-isystem", str(tools.nvcc.include)) if tools.nvcc else ()
        return (*host_words(request, tools), *toolkit)
    raise UsageError(
        f"{source.name} is not a source that can be compiled.\n"
        f"Required: {', '.join(HOST_SUFFIXES)} for C++, .cu for CUDA."
    )


def host_words(request: CppRequest, tools: CppTools) -> tuple[str, ...]:
    level = _DEBUG if request.debug else _RELEASE
    return (*tools.host.words, "-fPIC", *level, *_common(request, tools), *request.flags)


def _common(request: CppRequest, tools: CppTools) -> tuple[str, ...]:
    torch = tools.torch
    named = (f"-DTORCH_EXTENSION_NAME={request.name}", *torch.compile_words()) if torch else (STANDARD,)
    folders = tuple(f"-I{folder}" for folder in request.include)
    return (*folders, *named, *(_CUDA_MACROS if request.cuda else ()))


def _codes(request: CppRequest) -> tuple[str, ...]:
    pairs = (f"arch={target.virtual},code={target}" for target in request.targets)
    return tuple(word for pair in pairs for word in ("-gencode", pair))


def link_words(request: CppRequest, tools: CppTools) -> tuple[str, ...]:
    """Return the link command of a library, or of a program where torch takes no part, without the files."""
    shared: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    if tools.torch is not None:
        shared = ("-shared",)
        libraries = tools.torch.link_words(cuda=request.cuda, portable=request.portable)
    if tools.nvcc is None or not request.cuda:
        return (*tools.host.words, *shared, "-Wl,--as-needed", *libraries, *request.link_flags)
    # with the targets, or nvcc adds an empty module for an architecture of its own choice
    return (
        str(tools.nvcc.path), "-ccbin", tools.host.program, *_codes(request), *shared,
        "-Xlinker", "--as-needed", f"-L{tools.nvcc.library}", *libraries, *request.link_flags,
    )  # fmt: skip


def link_inputs(request: CppRequest) -> tuple[Path, ...]:
    """Return the files that the linker's flags name, by path or as `-l` in a folder of a `-L`."""
    flags = request.link_flags
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-L")]
    names = [f"lib{flag[2:]}.{kind}" for flag in flags if flag.startswith("-l") for kind in ("so", "a")]
    candidates = [*map(Path, flags), *(folder / name for name in names for folder in folders)]
    return tuple(path for path in candidates if is_file(path))


def portable(cpp: CppRequest, root: Path, torch: TorchInstall) -> CppRequest:
    """Return a project's request for a library that any torch and any machine can load.

    Nothing of the library is visible but what has to be, and paths in it begin at the project's folder.
    """
    words = ("-fvisibility=hidden", *(f"-ffile-prefix-map={folder}/=" for folder in (root, torch.include[0])))
    return replace(
        cpp,
        flags=(*words, *cpp.flags),
        cuda_flags=(*(part for word in words for part in ("-Xcompiler", word)), *cpp.cuda_flags),
        link_flags=(*(() if cpp.debug else ("-Xlinker", "--strip-all")), *cpp.link_flags),
        portable=True,
    )


def read_project(root: Path) -> CppRequest | None:
    """Read [tool.dotcu.cpp] of a project; None if it has none."""
    file = root / pyproject.FILE
    table = (pyproject.section(file) or {}).get("cpp")
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: cpp of [tool.dotcu] is a table, got {table!r}.\nWrite:\n{_EXAMPLE}")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{file}: [tool.dotcu.cpp] has no {key!r}.\nIt takes:\n{_EXAMPLE}")
    values = {key: _strings(file, table, key) for key in _KEYS}
    return CppRequest(
        name=NAME,
        sources=_matched(file, values["sources"]),
        include=tuple((root / folder).resolve() for folder in values["include"]),
        flags=values["flags"],
        cuda_flags=values["cuda-flags"],
        link_flags=values["link-flags"],
    )


def request_of_project(request: CppRequest, torch: TorchInstall) -> CppRequest:
    """Return the request of the pyproject.toml that is its only source, with all other flags added."""
    (file,) = request.sources
    project = read_project(file.parent)
    if project is None:
        raise UsageError(f"{file} names no C++ sources.\nWrite into it:\n{_EXAMPLE}")
    own = portable(replace(project, debug=request.debug), file.parent, torch)
    return replace(
        own,
        include=own.include + request.include,
        flags=own.flags + request.flags,
        cuda_flags=own.cuda_flags + request.cuda_flags,
        link_flags=own.link_flags + request.link_flags,
    )


def _strings(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(
            f"{file}: {key} of [tool.dotcu.cpp] is a list of strings, got {value!r}.\nWrite:\n{_EXAMPLE}"
        )
    return tuple(value)


def _matched(file: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of each pattern, sorted within it, each once."""
    files: dict[Path, None] = {}
    for pattern in patterns:
        matched = []
        with suppress(ValueError, NotImplementedError):  # an empty one, and one that leaves the folder
            matched = sorted(path for path in matching(file.parent, pattern) if is_file(path))
        if not matched:
            raise UsageError(
                f"{file}: {pattern!r} of sources in [tool.dotcu.cpp] matches no file.\n"
                f"It is taken from {file.parent}; ** stands for any folders."
            )
        files.update(dict.fromkeys(path.resolve() for path in matched))
    if not files:
        raise UsageError(f"{file}: sources of [tool.dotcu.cpp] names no file.\nWrite:\n{_EXAMPLE}")
    return tuple(files)

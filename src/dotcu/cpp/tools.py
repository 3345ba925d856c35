"""The tools that compile C++: a host compiler, nvcc, and torch, none of which is imported or loaded."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dotcu import process, settings
from dotcu.compile import toolchain
from dotcu.compile.target import Rejected, Version, dotted
from dotcu.errors import EnvironmentFault, ToolchainError
from dotcu.files import is_file, matching, read_file, read_text

HOSTS = ("c++", "g++", "clang++")
"""Looked for on PATH in this order, where CXX names none."""

LAUNCHERS = {"ccache", "sccache", "distcc"}

_RELEASE = re.compile(r"release (\d+)\.(\d+)")
STANDARD = "-std=c++20"
"""The C++ of torch's headers. Source: torch.utils.cpp_extension of torch 2.13."""

# Of two the linker takes those that are used: a library on the stable ABI does not come to need Python.
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
_CUDA_LIBRARIES = ("c10_cuda", "torch_cuda")

# Where a toolkit and pip's packages have headers and libraries.
_INCLUDE = ("include", "targets/*/include")
_LIBRARY = ("lib64", "lib", "targets/*/lib")
_CICC = ("nvvm", "bin", "cicc")


@dataclass(frozen=True, kw_only=True)
class HostCompiler:
    """A C++ compiler of this machine.

    Attributes:
        words: The command that starts it: `("ccache", "g++")`, for example.
        version: The first line of its version text.
        identity: Distinguishes it from any other build of it.
    """

    words: tuple[str, ...]
    version: str
    identity: str

    @property
    def program(self) -> str:
        """The compiler itself, for nvcc, which starts it without a launcher."""
        return next((word for word in self.words if Path(word).name not in LAUNCHERS), self.words[0])

    @property
    def is_gcc(self) -> bool:
        return "clang" not in self.version.lower()


@dataclass(frozen=True, kw_only=True)
class Nvcc:
    """An nvcc that has what it needs next to it.

    Attributes:
        version: The CUDA version.
        home: The toolkit's folder, with all that belongs to it.
        include: Its headers, for sources that the host compiler compiles.
        library: The folder with libcudart, which pip's nvcc does not look into by itself.
        identity: Distinguishes it from any other build of it.
    """

    path: Path
    version: Version
    home: Path
    include: Path
    library: Path
    identity: str


def host() -> HostCompiler:
    return _host(settings.current().cxx)


@functools.cache
def _host(cxx: str | None) -> HostCompiler:
    words = tuple(shlex.split(cxx)) if cxx else ()
    if not words:
        program = next((name for name in HOSTS if process.find(name)), None)
        if program is None:
            raise ToolchainError(
                f"No host compiler was found: {', '.join(HOSTS)} are not on PATH.\n"
                "C++ is compiled by one. Install it: apt install g++   (or: dnf install gcc-c++)\n"
                "A file with only kernels needs none: dotcu.load"
            )
        words = (program,)
    path = process.find(words[0])
    if path is None:
        raise ToolchainError(
            f"CXX={shlex.join(words)} is not a program.\n"
            "It takes a C++ compiler, such as g++; to let dotcu choose: unset CXX"
        )
    text = _version((str(path), *words[1:]))
    return HostCompiler(
        words=(str(path), *words[1:]), version=text.partition("\n")[0], identity=_identity(path, text)
    )


def _version(words: tuple[str, ...]) -> str:
    done = process.run([*words, "--version"])
    if done.status != 0:
        raise ToolchainError(f"{done.line} failed with status {done.status}:\n{done.stderr.strip()}")
    return done.stdout


def _identity(path: Path, text: str) -> str:
    digest = hashlib.sha256(read_file(path.resolve(), 4 << 30))
    digest.update(text.encode())
    return digest.hexdigest()


def nvcc(torch_cuda: Version | None) -> Nvcc:
    """Return the first nvcc, of pip, CUDA_HOME and PATH, that is whole and, with torch, of its CUDA major."""
    refusals = []
    for path in _nvccs():
        known = _nvcc(path)
        if isinstance(known, Nvcc):
            if torch_cuda is None or known.version[0] == torch_cuda[0]:
                return known
            known = Rejected(
                f"it is of CUDA {dotted(known.version)} and torch of CUDA {dotted(torch_cuda)}: "
                "the two would load different CUDA runtimes into one process"
            )
        refusals.append(f"    {path}: {known}")
    _nvcc.cache_clear()  # what it lacks may be installed before the next call
    happened = "No nvcc fits:\n" + "\n".join(refusals) if refusals else "No nvcc was found."
    raise ToolchainError(
        f"{happened}\n"
        "Launchers in a .cu file are compiled by nvcc, from pip or from an installed toolkit.\n"
        f"{_install(torch_cuda)}\n"
        "A file with only kernels needs none: dotcu.load"
    )


def architectures(compiler: Nvcc) -> list[int]:
    """Return the architectures that an nvcc makes code for: 75, 80, ..."""
    done = process.run([compiler.path, "--list-gpu-arch"])
    numbers = [int(number) for number in re.findall(r"^compute_(\d+)$", done.stdout, re.MULTILINE)]
    if not numbers:
        raise ToolchainError(f"{done.line} names no architecture:\n{(done.stderr or done.stdout).strip()}")
    return numbers


def _nvccs() -> Iterator[Path]:
    for entry in sys.path:
        for folder in sorted(matching(Path(entry), "nvidia/cu[1-9]*/bin"), reverse=True) if entry else ():
            if is_file(folder / "nvcc"):
                yield folder / "nvcc"
    home = settings.current().cuda_home
    if home and is_file(home / "bin" / "nvcc"):
        yield home / "bin" / "nvcc"
    on_path = process.find("nvcc")
    if on_path:
        yield on_path


@functools.cache
def _nvcc(path: Path) -> Nvcc | Rejected:
    try:
        text = _version((str(path),))
        # the toolkit's folder from nvcc itself: a script on PATH may start another
        shown = process.run([path, "--dryrun", "-x", "cu", "/dev/null", "-c", "-o", "/dev/null"]).stderr
    except ToolchainError as error:
        return Rejected(str(error))
    stated = re.search(r"^#\$ TOP=(.+)$", shown, re.MULTILINE)
    top = Path(stated[1]).resolve() if stated else path.resolve().parent.parent
    match = _RELEASE.search(text)
    if match is None:
        return Rejected("it does not show its version")
    if not is_file(top.joinpath(*_CICC)):
        return Rejected(f"it lacks {top.joinpath(*_CICC)}, which pip has in nvidia-nvvm")
    return Nvcc(
        path=path, version=(int(match[1]), int(match[2])), home=top,
        include=_with(top, _INCLUDE, "cuda_runtime.h"), library=_with(top, _LIBRARY, "libcudart*"),
        identity=_identity(path, text),
    )  # fmt: skip


def _with(top: Path, places: tuple[str, ...], pattern: str) -> Path:
    """Return the first of some folders of a toolkit that has a file."""
    folders = [folder for place in places for folder in matching(top, place)]
    return next((folder for folder in folders if list(matching(folder, pattern))), top / places[0])


def _install(torch_cuda: Version | None) -> str:
    if torch_cuda is not None and torch_cuda[0] < 13:  # pip's package of CUDA 12 has ptxas, and no nvcc
        return f"Install the toolkit of CUDA {dotted(torch_cuda)} and type: export CUDA_HOME=FOLDER"
    version = f"=={torch_cuda[0]}.{torch_cuda[1]}.*" if torch_cuda else ">=13,<14"
    packages = " ".join(f'"nvidia-{name}{version}"' for name in ("cuda-nvcc", "nvvm", "cuda-crt"))
    return f"Type: pip install {packages}"


@dataclass(frozen=True, kw_only=True)
class TorchInstall:
    """An installed torch, as compilers see it.

    Attributes:
        cuda: The CUDA that it was built for, None for a build without.
        folder: Of the package.
        identity: Distinguishes it from any other build.
    """

    version: str
    cuda: Version | None
    folder: Path
    identity: str

    @property
    def include(self) -> tuple[Path, ...]:
        """Its headers' folders, and Python's, which its bindings include."""
        python = Path(sysconfig.get_paths()["include"])
        own = self.folder / "include"
        return own, own / "torch" / "csrc" / "api" / "include", python

    def compile_words(self) -> tuple[str, ...]:
        """Return the options of every source; `-isystem`, so that warnings are about user code only."""
        folders = [word for folder in self.include for word in ("-isystem", str(folder))]
        return (STANDARD, "-DTORCH_API_INCLUDE_EXTENSION_H", *folders)

    def link_words(self, *, cuda: bool, portable: bool) -> tuple[str, ...]:
        """Return the library's link options; torch's libraries are loaded first, so it needs no path.

        A portable library needs of torch `libtorch.so` alone, which leads to all that a build has: with CUDA
        to `libtorch_cuda.so`, whose functions are weak in the library, so that it loads if there are none.
        The C++ library comes first: torch's own libraries have copies of some of its functions.
        """
        folder = f"-L{self.folder / 'lib'}"
        if not portable:
            names = (*_LIBRARIES, *(_CUDA_LIBRARIES if cuda and self.cuda else ()))
            return (folder, *(f"-l{name}" for name in names))
        forced = ("--push-state", "--no-as-needed", "-ltorch", "--pop-state")
        # nvcc keeps the order of these alone
        return ("-lstdc++", folder, *(part for word in forced for part in ("-Xlinker", word)))


def find_torch() -> TorchInstall:
    """Return the torch that an import would give."""
    build, spec = toolchain.find_torch(), importlib.util.find_spec("torch")
    if build is None or spec is None or spec.origin is None:
        raise EnvironmentFault(
            "C++ is compiled against torch, which is not installed.\n    pip install torch"
        )
    folder = Path(spec.origin).parent
    # the commit that version.py names, and the sizes of the libraries
    sizes = sorted((file.name, file.stat().st_size) for file in matching(folder / "lib", "lib*.so"))
    text = read_text(folder / "version.py", "replace")
    identity = hashlib.sha256(repr((build.version, sizes, text)).encode()).hexdigest()
    return TorchInstall(version=build.version, cuda=build.cuda, folder=folder, identity=identity)

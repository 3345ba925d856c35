"""What of torch native code is compiled with and linked against, told without importing torch."""

from __future__ import annotations

import hashlib
import importlib.util
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile import torch_build
from dotcu.compile.target import Version
from dotcu.errors import EnvironmentFault

STANDARD = "-std=c++20"
"""What torch's headers are written in. Source: torch.utils.cpp_extension of torch 2.13."""

# Of two the linker takes those that are used: a library on the stable ABI does not come to need Python.
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
_CUDA_LIBRARIES = ("c10_cuda", "torch_cuda")


@dataclass(frozen=True, kw_only=True)
class TorchParts:
    """An installed torch, as compilers see it.

    Attributes:
        cuda: The CUDA that it was built for, None for a build without.
        folder: Of the package.
        identity: What tells it from any other build.
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
        """For every source; `-isystem`, so that a user's warnings are of the user's code."""
        folders = [word for folder in self.include for word in ("-isystem", str(folder))]
        return (STANDARD, "-DTORCH_API_INCLUDE_EXTENSION_H", *folders)

    def link_words(self, *, cuda: bool) -> tuple[str, ...]:
        """For the library; torch's own libraries are loaded before it, so no path to them is kept."""
        names = (*_LIBRARIES, *(_CUDA_LIBRARIES if cuda and self.cuda else ()))
        return (f"-L{self.folder / 'lib'}", *(f"-l{name}" for name in names))

    def portable_link_words(self) -> tuple[str, ...]:
        """For a library that other builds of torch load, too.

        Of torch it needs `libtorch.so` alone, which leads to all that a build has: with CUDA to
        `libtorch_cuda.so`, whose functions are weak in the library, so that it loads where there are none.
        The C++ library comes first: torch's own libraries have copies of some of its functions.
        """
        forced = ("--push-state", "--no-as-needed", "-ltorch", "--pop-state")
        words = (
            part for word in forced for part in ("-Xlinker", word)
        )  # nvcc keeps the order of these alone
        return ("-lstdc++", f"-L{self.folder / 'lib'}", *words)


def find() -> TorchParts:
    """The torch that an import would give.

    Raises:
        EnvironmentFault: There is none.
    """
    build, spec = torch_build.find(), importlib.util.find_spec("torch")
    if build is None or spec is None or spec.origin is None:
        raise EnvironmentFault(
            "Native code is compiled against torch, which is not installed.\n    pip install torch"
        )
    folder = Path(spec.origin).parent
    return TorchParts(
        version=build.version, cuda=build.cuda, folder=folder, identity=_identity(folder, build.version)
    )


def _identity(folder: Path, version: str) -> str:
    """The version, the commit that `version.py` names, and the sizes of the libraries."""
    sizes = sorted((file.name, file.stat().st_size) for file in (folder / "lib").glob("lib*.so"))
    text = (folder / "version.py").read_text(errors="replace")
    return hashlib.sha256(repr((version, sizes, text)).encode()).hexdigest()

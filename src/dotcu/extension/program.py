"""A program of its own, `main` and kernels in one `.cu`: compiled by nvcc, kept, and run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dotcu import process
from dotcu.compile import driver
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.extension import making, tools
from dotcu.extension.load import targets
from dotcu.extension.symbols import undefined
from dotcu.extension.units import Request, Tools, is_cuda, name_of

_CALLS = re.compile(r"__cudaLaunchKernel|cuda[A-Z]\w*|cu[A-Z][a-z]\w*")
"""Functions of the CUDA runtime and driver, but not those that nvcc has every file call, used or not."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program.

    Attributes:
        path: The file, in the cache.
        uses_cuda: Whether it launches a kernel, or calls the CUDA runtime or driver, anywhere.
        compiled: Whether that was done now.
    """

    path: Path
    uses_cuda: bool
    compiled: bool

    def to_json(self) -> dict[str, object]:
        return {"program": str(self.path), "uses_cuda": self.uses_cuda, "compiled": self.compiled}


def compile_program(
    source: Path,
    *,
    include: Sequence[Path] = (),
    flags: Sequence[str] = (),
    arch: str | None = None,
    debug: bool = False,
) -> Program:
    """Compile a program with nvcc, without torch, where that is not done yet.

    Args:
        flags: More flags for nvcc; `-l` and `-L` are for the linker as well.
        arch: `sm_80,sm_90a`; None for the GPUs of this machine.

    Raises:
        UsageError: The source is no `.cu`.
        SourceNotFound: It cannot be read.
        CompileError: nvcc or the linker refused; the first error, and where the whole output is.
        ToolchainError: No nvcc, or no host compiler.
    """
    if not is_cuda(source):
        raise UsageError(f"{source.name} is not a .cu file.\nA program to run is one: dotcu run main.cu")
    request = Request(
        name=name_of(source),
        sources=(source.resolve(),),
        include=tuple(path.resolve() for path in include),
        cuda_flags=tuple(flags),
        link_flags=tuple(flag for flag in flags if flag.startswith(("-l", "-L"))),
        targets=targets(arch.split(",") if arch else None),
        debug=debug,
        cuda=True,
    )
    built = making.build(request, Tools(host=tools.host(), nvcc=tools.nvcc(None), torch=None))
    built.path.chmod(0o755)
    uses_cuda = any(_CALLS.fullmatch(name) for data in built.objects for name in undefined(data))
    return Program(path=built.path, uses_cuda=uses_cuda, compiled=bool(built.compiled))


def run(program: Program, arguments: Sequence[str]) -> int:
    """Run a program on this process's own input and output, and return its exit status.

    Raises:
        EnvironmentFault: It uses CUDA, and there is no GPU.
    """
    if program.uses_cuda and not driver.gpus():
        raise EnvironmentFault(
            f"{program.path.name} is compiled, and needs a GPU to run: none is here.\n"
            f"The program: {program.path}\n"
            "A kernel alone runs without one: dotcu.load the same file, and call it on CPU tensors"
        )
    return process.hand_over([program.path, *arguments])

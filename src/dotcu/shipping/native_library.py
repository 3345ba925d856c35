"""The library of a project with native code: what to compile for which GPUs, and where it is in a wheel.

Imports no torch: hatchling's hook builds with it.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu import settings
from dotcu.errors import UsageError
from dotcu.extension import tools
from dotcu.extension.build import NativeBuild, build_request
from dotcu.extension.plan import NAME, NativeRequest, NativeTools, is_cuda, portable
from dotcu.shipping.project import Project, targets_of

OLDEST_TORCH = "2.10"
"""The first that has launch checks and pointers to const in its stable ABI."""

TAG = f"cp310-abi3-linux_{platform.machine()}"
"""The tag until auditwheel has found the oldest system. The first Python of torch 2.10 is 3.10."""

FILE = f"{NAME}.abi3.so"


@dataclass(frozen=True, kw_only=True)
class NativePlan:
    """A library, decided.

    Attributes:
        torch: The version that it is compiled with.
        compilers: The host's and, for `.cu` files, nvcc, by their usual names.
    """

    project: Project
    request: NativeRequest
    tools: NativeTools
    torch: str
    compilers: tuple[str, ...]

    @property
    def compiled_with(self) -> str:
        """A sentence on the compilers and the torch that make it."""
        left = ", ".join(path.name for path in self.request.left_out)
        without = f"; without CUDA, so without {left}" if left else ""
        return f"compiled by {' and '.join(self.compilers)}, with torch {self.torch}{without}"


def prepare(project: Project) -> NativePlan:
    """Find the compilers, and decide what to compile for which GPUs.

    Raises:
        UsageError: An architecture is unknown, or nothing is left to compile.
        ToolchainError: No host compiler; `.cu` files and no nvcc, or none of torch's CUDA major.
        EnvironmentFault: There is no torch to compile against.
    """
    assert project.native is not None
    torch, host = tools.find_torch(), tools.host()
    request = replace(portable(project.native, project.root, torch), lines=False)
    compiler = None
    if settings.current().use_cuda and any(map(is_cuda, request.sources)):
        compiler = tools.nvcc(torch.cuda)
        targets = targets_of(project.architectures, tools.architectures(compiler))
        request = replace(request, cuda=True, targets=targets)
    if not request.compiled:
        raise UsageError(
            "Without CUDA nothing is left to compile: every source is a .cu file.\n"
            "Build it with CUDA, or add C++ for the CPU to sources in [tool.dotcu.native]."
        )
    shown = (host.version, *(("nvcc {}.{}".format(*compiler.version),) if compiler else ()))
    return NativePlan(
        project=project, request=request, tools=NativeTools(host=host, nvcc=compiler, torch=torch),
        torch=torch.version, compilers=shown,
    )  # fmt: skip


def build(planned: NativePlan) -> NativeBuild:
    """Compile what is not compiled yet, and link the library.

    Raises:
        CompileError: A source or the link was refused; the first error, and where the whole output is.
    """
    return build_request(planned.request, planned.tools)


def built(project: Project) -> Path:
    """Return the library: the one that `dotcu build` has made, or compiled now."""
    library = settings.current().native_library
    return library if library is not None else build(prepare(project)).path


def place(project: Project) -> str:
    """Return the path of the library in a wheel: in the package of the first of the modules."""
    return f"{project.modules[0].split('.')[0]}/{FILE}"


def needed_to_build(project: Project) -> list[str]:
    """List what pip installs to build a wheel from source."""
    compiles = project.native is not None and settings.current().native_library is None
    return [f"torch>={OLDEST_TORCH}"] if compiles else []

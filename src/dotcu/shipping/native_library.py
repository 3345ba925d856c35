"""The library of a project with native code: what to compile for which GPUs, and where it is in a wheel.

Imports no torch: hatchling's hook builds with it.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from dotcu import settings
from dotcu.errors import UsageError
from dotcu.extension import tools
from dotcu.extension.build import build_request
from dotcu.extension.plan import NAME, NativeRequest, NativeTools, is_cuda, portable
from dotcu.shipping.project import Project, targets_of

OLDEST_TORCH = "2.10"
"""The first that has launch checks and pointers to const in its stable ABI."""

TAG = f"cp310-abi3-linux_{platform.machine()}"
"""The tag until auditwheel has found the oldest system. The first Python of torch 2.10 is 3.10."""

FILE = f"{NAME}.abi3.so"


def compiled_with(request: NativeRequest, used: NativeTools) -> str:
    """Return a sentence on the compilers and the torch that make a library."""
    assert used.torch is not None
    nvcc = " and nvcc {}.{}".format(*used.nvcc.version) if used.nvcc else ""
    left = ", ".join(path.name for path in request.left_out)
    without = f"; without CUDA, so without {left}" if left else ""
    return f"compiled by {used.host.version}{nvcc}, with torch {used.torch.version}{without}"


def prepare(project: Project) -> tuple[NativeRequest, NativeTools]:
    """Find the compilers, and decide what to compile for which GPUs: what `build_request` takes.

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
    return request, NativeTools(host=host, nvcc=compiler, torch=torch)


def built(project: Project) -> Path:
    """Return the library: the one that `dotcu build` has made, or compiled now."""
    library = settings.current().native_library
    return library if library is not None else build_request(*prepare(project)).path


def place(project: Project) -> str:
    """Return the path of the library in a wheel: in the package of the first of the modules."""
    return f"{project.modules[0].split('.')[0]}/{FILE}"


def needed_to_build(project: Project) -> list[str]:
    """List what pip installs to build a wheel from source."""
    compiles = project.native is not None and settings.current().native_library is None
    return [f"torch>={OLDEST_TORCH}"] if compiles else []

"""The files of a project's wheel that dotcu makes: compiled kernels, or the library of its native code.

Imports no torch and needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dotcu import settings
from dotcu.compile import toolchain
from dotcu.shipping import lock, native_library, project
from dotcu.shipping.assembling import assemble, compile_all, plan
from dotcu.shipping.project import Project


def compiled(root: Path, in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """Compile what a project's wheel holds: its lock, or its native library.

    Args:
        root: The folder of its pyproject.toml.
        in_wheel: The paths in the wheel of the files that it holds otherwise.

    Returns:
        The files to add, by their path in the wheel.

    Raises:
        UsageError: The lock is missing, or older than the sources.
        SourceError: A kernel, or native code, does not compile.
        EnvironmentFault: There is no compiler; for native code, no torch.
    """
    described = project.read(root)
    if described.native is not None:
        return {native_library.place(described): native_library.built(described).read_bytes()}
    locked = lock.read(root)
    targets = project.targets_of(described.architectures, toolchain.supported(toolchain.nvrtc()))
    lock.require_current(locked, root, targets)
    return assemble(compile_all(plan(locked, root, targets)), in_wheel) | _cpp(described)


def _cpp(described: Project) -> dict[str, bytes]:
    """The operators in C++, where `dotcu build --cpp` has written them."""
    folder, package = settings.current().cpp, described.modules[0].split(".")[0]
    written = sorted(folder.iterdir()) if folder is not None else ()
    return {f"{package}/cpp/{file.name}": file.read_bytes() for file in written}

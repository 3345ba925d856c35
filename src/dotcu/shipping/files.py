"""What a project's wheel gets: its lock, compiled, or its native library. Imports no torch, needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dotcu import settings
from dotcu.compile import toolchain
from dotcu.shipping import architectures, lock, native, project
from dotcu.shipping.assembling import assemble, compile_all, plan
from dotcu.shipping.project import Project


def compiled(root: Path, in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """What a project's wheel gets, by the path in it.

    Raises:
        UsageError: The lock is missing, or older than the sources.
        SourceError: A kernel, or native code, does not compile.
        EnvironmentFault: There is no compiler; for native code, no torch.
    """
    described = project.read(root)
    if described.native is not None:
        return {native.place(described): native.built(described).read_bytes()}
    locked = lock.read(root)
    targets = architectures.targets(described.architectures, toolchain.supported(toolchain.nvrtc()))
    lock.require_current(locked, root, targets)
    return assemble(compile_all(plan(locked, root, targets)), in_wheel) | _cpp(described)


def _cpp(described: Project) -> dict[str, bytes]:
    """The operators in C++, where `dotcu build --cpp` has written them."""
    folder, package = settings.current().cpp, described.modules[0].split(".")[0]
    written = sorted(folder.iterdir()) if folder is not None else ()
    return {f"{package}/cpp/{file.name}": file.read_bytes() for file in written}

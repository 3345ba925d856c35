"""What a project's wheel gets: its lock, compiled. Needs neither torch nor a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dotcu.compile import toolchain
from dotcu.shipping import architectures, lock, project
from dotcu.shipping.assembling import assemble, compile_all, plan


def compiled(root: Path, in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """What a project's wheel gets, by the path in it.

    Raises:
        UsageError: The lock is missing, or older than the sources.
        SourceError: A kernel does not compile.
        ToolchainError: There is no compiler.
    """
    described, locked = project.read(root), lock.read(root)
    targets = architectures.targets(described.architectures, toolchain.supported(toolchain.nvrtc()))
    lock.require_current(locked, root, targets)
    return assemble(compile_all(plan(locked, root, targets)), in_wheel)

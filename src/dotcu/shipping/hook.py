"""hatchling's build hook: compiles what dotcu.lock says, or native code, and adds it to a wheel.

[build-system]
requires = ["hatchling>=1.27", "dotcu"]
build-backend = "hatchling.build"

[tool.hatch.build.hooks.dotcu]
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from dotcu import settings
from dotcu.compile import toolchain
from dotcu.shipping import lock, native_library, project
from dotcu.shipping.assembling import assemble, compile_all, plan
from dotcu.shipping.project import Project


class DotcuHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds compiled kernels to a wheel; an editable installation compiles when a kernel is called."""

    PLUGIN_NAME = "dotcu"
    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before hatchling gathers the wheel's files."""
        if self.target_name != "wheel" or version == "editable":
            return
        files = compiled(Path(self.root), self._in_wheel())
        self._made = Path(tempfile.mkdtemp(prefix="dotcu-"))
        for number, (place, data) in enumerate(files.items()):
            made = self._made / str(number)
            made.write_bytes(data)
            build_data["force_include"][str(made)] = place
        if self._described().native is not None or settings.current().cpp is not None:
            build_data["pure_python"] = False
            build_data["tag"] = native_library.TAG
        elif build_data.get("pure_python") and not build_data.get("tag"):
            build_data["tag"] = "py3-none-any"  # also where requires-python is not said

    def dependencies(self) -> list[str]:
        """List what the build needs beside [build-system]: torch's headers, for native code yet to build."""
        return native_library.needed_to_build(self._described())

    def _described(self) -> project.Project:
        return project.read(Path(self.root))

    def _in_wheel(self) -> dict[Path, str]:
        """Map each file that the wheel holds otherwise to its path in it."""
        files = self.build_config.builder.recurse_included_files()
        return {Path(file.path).resolve(): Path(file.distribution_path).as_posix() for file in files}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was only made for the wheel."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


def compiled(root: Path, in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """Compile what a project's wheel holds: its lock, or its native library. Imports no torch, needs no GPU.

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


@hookimpl
def hatch_register_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Return the hook to hatchling, which asks by the entry point `hatch`."""
    return DotcuHook

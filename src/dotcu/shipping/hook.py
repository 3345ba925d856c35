"""hatchling's build hook: compiles what dotcu.lock says, or C++, and adds it to a wheel.

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
from dotcu.cpp.build import MAX_BYTES
from dotcu.files import read_file
from dotcu.shipping import lock, project
from dotcu.shipping.assembling import assemble, compile_all, plan


def compiled(root: Path, in_wheel: Mapping[Path, str]) -> dict[str, bytes]:
    """Compile what a project's wheel holds: its lock, or its library of C++.

    Args:
        in_wheel: The paths in the wheel of the files that it holds otherwise.

    Returns:
        The files to add, by their path in the wheel.
    """
    described = project.read(root)
    if described.cpp is not None:
        return {project.place_of_library(described): read_file(project.cpp_library(described), MAX_BYTES)}
    locked = lock.read(root)
    targets = project.targets_of(described.architectures, toolchain.supported(toolchain.nvrtc()))
    lock.require_current(locked, root, targets)
    files = assemble(compile_all(plan(locked, root, targets)), in_wheel)
    operators, package = settings.current().operator_library, described.modules[0].split(".")[0]
    for file in (
        sorted(operators.iterdir()) if operators is not None else ()
    ):  # `dotcu build --cpp` has written them
        files[f"{package}/cpp/{file.name}"] = read_file(file)
    return files


class DotcuHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds compiled kernels to a wheel; an editable installation compiles when a kernel is called."""

    PLUGIN_NAME = "dotcu"
    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before hatchling gathers the wheel's files."""
        if self.target_name != "wheel" or version == "editable":
            return
        others = self.build_config.builder.recurse_included_files()
        in_wheel = {Path(each.path).resolve(): Path(each.distribution_path).as_posix() for each in others}
        files = compiled(Path(self.root), in_wheel)
        self._made = Path(tempfile.mkdtemp(prefix="dotcu-"))
        for number, (place, data) in enumerate(files.items()):
            file = self._made / str(number)
            file.write_bytes(data)
            build_data["force_include"][str(file)] = place
        if project.read(Path(self.root)).cpp is not None or settings.current().operator_library is not None:
            build_data["pure_python"] = False
            build_data["tag"] = project.TAG
        elif build_data.get("pure_python") and not build_data.get("tag"):
            build_data["tag"] = "py3-none-any"  # also where requires-python is not said

    def dependencies(self) -> list[str]:
        """List what the build needs on top of [build-system]: torch's headers, for C++ to build."""
        return project.needed_to_build(project.read(Path(self.root)))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files that were only made for the wheel."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


@hookimpl
def hatch_register_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Return the hook to hatchling, which asks by the entry point `hatch`."""
    return DotcuHook

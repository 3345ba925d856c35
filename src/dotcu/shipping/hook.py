"""hatchling's build hook: compiles what dotcu.lock says, or native code, and adds it to a wheel.

[build-system]
requires = ["hatchling>=1.27", "dotcu"]
build-backend = "hatchling.build"

[tool.hatch.build.hooks.dotcu]
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from dotcu import settings
from dotcu.shipping import native_library, project
from dotcu.shipping.wheel_files import compiled


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
        """List what the build needs on top of [build-system]: torch's headers, for native code to build."""
        return native_library.needed_to_build(self._described())

    def _described(self) -> project.Project:
        return project.read(Path(self.root))

    def _in_wheel(self) -> dict[Path, str]:
        """Map each file that the wheel holds otherwise to its path in it."""
        files = self.build_config.builder.recurse_included_files()
        return {Path(file.path).resolve(): Path(file.distribution_path).as_posix() for file in files}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files that were only made for the wheel.

        Args:
            version: The kind of wheel.
            build_data: What hatchling built from.
            artifact_path: The wheel.
        """
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


@hookimpl
def hatch_register_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Return the hook to hatchling, which asks by the entry point `hatch`."""
    return DotcuHook

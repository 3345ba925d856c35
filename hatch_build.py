"""Builds dotcu's native part where there is a C compiler, when hatchling makes a wheel.

It is written for Python's limited API and links to nothing but libc, so one library serves every Python
from 3.10 on, every torch and every CUDA. Without a compiler or Python's headers, and for a free-threaded
Python, the installation succeeds all the same, and every call goes through Python; DOTCU_REQUIRE_NATIVE=1
makes that an error, for those who publish wheels. `python hatch_build.py` builds it in place.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "src" / "dotcu" / "native"
TARGET = ROOT / "src" / "dotcu" / "_native.abi3.so"
FLAGS = (
    "-O2",
    "-std=c11",
    "-fPIC",
    "-shared",
    "-Wl,--strip-all",  # debug information is three quarters of the library
    "-fvisibility=hidden",
    "-fstack-protector-strong",  # a write past an array on the stack ends the process, and is no way into it
    "-Wl,-z,relro,-z,now",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
)
OLDEST_GLIBC = "2.17"  # manylinux2014, which ziglang's compiler can aim at


class NotBuilt(Exception):
    """There is no compiler, it failed, or this Python takes no such library; says which."""


def compiler() -> list[str]:
    """The C compiler: $CC, else ziglang's, which makes manylinux code, else the system's."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    try:
        import ziglang  # noqa: F401
    except ImportError:
        found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if found is None:
            raise NotBuilt("there is no C compiler: set CC, install one, or pip install ziglang") from None
        return [found]
    return [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        f"{platform.machine()}-linux-gnu.{OLDEST_GLIBC}",
    ]


def build() -> Path:
    """Compile the library into the source tree.

    Raises:
        NotBuilt: There is no compiler, no Python.h, or it does not compile; or Python is free-threaded.
    """
    if sys.platform != "linux":
        raise NotBuilt(f"it is written for Linux, and this is {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # an import of it would enable the GIL for all threads
        raise NotBuilt("it relies on the GIL, and this Python is free-threaded")
    headers = sysconfig.get_path("include")
    if not (Path(headers) / "Python.h").exists():
        raise NotBuilt(f"Python's headers are not in {headers}")
    made = TARGET.with_name(f".{TARGET.name}.{os.getpid()}")
    # Debian's pyconfig.h includes another one, in a folder beside the headers.
    include = (f"-I{headers}", "-idirafter", str(Path(headers).parent))
    command = [*compiler(), *FLAGS, *include, *map(str, sorted(SOURCES.glob("*.c"))), "-o", str(made)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise NotBuilt(f"{shlex.join(command)} failed:\n{run.stderr}")
        made.replace(TARGET)  # whole or not at all: a process may have the old one open
    except OSError as error:
        raise NotBuilt(f"{command[0]} cannot be run: {error}") from error
    finally:
        made.unlink(missing_ok=True)
    return TARGET


def platform_tag() -> str:
    """Where the library runs: by ziglang on any Linux, else on ones like this, a tag that PyPI refuses."""
    machine = platform.machine()
    if "ziglang" in compiler():
        return f"manylinux_{OLDEST_GLIBC.replace('.', '_')}_{machine}.manylinux2014_{machine}"
    return f"linux_{machine}"


def prebuilt() -> bool:
    """Whether the gallery goes into the wheel compiled, which takes minutes: `dotcu build` asks for it."""
    return os.environ.get("DOTCU_PREBUILT") == "1"


def get_build_hook() -> type:
    """What hatchling asks for."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class NativeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
        """Adds the library and its tag to a wheel."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel":
                return
            if prebuilt() and version != "editable":
                self._add_gallery(build_data)
            try:
                library = build()
            except NotBuilt as reason:
                if os.environ.get("DOTCU_REQUIRE_NATIVE") == "1":
                    raise
                self.app.display_warning(f"dotcu's native part is not built: {reason}")
                return
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{platform_tag()}"
            build_data["artifacts"].append(str(library.relative_to(ROOT)))

        def dependencies(self) -> list[str]:
            return list(self.metadata.core.dependencies) if prebuilt() else []

        def _add_gallery(self, build_data: dict[str, Any]) -> None:
            """Let dotcu's own hook, out of this tree, compile what dotcu.lock says."""
            sys.path.insert(0, str(ROOT / "src"))
            from dotcu.shipping.hook import DotcuHook

            self._own = DotcuHook(
                self.root, {}, self.build_config, self.metadata, self.directory, self.target_name, self.app
            )
            self._own.initialize("standard", build_data)

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            if hasattr(self, "_own"):
                self._own.finalize(version, build_data, artifact_path)

    return NativeHook


if __name__ == "__main__":
    try:
        print(build())
    except NotBuilt as reason:
        sys.exit(f"dotcu's native part is not built: {reason}")

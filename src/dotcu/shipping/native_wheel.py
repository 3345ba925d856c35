"""A wheel of native code: pip builds it around the library, auditwheel finds its tag, and the audit decides
whether it is kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dotcu import process
from dotcu.elf import undefined_symbols
from dotcu.errors import ToolchainError, UsageError
from dotcu.extension.build import NativeBuild
from dotcu.inspection import binaries
from dotcu.inspection.binaries.runs_on import floor_of
from dotcu.shipping.audit import CUDAS, TORCHS, Audit, audit, is_one_of
from dotcu.shipping.building import pip_wheel

_REPAIR_S = 600.0


def make(
    root: Path, sources: Sequence[Path], built: NativeBuild, out: Path, *, isolated: bool = True
) -> Audit:
    """Make the wheel, and put it into its place if the audit passes; else there is none.

    Args:
        root: The project's folder.
        sources: Those that were compiled.
        built: The library.
        out: The folder for the wheel.
        isolated: Whether pip makes an environment for the build.

    Raises:
        UsageError: The library needs another that neither the system, torch nor CUDA provides.
        ToolchainError: pip or auditwheel failed; has their words.
    """
    host = binaries.read(built.path).host
    floor = floor_of(host) if host else None
    lacking = [name for name in (floor.outside if floor else ()) if not is_one_of(name, (*TORCHS, *CUDAS))]
    if lacking:
        raise UsageError(
            f"The library needs {', '.join(lacking)}, which neither the system, torch nor CUDA provides.\n"
            "Link it statically, in [tool.dotcu.native]: link-flags = ['/path/to/libNAME.a']"
        )
    users: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for source, data in zip(sources, built.objects, strict=True):
        for name in undefined_symbols(data):
            users[name] += (source.name,)
    given = {"DOTCU_NATIVE_LIBRARY": str(built.path)}
    return audited_wheel(root, out, given, users, isolated=isolated)


def audited_wheel(
    root: Path, out: Path, given: Mapping[str, str], users: Mapping[str, tuple[str, ...]], *, isolated: bool
) -> Audit:
    """Let pip build a wheel for Linux, tag and audit it; put it into its place if the audit passes.

    Args:
        root: The project's folder.
        out: The folder for the wheel.
        given: Variables for the hook.
        users: By symbol, the sources whose objects use it, where they are known.
        isolated: Whether pip makes an environment for the build.

    Raises:
        ToolchainError: pip or auditwheel failed; has their words.
    """
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        built = pip_wheel(root, Path(folder), isolated=isolated, given=given)
        repaired = repair(built, Path(folder) / "repaired")
        result = audit(repaired, users)
        if not result.passed:
            return result
        place = out / repaired.name
        shutil.move(repaired, place)
        return replace(result, wheel=place)


def repair(wheel: Path, folder: Path) -> Path:
    """Let auditwheel find the oldest system that a wheel runs on, and tag it so. It bundles nothing.

    Raises:
        ToolchainError: auditwheel refused it.
    """
    excluded = [word for pattern in (*TORCHS, *CUDAS) for word in ("--exclude", pattern)]
    done = process.run(
        [
            sys.executable, "-m", "auditwheel", "repair", "--patcher", "none", *excluded,
            "--wheel-dir", folder, wheel,
        ],
        timeout_s=_REPAIR_S,
    )  # fmt: skip
    repaired = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.status or not repaired:
        raise ToolchainError(
            f"auditwheel could not determine the systems of {wheel.name}:\n"
            f"{(done.stderr or done.stdout).strip()}\nThe command: {done.line}"
        )
    return repaired[0]

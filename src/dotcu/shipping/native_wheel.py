"""`dotcu build` of native code: the library goes to pip's wheel, auditwheel tells its tag, the audit decides.

Everything is made in a folder beside the goal; a wheel that the audit refuses never gets to its place.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dotcu import process
from dotcu.errors import ToolchainError, UsageError
from dotcu.extension.making import Built
from dotcu.extension.symbols import undefined
from dotcu.inspection import binaries
from dotcu.shipping.audit import Audit, audit
from dotcu.shipping.building import pip_wheel
from dotcu.shipping.native import NativePlan
from dotcu.shipping.rules import CUDAS, TORCHS, is_one_of

_REPAIR_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Made:
    """A wheel, and what the audit says of it.

    Attributes:
        audit: Of the wheel at its place; where it does not hold, there is none.
    """

    planned: NativePlan
    audit: Audit

    @property
    def compiled_with(self) -> str:
        """What made it, in words."""
        planned = self.planned
        left = ", ".join(path.name for path in planned.request.left_out)
        without = f"; without CUDA, so without {left}" if left else ""
        return f"compiled by {' and '.join(planned.compilers)}, with torch {planned.torch}{without}"


def make(planned: NativePlan, built: Built, out: Path, *, isolated: bool = True) -> Made:
    """Make the wheel, and put it into its place if the audit holds.

    Raises:
        UsageError: The library needs another that nobody brings.
        ToolchainError: pip or auditwheel failed; has their words.
    """
    _require_brought(built.path)
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        root, given = planned.project.root, {"DOTCU_NATIVE_LIBRARY": str(built.path)}
        made = pip_wheel(root, Path(folder), isolated=isolated, given=given)
        repaired = repair(made, Path(folder) / "repaired")
        found = audit(repaired, _users(planned, built))
        if found.held:
            place = out / repaired.name
            shutil.move(repaired, place)
            found = replace(found, wheel=place)
    return Made(planned=planned, audit=found)


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
            f"auditwheel could not tell for which systems {wheel.name} is:\n"
            f"{(done.stderr or done.stdout).strip()}\nThe command: {done.line}"
        )
    return repaired[0]


def _require_brought(library: Path) -> None:
    host = binaries.read(library).host
    lacking = [
        name for name in (host.floor.outside if host and host.floor else ())
        if not is_one_of(name, (*TORCHS, *CUDAS))
    ]  # fmt: skip
    if lacking:
        raise UsageError(
            f"The library needs {', '.join(lacking)}, which neither the system, torch nor CUDA brings.\n"
            "Link it statically, in [tool.dotcu.native]: link-flags = ['/path/to/libNAME.a']"
        )


def _users(planned: NativePlan, built: Built) -> Mapping[str, tuple[str, ...]]:
    """By symbol, the sources whose objects use it and do not define it."""
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for source, data in zip(planned.request.compiled, built.objects, strict=True):
        for name in undefined(data):
            found[name] += (source.name,)
    return found

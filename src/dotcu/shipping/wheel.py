"""`dotcu build`: trace the operators, write dotcu.lock, compile, and let pip make the wheel."""

from __future__ import annotations

import errno
import importlib.machinery
import os
import posixpath
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import process, report_base, serialize, settings
from dotcu.compile import ObjectCode, prebuilt, toolchain
from dotcu.compile.prebuilt import FOLDER, INDEX
from dotcu.errors import NotCovered, ToolchainError, UsageError, reason
from dotcu.shipping import lock
from dotcu.shipping.assembling import Job, compile_all, plan
from dotcu.shipping.lock import NAME, Lock
from dotcu.shipping.project import targets_of

if TYPE_CHECKING:
    from dotcu.compile import Target
    from dotcu.operator import Operator
    from dotcu.shipping.project import Project

_PIP_S = 3600.0
_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class WheelPlan:
    """The plan of a wheel: its project, the lock, and every compile.

    Attributes:
        before: The lock that is there; None if there is none.
        lock: The one that the bodies ask for, or with `locked` the one that is there.
        operators: All that the project's modules define.
        targets: What machine code and PTX are compiled for.
        notes: What could not be traced, and why.
    """

    project: Project
    before: Lock | None
    lock: Lock
    operators: tuple[Operator, ...]
    targets: tuple[Target, ...]
    notes: tuple[str, ...]
    jobs: tuple[Job, ...] = field(repr=False)

    @property
    def change(self) -> str:
        """A sentence on what becomes of the lock."""
        if self.before is None or self.before == self.lock:
            change = "new" if self.before is None else "unchanged"
            return f"{NAME} is {change}: {len(self.lock.kernels())} kernels, counted for each architecture"
        added = len(self.lock.kernels() - self.before.kernels())
        removed = len(self.before.kernels() - self.lock.kernels())
        return f"{NAME} has changed: {added} kernels added, {removed} removed; commit it"


def prepare(
    project: Project, *, locked: bool = False, report: Callable[[str], object] = lambda _: None
) -> WheelPlan:
    """Trace a project's operators, and decide what to compile.

    Args:
        locked: Refuse bodies that reach more than the lock that is there.
        report: Is called with each operator that is traced, and the architecture.
    """
    from dotcu.shipping.tracing import trace

    targets = targets_of(project.architectures, toolchain.supported(toolchain.nvrtc()))
    before: Lock | None = None
    with nullcontext() if locked else suppress(UsageError):  # one that cannot be read, as after a merge
        before = lock.read(project.root)
    traced, operators, notes = trace(project, targets, report)
    if not traced.sources:
        raise UsageError(
            f"The operators of {', '.join(project.modules)} launch no kernel of this project in CUDA "
            "C++, so there is nothing to compile; PTX and cubins are compiled already.\n"
            "If they launch others, give them samples, which show what they launch: @name.samples\n"
            "For PTX alone, leave [tool.hatch.build.hooks.dotcu] out of pyproject.toml, and type: pip wheel ."
        )
    chosen = traced.with_objects_of(before)
    if locked:
        _require_covered(before, traced)
        lock.require_current(before, project.root, targets)
        chosen = before
    return WheelPlan(
        project=project, before=before, lock=chosen, operators=operators,
        targets=targets, notes=notes, jobs=tuple(plan(chosen, project.root, targets)),
    )  # fmt: skip


def _require_covered(before: Lock, now: Lock) -> None:
    lacking: dict[tuple[str, str], list[str]] = {}
    for path, _, name, arch in sorted(now.kernels() - before.kernels()):
        lacking.setdefault((path, name), []).append(arch)
    if lacking:
        rows = [f"    {path}: {name} for {', '.join(some)}" for (path, name), some in lacking.items()]
        rest = [f"    ... and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
        raise NotCovered(
            "\n".join([f"Bodies reach kernels that {NAME} does not have:", *rows[:_SHOWN], *rest])
            + "\nA package without them would have to compile. Write a new lock: dotcu build"
        )


def compile_kernels(planned: WheelPlan, report: Callable[[str], object]) -> dict[Job, ObjectCode]:
    """Compile everything into the cache, from which the wheel is made, and then write the lock."""
    codes = compile_all(planned.jobs, report)
    write_lock(planned)
    return codes


def write_lock(planned: WheelPlan) -> None:
    if planned.lock == planned.before:
        return
    lock.write(planned.lock, planned.project.root)


def require_folder(out: Path) -> None:
    """Make the folder that a wheel is to go to, before anything is compiled."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "It cannot be written")
    except OSError as error:
        raise UsageError(
            f"The wheel cannot go to {out}: {reason(error).lower()}.\nName a folder: dotcu build --out FOLDER"
        ) from error


@contextmanager
def folder_for(out: Path) -> Iterator[None]:
    """A folder that a wheel is to go to; if it was not there, and stays empty, it is gone again."""
    new = not out.exists()
    require_folder(out)
    try:
        yield
    finally:
        if new:
            with suppress(OSError):  # it holds something
                out.rmdir()


def make_wheel(planned: WheelPlan, out: Path, *, isolated: bool = True) -> Contents:
    """Let pip build the wheel, of code that is in the cache, and move it to its place when it is whole."""
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        checked = {"DOTCU_NVRTC": str(toolchain.nvrtc().path)}  # an index may have a newer one
        wheel = pip_wheel(planned.project.root, Path(folder), isolated=isolated, given=checked)
        place = out / wheel.name
        shutil.move(wheel, place)
    return contents(place)


def pip_wheel(root: Path, folder: Path, *, isolated: bool, given: Mapping[str, str] | None = None) -> Path:
    """Let pip build the wheel of a project into a folder; `given` are more variables for the hook."""
    if importlib.machinery.PathFinder.find_spec("pip") is None:  # importlib.util asks setuptools, which warns
        raise ToolchainError("The wheel is built by pip, which is not installed.\nType: python -m ensurepip")
    command = [*process.module_command("pip"), "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [] if isolated else ["--no-build-isolation"]
    now = settings.current()  # by which the hook is to compile, too
    mine = {"TORCH_CUDA_ARCH_LIST": now.arch_list, "DOTCU_NVRTC": now.nvrtc, "DOTCU_PREBUILT": 1}
    environment = {name: str(value) for name, value in mine.items() if value is not None} | dict(given or {})
    done = process.run([*command, "--wheel-dir", folder, root], timeout_s=_PIP_S, environment=environment)
    wheels = sorted(folder.glob("*.whl"))
    if done.status or not wheels:
        raise ToolchainError(
            f"pip could not build the wheel of {root}:\n{(done.stderr or done.stdout).strip()}\n"
            "It installs what [build-system] requires. Where no index has it, install that here, and type: "
            "dotcu build --no-isolation"
        )
    return wheels[0]


def nvrtc_of_version(asked: str) -> Path:
    """Return the installed NVRTC of a CUDA version such as 12.8, for a wheel that older drivers take."""
    if not re.fullmatch(r"\d+\.\d+", asked):
        raise UsageError(
            f"An NVRTC's version is that of its CUDA, got {asked!r}.\nFor example: dotcu build --nvrtc 12.8"
        )
    by_version: dict[str, Path] = {}
    for compiler in toolchain.installed():
        by_version.setdefault("{}.{}".format(*compiler.version), compiler.path)
    if asked in by_version:
        return by_version[asked]
    installed = ", ".join(by_version) or "none"
    suffix = "-cu12" if asked.startswith("12.") else ""
    raise UsageError(
        f"There is no NVRTC {asked} here; installed: {installed}.\n"
        f'Type: pip install "nvidia-cuda-nvrtc{suffix}=={asked}.*"'
    )


# The contents of a built wheel: bytes by architecture and by kernel, against what PyPI takes.


PYPI_BYTES = 100 * 2**20
"""The largest file that PyPI takes without asking. Source: docs.pypi.org, "Storage limits"."""


def size_line(wheel: Path, size_bytes: int) -> str:
    share = size_bytes / PYPI_BYTES
    return f"{wheel.name}: {size_bytes:,} bytes, {share:.2%} of the 100 MB that PyPI accepts"


@dataclass(frozen=True, kw_only=True)
class Contents(report_base.Report):
    """A wheel in bytes, compressed as they are in it.

    Attributes:
        by_architecture: Of device code; PTX for drivers and for the simulator is one.
        by_kernel: The same by what is before a template's arguments, largest first.
        instantiations: How many kernels there are; one for several targets counts once.
        compiler: The NVRTC's CUDA version; None if the wheel holds no code of dotcu's.
    """

    wheel: Path
    size_bytes: int
    by_architecture: Mapping[str, int]
    by_kernel: Mapping[str, int]
    instantiations: int
    compiler: tuple[int, int] | None

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("code for", "bytes", "kernel", "bytes"):
            table.add_column(name, justify="right" if name == "bytes" else "left")
        pairs = zip_longest(self.by_architecture.items(), self.by_kernel.items(), fillvalue=("", ""))
        for row in pairs:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for pair in row for cell in pair))
        lines = [size_line(self.wheel, self.size_bytes)]
        if self.compiler is not None:
            major, minor = self.compiler
            free = (
                " It works with every Python, torch and CPU."
                if self.wheel.name.endswith("-none-any.whl")
                else ""
            )
            lines += [
                f"{self.instantiations} instantiations; machine code needs a driver for CUDA {major}.0, ",
                f"PTX one for CUDA {major}.{minor}.{free}",
            ]
        return Group(table, Text(), *map(Text, lines))

    def to_json(self) -> dict[str, Any]:
        return dict(serialize.plain(self))


def contents(wheel: Path) -> Contents:
    by_architecture: Counter[str] = Counter()
    by_kernel: Counter[str] = Counter()
    instantiations, compiler = 0, None
    with zipfile.ZipFile(wheel) as opened:
        sizes = {info.filename: info.compress_size for info in opened.infolist()}
        for name in sizes:
            folder, file = posixpath.split(name)
            if file != INDEX or posixpath.basename(folder) != FOLDER:
                continue
            manifest = prebuilt.parse_manifest(opened.read(name), Path(name))
            compiler = manifest.compiler
            kernels = [row for loads in manifest.sources.values() for load in loads for row in load.kernels]
            instantiations += sum(len(row.names) + len(row.late) for row in kernels)
            whole: Counter[str] = Counter()  # a pack's bytes are shared out by the length of its records
            for pack, _, length in manifest.positions:
                whole[pack] += length
            seen: set[int] = set()
            variants = [(row, variant) for row in kernels for variant in row.variants]
            for row, variant in variants:
                if variant.record in seen:
                    continue
                seen.add(variant.record)
                pack, _, length = manifest.positions[variant.record]
                share = round(sizes[posixpath.join(folder, pack)] * length / whole[pack])
                shown = dict.fromkeys(each.split("<")[0] for each in (*row.names, *row.late))
                by_kernel[", ".join(shown) or "variables"] += share
                by_architecture[str(variant.target)] += share
    return Contents(
        wheel=wheel, size_bytes=wheel.stat().st_size, by_architecture=dict(sorted(by_architecture.items())),
        by_kernel=dict(by_kernel.most_common()), instantiations=instantiations, compiler=compiler,
    )  # fmt: skip

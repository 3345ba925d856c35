"""`dotcu doctor`: what this machine has, which parts do not fit each other, and what to do about each."""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dotcu import errors, process, pyproject, settings
from dotcu.__about__ import __version__
from dotcu.cli import console
from dotcu.files import is_file, is_folder, matching

if TYPE_CHECKING:
    from dotcu.compile import toolchain_report
    from dotcu.compile.driver import Gpu
    from dotcu.compile.target import Version
    from dotcu.compile.toolchain import TorchBuild

FINE, ABSENT, FAULT = "fine", "absent", "fault"
"""The states of a part. One that is `absent` is not always needed; a `fault` has to be fixed."""

OLDEST_TORCH = (2, 11)


@dataclass(frozen=True, kw_only=True)
class Component:
    """A part of the machine, judged.

    Attributes:
        note: What there is to say of it; if it is not fine, why.
        remedy: The line to type, "" where nothing is needed.
    """

    name: str
    state: str
    version: str = ""
    path: str = ""
    note: str = ""
    remedy: str = ""


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Show driver, GPUs, torch, compiler, headers and tools; which do not fit; what to do about each.

    The exit code is 3 if something essential is missing or does not fit. A GPU is not essential:
    without one, kernels run in the simulator.
    """
    parts = examine()
    if as_json:
        console.as_json({"dotcu": __version__, "parts": [asdict(part) for part in parts]})
    else:
        _show(parts)
    if any(part.state == FAULT for part in parts):
        raise typer.Exit(errors.EXIT_ENVIRONMENT)


def examine() -> list[Component]:
    """Look at this machine. Initializes the driver where there is one; makes no context, imports no torch."""
    from dotcu.compile import driver, toolchain, toolchain_report

    wrong = misdirected(settings.current())
    with settings.override(**dict.fromkeys(wrong)):  # what there is without them
        rows = toolchain_report.report()
    gpus = driver.gpus()
    torch = toolchain.find_torch()
    misfit = None if torch is None else judge_torch(torch, driver.version(), gpus)
    judged = [misfit if misfit and row.name == "torch" else judge(row, rows) for row in rows]
    native = native_parts(has_torch=torch is not None)
    return [*wrong.values(), *judged, *native, *(tuned_parts(gpus) if torch else ())]


def tuned_parts(gpus: Sequence[Gpu]) -> Iterator[Component]:
    """Say of each tuned file of the project around the working directory whose entries the GPUs here use."""
    folders = list(_packages(Path.cwd()))
    for path in sorted({file for folder in folders for file in matching(folder, "**/*.tuned.toml")}):
        from dotcu.operator import tuned
        from dotcu.operator.configurations import entry_for, gpu_at_hand

        name = path.name
        try:
            found = [entry for entries in tuned.read(path).operators.values() for entry in entries]
        except errors.UsageError as error:
            note, _, remedy = str(error).partition("\n")
            yield Component(name=name, state=ABSENT, path=str(path), note=note, remedy=remedy)
            continue
        for gpu in gpus:
            used = entry_for(gpu_at_hand(gpu.index), found)
            lacks = f"no entry for {gpu.name}, nor for its relatives: it uses the defaults"
            note = lacks if used is None else f"{gpu.name} uses the entries of {used.name}"
            state, remedy = (ABSENT, "dotcu tune") if used is None else (FINE, "")
            yield Component(name=name, state=state, path=str(path), note=note, remedy=remedy)
        if not gpus:
            names = ", ".join(dict.fromkeys(entry.gpu for entry in found)) or "none"
            yield Component(name=name, state=FINE, path=str(path), note=f"for {names}; there is no GPU here")


def _packages(here: Path) -> Iterator[Path]:
    """Yield the folders of the packages of the project that a folder is in."""
    root = pyproject.enclosing(here)
    if root is None:
        return
    for module in (pyproject.section(root / pyproject.FILE) or {}).get("modules", ()):
        top = str(module).partition(".")[0]
        yield from (each for each in (root / "src" / top, root / top) if is_folder(each))


_ASK_TORCH = """
import json
from dotcu import torch_compat
from dotcu.kernel import native
print(json.dumps([native.unusable(), [[row.path, row.without] for row in torch_compat.missing()]]))
"""


def native_parts(has_torch: bool) -> Iterator[Component]:
    """Look for the native part, and for the names of torch that it needs; without them calls only cost more.

    Another process imports torch: an import that fails or ends it is not the end of this one.
    """
    costs = "launches and calls go through Python, which costs more"
    library = find_spec("dotcu._native")
    if library is None and sysconfig.get_config_var("Py_GIL_DISABLED"):
        note = f"there is none for a free-threaded Python; {costs}"
        yield Component(name="native part", state=ABSENT, note=note)
        return
    why, lacking = ("" if library else "it is missing"), []
    if has_torch and library:
        answer = process.run([sys.executable, "-c", _ASK_TORCH])
        try:
            why, lacking = json.loads(answer.stdout.strip().rpartition("\n")[2])
        except ValueError:
            why = "torch cannot be imported"
    if why:
        what, _, remedy = why.partition("\n")
        remedy = remedy.rpartition(": ")[2] or "pip install --force-reinstall dotcu"
        yield Component(name="native part", state=ABSENT, note=f"{what}; {costs}", remedy=remedy)
    else:
        path = library.origin if library else ""
        yield Component(name="native part", state=FINE, version=__version__, path=path or "")
    for name, without in lacking:
        note = f"this torch has no {name}: {without}"
        yield Component(name="torch", state=ABSENT, note=note, remedy="pip install --upgrade dotcu")


def misdirected(now: settings.Settings) -> dict[str, Component]:
    """The settings that point to something else than they should, by field, each as a fault."""
    from dotcu.compile import nvrtc

    faults = {}
    if now.nvrtc is not None:
        reason = "" if is_file(now.nvrtc) else "not a file"
        try:
            if not reason:
                nvrtc.architectures(now.nvrtc)
        except errors.ToolchainError:  # no library at all, or one without NVRTC's functions
            reason = "a file, but not NVRTC"
        if reason:
            faults["nvrtc"] = Component(
                name="DOTCU_NVRTC", state=FAULT, path=str(now.nvrtc), remedy="unset DOTCU_NVRTC",
                note=f"it is {reason}; the path of a libnvrtc.so is required",
            )  # fmt: skip
    if now.cuda_home is not None and not is_folder(now.cuda_home):
        faults["cuda_home"] = Component(
            name="CUDA_HOME", state=FAULT, path=str(now.cuda_home), remedy="unset CUDA_HOME",
            note="it is not a folder",
        )  # fmt: skip
    return faults


def judge(row: toolchain_report.ToolchainRow, rows: Sequence[toolchain_report.ToolchainRow]) -> Component:
    """Return what a row of the toolchain's report means for dotcu, given the other rows. Pure."""
    from dotcu.compile.toolchain import TOOLS

    another_serves = any(other.fits and other.name == row.name for other in rows)
    spared = row.optional or row.name in TOOLS or another_serves
    state = FINE if row.fits else ABSENT if spared else FAULT
    if row.fits and row.name == "driver" and not row.version:
        state = ABSENT
    return Component(
        name=row.name,
        state=state,
        version=row.version,
        path=str(row.path or ""),
        note=row.note,
        remedy=row.remedy,
    )


def judge_torch(torch: TorchBuild, driver: Version | None, gpus: Sequence[Gpu]) -> Component | None:
    """Say why a torch does not fit dotcu or the driver; None if it fits. Pure.

    Args:
        torch: The installed build.
        driver: The CUDA version that the driver supports, None without one.
        gpus: The GPUs of the machine.
    """
    from dotcu.compile.target import dotted

    numbers = [int(number) for number in re.findall(r"\d+", torch.version)[:2]]
    if tuple(numbers) < OLDEST_TORCH:
        note, remedy = "dotcu needs torch 2.11 or later", "pip install --upgrade torch"
    elif gpus and torch.cuda is None and not torch.hip:
        note, remedy = (
            f"there is a GPU ({gpus[0].name}), and this torch was built without CUDA",
            "pip install --force-reinstall torch",
        )
    elif gpus and driver and torch.cuda and torch.cuda[0] > driver[0]:
        note, remedy = (
            f"it is built for CUDA {dotted(torch.cuda)}, and the driver supports CUDA {dotted(driver)}",
            f"update the driver, or install a torch that is built for CUDA {driver[0]}",
        )
    else:
        return None
    return Component(name="torch", state=FAULT, version=torch.version, note=note, remedy=remedy)


def _show(parts: Sequence[Component]) -> None:
    console.print_line(f"dotcu {__version__}, Python {platform.python_version()}")
    console.print_line()
    rows = [(part.name, part.state, part.version, part.note, part.path) for part in parts]
    console.show(console.table(("part", "state", "version", "note", "where"), rows))
    console.print_line()
    remedies = [(f"{part.name}:", part.remedy) for part in parts if part.remedy]
    if remedies:
        console.show(console.table(("what to do", ""), remedies))
        console.print_line()
    faults = [part.name for part in parts if part.state == FAULT]
    if faults:
        console.print_line(f"dotcu does not work here: see {', '.join(faults)}", style="bold red")
        return
    on_gpu = any(part.name.startswith("GPU ") for part in parts)
    console.print_line(f"dotcu works here: kernels run {'on the GPU' if on_gpu else 'in the simulator'}")

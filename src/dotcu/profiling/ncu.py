"""Nsight Compute: the program, the permission to read counters, its runs, and its reports as values.

Pages of a report differ by GPU and version. The raw page has a row for each launch and a column for each
metric; the row below the heads has units:

    "ID","Process ID",...,"Kernel Name",...,"Block Size","Grid Size",...,"gpu__time_duration.sum",...
    "","",...,"ns",...
    "0","108",...,"void square<float>(const float *, float *, long long)",...,"31,200",...

The source page has a block for each launch, with a row for each instruction:

    "Kernel Name","void square<float>(const float *, float *, long long)"
    "Address","Source","Warp Stall Sampling (All Samples)",...,"stall_long_sb",...
    "0x7f2ef9254d00","LDG.E R2, desc[UR4][R2.64]","412",...,"380",...

With `--print-source cuda,sass` it has one for each file, where instructions follow their line:

    "File Path","/dotcu/kernel.cu"
    "Line No","Source","Address","Source",...
    "16","out[i] = ...","-","-",...
    "","","0x7f2ef9254d00","LDG.E R2, desc[UR4][R2.64]",...

Source: recorded output of Nsight Compute 2023 to 2026.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dotcu import errors, process, serialize
from dotcu.compile.toolchain import find_tool
from dotcu.errors import DotcuError, OperatorError, ToolchainError, quoted
from dotcu.files import is_file, matching, read_text
from dotcu.profiling import report_reader
from dotcu.profiling.report import (
    SECTIONS,
    Instructions,
    KernelLaunch,
    Listing,
    MissingCounters,
    SampledInstruction,
)
from dotcu.profiling.worker import ProfiledCall, ProfileRequest, command
from dotcu.workers import relevant_output

INSTALLED = (Path("/opt/nvidia/nsight-compute"), Path("/usr/local/cuda/bin"))
"""The folders of installers: one with a folder for each version, and a link."""

MODULE = "ncu_report.py"
HOW_TO_GET = (
    "with the CUDA toolkit, or separately from its repository:\n    sudo apt install nsight-compute-2025.3.1",
    "with conda:\n    conda install -c nvidia nsight-compute",
    "for anything else: https://developer.nvidia.com/nsight-compute",
)  # fmt: skip

LIMIT_S = 600.0
"""The most time to profile a call: its kernels run some forty times, and files may compile before."""

PAGE_S = 300.0
"""The most time for ncu to print a page of a report."""

MAX_KERNELS = 32
"""The most kernels of one call; further ones are not profiled."""

PERMISSION_ERROR = "ERR_NVGPUCTRPERM"
"""ncu's message where counters may not be read."""

PARAMS, STATUS = Path("/proc/driver/nvidia/params"), Path("/proc/self/status")

SYSTEM = tuple(map(Path, ("/usr/local/sbin", "/usr/sbin", "/sbin")))
"""The folders of an administrator's programs, which a user's PATH need not have."""

_VERSION = re.compile(r"Version (\d+(?:\.\d+)*)")
_MAX_LINES = 5
_LOG, _ERROR, _NOTHING = "==", "==ERROR==", "No kernels were profiled"

_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly: *(\d+)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_USERS = re.compile(r"^Uid:\s*\d+\s+(\d+)", re.MULTILINE)
_SYS_ADMIN, _PERFMON = 21, 38  # Source: linux/capability.h; CAP_PERFMON counts since driver R565
_OPTIONS_FILE = "/etc/modprobe.d/nvidia-profiling.conf"
_REBUILDS = (
    ("update-initramfs", "-u", "Debian, Ubuntu"),
    ("dracut", "-f", "Fedora, RHEL, SUSE"),
    ("mkinitcpio", "-P", "Arch"),
)
"""What puts the option into the image that the module may be loaded from at boot: a program, its option,
and systems that have it. Source: update-initramfs(8), dracut(8), mkinitcpio(8)."""

_SAMPLES = ("Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)", "# Samples")
_EXECUTED = "Instructions Executed"
_STALL, _NOT_ISSUED = "stall_", "(Not Issued)"


# ------------------------------------------------------------------ the program


def find() -> Path | None:
    """Return the program that is used: CUDA_HOME's or PATH's, else the newest that is installed."""
    return find_tool("ncu") or process.find("ncu", _folders())


def version_of(ncu: Path) -> str:
    """Return the version of a program; empty where it does not print one."""
    with suppress(ToolchainError):
        version = _VERSION.search(process.run([ncu, "--version"], timeout_s=60).stdout)
        return version[1] if version else ""
    return ""


def _folders() -> list[Path]:
    first, *others = INSTALLED
    return [*_newest_first(matching(first, "*")), *others]


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda folder: [int(n) for n in re.findall(r"\d+", folder.name)], reverse=True)


def module_of(ncu: Path) -> Path | None:
    """Return the folder of the Python module of a program; else that of the newest that is installed.

    The program may be a script next to `extras/`, one in the `bin` of a toolkit, whose root has a folder
    `nsight-compute-VERSION`, or deep in `target/`.
    """
    real = ncu.resolve()
    siblings = [f for parent in real.parents[:2] for f in _newest_first(matching(parent, "nsight-compute-*"))]
    inside = (folder / "extras" / "python" for folder in (*real.parents[:4], *siblings, *_folders()))
    return next((folder for folder in inside if is_file(folder / MODULE)), None)


# ------------------------------------------------------------------ the permission to read counters

# By default the driver's module lets only administrators read them.
# Source: https://developer.nvidia.com/ERR_NVGPUCTRPERM


def expected_refusal(target: str, ncu: Path | None) -> MissingCounters | None:
    """Return why there will be no counters, where that is certain before ncu runs.

    As root it is tried: a sandbox may misreport itself.
    """
    if ncu is None:
        reason = "Nsight Compute is not installed: there is no `ncu` on PATH, in CUDA_HOME or /opt/nvidia"
        return MissingCounters(kind="missing", reason=reason, remedies=HOW_TO_GET)
    found = permission()
    certain = found.admin_only and found.is_admin is False and not found.is_root
    return refused(target, ncu) if certain else None


def refused(target: str, ncu: Path) -> MissingCounters:
    """Return why the system does not permit counters to a process that ncu refused, and what to do."""
    found = permission()
    who = "root without CAP_SYS_ADMIN, as in a container" if found.is_root else "no administrator"
    reasons = {
        None: f"the driver refuses it ({PERMISSION_ERROR})",
        False: f"the driver refuses it ({PERMISSION_ERROR}), though {PARAMS} has RmProfilingAdminOnly: 0",
        True: f"{PARAMS} has RmProfilingAdminOnly: 1, and this process is {who}",
    }
    return MissingCounters(
        kind="refused", reason=reasons[found.admin_only], remedies=permission_remedies(target, ncu)
    )


class Permission(NamedTuple):
    """The permission to read counters, of this process; None where it is not known.

    Attributes:
        admin_only: Only administrators may read them.
        is_admin: The process has a capability that makes it one.
        is_root: It runs as root, which in a container need not have the capability.
    """

    admin_only: bool | None
    is_admin: bool | None
    is_root: bool


def permission() -> Permission:
    """Return what the parameters of the driver's module and the status of this process say."""
    params, status = _text(PARAMS), _text(STATUS)
    admin_only, user = _ADMIN_ONLY.search(params), _USERS.search(status)
    capabilities = _CAPABILITIES.search(status)
    bits = int(capabilities[1], 16) if capabilities else 0
    return Permission(
        admin_only=int(admin_only[1]) != 0 if admin_only else None,
        is_admin=bool(bits >> _SYS_ADMIN & 1 or bits >> _PERFMON & 1) if capabilities else None,
        is_root=user is not None and user[1] == "0",
    )


def permission_remedies(target: str, ncu: Path) -> tuple[str, ...]:
    """Return what to type for the permission, once and for good."""
    again = shlex.join([sys.executable, "-m", "dotcu", "profile", target])
    path = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{ncu.parent}"
    write = f"echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee {_OPTIONS_FILE}"
    return (
        f'once, as root; sudo has a PATH of its own, so with full paths:\n    sudo env "PATH=$PATH" {again}',
        f'so that sudo finds ncu by its name, a line for `sudo visudo`:\n    Defaults secure_path="{path}"',
        "\n    ".join(("for every user, from the next boot on:", write, *_rebuilds())),
        "in a container, unless its host has the option above:\n    docker run --cap-add=SYS_ADMIN ...",
    )


def _rebuilds() -> list[str]:
    """Return the line that rebuilds the boot image on this system; all of them where that is not known."""
    lines = [(name, f"sudo {name} {option} && sudo reboot", who) for name, option, who in _REBUILDS]
    here = [line for name, line, _ in lines if process.find(name, SYSTEM)]
    width = max(len(line) for _, line, _ in lines)
    every = (f"{line:{width}}  # {who}" for _, line, who in lines)
    return here[:1] or ["# then one of these, as the system has it", *every]


def _text(path: Path) -> str:
    with suppress(OSError):
        return read_text(path, "replace")
    return ""


# ------------------------------------------------------------------ the process that makes the call


def collect(ncu: Path, report: Path, request: ProfileRequest) -> ProfiledCall | MissingCounters:
    """Have ncu write a report on a call; return what was called, or why there is no report.

    Clocks and caches are not touched: times are those of a run without ncu, after a warm-up. Where there is
    no report, the call may have failed because of ncu.

    Raises:
        OperatorError: The call ended its process, or launches no kernel.
        DotcuError: The call raised it.
    """
    options = [
        "--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none",
        "--cache-control", "none", "--launch-count", str(MAX_KERNELS), "--force-overwrite",
        *(word for section in SECTIONS for word in ("--section", section)), "--export", str(report),
    ]  # fmt: skip
    output, reply = _run([str(ncu), *options, *command(request)], request)
    if not is_file(report) and _ERROR in output:
        return failure_of(output)
    call = _required(reply, request, output)
    if is_file(report):
        return call
    if _NOTHING in output:
        raise OperatorError(
            f"{call.operator} launches no kernel on {call.sample}, so there is nothing to profile.\n"
            f"Use a call that does: dotcu profile {quoted(request.target)} --shapes 4096"
        )
    return failure_of(output)


def run_without_ncu(request: ProfileRequest) -> ProfiledCall:
    """Have the call made without ncu.

    Raises:
        OperatorError: The call ended its process.
        DotcuError: The call raised it.
    """
    output, reply = _run(command(request), request)
    return _required(reply, request, output)


def failure_of(output: str) -> MissingCounters:
    """Return why ncu wrote no report, by what it printed."""
    if PERMISSION_ERROR in output:
        return MissingCounters(kind="refused", reason=PERMISSION_ERROR)
    lines = [line.removeprefix(_ERROR).strip() for line in output.splitlines() if line.startswith(_ERROR)]
    if lines:
        return MissingCounters(kind="failed", reason="\n".join(lines[:_MAX_LINES]))
    last = "\n".join(output.strip().splitlines()[-_MAX_LINES:])
    return MissingCounters(kind="failed", reason=f"ncu wrote no report{': ' if last else ''}{last}")


def _run(words: Sequence[str], request: ProfileRequest) -> tuple[str, Any]:
    """Return what was printed, and the reply, if one was written."""
    path, until = Path(request.reply), time.monotonic() + LIMIT_S
    path.unlink(missing_ok=True)
    output: list[str] = []
    with process.started(words) as child:
        child.close_stdin()
        try:
            while (line := child.read_line(max(0.0, until - time.monotonic()))) is not None:
                output.append(line)
        except TimeoutError:
            raise OperatorError(
                f"profiling {request.target} did not end within {LIMIT_S:g} s.\n"
                "A call runs about forty times, with its memory restored each time.\n"
                f"Use a smaller call: dotcu profile {quoted(request.target)} --shapes 4096"
            ) from None
        child.status()
        output.append(relevant_output(child.stderr_tail()))
    try:
        return "\n".join(output), json.loads(read_text(path))
    except (OSError, ValueError):
        return "\n".join(output), None


def _required(reply: Any, request: ProfileRequest, output: str) -> ProfiledCall:
    """Return the call in a reply, or raise its error."""
    if reply is not None and "raise" in reply:
        name, message = reply["raise"]
        kind: type[DotcuError] = getattr(errors, name, DotcuError)
        raise kind(message)
    if reply is not None:
        return serialize.from_plain(ProfiledCall, reply)
    own = [line for line in output.splitlines() if line and not line.startswith(_LOG)]
    words = "".join(f"\n    {line}" for line in own[-_MAX_LINES:])
    raise OperatorError(
        f"the process that calls {request.target} died.{words}\n"
        f"Only a call that succeeds can be profiled.\nSee what is wrong: dotcu check {quoted(request.target)}"
    )


# ------------------------------------------------------------------ the pages of a report


def launches(ncu: Path, report: Path) -> list[KernelLaunch]:
    """Return the launches of a report, with their metrics in base units.

    Raises:
        ToolchainError: ncu does not read the report.
    """
    return parse_launches(_page(ncu, report, "raw", "--print-units", "base"))


def instructions(ncu: Path, report: Path, view: str = "sass") -> list[Listing]:
    """Return the kernel name and the instructions of each launch; none where ncu prints none.

    The view is `sass`, or `cuda,sass` with source lines.
    """
    with suppress(ToolchainError):
        return parse_instructions(_page(ncu, report, "source", "--print-source", view))
    return []


def _page(ncu: Path, report: Path, page: str, *options: str) -> str:
    words = [str(ncu), "--import", str(report), "--csv", "--page", page, *options]
    done = process.run(words, timeout_s=PAGE_S)
    if done.status != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing was printed"]
        raise ToolchainError(
            f"{done.line} ended with status {done.status}: {last[0]}\n"
            f"ncu is to read the report that it wrote, which is kept.\nOpen it: ncu-ui {report}"
        )
    return done.stdout


def parse_launches(text: str) -> list[KernelLaunch]:
    """Read the raw page."""
    rows = _rows(text)
    heads = next((row for row in rows if "Kernel Name" in row and len(row) > 2), [])
    below = [dict(zip(heads, row, strict=False)) for row in rows]
    units = below[0] if below and not below[0].get("Kernel Name") else {}
    return [
        KernelLaunch(
            name=cells["Kernel Name"],
            grid=cells.get("Grid Size", ""),
            block=cells.get("Block Size", ""),
            metrics={
                head: (_number(cell), units.get(head, "")) for head, cell in cells.items() if "__" in head
            },
        )
        for cells in below
        if cells.get("Kernel Name")
    ]


def parse_instructions(text: str) -> list[Listing]:
    """Read the source page, of either view: kernel name and instructions of each launch."""
    listings: list[tuple[str, list[SampledInstruction]]] = []
    heads: list[str] = []
    file, line = "", 0
    for row in _rows(text):
        if row[0] == "Kernel Name" and len(row) > 1:
            listings.append((row[1], []))
            file, line = "", 0
        elif row[0] == "File Path" and len(row) > 1:
            file, line = row[1], 0
        elif "Address" in row and "Source" in row:
            heads = row
            listings += [] if listings else [("", [])]
        elif heads and heads[0] == "Line No" and row[0].isdecimal():
            line = int(row[0])
        elif heads and (instruction := _instruction(heads, row, (file, line) if line else None)):
            listings[-1][1].append(instruction)
    return [(name, tuple(some)) for name, some in listings]


def _instruction(
    heads: Sequence[str], row: Sequence[str], location: tuple[str, int] | None
) -> SampledInstruction | None:
    at = heads.index("Address")
    if len(row) <= at + 1 or not re.fullmatch(r"(0x)?[0-9a-fA-F]+", row[at]):
        return None
    cells = dict(reversed(list(zip(heads, row, strict=False))))  # of two columns of a name, the first
    stalls = {
        head.removeprefix(_STALL): int(_number(cell) or 0)
        for head, cell in cells.items()
        if head.startswith(_STALL) and not head.endswith(_NOT_ISSUED)
    }
    samples = next((cells[head] for head in _SAMPLES if head in cells), "")
    return SampledInstruction(
        address=int(row[at], 16),
        text=row[at + 1].strip(),
        samples=int(_number(samples) or 0),
        stalls={why: count for why, count in stalls.items() if count},
        executed=int(_number(cells.get(_EXECUTED, "")) or 0),
        location=location,
    )


def _number(text: str) -> float | None:
    """Return a number as ncu prints it, with commas between thousands; None for other text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _rows(text: str) -> Iterator[list[str]]:
    lines = (line for line in text.splitlines() if not line.startswith(_LOG))
    return (row for row in csv.reader(lines) if row)


# ------------------------------------------------------------------ the source line of each instruction

# ncu's Python module has the source line of every instruction. Where that module is missing, or does not
# load, the page of source and instructions has it as well: an instruction that was inlined stands under
# several lines there, of which the first counts.


def located(ncu: Path, report: Path, listings: Sequence[Listing]) -> list[Listing]:
    """Return instructions with file and line, as far as the report has them."""
    lines = _lines_by_module(ncu, report) or [
        {each.address: each.location for each in reversed(some) if each.location is not None}
        for _, some in instructions(ncu, report, "cuda,sass")
    ]
    if len(lines) != len(listings):
        return list(listings)
    return [(name, _with_lines(some, own)) for (name, some), own in zip(listings, lines, strict=True)]


def _with_lines(instructions: Instructions, lines: Mapping[int, tuple[str, int]]) -> Instructions:
    """Return instructions with their lines; where no address is in both, each counts from another base."""
    addresses = {instruction.address for instruction in instructions}
    shift = 0
    if addresses and len(lines) == len(instructions) and not lines.keys() & addresses:
        shift = min(lines) - min(addresses)
    return tuple(replace(i, location=lines.get(i.address + shift, i.location)) for i in instructions)


def _lines_by_module(ncu: Path, report: Path) -> list[dict[int, tuple[str, int]]]:
    module = module_of(ncu)
    if module is None:
        return []
    with tempfile.TemporaryDirectory(prefix="dotcu-lines-") as folder:
        file = Path(folder, "lines.json")
        words = [sys.executable, "-I", report_reader.__file__, str(module), str(report), str(file)]
        with suppress(ToolchainError):
            process.run(words, timeout_s=PAGE_S)
        return parse_lines(read_text(file) if is_file(file) else "")


def parse_lines(text: str) -> list[dict[int, tuple[str, int]]]:
    """Read the output of `report_reader`, launch by launch; nothing where it is something else."""
    try:
        return [
            {int(address): (str(file), int(line)) for address, file, line in each["lines"] if file and line}
            for each in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError):
        return []

"""Pages of reports as Nsight Compute prints them, shortened, and a program that stands for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SQUARE = "void square<float>(const float *, float *, long long)"
COPY = "void at::native::elementwise_kernel<128, 4>(int, long)"

HEADS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
         "Grid Size", "Device", "CC")  # fmt: skip
METRICS: dict[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("ns", "31,200"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "23.04"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "92.15"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "92.15"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "60.20"),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": ("%", "33.10"),
    "gpc__cycles_elapsed.avg.per_second": ("hz", "1,965,000,000"),
    "dram__cycles_elapsed.avg.per_second": ("hz", "3,200,000,000"),
    "dram__bytes.sum.per_second": ("byte/s", "4,310,000,000,000"),
    "dram__bytes_read.sum": ("byte", "67,108,864"),
    "dram__bytes_write.sum": ("byte", "66,000,128"),
    "lts__t_sector_hit_rate.pct": ("%", "50.02"),
    "l1tex__t_sector_hit_rate.pct": ("%", "0"),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": ("", "4"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "0"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "91.25"),
    "launch__registers_per_thread": ("register/thread", "16"),
    "launch__shared_mem_per_block_static": ("byte/block", "0"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "0"),
    "launch__waves_per_multiprocessor": ("", "1"),
    "launch__occupancy_limit_registers": ("block", "16"),
    "launch__occupancy_limit_shared_mem": ("block", "32"),
    "launch__occupancy_limit_warps": ("block", "8"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "smsp__pcsamp_interval": ("", "(no data)"),
}


def line(cells: Sequence[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def raw(names: Sequence[str] = (SQUARE,), metrics: Mapping[str, tuple[str, str]] = METRICS) -> str:
    """The raw page of a report with so many launches."""
    rows = [
        [str(number), "108", "python", "127.0.0.1", name, "1", "7", "(256, 1, 1)", "(1056, 1, 1)", "0", "9.0"]
        for number, name in enumerate(names)
    ]
    values = [value for _, value in metrics.values()]
    return (
        "==PROF== Connected to process 108\n"
        + line([*HEADS, *metrics])
        + line([*[""] * len(HEADS), *(unit for unit, _ in metrics.values())])
        + "".join(line([*row, *values]) for row in rows)
    )


SOURCE_HEADS = ("Warp Stall Sampling (All Samples)", "Warp Stall Sampling (Not-issued Samples)", "# Samples",
                "Instructions Executed", "Thread Instructions Executed", "stall_long_sb", "stall_selected",
                "stall_wait", "stall_long_sb (Not Issued)")  # fmt: skip
INSTRUCTIONS = (
    (0x7F2EF9254D00, "S2R R0, SR_CTAID.X", ("10", "8", "10", "8,448", "270,336", "0", "2", "8", "0"), 11),
    (0x7F2EF9254D10, "LDG.E R4, desc[UR4][R2.64]", ("400", "390", "400", "8,448", "270,336", "380", "10",
                                                    "10", "375"), 15),
    (0x7F2EF9254D20, "FMUL R7, R4, R4", ("80", "75", "80", "8,448", "270,336", "70", "5", "5", "69"), 15),
    (0x7F2EF9254D30, "EXIT", ("0", "0", "0", "8,448", "270,336", "0", "0", "0", "0"), 17),
)  # fmt: skip


def sass(names: Sequence[str] = (SQUARE,)) -> str:
    """The source page by instructions."""
    return "".join(
        line(["Kernel Name", name])
        + line(["Address", "Source", *SOURCE_HEADS])
        + "".join(line([hex(at), f"      {text}", *cells]) for at, text, cells, _ in INSTRUCTIONS)
        for name in names
    )


def cuda_sass(names: Sequence[str] = (SQUARE,)) -> str:
    """The source page by lines and their instructions."""
    texts = {11: "const long long first = 1;", 15: "out[i] = x[i] * x[i];", 17: "}"}
    parts = []
    for name in names:
        parts += [line(["Kernel Name", name]), line(["File Path", "/dotcu/kernel.cu"])]
        parts += [
            line(["Function Name", "square"]),
            line(["Line No", "Source", "Address", "Source", *SOURCE_HEADS]),
        ]
        for number, text in texts.items():
            own = [each for each in INSTRUCTIONS if each[3] == number]
            sums = [str(sum(int(cells[i].replace(",", "")) for *_, cells, _ in own)) for i in range(9)]
            parts.append(line([str(number), text, "-", "-", *sums]))
            parts += [line(["", "", hex(at), sass_text, *cells]) for at, sass_text, cells, _ in own]
    return "".join(parts)


REFUSED = """\
==PROF== Connected to process 1929595 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on \
the target device 0. For instructions on enabling permissions and to get more information see \
https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 1929595
==WARNING== No kernels were profiled.
"""

_PROGRAM = """#!{python}
import json, pathlib, sys

words = sys.argv[1:]
said = {said!r}
if "--version" in words:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)")
elif "--import" in words:
    page = words[words.index("--page") + 1]
    view = words[words.index("--print-source") + 1] if page == "source" else ""
    sys.stdout.write({pages!r}[page + view])
else:
    request = json.loads(words[-2])
    pathlib.Path({log!r}).write_text(json.dumps(words))
    if {answer!r} is not None:
        pathlib.Path(request["reply"]).write_text(json.dumps({answer!r}))
    if said:
        sys.stdout.write(said)
    else:
        pathlib.Path(words[words.index("--export") + 1]).write_bytes(b"report")
"""


def program(
    folder: Path, answer: object, *, said: str = "", pages: Mapping[str, str] | None = None
) -> tuple[Path, Path]:
    """A program that does what ncu would, without a GPU, and a file to which it writes its last words.

    Args:
        answer: What the process that it watches would answer; None for a process that dies.
        said: What it says instead of writing a report.
        pages: What it prints of a report, by page and view.
    """
    path, log = folder / "ncu", folder / "words.json"
    shown = {"raw": raw(), "sourcesass": sass(), "sourcecuda,sass": cuda_sass(), **(pages or {})}
    path.write_text(
        _PROGRAM.format(python=sys.executable, said=said, answer=answer, pages=shown, log=str(log))
    )
    path.chmod(0o755)
    return path, log

"""Record what the golden kernels give on a GPU, for the simulator to be held against.

    python tests/goldens/record.py              run all of them, write recorded/*.npz and manifest.json
    python tests/goldens/record.py atomic_      those whose name contains a word; the others stay as they are
    python tests/goldens/record.py --dry-run    only compile them for sm_90a, where there is no GPU

A kernel that fails does not stop the others; failures are listed at the end, with exit status 1.
Each kernel runs in a process of its own, since a fault of one ends the CUDA context.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "src")]

import numpy as np  # noqa: E402 - dotcu is taken from beside this file
import torch  # noqa: E402

from golden_case import RECORDED, Case  # noqa: E402
from golden_cases import CASES  # noqa: E402
from golden_launch import bytes_of, kernel, on_gpu  # noqa: E402

MANIFEST = RECORDED / "manifest.json"
CHILD_CASES = 40
"""Kernels that one process runs."""


def compile_only(case: Case) -> None:
    """Compile a kernel for sm_90, or for sm_90a, down to its cubin."""
    module = kernel(case)._module
    module.compile(case.archs[-1])
    print(f"{case.name}: compiles", flush=True)


def record(case: Case) -> None:
    """Run a kernel twice and keep its outputs."""
    first, second = on_gpu(case), on_gpu(case)
    if case.same_for_any_seed:
        for name in case.outputs:
            assert first[name].tobytes() == second[name].tobytes(), f"{name} differs from run to run"
    RECORDED.mkdir(exist_ok=True)
    path = RECORDED / f"{case.name}.npz"
    np.savez_compressed(path, **{name: bytes_of(array) for name, array in first.items()})
    print(f"{case.name}: {path.stat().st_size} bytes", flush=True)


def run_here(cases: Sequence[Case], work: Any) -> list[str]:
    """Do something with each case; the names of those where it failed."""
    failed = []
    for case in cases:
        try:
            work(case)
        except Exception:
            traceback.print_exc()
            print(f"{case.name}: FAILED", flush=True)
            failed.append(case.name)
    return failed


def run_in_processes(cases: Sequence[Case]) -> list[str]:
    """Record some cases at a time in a process of its own; what a fault left undone, once more, alone."""
    for start in range(0, len(cases), CHILD_CASES):
        _child(cases[start : start + CHILD_CASES])
    undone = [case for case in cases if not _is_recorded(case)]
    for case in undone:
        _child([case])
    return [case.name for case in undone if not _is_recorded(case)]


def _child(cases: Sequence[Case]) -> None:
    command = [sys.executable, __file__, "--here", *(f"={case.name}" for case in cases)]
    try:
        subprocess.run(command, timeout=240, check=False)
    except subprocess.TimeoutExpired:
        print(f"hangs: one of {', '.join(case.name for case in cases)}", flush=True)


def _is_recorded(case: Case) -> bool:
    path = RECORDED / f"{case.name}.npz"
    return path.exists() and path.stat().st_mtime >= STARTED


STARTED = float(os.environ.get("GOLDENS_STARTED", "0")) or datetime.datetime.now().timestamp() - 1


def write_manifest(cases: Sequence[Case]) -> None:
    """Say what the recordings were made with and of, each on its day."""
    before = json.loads(MANIFEST.read_text("utf-8")) if MANIFEST.exists() else {"made": {}, "cases": {}}
    known, today = before["cases"], datetime.date.today().isoformat()
    for case in cases:
        if _is_recorded(case):
            known[case.name] = {"source": case.digest, "inputs": case.inputs_digest, "made": today}
    current = {case.name for case in CASES}
    cases_now = {name: known[name] for name in sorted(known) if name in current}
    made = {**before["made"], today: made_with()}
    dates = {entry["made"] for entry in cases_now.values()}
    manifest = {"made": {date: made[date] for date in sorted(dates)}, "cases": cases_now}
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def made_with() -> dict[str, str]:
    """The machine and the tools."""
    from cuda.bindings import driver, nvrtc

    version = driver.cuDriverGetVersion()[1]
    return {
        "gpu": torch.cuda.get_device_name(0),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
        "driver": f"{_driver_release()} (CUDA {version // 1000}.{version % 1000 // 10})",
        "nvrtc": ".".join(map(str, nvrtc.nvrtcVersion()[1:])),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
        "command": "python tests/goldens/record.py",
    }


def _driver_release() -> str:
    try:
        lines = Path("/proc/driver/nvidia/version").read_text("utf-8").splitlines()
        return next(word for word in lines[0].split() if word[0].isdigit() and "." in word)
    except (OSError, IndexError, StopIteration):
        return "unknown"


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases whose name holds one of the words, or is the word after a `=`; all for none."""
    cases = CASES
    return [c for c in cases if not words or any(w == f"={c.name}" or w in c.name for w in words)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of kernels' names")
    parser.add_argument("--dry-run", action="store_true", help="compile only")
    parser.add_argument(
        "--here", action="store_true", help="in this process; for one that --here was not given to"
    )
    given = parser.parse_args()
    cases = chosen(given.words)
    if given.dry_run:
        failed = run_here(cases, compile_only)
    elif given.here:
        failed = run_here(cases, record)
    else:
        os.environ["GOLDENS_STARTED"] = str(STARTED)
        failed = run_in_processes(cases)
        write_manifest(cases)
    if not given.here:
        print(f"{len(cases) - len(failed)} of {len(cases)} kernels; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

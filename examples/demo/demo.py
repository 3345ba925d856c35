"""A tour of dotcu in ten seconds, on a machine with a GPU or without one: `make demo`.

    python examples/demo/demo.py

1. A kernel with a forgotten barrier runs on the CPU, and the race is reported by line.
2. The kernel with its barrier, as a PyTorch operator, passes `dotcu check`.
3. `dotcu bench` shows how fast the operator can be on an H200 at best, or how fast it is on your GPU.

Exit codes: 0 everything came out as said here, 1 something did not.
"""

from __future__ import annotations

import runpy
import shutil
import sys
import textwrap
from pathlib import Path

import torch

import dotcu

FOLDER = Path(__file__).parent
OPERATOR = FOLDER / "ops.py"
WIDTH = shutil.get_terminal_size().columns


def show_the_race() -> bool:
    """Run the kernel without its barrier in the simulator; return whether the race was found."""
    heading("1. A kernel that sums rows and forgets a barrier, run on the CPU:")
    kernels = dotcu.load("row_sum.cu", define={"FORGET_A_BARRIER": None})
    x = torch.ones(2, 1000)
    out = torch.empty(2)
    with dotcu.simulate(on_finding="collect") as run:
        kernels.row_sum[x.dtype](x, out, x.shape[1], grid=2, block=128)
    for finding in run.findings:
        for line in str(finding).splitlines():
            print(textwrap.fill(line, WIDTH, subsequent_indent="    "))
    print(f"The sums are right this time, {out.tolist()}, so a test of results alone would pass.")
    return any(finding.kind == "race" for finding in run.findings)


def passes(what: str, *words: str) -> bool:
    """Run a dotcu command, in this process, which has imported torch; return whether it succeeds."""
    here = f"{Path.cwd()}/"
    heading(what)
    print(f"$ dotcu {' '.join(word.removeprefix(here) for word in words)}", flush=True)
    sys.argv = ["dotcu", *words]
    try:
        runpy.run_module("dotcu", run_name="__main__")
    except SystemExit as end:
        return not end.code
    return True


def heading(text: str) -> None:
    """Print a line that stands out, before what it is about."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def main() -> int:
    """Run the three parts, and say what to type next."""
    done = [
        show_the_race(),
        passes(
            "2. With its barrier, as a PyTorch operator, it passes every check:",
            "check",
            str(OPERATOR),
            "--quick",
        ),
        passes(
            "3. How fast can it be?", "bench", str(OPERATOR), "--shapes", "1024x1024", "--against", "eager"
        ),
    ]
    say_what_is_next()
    return 0 if all(done) else 1


def say_what_is_next() -> None:
    """Print what to type next; first what makes the shell find dotcu, which `make` runs by its path."""
    heading("Next:")
    if shutil.which("dotcu") is None:
        activate = str(Path(sys.prefix, "bin", "activate")).removeprefix(f"{Path.cwd()}/")
        print(f"    {f'. {activate}':<28} so that your shell finds dotcu")
    print("    dotcu doctor                 what this machine has, and what to install")
    print("    dotcu new mylib              a project of your own: kernel, operator, tests, CI")
    print("    docs/start/first_kernel.md   your first kernel, in five minutes")
    print("    make check                   check every operator of the gallery (minutes)")


if __name__ == "__main__":
    sys.exit(main())

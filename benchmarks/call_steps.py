"""What each step of a replayed call costs, by leaving the later ones out.

    python benchmarks/call_steps.py [--save FILE]

The same operator is called with more and more of what a call does: first nothing is launched and what
was allocated before is given again, then memory is allocated, then the kernel is launched. A step's cost
is the difference of two medians, in microseconds of the host. Needs a GPU and dotcu's native part.
Exit codes: 0 measured, 3 no GPU or no native part.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calls import ours
from calls.host import machine
from dotcu.kernel import native

CALLS, ROUNDS = 300, 60


def median_us(call: Callable[[], Any]) -> float:
    """Microseconds of one call: the median of rounds that each begin with an idle GPU."""
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def configured(**instead: Any) -> None:
    """Let native code use these in place of torch's allocator and the driver's launch."""
    device = torch.device("cuda", torch.cuda.current_device())
    values = dict(native.torch_layout()) | native.cuda_symbols()
    values |= native.plain_keys(device) | {"allocate": native.allocator("cuda")}
    native.library().configure(values | instead)


def no_launch() -> int:
    """The address of a C function that does nothing and gives zero, as a launch that succeeds does."""
    library = ctypes.CDLL(torch._C.__file__)
    return ctypes.cast(library.aoti_torch_device_type_cpu, ctypes.c_void_p).value or 0


def measure() -> dict[str, float]:
    """Microseconds of each step of `torch.ops.call_overhead.add(a, b)`, in order."""
    a, b = torch.randn(2, 1024, device="cuda")
    packet, made = ours.packet("add"), torch.empty_like(a)
    leaf = a.clone().requires_grad_()
    for x in (a, a, a, leaf):
        packet(x, b)
    entry = packet._op
    nothing = median_us(lambda: None)
    configured(launch=no_launch(), allocate=lambda sizes, strides, dtype: made)
    decided = median_us(lambda: entry(a, b))
    configured(launch=no_launch())
    allocated = median_us(lambda: entry(a, b))
    configured()
    launched = median_us(lambda: entry(a, b))
    called = median_us(lambda: packet(a, b))
    recorded = median_us(lambda: packet(leaf, b))
    return {
        "torch.ops, in Python": called - launched,
        "guards, arguments, plan": decided - nothing,
        "allocation": allocated - decided,
        "launch": launched - allocated,
        "recording, where a gradient is wanted": recorded - called,
        "all, without recording": called - nothing,
    }


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    options = parser.parse_args()
    if not torch.cuda.is_available() or native.missing():
        print(native.missing() or "torch sees no GPU here", file=sys.stderr)
        return 3
    steps = measure()
    for name, us in steps.items():
        print(f"{us:6.2f} us  {name}")
    if options.save:
        command = " ".join(["python", *sys.argv])
        document = {"version": 1, "command": command, "machine": machine(), "steps_us": steps}
        options.save.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How long after a save does `dotcu watch` have the first sample's verdict, and what is that time spent on?

    python benchmarks/watch_latency.py [--saves N] [--device simulator]

A small kernel without headers is written to a file again and again, each time with another constant, so
that nothing of it is in the cache. The total is the tool's own figure, from the file's time to the
verdict. Its parts are by when each event came:

    notice   from the save until it is known, contents compared
    ask      until the worker has begun
    load     until the target is loaded and the trials are planned
    first    until the first call is compiled, made twice with sanitizers on, and judged
    check    then, until the whole quick check has ended
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from dotcu.watching.watcher import Event, WatchState, watch

OPS = """
import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("scale.cu")


@dotcu.op("watch_latency::scale")
def scale(x: Tensor, factor: float) -> Tensor:
    x = x.contiguous()
    out, n = torch.empty_like(x), x.numel()
    kernels.scale(x, out, factor, n, grid=dotcu.cdiv(n, 256), block=256)
    return out


scale.reference(lambda x, factor: factor * x)


@scale.samples
def _(device, dtype):
    yield dotcu.Sample(torch.randn(1000, device=device, dtype=dtype), 2.0)
"""
KERNEL = """
__global__ void scale(const float* x, float* out, float factor, long long n) {{
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = factor == {constant} ? 0.0f : factor * x[i];
}}
"""
PARTS = {
    "notice": "saved",
    "ask": "begun",
    "load": "planned",
    "first": "tried",
    "check": "checked",
}


def main() -> None:
    """Save, listen, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--device", default="simulator")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ops.py").write_text(OPS)
        save(folder)
        with closing(watch(str(folder / "ops.py"), device=options.device)) as steps:
            listen(steps)
            versions = []
            for _ in range(options.saves):
                save(folder)
                versions.append(listen(steps))
    show(versions)


def save(folder: Path) -> None:
    """Write a kernel that has never been compiled."""
    (folder / "scale.cu").write_text(KERNEL.format(constant=f"{time.time() % 1e5:.4f}f"))


def listen(steps: Iterator[tuple[Event, WatchState]]) -> dict[str, float]:
    """The seconds of each part of a version, and the total that the tool shows; it must hold."""
    came: dict[str, float] = {}
    for event, state in steps:
        for part, kind in PARTS.items():
            if event["event"] == kind:
                came.setdefault(part, time.time())
        if state.is_settled:
            break
    assert state.passed, state.trouble or state.failures
    before = state.begun
    seconds = {"total": state.first_s}
    for part, at in came.items():
        seconds[part], before = at - before, at
    return seconds


def show(versions: list[dict[str, float]]) -> None:
    """Print median, least and most of each part."""
    print(f"{'':8} {'median':>9} {'min':>9} {'max':>9}   of {len(versions)} saves")
    for part in ("total", *PARTS):
        times = [version[part] * 1000 for version in versions]
        figures = " ".join(f"{each:6.1f} ms" for each in (statistics.median(times), min(times), max(times)))
        print(f"{part:8} {figures}")


if __name__ == "__main__":
    main()

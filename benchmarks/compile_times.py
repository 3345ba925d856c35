"""How long instantiations of the gallery's kernels take to compile, beside a kernel that does nothing.

    python benchmarks/compile_times.py [--each N] [--arch sm_90]

Out of dotcu.lock, for each file some instantiations of float32 and some of half types, whose headers cost
more; each is compiled once as a first call compiles it, by one thread, with nothing in a cache. Seconds
are medians; the last column is how many times what the empty kernel took in this run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dotcu import settings
from dotcu.compile import build
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.source import inline_source
from dotcu.compile.target import Target
from dotcu.shipping import lock
from dotcu.shipping.assembling import Job, plan

ROOT = Path(__file__).parent.parent
HALVES = ("__half", "__nv_bfloat16")


def groups(target: Target) -> Iterator[tuple[str, str, list[Job]]]:
    """Instantiations by file, those of float32 and those of half types."""
    jobs = plan(lock.read(ROOT), ROOT, [target])
    for path in dict.fromkeys(job.locked.path for job in jobs):
        mine = [job for job in jobs if job.locked.path == path and not job.simulated]
        of = {name: [job for job in mine if _kind(job) == name] for name in ("float32", "halves")}
        yield from ((path, kind, some) for kind, some in of.items() if some)


def _kind(job: Job) -> str:
    name = job.unit.names[0]
    return "halves" if any(half in name for half in HALVES) else "float32" if "<float" in name else "other"


def spread(some: Sequence[Job], count: int) -> list[Job]:
    """So many of them, evenly out of their order."""
    return [some[i * len(some) // count] for i in range(min(count, len(some)))]


def seconds(job: Job) -> float:
    """What one compile takes, without a cache."""
    start = time.perf_counter()
    build(job.source, options=job.locked.options, target=job.target, names=job.unit.names, visible=True)
    return time.perf_counter() - start


def empty(target: Target) -> float:
    """The same for a kernel that does nothing, each time another."""
    times = []
    for number in range(9):
        source = inline_source(f"__global__ void nothing_{number}() {{}}")
        start = time.perf_counter()
        build(source, options=CompileOptions(), target=target, names=(f"nothing_{number}",))
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=3, help="instantiations of each file and kind")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    target = Target.parse(options.arch)
    with tempfile.TemporaryDirectory() as folder, settings.override(cache_dir=Path(folder)):
        nothing = empty(target)
        print(f"{'an empty kernel':<52} {nothing:6.3f} s")
        for path, kind, jobs in groups(target):
            median = statistics.median([seconds(job) for job in spread(jobs, options.each)])
            shown = path.removeprefix("src/dotcu/gallery/")
            print(f"{shown + ', ' + kind:<52} {median:6.3f} s {median / nothing:5.1f}x")


if __name__ == "__main__":
    main()

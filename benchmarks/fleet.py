"""Does a fleet compile once? Processes and machines that share a store, packs, layers, and a store that lies.

    python benchmarks/fleet.py [--only PART,...] [--save FILE] [--processes N] [--repeat N]

It prints each part when it is done, and --save puts it into a file of earlier parts of the same machine.
A machine is a cache folder, the store a plain HTTP server of this process. A start runs from the process'
first line to all of its objects, asked for together, as `warm()` does, or in turn, as calls do. It imports
no torch, which would hide what dotcu adds, but for the part "with torch". What is compared runs in one run:
warm and cold starts alternate. CPU time is there as well as time, since a machine may have other users.
Entries that hang are given 0.02 s instead of 10.
"""

from __future__ import annotations

import argparse
import http.server
import io
import json
import logging
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dotcu import settings
from dotcu.compile import CompileOptions, Target, build, cache, inline_source, sharing
from dotcu.compile.cache import CacheEntry, Store

KERNEL = """extern "C" __global__ void k(float* x, int n) {{
    int i = threadIdx.x;
    if (i < n) x[i] = x[i] * {0}.0f;
}}
"""

START = """
import time
began = time.perf_counter()
import json, sys
sys.path[:0] = {path!r}
if {torch}:
    import torch
from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.compile.plan import BuildInputs
from dotcu.compile.pool import build_all
from dotcu.telemetry import metrics
ready, ready_cpu = time.perf_counter(), time.process_time()
sources = [inline_source({kernel!r}.format(number), name="k%d.cu" % number) for number in range({objects})]
wanted = dict(options=CompileOptions(), target=Target.parse("sm_90a"), names=("k",))
if {together}:
    build_all([BuildInputs(source=source, **wanted) for source in sources])
else:
    for source in sources:
        build(source, **wanted)
done = time.perf_counter()
print(json.dumps({{"start_s": done - began, "objects_s": done - ready, "cpu_s": time.process_time(),
    "objects_cpu_s": time.process_time() - ready_cpu, **metrics()}}))
"""


MACHINES = """
import hashlib, json, logging, multiprocessing, sys, time, warnings
from pathlib import Path
sys.path[:0] = {path!r}
from dotcu import settings
from dotcu.compile import CompileOptions, Target, inline_source
from dotcu.compile.plan import BuildInputs
from dotcu.compile.pool import build_all
from dotcu.telemetry import metrics

warnings.simplefilter("ignore")
logging.getLogger("dotcu").setLevel(logging.ERROR)
wanted = [
    BuildInputs(
        source=inline_source({kernel!r}.format(number), name="k%d.cu" % number), options=CompileOptions(),
        target=Target.parse("sm_90a"), names=("k",),
    )
    for number in range({objects})
]

def machine(number):
    with settings.override(
        cache_dir=Path({folder!r}) / str(number), cache_remote={url!r}, cache_trust={url!r},
        cache_remote_write=True, cache_timeout_s=4,
    ):
        began = time.perf_counter()
        codes = build_all(wanted).values()
    sha = hashlib.sha256(b"".join(code.cubin for code in codes)).hexdigest()
    return {{"seconds": time.perf_counter() - began, "sha": sha, **metrics()}}

if __name__ == "__main__":
    pool = multiprocessing.get_context("fork").Pool({at_once}, maxtasksperchild=1)
    print(json.dumps(list(pool.imap_unordered(machine, range({machines})))))
"""


class StoreServer:
    """A plain HTTP server that keeps what is put, or answers a key as `faults` says."""

    def __init__(
        self, faults: Callable[[http.server.BaseHTTPRequestHandler], bool] = lambda _: False
    ) -> None:
        kept = self.kept = {}  # type: dict[str, bytes]
        puts = self.puts = Counter()  # type: Counter[str]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if faults(self):
                    return
                self.send_response(200 if self.path in kept else 404)
                self.end_headers()
                self.wfile.write(kept.get(self.path, b""))

            def do_PUT(self) -> None:
                puts[self.path] += 1
                kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.socket.listen(1024)  # of five, its default, a connection more is tried again after a second
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that gave up
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/cache"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def start(
    count: int, objects: int, *, together: bool = False, torch: bool = False, **environment: object
) -> tuple[float, float, list[dict[str, float]]]:
    """Start processes at once; return the seconds until all are done, their CPU time, what each says."""
    script = START.format(path=sys.path, objects=objects, kernel=KERNEL, together=together, torch=torch)
    given = {name: str(value) for name, value in environment.items()}
    began, used = time.perf_counter(), cpu_s()
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, **given})
        for _ in range(count)
    ]
    said = [json.loads(process.communicate()[0]) for process in running]
    return time.perf_counter() - began, cpu_s() - used, said


def cpu_s() -> float:
    """Return the CPU time of the processes that have ended: other work on the machine changes it little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def median(said: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in said)


def compiles(said: list[dict[str, float]]) -> int:
    return int(sum(one["dotcu_compiles_total"] for one in said))


def many_processes(folder: Path, count: int, objects: int, repeat: int, **how: bool) -> dict[str, Any]:
    """Start many processes on a machine with an empty cache and a store; and on one that is warm."""
    rounds: list[dict[str, Any]] = []
    filled = folder / f"filled{how}"
    start(1, objects, **how, DOTCU_CACHE_DIR=filled)
    start(count, objects, **how, DOTCU_CACHE_DIR=filled)  # the first start reads files from the disk
    for number in range(repeat):
        server, here = StoreServer(), folder / f"many{number}{how}"
        shared = {
            "DOTCU_CACHE_REMOTE": server.url, "DOTCU_CACHE_TRUST": server.url, "DOTCU_CACHE_REMOTE_WRITE": 1
        }  # fmt: skip
        ways = [("cold", here / "first"), ("second", here / "second"), ("warm", filled)]
        done = {}
        for name, cache_dir in ways if number % 2 else (ways[2], *ways[:2]):
            done[name] = start(count, objects, **how, DOTCU_CACHE_DIR=cache_dir, **shared)
        (cold, cold_cpu, said_cold), (warm, warm_cpu, said_warm) = done["cold"], done["warm"]
        other, other_cpu, said_other = done["second"]
        rounds.append({
            "compiles": compiles(said_cold), "compiles_on_second_machine": compiles(said_other),
            "puts": sum(server.puts.values()), "compiles_warm": compiles(said_warm),
            "all_done_cold_s": cold, "all_done_warm_s": warm, "all_done_second_machine_s": other,
            "start_cold_s": median(said_cold, "start_s"), "start_warm_s": median(said_warm, "start_s"),
            "start_second_machine_s": median(said_other, "start_s"),
            "ratio": median(said_cold, "start_s") / median(said_warm, "start_s"),
            "ratio_all_done": cold / warm, "ratio_second_machine": other / warm,
            "ratio_cpu": cold_cpu / warm_cpu, "ratio_cpu_second_machine": other_cpu / warm_cpu,
        })  # fmt: skip
        server.http.shutdown()
        ratios = {name: f"{value:.3f}" for name, value in rounds[-1].items() if name.startswith("ratio")}
        print(f"{count} processes, {how}: {ratios}", flush=True)
    ratios = {
        name: statistics.median(one[name] for one in rounds) for name in rounds[0] if name.startswith("ratio")
    }
    return {"processes": count, "objects": objects, "rounds": rounds, **ratios}


FAULTS = {"error": 0.05, "hang": 0.01, "cut": 0.02, "lie": 0.02}
"""The part of a store's answers that is wrong; it errs where a request is tried again, too."""


def many_machines(folder: Path, machines: int, at_once: int, objects: int, *, filled: bool) -> dict[str, Any]:
    """Start machines whose store errs: processes that have a cache each, some of them at once.

    Args:
        folder: For the caches.
        machines, at_once: How many there are, and how many of them start together.
        objects: What each wants.
        filled: One machine filled the store before.
    """
    draw, guard, answered = random.Random(7), threading.Lock(), Counter[str]()
    is_wrong = False

    def answer(request: http.server.BaseHTTPRequestHandler) -> bool:
        with guard:
            kind = draw.choices((*FAULTS, "fine"), (*FAULTS.values(), 1 - sum(FAULTS.values())))[0]
            others = [each for path, each in server.kept.items() if path != request.path]
            data = server.kept.get(request.path, b"")
            can_be = is_wrong and (kind in {"error", "hang"} or (data and others))
            kind = kind if can_be else "fine"
            answered[kind] += 1
        if kind == "hang":
            time.sleep(10)
        elif kind != "fine":
            request.send_response(503 if kind == "error" else 200)
            request.end_headers()
            wrong = {"cut": data[: len(data) // 2], "lie": b"".join(others[:1])}
            request.wfile.write(wrong.get(kind, b""))
        return kind != "fine"

    server = StoreServer(answer)
    given = {"path": sys.path, "kernel": KERNEL, "objects": objects, "url": server.url}

    def run(name: str, count: int) -> list[dict[str, Any]]:
        script = MACHINES.format(**given, folder=str(folder / name), at_once=at_once, machines=count)
        return json.loads(subprocess.check_output([sys.executable, "-c", script]))

    if filled:
        run("filler", 1)
    is_wrong = True
    began = time.perf_counter()
    said = run(f"machines{filled}", machines)
    seconds = time.perf_counter() - began
    server.http.shutdown()
    times = sorted(one["seconds"] for one in said)
    return {
        "machines": machines, "at_once": at_once, "objects": objects, "filled_before": filled,
        "answers": dict(answered), "seconds": seconds,
        "machines_done": len(said), "different_results": len({one["sha"] for one in said}) - 1,
        "compiles": compiles(said), "machines_that_compiled": sum(bool(compiles([one])) for one in said),
        "from_store": int(sum(one['dotcu_cache_hits_total{place="store"}'] for one in said)),
        "entries_refused": int(sum(one["dotcu_store_refused_total"] for one in said)),
        "machines_that_left_the_store": sum(one["dotcu_store_failed_total"] > 0 for one in said),
        "median_s": statistics.median(times), "p99_s": times[int(0.99 * len(times))], "longest_s": times[-1],
    }  # fmt: skip


def pack_and_warm(folder: Path, objects: int, repeat: int) -> dict[str, Any]:
    """Start an application of many operators from a mounted pack, and from a warm cache, alternately."""
    warm, layer, file = folder / "warm", folder / "layer", folder / "k.tar"
    start(1, objects, DOTCU_CACHE_DIR=warm)
    store = Store(warm)
    entries = {}
    for path, _ in store.folders():
        entry = cache.read_entry(path)
        assert entry is not None
        entries[path.name] = entry.files()
    with file.open("wb") as out:
        sharing.write_pack(out, entries)
    layer.mkdir()
    shutil.unpack_archive(file, layer)
    times: dict[str, list[dict[str, float]]] = {"warm": [], "pack": []}
    for number in range(repeat):
        ways: list[tuple[str, dict[str, object]]] = [
            ("warm", {"DOTCU_CACHE_DIR": warm}),
            ("pack", {"DOTCU_CACHE_DIR": folder / f"empty{number}", "DOTCU_CACHE_DIRS": layer}),
        ]
        for name, given in ways if number % 2 else reversed(ways):
            times[name] += start(1, objects, DOTCU_JIT="error", **given)[2]
    said = {
        f"{name}_{what}_s": median(each, f"{what}_s") for name, each in times.items()
        for what in ("start", "objects", "cpu", "objects_cpu")
    }  # fmt: skip
    pairs = list(zip(times["pack"], times["warm"], strict=True))
    ratios = {
        f"ratio_{what}": statistics.median(a[f"{what}_s"] / b[f"{what}_s"] for a, b in pairs)
        for what in ("start", "objects", "cpu", "objects_cpu")
    }
    return {"operators": objects, "starts": repeat, "pack_bytes": file.stat().st_size, **said, **ratios}


def layer_overhead(folder: Path, objects: int, repeat: int) -> dict[str, Any]:
    """Read objects in one process from the cache itself, and from the first and the third layer below it."""
    warm = folder / "warm"
    start(1, objects, DOTCU_CACHE_DIR=warm)
    sources = [inline_source(KERNEL.format(number), name=f"k{number}.cu") for number in range(objects)]
    layers = [folder / f"none{number}" for number in range(2)]
    for layer in layers:
        (layer / "v1").mkdir(parents=True)
    ways = {
        "cache": {"cache_dir": warm},
        "first_layer": {"cache_dir": folder / "empty", "cache_dirs": (warm,)},
        "third_layer": {"cache_dir": folder / "empty", "cache_dirs": (*layers, warm)},
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, given in ways.items():
            cache.forget()
            with settings.override(jit="error", **given):
                began = time.process_time()
                for source in sources:
                    build(source, options=CompileOptions(), target=Target.parse("sm_90a"), names=["k"])
                times[name].append((time.process_time() - began) / objects * 1e6)
    medians = {f"{name}_us": statistics.median(each) for name, each in times.items()}
    return {**medians, "objects": objects,
            "overhead_first_us": medians["first_layer_us"] - medians["cache_us"],
            "overhead_third_us": medians["third_layer_us"] - medians["cache_us"]}  # fmt: skip


def good_pack(digest: str, about: str = "") -> bytes:
    entry = CacheEntry(
        about={"build_digest": about or digest}, lowered={"k": "k"}, ptx=digest * 20, log="",
        cubin=b"\x7fELF" * 50,
    )  # fmt: skip
    out = io.BytesIO()
    sharing.write_pack(out, {digest: entry.files()})
    return out.getvalue()


KINDS = (
    "a bit changed",
    "cut",
    "swapped",
    "under another's name",
    "a web page",
    "empty",
    "hanging",
    "broken off",
)


def wrong_entries(folder: Path, count: int) -> dict[str, Any]:
    """Ask a store for entries that are tampered with, cut, swapped or do not come."""
    digests = [f"{number:064x}" for number in range(count)]
    numbers = {f"/cache/{sharing._name(digest)}": number for number, digest in enumerate(digests)}

    def answer(request: http.server.BaseHTTPRequestHandler) -> bool:
        number = numbers[request.path]
        kind, digest, other = KINDS[number % len(KINDS)], digests[number], digests[number - 1]
        if kind == "hanging":
            time.sleep(0.3)
            return True
        data = good_pack(digest)
        at = number * 7919 % (len(data) - 1024)
        at -= at % 512 - 100 if 0 < at % 512 < 100 else 0
        where = data.index(b"kernel.cubin") + 512 + number % 200
        changed = data[:where] + bytes([data[where] ^ 1 << number % 8]) + data[where + 1 :]
        bodies = {
            "a bit changed": changed, "cut": data[: max(1, at)], "broken off": data[: max(1, at)],
            "swapped": good_pack(other), "under another's name": good_pack(digest, other),
            "a web page": b"<html>Sign in</html>" * (number % 100), "empty": b"",
        }  # fmt: skip
        request.send_response(200)
        if kind == "broken off":
            request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(bodies[kind])
        return True

    server = StoreServer(answer)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("dotcu")
    logger.addHandler(handler)
    logger.propagate = False
    store, loaded, crashed, unsaid = Store(folder / "wrong"), 0, 0, 0
    began = time.perf_counter()
    with settings.override(cache_remote=server.url, cache_trust=server.url):
        for number, digest in enumerate(digests):
            before = len(said)
            limit_s = 0.02 if KINDS[number % len(KINDS)] == "hanging" else 10
            for _ in range(2):  # the second time it is not said again
                try:
                    with settings.override(cache_timeout_s=limit_s):
                        loaded += sharing.fetch(store, digest, None, lambda _: True) is not None
                except Exception:
                    crashed += 1
            unsaid += len(said) - before != 1
            if sharing._left_alone:  # as a machine and a process that have not met this store
                sharing._left_alone.clear()
                sharing._mark(store, server.url).unlink(missing_ok=True)
                sharing._said.clear()
    logger.removeHandler(handler)
    server.http.shutdown()
    found = {"loaded": loaded, "crashed": crashed, "not_said_once": unsaid}
    kept, seconds = sum(1 for _ in store.folders()), time.perf_counter() - began
    return {"entries": count, "kinds": list(KINDS), **found, "kept_in_cache": kept, "seconds": seconds}


def main() -> None:
    """Measure, print and perhaps save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="parts, separated by commas")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=1, help="starts of all processes")
    options = parser.parse_args()
    machine: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
               "kernel": platform.system()}  # fmt: skip
    earlier = json.loads(options.save.read_text()) if options.save and options.save.exists() else {}
    result = {"machine": machine, **(earlier if earlier.get("machine") == machine else {})}
    with tempfile.TemporaryDirectory() as name:
        folder, count, repeat = Path(name), options.processes, options.repeat
        at_once = 4 * machine["cores"]  # of more, some answers come too late
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "one_store": lambda: many_processes(folder, count, 16, repeat, together=True),
            "one_store_in_turn": lambda: many_processes(folder, count, 16, repeat),
            "one_store_with_torch": lambda: many_processes(
                folder, min(count, 16), 16, repeat, together=True, torch=True
            ),
            "machines_filled": lambda: many_machines(folder, options.machines, at_once, 16, filled=True),
            "machines_empty": lambda: many_machines(folder, options.machines, at_once, 16, filled=False),
            "pack": lambda: pack_and_warm(folder, 50, 21),
            "layers": lambda: layer_overhead(folder, 50, 21),
            "wrong_entries": lambda: wrong_entries(folder, options.entries),
        }  # fmt: skip
        for part in options.only.split(",") if options.only else parts:
            load = os.getloadavg()[0]
            result[part] = {**parts[part](), "load_before": load}
            print(json.dumps({part: result[part]}, indent=1), flush=True)
            if options.save:
                options.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

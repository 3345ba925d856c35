"""Measure the host time of calls without a GPU: CPU tensors stand for those of a GPU, and nothing launches.

    python benchmarks/host_calls.py [--against PYTHON ...] [--save FILE] [--rounds N]

`--against` names the Pythons of other environments, with another torch each. All alternate, each round in a
process of its own, and a ratio is the median of the rounds' ratios to the Python that runs this. What the
driver's function would add is the same for each and left out. Needs dotcu's native part.
Exit codes: 0 every goal held, 1 one did not, 3 no native part.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.compile import Target
from dotcu.kernel import launch, native
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.faults import LaunchLabel

GOAL = 1.2
"""How much longer a call may take with another torch."""

CALLS, REPEATS = 400, 25


def calls() -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name."""
    if native.missing():
        sys.exit(3)
    torch.set_num_threads(1)
    nothing = ctypes.cast(ctypes.CDLL(None).pthread_equal, ctypes.c_void_p).value  # of two addresses: gives 0
    native.library().configure(native.torch_values(native.CPU) | {"launch": nothing})
    native._prepared[native.CPU] = ""
    native.follow_observers()
    kernel = dotcu.load_inline(
        "__global__ void add(const float* a, const float* b, float* out, long long n) "
        "{ for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = a[i] + b[i]; }"
    ).add
    plan = kernel.unit.code(Target.parse("compute_80"), simulated=True).plan("add")
    launcher = launch._launcher(plan)
    label = LaunchLabel("", "add", LaunchConfig(grid=(1, 1, 1), block=(256, 1, 1)), 0)
    launcher.add(((256, 1, 1), (0, 0, 0), False, False, 0), (0, 200_000), 1, 0, 0, (1, 1, 1), False, label)
    kernel._plans.quick = launcher.launch

    def body(a: Tensor, b: Tensor) -> Tensor:
        out, n = torch.empty_like(a), a.numel()
        kernel(a, b, out, n, grid=dotcu.cdiv(n, 256), block=256)
        return out

    operator: Any = dotcu.op("host_calls::add")(body)
    operator.backward(lambda ctx, grad: (grad, grad))
    operator._registration.implement("AutogradCPU", operator._native.autograd)
    a, b, out = torch.ones(3, 1024)
    leaf, through = a.clone().requires_grad_(), torch.ops.host_calls.add
    return {
        "bare launch, four arguments": lambda: kernel(a, b, out, 1024, grid=4, block=256),
        "operator, through torch.ops": lambda: through(a, b),
        "operator, by its Python object": lambda: operator(a, b),
        "operator that records a gradient": lambda: through(leaf, b),
        "forward and backward": lambda: torch.autograd.grad(through(leaf, b), leaf, a),
    }


def measure() -> dict[str, Any]:
    """Return the least microseconds of each call, and the torch that they hold for."""
    found = {}
    for name, call in calls().items():
        rounds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            rounds.append((time.perf_counter() - start) / CALLS * 1e6)
        found[name] = min(rounds)
    return {"python": sys.version.split()[0], "torch": torch.__version__, "us": found}


def alternate(pythons: list[str], rounds: int) -> list[list[dict[str, Any]]]:
    """Return what each Python measures, by round."""
    env = os.environ | {"PYTHONPATH": str(Path(dotcu.__file__).parents[1])}  # the same dotcu in each

    def once(python: str) -> dict[str, Any]:
        done = subprocess.run(
            [python, __file__, "--one"], capture_output=True, text=True, env=env, check=False
        )
        if done.returncode:
            sys.exit(done.stderr or done.returncode)
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measured

    return [[once(python) for python in pythons] for _ in range(rounds)]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", nargs="+", default=[], help="Pythons of other environments")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all Pythons (5)")
    parser.add_argument("--one", action="store_true", help="one round of this Python, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure()))
        return 0
    rounds = alternate([sys.executable, *options.against], options.rounds)
    rows, worst = [], 0.0
    for index, first in enumerate(rounds[0]):
        for name in first["us"]:
            median = statistics.median(row[index]["us"][name] for row in rounds)
            ratio = statistics.median(row[index]["us"][name] / row[0]["us"][name] for row in rounds)
            worst = max(worst, ratio)
            rows.append({"torch": first["torch"], "python": first["python"], "name": name, "us": median,
                         "ratio": ratio})  # fmt: skip
            print(f"torch {first['torch']:14} {name:36} {median:7.2f} us {ratio:6.2f}")
    print(f"at most {GOAL} times the first: {worst:.2f}, {'held' if worst <= GOAL else 'MISSED'}")
    if options.save:
        command = f"python benchmarks/host_calls.py --rounds {options.rounds} --against PYTHON ..."
        text = json.dumps({"version": 1, "command": command, "goal": GOAL, "results": rows}, indent=1)
        options.save.write_text(text + "\n", encoding="utf-8")
    return worst > GOAL


if __name__ == "__main__":
    sys.exit(main())

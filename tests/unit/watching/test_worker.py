"""What a worker tells of a version, in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.serialize import plain
from dotcu.watching.watcher import WatchEvent
from dotcu.watching.worker import Loader, events, soonest, timings
from helpers import trial_operators

OPS = """
import torch
from torch import Tensor
import dotcu

kernels = dotcu.load_inline('''{kernel}''')


@dotcu.op("watch_worker_{number}::twice")
def twice(x: Tensor) -> Tensor:
    x = x.contiguous()
    out, n = torch.empty_like(x), x.numel()
    kernels.twice(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


twice.reference(lambda x: 2 * x)
twice.samples(lambda device, dtype: [dotcu.Sample(torch.randn(100, device=device, dtype=dtype))])
"""
KERNEL = """
__global__ void twice(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""
_numbers = itertools.count()


def served(folder: Path, kernel: str, device: str = "simulator") -> list[WatchEvent]:
    path = folder / f"watched_{next(_numbers)}.py"
    path.write_text(OPS.format(kernel=kernel, number=path.stem))
    return list(events(Loader(str(path)), device))


def test_a_version_that_holds(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL)
    kinds = [event["event"] for event in found]
    assert kinds[:5] == ["begun", "planned", "trying", "tried", "watched"]
    assert kinds[-3:] == ["checked", "compiled", "done"]
    first, checked, compiled = found[3], found[-3], found[-2]
    assert "sanitizer-race" in {result.check for result in first["results"]}
    assert checked["passed"]
    assert [(row["kernel"], row["arch"]) for row in compiled["kernels"]] == [("twice", "sm_90a")]
    assert compiled["kernels"][0]["registers"] > 0


def test_an_error_in_the_kernel_shows_its_caret_in_the_first_verdict(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL.replace("2 * x[i]", "2 * y[i]"))
    first = next(event for event in found if event["event"] == "tried")
    told = str(first["results"][0])
    assert 'identifier "y" is undefined' in told
    assert "^" in told
    assert not next(event for event in found if event["event"] == "checked")["passed"]


def test_an_error_in_python_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / f"watched_{next(_numbers)}.py"
    path.write_text("1 / 0")
    *_, last = events(Loader(str(path)), "simulator")
    assert last["event"] == "unloadable"
    assert f"{path.name}:1: ZeroDivisionError" in last["message"]
    assert not last["again"]


def test_a_name_that_the_target_lacks_is_reported_with_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / f"watched_{next(_numbers)}.py"
    path.write_text(OPS.format(kernel=KERNEL, number=path.stem))
    *_, last = events(Loader(f"{path}:nope"), "simulator")
    assert last["event"] == "unloadable"
    assert "has no operator 'nope'; it has twice." in last["message"]


def test_an_error_of_a_later_load_may_be_of_what_was_loaded_before(tmp_path: Path) -> None:
    path = tmp_path / f"watched_{next(_numbers)}.py"
    path.write_text("1 / 0")
    loader = Loader(str(path))
    list(events(loader, "simulator"))
    *_, second = events(loader, "simulator")
    path.write_text("1 +")
    *_, syntax = events(loader, "simulator")
    assert second["event"] == syntax["event"] == "unloadable"
    assert (second["again"], syntax["again"]) == (True, False)


def test_a_device_that_is_not_here_ends_the_command(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL, device="tpu")
    assert found[-1]["event"] == "refused"


def test_the_first_call_of_each_overload_comes_first() -> None:
    operators = [trial_operators.squaring(), trial_operators.squaring()]
    trials = dotcu.checking.checker.prepare(operators, level="quick").trials
    ordered = soonest(trials)
    assert [(trial.kind, trial.overload) for trial in ordered[:2]] == [
        ("call", operator.qualified_name) for operator in operators
    ]
    assert sorted(str(trial.id) for trial in ordered) == sorted(str(trial.id) for trial in trials)


@pytest.mark.gpu
def test_on_a_gpu_a_version_that_holds_is_timed(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL, device="cuda")
    timed = next(event for event in found if event["event"] == "timed")
    assert timed["timings"][0]["median_us"] > 0
    assert timed["timings"][0]["change"] is None
    assert found[-1]["event"] == "done"


@pytest.mark.gpu
def test_the_same_version_takes_about_the_same_time() -> None:
    operator, device = trial_operators.squaring(sizes=((1 << 20,),)), torch.device("cuda", 0)
    first = tuple(timings([operator], device, 0, ()))
    (again,) = timings([operator], device, 0, first)
    assert plain(first) == list(first)
    assert again["change"] is not None, again["note"]
    assert 0.5 < again["change"]["ratio"]["value"] < 2

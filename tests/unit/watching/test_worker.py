"""What a worker tells of a version, in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import dotcu
import trying
from dotcu.watching import events
from dotcu.watching.events import Event, Request
from dotcu.watching.loading import Loader
from dotcu.watching.timing import timings
from dotcu.watching.worker import serve, soonest

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


def served(folder: Path, kernel: str, device: str = "simulator") -> list[Event]:
    path = folder / f"watched_{next(_numbers)}.py"
    path.write_text(OPS.format(kernel=kernel, number=path.stem))
    request = Request(number=1, target=str(path), device=device, seed=0)
    return list(serve(request, Loader(str(path))))


def test_a_version_that_holds(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL)
    kinds = [type(event).__name__ for event in found]
    assert kinds[:5] == ["Begun", "Planned", "Trying", "Tried", "Watched"]
    assert kinds[-3:] == ["Checked", "Needed", "Done"]
    first, checked, needed = found[3], found[-3], found[-2]
    assert isinstance(first, events.Tried)
    assert "sanitizer-race" in {result.check for result in first.results}
    assert isinstance(checked, events.Checked)
    assert checked.held
    assert isinstance(needed, events.Needed)
    assert [(row.kernel, row.arch) for row in needed.kernels] == [("twice", "sm_90a")]
    assert needed.kernels[0].registers > 0


def test_an_error_in_the_kernel_shows_its_caret_in_the_first_verdict(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL.replace("2 * x[i]", "2 * y[i]"))
    first = next(event for event in found if isinstance(event, events.Tried))
    told = str(first.results[0].outcome)
    assert 'identifier "y" is undefined' in told
    assert "^" in told
    assert not next(event for event in found if isinstance(event, events.Checked)).held


def test_an_error_in_python_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / f"watched_{next(_numbers)}.py"
    path.write_text("1 / 0")
    *_, last = serve(Request(number=1, target=str(path), device="simulator", seed=0), Loader(str(path)))
    assert isinstance(last, events.Unloadable)
    assert f"{path.name}:1: ZeroDivisionError" in last.message
    assert not last.again


def test_an_error_of_a_later_load_may_be_of_what_was_loaded_before(tmp_path: Path) -> None:
    path = tmp_path / f"watched_{next(_numbers)}.py"
    path.write_text("1 / 0")
    request, loader = Request(number=1, target=str(path), device="simulator", seed=0), Loader(str(path))
    list(serve(request, loader))
    *_, second = serve(request, loader)
    path.write_text("1 +")
    *_, syntax = serve(request, loader)
    assert isinstance(second, events.Unloadable)
    assert isinstance(syntax, events.Unloadable)
    assert (second.again, syntax.again) == (True, False)


def test_a_device_that_is_not_here_ends_the_command(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL, device="tpu")
    assert isinstance(found[-1], events.Refused)


def test_the_first_call_of_each_overload_comes_first() -> None:
    operators = [trying.squaring(), trying.squaring()]
    trials = dotcu.checking.checker.prepare(operators, level="quick").trials
    ordered = soonest(trials)
    assert [(trial.kind, trial.overload) for trial in ordered[:2]] == [
        ("call", operator.qualified_name) for operator in operators
    ]
    assert sorted(trial.name for trial in ordered) == sorted(trial.name for trial in trials)


@pytest.mark.gpu
def test_on_a_gpu_a_version_that_holds_is_timed(tmp_path: Path) -> None:
    found = served(tmp_path, KERNEL, device="cuda")
    timed = next(event for event in found if isinstance(event, events.Timed))
    assert timed.timings[0].median_us > 0
    assert timed.timings[0].change is None
    assert isinstance(found[-1], events.Done)


@pytest.mark.gpu
def test_the_same_version_takes_about_the_same_time() -> None:
    operator, device = trying.squaring(sizes=((1 << 20,),)), torch.device("cuda", 0)
    first = tuple(timings([operator], device, 0, ()))
    (again,) = timings([operator], device, 0, first)
    assert events.read(events.Timed(timings=first).to_json()) == events.Timed(timings=first)
    assert again.change is not None, again.note
    assert 0.5 < again.change.ratio.value < 2

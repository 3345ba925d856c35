"""The process that makes the call: which call, and its reply. The simulator stands for the GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dotcu import serialize
from dotcu.benchmark.timers import Activity
from dotcu.errors import OperatorError, UsageError
from dotcu.operator import Sample
from dotcu.profiling import ncu, worker
from dotcu.profiling.worker import ProfiledCall, ProfileRequest

OPS = """
import os

import torch
from torch import Tensor

import dotcu

print("imported")
kernels = dotcu.load_inline('''
template <typename T> __global__ void twice(const T* x, T* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x];
}
''')


@dotcu.op("child_tests::twice", dtypes=(torch.float32, torch.float64))
def twice(x: Tensor) -> Tensor:
    if x.numel() == 13:
        raise ValueError("thirteen is no good")
    if x.numel() == 17:
        os._exit(3)
    out = torch.empty_like(x)
    kernels.twice[x.dtype](x, out, x.numel(), grid=1, block=64)
    return out


@twice.reference
def _(x):
    return x + x


@twice.samples
def _(device, dtype):
    for n in (3, 40, 0, 7):
        yield dotcu.Sample(torch.ones(n, device=device, dtype=dtype))


@twice.overload("Scalar")
def twice_scalar(x: Tensor, times: float) -> Tensor:
    return twice(x)


@twice_scalar.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype), 2.0)
"""


TILE_KERNEL = """
#include "cuda_tile.h"
namespace ct = cuda::tiles;
template <int N> __tile_global__ void doubled(const float* x, float* y, int n) {
    auto tiles = [=](auto* p) {
        return ct::partition_view{ct::tensor_span{p, ct::extents{n}}, ct::shape<N>{}};
    };
    tiles(y).store_masked(tiles(x).load_masked(ct::bid().x) * 2.f, ct::bid().x);
}
"""

TILES = """
import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("tiles.cu")


@dotcu.op("child_tests::doubled", dtypes=(torch.float32,))
def doubled(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    kernels.doubled[256](x, y, x.numel(), grid=dotcu.cdiv(x.numel(), 256))
    return y


@doubled.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(300, device=device, dtype=dtype))
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ops") / "ops.py"
    path.write_text(OPS)
    return path


@pytest.fixture
def call_request(ops: Path, tmp_path: Path) -> ProfileRequest:
    return ProfileRequest(
        target=f"{ops}:twice", shapes="", dtype="", device="cpu", seed=0, mode="counters",
        reply=str(tmp_path / "reply.json"),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "visible_to_ncu", lambda device: pytest.MonkeyPatch.context())


def answered(call_request: ProfileRequest) -> ProfiledCall:
    worker.main(serialize.to_json(call_request))
    return serialize.from_json(ProfiledCall, Path(call_request.reply).read_text())


def test_the_largest_sample_of_the_first_dtype_is_called(call_request: ProfileRequest) -> None:
    answer = answered(call_request)
    assert answer.operator == "child_tests::twice"
    assert answer.case == "float32-40"
    assert answer.kernels == ("twice<float>",)
    assert answer.timings == ()


def test_an_overload_is_called_on_its_own_samples(call_request: ProfileRequest) -> None:
    answer = answered(replace(call_request, overload="Scalar"))
    assert (answer.operator, answer.case) == ("child_tests::twice.Scalar", "float32-50")


def test_the_files_of_line_tables_are_reported(call_request: ProfileRequest) -> None:
    assert any(name.startswith("/dotcu/") for name in answered(call_request).files)


def test_a_tile_kernel_is_reported_by_its_name_and_its_files(
    tmp_path: Path, call_request: ProfileRequest
) -> None:
    ops = tmp_path / "tiles.py"
    ops.write_text(TILES)
    (tmp_path / "tiles.cu").write_text(TILE_KERNEL)
    answer = answered(replace(call_request, target=f"{ops}:doubled"))
    assert answer.kernels == ("doubled<256>",)
    assert any(path.endswith("tiles.cu") for path in answer.files.values())


def test_shapes_and_dtype_are_those_that_were_asked_for(call_request: ProfileRequest) -> None:
    assert answered(replace(call_request, shapes="10,20", dtype="float64")).case == "float64-20"


@pytest.mark.parametrize(
    ("wanted", "kind", "words"),
    [
        ({"dtype": "int8"}, UsageError, "has no dtype 'int8'"),
        ({"dtype": "float31"}, UsageError, "\nType: --dtype float32"),
        ({"shapes": "4by4"}, UsageError, "is not a shape"),
        ({"shapes": "13"}, OperatorError, "thirteen is no good"),
    ],
)
def test_what_goes_wrong_is_the_answer(
    call_request: ProfileRequest, wanted: dict[str, str], kind: type[Exception], words: str
) -> None:
    worker.main(serialize.to_json(replace(call_request, **wanted)))
    name, message = json.loads(Path(call_request.reply).read_text())["raise"]
    assert name == kind.__name__
    assert words in message


def test_only_the_last_call_is_for_ncu_to_see(
    call_request: ProfileRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def seen(device: object) -> pytest.MonkeyPatch:
        made.append("start")
        return pytest.MonkeyPatch.context()  # type: ignore[return-value]

    monkeypatch.setattr(worker, "visible_to_ncu", seen)
    called = worker.Subject.call

    def call(subject: worker.Subject, sample: Sample) -> object:
        made.append("call")
        return called(subject, sample)

    monkeypatch.setattr(worker.Subject, "call", call)
    answered(call_request)
    assert made == ["call"] * worker.WARM_UP + ["start", "call"]


@pytest.mark.slow
def test_a_process_of_its_own_answers(call_request: ProfileRequest) -> None:
    with pytest.raises(UsageError, match="has no dtype"):
        ncu.run_without_ncu(replace(call_request, dtype="int8"))


@pytest.mark.slow
def test_a_process_that_dies_is_reported(call_request: ProfileRequest) -> None:
    with pytest.raises(OperatorError, match=r"the process that calls .*ops.py:twice died"):
        ncu.run_without_ncu(replace(call_request, shapes="17"))


def activity(name: str, start: int, end: int) -> Activity:
    return Activity(name=name, start_ns=start, end_ns=end, stream=7)


def test_timings_are_of_each_name_and_the_one_that_takes_most_comes_first() -> None:
    found = [activity("a", 0, 1000), activity("b", 0, 5000), activity("a", 0, 3000), activity("a", 0, 1500)]
    first, second = worker.timings(found, 2)
    assert (first.name, first.per_call, first.median_us) == ("b", 0.5, 5.0)
    assert (second.name, second.per_call, second.median_us) == ("a", 1.5, 1.5)
    assert (second.min_us, second.max_us) == (1.0, 3.0)

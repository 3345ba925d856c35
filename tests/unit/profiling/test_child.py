"""The process that makes the call: which call, and what it says of it. The simulator stands for the GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dotcu.benchmark.timers.trace import Activity
from dotcu.errors import OperatorError, UsageError
from dotcu.profiling import child, running
from dotcu.profiling.order import Answer, Order

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


@pytest.fixture
def order(tmp_path: Path) -> Order:
    path = tmp_path / "ops.py"
    path.write_text(OPS)
    return Order(
        target=f"{path}:twice", shapes="", dtype="", device="cpu", seed=0, how="counters",
        answer=str(tmp_path / "answer.json"),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "seen_by_ncu", lambda device: pytest.MonkeyPatch.context())


def answered(order: Order) -> Answer:
    child.main(order.to_json())
    return Answer.from_json(json.loads(Path(order.answer).read_text()))


def test_the_largest_sample_of_the_first_dtype_is_called(order: Order) -> None:
    answer = answered(order)
    assert answer.operator == "child_tests::twice"
    assert answer.case == "float32-40"
    assert answer.kernels == ("twice<float>",)
    assert answer.timings == ()


def test_an_overload_is_called_on_its_own_samples(order: Order) -> None:
    answer = answered(replace(order, overload="Scalar"))
    assert (answer.operator, answer.case) == ("child_tests::twice.Scalar", "float32-50")


def test_the_files_of_line_tables_are_told(order: Order) -> None:
    assert any(name.startswith("/dotcu/") for name in answered(order).files)


def test_shapes_and_dtype_are_those_that_were_asked_for(order: Order) -> None:
    assert answered(replace(order, shapes="10,20", dtype="float64")).case == "float64-20"


@pytest.mark.parametrize(
    ("wanted", "kind", "words"),
    [
        ({"dtype": "int8"}, UsageError, "has no dtype 'int8'"),
        ({"dtype": "float31"}, UsageError, "\nType: --dtype float32"),
        ({"shapes": "4by4"}, UsageError, "is no shape"),
        ({"shapes": "13"}, OperatorError, "thirteen is no good"),
    ],
)
def test_what_goes_wrong_is_the_answer(
    order: Order, wanted: dict[str, str], kind: type[Exception], words: str
) -> None:
    child.main(replace(order, **wanted).to_json())
    name, message = json.loads(Path(order.answer).read_text())["raise"]
    assert name == kind.__name__
    assert words in message


def test_only_the_last_call_is_for_ncu_to_see(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = child.Call.make

    def seen(device: object) -> pytest.MonkeyPatch:
        made.append("start")
        return pytest.MonkeyPatch.context()  # type: ignore[return-value]

    monkeypatch.setattr(child, "seen_by_ncu", seen)
    monkeypatch.setattr(child.Call, "make", lambda self: (made.append("call"), make(self)))
    answered(order)
    assert made == ["call"] * child.WARM_UP + ["start", "call"]


def test_a_process_of_its_own_answers(order: Order) -> None:
    with pytest.raises(UsageError, match="has no dtype"):
        running.alone(replace(order, dtype="int8"))


def test_a_process_that_dies_is_told(order: Order) -> None:
    with pytest.raises(OperatorError, match=r"the process that calls .*ops.py:twice died"):
        running.alone(replace(order, shapes="17"))


def activity(name: str, start: int, end: int) -> Activity:
    return Activity(name=name, start_ns=start, end_ns=end, stream=7)


def test_timings_are_of_each_name_and_the_one_that_takes_most_comes_first() -> None:
    found = [activity("a", 0, 1000), activity("b", 0, 5000), activity("a", 0, 3000), activity("a", 0, 1500)]
    first, second = child.timings(found, 2)
    assert (first.name, first.times, first.median_us) == ("b", 0.5, 5.0)
    assert (second.name, second.times, second.median_us) == ("a", 1.5, 1.5)
    assert (second.least_us, second.most_us) == (1.0, 3.0)

"""A bare kernel: inputs of its own, verified by what it returns or writes, where there is a reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import BareTarget, bare_contenders, prepare_calls
from dotcu.benchmark.verify import TimedResults, verify
from helpers.trial_operators import device, kernels

N = 300


def bare(function: Callable[[], Any], **options: Any) -> BareTarget:
    return BareTarget(name="multiply", function=function, device=device(), **options)


def failure(of: BareTarget, **against: Callable[[], Any]) -> tuple[str, str]:
    """Return the status and the reason of one that may not be timed; empty where it may."""
    calls, _ = prepare_calls(bare_contenders(of, list(against.values())))
    sample = of.workload.make(0)
    return verify(of, calls, sample, of.input_values([sample])).get(OWN, ("", ""))


@pytest.fixture
def ab() -> tuple[Tensor, Tensor]:
    return torch.randn(N, device=device()), torch.randn(N, device=device())


def launch(a: Tensor, b: Tensor, out: Tensor, n: int = N) -> None:
    kernels.multiply[a.dtype](a, b, out, n, grid=dotcu.cdiv(N, 64), block=64)


def test_what_it_writes_is_compared_with_its_reference(ab: tuple[Tensor, Tensor]) -> None:
    a, b = ab
    out = torch.empty_like(a)
    right = bare(lambda: launch(a, b, out), reference=lambda: a.double() * b.double(), outputs=(out,))
    assert failure(right) == ("", "")
    short = bare(lambda: launch(a, b, out, N - 1), reference=lambda: a * b, outputs=(out,))
    status, reason = failure(short)
    assert status == "wrong"
    assert f"output 0[{N - 1}]: got nan" in reason


def test_what_it_returns_is_compared_with_its_reference(ab: tuple[Tensor, Tensor]) -> None:
    a, b = ab
    assert failure(bare(lambda: a * b, reference=lambda: a * b)) == ("", "")
    assert failure(bare(lambda: a + b, reference=lambda: a * b))[0] == "wrong"
    _, reason = failure(bare(lambda: None, reference=lambda: a))
    assert "it returns no tensor: name those that it writes" in reason


def test_without_a_reference_a_reader_learns_it(ab: tuple[Tensor, Tensor]) -> None:
    a, b = ab
    assert failure(bare(lambda: a * b)) == ("", "")
    assert bare(lambda: a * b).unverified == "not verified: reference= is missing"


def test_one_that_raises_has_failed() -> None:
    def fails() -> None:
        raise RuntimeError("not today")

    status, reason = failure(bare(fails, reference=lambda: torch.ones(1)))
    assert (status, "not today" in reason) == ("failed", True)


def test_a_call_that_writes_nothing_any_more_shows(ab: tuple[Tensor, Tensor]) -> None:
    a, b = ab
    out = torch.empty_like(a)
    made = []

    def only_at_first() -> None:
        made.append(1)
        if len(made) < 4:
            launch(a, b, out)

    of = bare(only_at_first, reference=lambda: a * b, outputs=(out,))
    calls, _ = prepare_calls(bare_contenders(of))
    sample = of.workload.make(0)
    values = of.input_values([sample])
    assert verify(of, calls, sample, values) == {}
    timed = TimedResults(of, values)
    for turn in range(3):
        values(sample, turn)
        timed.take(OWN, sample, calls[OWN](sample))
    assert "is wrong where it is timed" in timed.verify()[OWN]
    assert TimedResults(of, values).verify() == {}


def test_adding_up_may_lose_as_much_as_it_must() -> None:
    x = torch.rand(2**16, device=device())
    worse = x.double().sum().mul(1 + 2e-6).float()
    assert failure(bare(lambda: worse, reference=x.sum, flops=x.numel())) == ("", "")
    assert failure(bare(lambda: worse * 1.001, reference=x.sum, flops=x.numel()))[0] == "wrong"


def test_its_case_has_no_arguments_and_knows_what_was_said() -> None:
    case = bare(lambda: None, bytes=12, outputs=(torch.ones(2, 3),)).workload
    assert (case.name, case.bytes, case.elements, case.make(5).args) == ("as given", 12, 6, ())

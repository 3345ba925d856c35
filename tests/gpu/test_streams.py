"""Streams: a call goes to the stream that is current at that call, and memory lives as long as it must."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.operator import Operator
from helpers import sample_operators

pytestmark = pytest.mark.gpu

A_WHILE = 50_000_000
"""Clocks that a stream is kept busy for: some 30 ms."""


@pytest.fixture(scope="module")
def axpy() -> Operator:
    operator = sample_operators.make_axpy()
    operator.warm()
    return operator


def scribble(n: int) -> list[Tensor]:
    """Take memory of the sizes that the test uses, from whatever is free, and spoil it."""
    return [torch.full((n,), torch.nan, device="cuda") for _ in range(64)]


def test_each_call_is_on_the_stream_that_is_current_then(axpy: Operator) -> None:
    first, second, default = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()
    x = torch.zeros(100_000, device="cuda")
    for value, stream in enumerate((first, second, first, default, second), start=1):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(A_WHILE)
            x.fill_(value)
            out = axpy(x, x, 2.0)  # on another stream it would read what was there before
            stream.synchronize()
        assert out.eq(3 * value).all()


def test_a_call_on_a_side_stream_leaves_other_streams_alone(axpy: Operator) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10 * A_WHILE)
        out = axpy(x, x, 1.0)
    assert not side.query()
    assert torch.cuda.current_stream().query(), "nothing of it is on the default stream"
    side.synchronize()
    assert out.eq(2).all()


@pytest.mark.parametrize("n", [1000, 70_001, 1 << 20])
def test_temporaries_of_a_body_live_until_their_kernels_have_run(axpy: Operator, n: int) -> None:
    side, (a, b) = torch.cuda.Stream(), sample_operators.pair(n, "cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(A_WHILE)
        results = [axpy(a, b, float(i)) for i in range(20)]  # each frees its temporary before it has run
    spoiled = scribble(n)
    torch.cuda.current_stream().wait_stream(side)
    for i, result in enumerate(results):
        torch.testing.assert_close(result, a + float(i) * b)
    assert len(spoiled) == 64


@pytest.mark.parametrize("n", [1000, 1 << 20])
def test_results_that_are_dropped_make_room_in_order_of_the_stream(axpy: Operator, n: int) -> None:
    side, (a, b) = torch.cuda.Stream(), sample_operators.pair(n, "cuda")
    b = b % 7  # small enough for sums that are exact
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(A_WHILE)
        out = a
        for _ in range(50):  # each result's memory is the next but one's
            out = axpy(out, b, 1.0)
    side.synchronize()
    torch.testing.assert_close(out, a + 50 * b)


def test_an_input_of_another_stream_lives_by_record_stream_as_for_torchs_own(axpy: Operator) -> None:
    side, n = torch.cuda.Stream(), 1 << 20
    for value in (1.0, 2.0, 3.0):
        x = torch.full((n,), value, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(A_WHILE)
            out = axpy(x, x, 1.0)
        x.record_stream(side)
        del x
        spoiled = scribble(n)
        side.synchronize()
        assert out.eq(2 * value).all()
        del spoiled


def test_a_backward_is_on_the_stream_of_its_forward(axpy: Operator) -> None:
    side = torch.cuda.Stream()
    a, b = (tensor.requires_grad_() for tensor in sample_operators.pair(100_000, "cuda"))
    scale = torch.zeros(100_000, device="cuda")
    for value in (2.0, 5.0, 7.0):
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(A_WHILE)
            scale.fill_(value)
            grads = torch.autograd.grad(axpy(a, b, 3.0), (a, b), scale)
        side.synchronize()
        assert grads[0].eq(value).all()
        assert grads[1].eq(3 * value).all()

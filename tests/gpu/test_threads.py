"""Threads: each may be new to CUDA, have its own stream, and be the first to need a kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import dotcu
from dotcu.operator import Operator
from helpers import sample_operators

pytestmark = pytest.mark.gpu

SIZES = (1000, 1, 70_001, 1000, 130)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0), work(1), ... at the same time, and raise what one of them has raised."""
    wrong: list[BaseException] = []
    together = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            together.wait(timeout=60)
            work(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in wrong:
        raise error


def test_threads_that_are_new_to_cuda_load_and_launch_at_the_same_time() -> None:
    axpy = sample_operators.make_axpy()

    def work(number: int) -> None:
        for n in SIZES:
            a, b = sample_operators.pair(n + number, "cuda")
            torch.testing.assert_close(axpy(a, b, 2.0), a + 2 * b)

    in_threads(8, work)


def test_threads_with_streams_of_their_own_do_not_mix() -> None:
    axpy = sample_operators.make_axpy()
    axpy.warm()

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros(50_000, device="cuda")
            for value in range(1, 20):
                torch.cuda._sleep(1_000_000)
                x.fill_(value + number)
                out = axpy(x, x, 2.0)
                stream.synchronize()
                assert out.eq(3 * (value + number)).all()

    in_threads(4, work)


def test_autograds_thread_launches_what_nothing_has_loaded() -> None:
    axpy = sample_operators.make_axpy()
    for n in SIZES:
        a, b = (tensor.requires_grad_() for tensor in sample_operators.pair(n, "cuda"))
        axpy(a, b, 3.0).sum().backward()  # the backward's kernel is loaded by autograd's thread
        assert a.grad is not None
        assert b.grad is not None
        assert a.grad.eq(1).all()
        assert b.grad.eq(3).all()


def test_the_first_cuda_work_of_autograds_thread_may_be_a_launch() -> None:
    script = f"""
import sys
sys.path.insert(0, {str(sample_operators.TESTS)!r})
import torch
from helpers import sample_operators
axpy = sample_operators.make_axpy()
a, b = (tensor.requires_grad_() for tensor in sample_operators.pair(100, "cuda"))
axpy(a, b, 3.0).sum().backward()
assert b.grad.eq(3).all()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_backwards_at_the_same_time() -> None:
    axpy = sample_operators.make_axpy()

    def work(number: int) -> None:
        for n in SIZES:
            a, b = (tensor.requires_grad_() for tensor in sample_operators.pair(n, "cuda"))
            (grad,) = torch.autograd.grad(axpy(a, b, 2.0 + number).sum(), (b,))
            assert grad.eq(2.0 + number).all()

    in_threads(4, work)


class Rows(Dataset[torch.Tensor]):
    """Rows that an operator computes on the CPU, in the worker that is asked for them."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        a, b = sample_operators.pair(50, "cpu")
        with dotcu.simulate():
            return self.operator(a, b, float(index))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_data_loader_pins_and_its_rows_go_through_the_operator_again() -> None:
    axpy = sample_operators.make_axpy()
    axpy.warm()  # CUDA is up: the workers are forked after it
    loader = DataLoader(
        Rows(axpy), batch_size=2, num_workers=2, pin_memory=True, multiprocessing_context="fork", timeout=120
    )
    a, b = sample_operators.pair(50, "cuda")
    got = []
    for rows in loader:
        assert rows.is_pinned()
        rows = rows.to("cuda", non_blocking=True)
        got.append(axpy(rows, torch.ones_like(rows), 10.0))
    expected = torch.stack([a + i * b + 10 for i in range(8)])
    torch.testing.assert_close(torch.cat(got), expected)

"""Several GPUs in one process: each call on the device of its tensors, and every kernel ready on each."""

from __future__ import annotations

import threading

import pytest
import torch

from dotcu.errors import ArgumentError, CaptureError
from dotcu.operator import Operator
from helpers import sample_operators

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

SIZES = (1000, 1, 70_001, 1000)


@pytest.fixture
def axpy() -> Operator:
    return sample_operators.make_axpy()


@pytest.mark.parametrize("index", [1, 0])
def test_an_operator_runs_on_its_tensors_device_whichever_is_current(axpy: Operator, index: int) -> None:
    for current in (0, 1):
        with torch.cuda.device(current):
            for n in SIZES:
                a, b = sample_operators.pair(n, f"cuda:{index}")
                out = axpy(a, b, 2.0)
                assert out.device == torch.device("cuda", index)
                torch.testing.assert_close(out, a + 2 * b)
                assert torch.cuda.current_device() == current


def test_devices_take_turns(axpy: Operator) -> None:
    for n in SIZES:
        for index in (1, 0):
            a, b = sample_operators.pair(n, f"cuda:{index}")
            torch.testing.assert_close(axpy(a, b, 3.0), a + 3 * b)


def test_threads_use_both_devices_at_the_same_time(axpy: Operator) -> None:
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in SIZES * 3:
                a, b = sample_operators.pair(n + number, f"cuda:{number % 2}")
                torch.testing.assert_close(axpy(a, b, 2.0), a + 2 * b)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tensors_of_two_devices_are_refused(axpy: Operator) -> None:
    a, b = sample_operators.pair(100, "cuda:0")
    axpy(a, b)
    for mixed in ((a, b.to("cuda:1")), (a.to("cuda:1"), b), (a, b.cpu())):
        with pytest.raises(ArgumentError, match="must be on one device"):
            axpy(*mixed)
    torch.testing.assert_close(axpy(a, b), a + b)


def test_the_second_device_has_its_shared_memory_too() -> None:
    kernels = sample_operators.fresh_module()
    for index in (1, 0, 1):
        most = torch.cuda.get_device_properties(index).shared_memory_per_block_optin
        x = torch.zeros(1, device=f"cuda:{index}")
        kernels.last_of(x, most // 4, grid=1, block=256, smem_bytes=most)
        assert x.item() == most // 4 - 1


def test_warm_makes_every_device_ready_for_a_capture(axpy: Operator) -> None:
    state = torch.cuda.get_rng_state(1)
    axpy.warm()
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_rng_state(1).equal(state)
    for index in (1, 0):
        with torch.cuda.device(index):
            a, b = sample_operators.pair(500, f"cuda:{index}")
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # torch's own is one device's
            with torch.cuda.graph(graph, stream=stream):
                out = axpy(a, b, 2.0)
            b.fill_(1)
            graph.replay()
            torch.testing.assert_close(out, a + 2)


def test_what_is_loaded_on_one_device_only_is_refused_in_the_others_capture(axpy: Operator) -> None:
    a, b = sample_operators.pair(100, "cuda:0")
    axpy(a, b)
    with torch.cuda.device(1):
        x, y = a.to("cuda:1"), b.to("cuda:1")
        stream = (
            torch.cuda.Stream()
        )  # torch keeps one for captures, of the device that was current at the first
        with (
            pytest.raises(CaptureError, match="not loaded on cuda:1"),
            torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream),
        ):
            axpy(x * 2, y)
        torch.testing.assert_close(axpy(x, y), x + y)


def test_a_call_is_on_the_current_stream_of_its_own_device(axpy: Operator) -> None:
    side = torch.cuda.Stream("cuda:1")
    x = torch.zeros(100_000, device="cuda:1")
    axpy(x, x)
    for value in (1.0, 2.0, 3.0):
        torch.cuda.synchronize(1)
        with torch.cuda.stream(side), torch.cuda.device(0):
            with torch.cuda.device(1):
                torch.cuda._sleep(50_000_000)
            x.fill_(value)
            out = axpy(x, x, 2.0)
            assert torch.cuda.current_device() == 0
        side.synchronize()
        assert out.eq(3 * value).all()


def test_each_devices_autograd_thread_launches(axpy: Operator) -> None:
    for index in (1, 0, 1):
        a, b = (tensor.requires_grad_() for tensor in sample_operators.pair(300, f"cuda:{index}"))
        axpy(a, b, 3.0).sum().backward()
        assert b.grad is not None
        assert b.grad.device.index == index
        assert b.grad.eq(3).all()


def test_a_variable_is_written_on_both() -> None:
    kernels = sample_operators.fresh_module()
    for value in (1.0, 2.0):
        kernels.variable("table").write(torch.full((4,), value))
        for index in (1, 0):
            out = torch.zeros(4, device=f"cuda:{index}")
            kernels.look_up(out, grid=1, block=4)
            assert out.tolist() == [value] * 4

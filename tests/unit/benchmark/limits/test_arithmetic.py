from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import CHAINS, THREADS, _measure_rate, kernels

Run = Callable[[], Any]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rounds", [1, 16, 21])
def test_multiply_add_does_so_many_rounds_in_each_chain(
    dtype: torch.dtype, rounds: int, device: torch.device
) -> None:
    start = torch.arange(2 * THREADS, device=device, dtype=dtype)
    out = torch.empty_like(start)
    kernels().multiply_add[dtype](start, out, 1.0, 3.0, rounds, grid=2, block=THREADS)
    assert out.equal(CHAINS * (start + 3 * rounds) + sum(range(CHAINS)))


def test_a_product_is_two_operations_for_each_pair(device: torch.device) -> None:
    reached = _measure_rate(("matrix", "bfloat16"), device, lambda run: 1.0, (16, 32))
    assert reached == pytest.approx(2 * 32**3 / 1e6)


def test_the_fastest_size_and_layout_counts(device: torch.device) -> None:
    times = iter((1.0, 0.5, 8.0, 9.0))
    reached = _measure_rate(("matrix", "float16"), device, lambda run: next(times), (16, 32))
    assert reached == pytest.approx(2 * 16**3 / 0.5 / 1e6)


def test_a_size_that_would_take_too_long_is_omitted(device: torch.device) -> None:
    timed: list[float] = []

    def time(run: Run) -> float:
        timed.append(1.0)
        return 10_000.0

    assert _measure_rate(("matrix", "float64"), device, time, (16, 32, 64))
    assert len(timed) == 2


def test_a_type_that_this_gpu_lacks_has_no_rate(device: torch.device) -> None:

    def time(run: Run) -> float:
        raise RuntimeError("torch._scaled_mm is only supported on CUDA devices of 8.9 and later")

    assert _measure_rate(("matrix", "float8"), device, time, (16,)) is None


def test_a_layout_that_fails_leaves_the_other(device: torch.device) -> None:
    calls = iter((RuntimeError("cuBLAS does not have it"), 2.0))

    def time(run: Run) -> float:
        found = next(calls)
        if isinstance(found, Exception):
            raise found
        return found

    assert _measure_rate(("matrix", "bfloat16"), device, time, (16,)) == pytest.approx(2 * 16**3 / 2 / 1e6)


def test_tf32_is_on_while_it_is_timed_and_as_before_afterwards(device: torch.device) -> None:
    matmul = torch.backends.cuda.matmul
    before, seen = matmul.fp32_precision, []

    def time(run: Run) -> float:
        seen.append(matmul.fp32_precision)
        return 1.0

    assert _measure_rate(("matrix", "tf32"), device, time, (16,))
    assert set(seen) == {"tf32"}
    assert matmul.fp32_precision == before


def test_tf32_is_as_before_after_an_interrupt(device: torch.device) -> None:
    before = torch.backends.cuda.matmul.fp32_precision

    def time(run: Run) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _measure_rate(("matrix", "tf32"), device, time, (16,))
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_registers_stay_busy_for_long_enough(device: torch.device) -> None:
    times = iter((10.0, 40.0, 160.0, 640.0))
    reached = _measure_rate(("plain", "float32"), device, lambda run: next(times))
    grid = kernels().multiply_add[torch.float32].occupancy(THREADS) * ceilings.sm_count(device)
    assert reached == pytest.approx(2 * CHAINS * 64 * 1024 * grid * THREADS / 640 / 1e6)


def test_products_are_of_random_normal_values(device: torch.device) -> None:
    for dtype in (torch.bfloat16, torch.float64, torch.float8_e4m3fn):
        values = ceilings._normal(64, device, dtype).float()
        assert abs(values.std().item() - 1) < 0.1
    whole = ceilings._normal(64, device, torch.int8).float()
    assert 25 < whole.std().item() < 40


@pytest.mark.parametrize("name", ["float64", "tf32", "float16", "bfloat16"])
def test_products_can_be_made(name: str, device: torch.device) -> None:
    made: list[Any] = []

    def time(run: Run) -> float:
        made.append(run())
        return 1.0

    assert _measure_rate(("matrix", name), device, time, (16,))
    assert len(made) == 2
    assert all(product.isfinite().all() and product.abs().max() > 1 for product in made)

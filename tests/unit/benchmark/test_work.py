from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.work import Work, count_check, work_of
from dotcu.errors import OperatorError
from dotcu.operator import Operator, Overload, Sample

_names = (f"bench_work::op{i}" for i in itertools.count())

kernels = dotcu.load_inline("""
__global__ void scale(const float* x, float* out, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * x[i];
}
""")


def launch(x: Tensor, out: Tensor, n: int) -> None:
    kernels.scale(x, out, 2.0, n, grid=dotcu.cdiv(n, 64), block=64)


def double(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    launch(x, out, x.numel())
    return out


def made(body: Any = double, mutates_args: Sequence[str] = ()) -> Operator:
    return dotcu.op(next(_names), mutates_args=mutates_args)(body)


def work(overload: Overload, *args: Any, result: Any = None, **kwargs: Any) -> Work:
    return work_of(overload, Sample(*args, **kwargs), result)


def test_inputs_are_read_once_and_results_written_once() -> None:
    def f(a: Tensor, b: Tensor, alpha: float) -> Tensor:
        return a + b

    found = work(made(f), torch.ones(8), torch.ones(8), 0.5, result=torch.ones(8, dtype=torch.float64))
    assert (found.read_bytes, found.written_bytes, found.flops) == (64, 64, 0)
    assert not found.declared


def test_several_results_count_each() -> None:
    def f(a: Tensor) -> tuple[Tensor, Tensor]:
        return a.clone(), a.clone()

    assert work(made(f), torch.ones(8), result=(torch.ones(8), torch.ones(2))).written_bytes == 40


def test_the_same_memory_passed_twice_is_read_once() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    a = torch.ones(8)
    assert work(made(f), a, a, result=torch.ones(8)).read_bytes == 32
    assert work(made(f), a, a.view(8), result=torch.ones(8)).read_bytes == 32
    assert work(made(f), a[:4], a[4:], result=torch.ones(4)).read_bytes == 32


def test_an_expanded_tensor_has_the_bytes_of_its_memory() -> None:
    assert work(made(), torch.ones(4, 1).expand(4, 1000), result=torch.ones(4, 1000)).read_bytes == 16


def test_a_strided_tensor_has_the_bytes_of_its_elements() -> None:
    assert work(made(), torch.ones(100)[::2], result=torch.ones(50)).read_bytes == 200


def test_what_a_call_mutates_is_read_and_written() -> None:
    def f(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    found = work(made(f, mutates_args=("x",)), torch.ones(8), torch.ones(2))
    assert (found.read_bytes, found.written_bytes) == (40, 32)


def with_out() -> tuple[Operator, Overload]:
    base = made()

    @base.overload("out", mutates_args=("out",))
    def write(x: Tensor, *, out: Tensor) -> None:
        launch(x, out, x.numel())

    return base, write


def test_out_is_written_alone() -> None:
    _, write = with_out()
    out = torch.ones(8)
    found = work(write, torch.ones(8), out=out, result=out)
    assert (found.read_bytes, found.written_bytes) == (32, 32)


def test_lists_of_tensors_count_each() -> None:
    def f(xs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(xs))

    assert work(made(f), [torch.ones(3), torch.ones(5)], result=torch.ones(8)).read_bytes == 32


def test_what_is_declared_is_split_as_the_tensors_are() -> None:
    operator = made()
    operator.work(lambda x: (9 * x.numel(), 5 * x.numel()))
    found = work(operator, torch.ones(100), result=torch.ones(50))
    assert (found.read_bytes, found.written_bytes, found.flops) == (600, 300, 500)
    assert found.declared
    assert found.dtype == "float32"


def test_out_has_the_work_of_the_operator_that_returns_its_result() -> None:
    base, write = with_out()
    base.work(lambda x: (8 * x.numel(), x.numel()))
    found = work(write, torch.ones(8), out=torch.ones(8))
    assert (found.bytes, found.flops, found.declared) == (64, 8, True)


@pytest.mark.parametrize("returned", [(1.5, 2), (-1, 0), (0, -1), 7, None, (1,), (1, 2, 3), ("8", 1)])
def test_work_that_is_no_pair_of_counts_is_reported(returned: Any) -> None:
    operator = made()
    operator.work(lambda x: returned)
    with pytest.raises(OperatorError, match="two whole numbers: bytes moved, and FLOPs") as found:
        work(operator, torch.ones(8))
    assert repr(returned) in str(found.value)


def test_work_that_fails_is_reported_with_the_call() -> None:
    operator = made()
    operator.work(lambda x, y: (1, 1))
    with pytest.raises(OperatorError, match=r"failed on Sample\(float32\[8\]\)"):
        work(operator, torch.ones(8))


@pytest.mark.parametrize(
    ("dtypes", "name"),
    [
        ((torch.bfloat16, torch.float32), "bfloat16"),
        ((torch.float32, torch.int8), "int8"),
        ((torch.float8_e4m3fn, torch.bfloat16), "float8_e4m3fn"),
        ((torch.int64, torch.float32), "float32"),
        ((torch.float64,), "float64"),
        ((torch.int64, torch.bool), ""),
    ],
)
def test_arithmetic_is_bound_by_the_narrowest_numbers(dtypes: Sequence[torch.dtype], name: str) -> None:
    def f(xs: Sequence[Tensor]) -> Tensor:
        return xs[0]

    inputs = [torch.ones(4).to(dtype) for dtype in dtypes]
    assert work(made(f), inputs, result=torch.ones(4, dtype=torch.float64)).dtype == name


# Claims beside what the simulator counts.


def test_an_honest_claim_passes() -> None:
    operator = made()
    operator.work(lambda x: (8 * x.numel(), x.numel()))
    assert count_check(operator, Sample(torch.ones(100))) == ""


def test_a_claim_of_less_passes() -> None:
    operator = made()
    operator.work(lambda x: (4, 0))
    assert count_check(operator, Sample(torch.ones(100))) == ""


def test_a_claim_of_more_bytes_is_reported() -> None:
    operator = made()
    operator.work(lambda x: (12 * x.numel(), x.numel()))
    found = count_check(operator, Sample(torch.ones(100)))
    assert found == (
        "on Sample(float32[100]) `work` claims 1200 bytes, and its kernels ask for 800; "
        "what torch's operations do is not counted"
    )


def test_a_claim_of_more_flops_is_reported() -> None:
    operator = made()
    operator.work(lambda x: (8 * x.numel(), 3 * x.numel()))
    assert "`work` claims 300 FLOPs, and its kernels do 100" in count_check(operator, Sample(torch.ones(100)))


def test_nothing_is_said_where_nothing_is_declared() -> None:
    def first_half(x: Tensor) -> Tensor:
        out = x.new_empty(x.numel() // 2)
        launch(x, out, out.numel())
        return out

    assert count_check(made(first_half), Sample(torch.ones(100))) == ""


def test_views_and_allocations_hide_no_claim_of_more() -> None:
    def viewed(x: Tensor) -> Tensor:
        out = torch.empty_like(x).view(-1)
        launch(x.reshape(-1)[:], out, x.numel())
        return out.view(x.shape)

    operator = made(viewed)
    operator.work(lambda x: (16 * x.numel(), 0))
    found = count_check(operator, Sample(torch.ones(8, 8)))
    assert "`work` claims 1024 bytes, and its kernels ask for 512" in found


def test_what_cannot_be_simulated_is_reported_with_the_reason() -> None:
    def fails(x: Tensor) -> Tensor:
        raise RuntimeError("no clusters here\nat all")

    operator = made(fails)
    operator.work(lambda x: (1, 1))
    found = count_check(operator, Sample(torch.ones(100)))
    assert found == "its work was not counted: the simulator cannot run it: no clusters here"


def test_a_call_that_is_too_large_is_not_simulated() -> None:
    operator = made()
    operator.work(lambda x: (1, 1))
    found = count_check(operator, Sample(torch.empty(1).expand(1 << 23)))
    assert "8388608 elements are more than" in found


def test_counting_leaves_the_sample_as_it_was() -> None:
    def f(x: Tensor) -> None:
        launch(x, x, x.numel())

    operator, x = made(f, mutates_args=("x",)), torch.ones(100)
    operator.work(lambda x: (9 * x.numel(), 0))
    assert "claims 900 bytes, and its kernels ask for 800" in count_check(operator, Sample(x))
    assert x.eq(1).all()


def test_out_is_counted_once() -> None:
    base, write = with_out()
    base.work(lambda x: (8 * x.numel(), x.numel()))
    assert count_check(write, Sample(torch.ones(100), out=torch.empty(100))) == ""


def test_the_gallerys_claims_are_honest() -> None:
    from dotcu.gallery.add.op import add
    from dotcu.gallery.fast_add.op import fast_add
    from dotcu.gallery.matmul.op import matmul
    from dotcu.gallery.square.op import square

    for operator in (add, fast_add, square, matmul):
        sample = next(iter(operator.make_samples(torch.device("cpu"), torch.float32)))
        assert count_check(operator, sample) == ""

"""Operators that draw from torch's generator are judged by what they draw, and the same at each check."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.results import CheckResult, Failed
from dotcu.checking.running import run_one
from dotcu.checking.trials import errors, gradients, vmap
from dotcu.operator import Operator
from helpers.check_reports import bare
from helpers.derivable_operators import subject

kernels = dotcu.load_inline("""
__global__ void kept(const float* x, const float* noise, float* out, float p, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = noise[i] >= p ? x[i] / (1 - p) : 0.f;
}
""")
SEEDED = (torch.Tag.nondeterministic_seeded,)
_names = (f"trials_random_test::op{i}" for i in itertools.count())


def keep(x: Tensor, noise: Tensor, p: float) -> Tensor:
    x, out, n = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device), x.numel()
    kernels.kept(x, noise, out, p, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def dropout() -> Operator:
    """Drops elements by numbers from torch's generator, which are not those that torch's dropout draws."""

    @dotcu.op(next(_names), tags=SEEDED)
    def dropped(x: Tensor, p: float) -> Tensor:
        if x.dtype != torch.float32 or not 0 <= p < 1:
            raise ValueError("float32, and p from 0 to 1")
        return keep(x, torch.rand(x.shape, device=x.device), p)

    @dropped.reference
    def _(x: Tensor, p: float) -> Tensor:
        if not 0 <= p < 1:
            raise ValueError("p from 0 to 1")
        return torch.nn.functional.dropout(x, p)

    dropped.samples(lambda device, dtype: [dotcu.Sample(torch.randn(5, 20, dtype=dtype), 0.25)])
    return dropped


def failures(made: Operator, kind: Any) -> dict[str, CheckResult]:
    results = [result for trial in kind.plan(subject(made)) for result in run_one(trial)]
    return {r.trial: bare(r) for r in results if isinstance(r, Failed)}


@pytest.mark.parametrize("state", range(3))
def test_random_values_are_not_compared_with_those_of_another_generator(state: int) -> None:
    torch.manual_seed(state)  # a verdict does not depend on what was drawn before
    assert failures(dropout(), errors) == {}


def test_a_random_operator_has_a_gradient_for_the_numbers_that_it_drew() -> None:
    @dotcu.op(next(_names), dtypes=(torch.float64,), tags=SEEDED)
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand(x.shape, dtype=x.dtype)

    noisy.reference(lambda x: x * torch.rand_like(x))
    noisy.samples(lambda device, dtype: [dotcu.Sample(torch.randn(20, dtype=dtype))])
    noisy.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(output / inputs[0]))
    noisy.backward(lambda ctx, grad: grad * ctx.saved_tensors[0].detach())
    assert failures(noisy, gradients) == {}


def test_a_random_batch_is_judged_by_its_shape() -> None:
    made = dropout()
    made.vmap(lambda info, in_dims, x, p: (made(x, p), in_dims[0]))
    assert failures(made, vmap) == {}

"""What an operator must do with wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.running import run_one
from dotcu.checking.trials import errors
from helpers.check_reports import bare
from helpers.derivable_operators import operator, subject

kernels = dotcu.load_inline("""
extern "C" __global__ void add(const float* a, const float* b, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
""")

A, B = torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4) + 1


def careful(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype != b.dtype:
        raise TypeError("two tensors of one dtype")
    return a + b


def outcomes(made: dotcu.operator.Overload) -> dict[str, tuple[str, CheckResult]]:
    """By the name of the wrong call: the check that speaks of it, and what it says."""
    found = {}
    for trial in errors.plan(subject(made)):
        (result,) = run_one(trial)
        assert result.check in trial.checks
        found[trial.id.case.removeprefix("float32-s0-")] = result.check, bare(result)
    return found


def of(
    body: Callable[..., Any],
    *args: Any,
    reference: Callable[..., Any] | None = torch.add,
) -> dict[str, tuple[str, CheckResult]]:
    return outcomes(operator(body, dotcu.Sample(*(args or (A, B))), reference=reference))


def short(found: dict[str, tuple[str, CheckResult]]) -> dict[str, str]:
    """The reasons of those that fell short."""
    return {name: o.reason for name, (_, o) in found.items() if isinstance(o, Failed)}


def test_an_operator_that_refuses_or_agrees_holds() -> None:
    found = of(careful)
    assert not short(found)
    assert all(isinstance(outcome, Passed) for _, outcome in found.values())
    held = found["b-float64"][1]
    assert isinstance(held, Passed)
    assert held.refusal == "TypeError: two tensors of one dtype"


def test_what_an_operator_computes_otherwise_fails() -> None:
    def by_force(a: Tensor, b: Tensor) -> Tensor:
        return a + b.to(a.dtype)

    found = short(of(by_force))
    assert "torch.float32[3, 4] on cpu, its reference torch.float64[3, 4]" in found["b-float64"]
    assert "b-int32" not in found  # torch gives float32 there, too


def test_wrong_values_are_shown() -> None:
    def doubled_if_wide(a: Tensor, b: Tensor) -> Tensor:
        return (a + b).clone() * (2 if b.dtype == torch.float64 else 1)

    found = of(doubled_if_wide)
    outcome = found["b-float64"][1]
    assert isinstance(outcome, Failed)
    assert "elements are wrong" in outcome.reason
    assert "expected" in outcome.evidence


def test_an_operator_that_computes_where_its_reference_raises_fails() -> None:
    def cut(a: Tensor, b: Tensor) -> Tensor:
        n = min(a.shape[-1], b.shape[-1]) if a.dim() and b.dim() else 1
        return a[..., :n] + b[..., :n]

    assert short(of(cut))["b-wider"] == "it accepts arguments that it must refuse"


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError, IndexError])
def test_an_unclear_error_where_the_reference_computes_fails(kind: type[Exception]) -> None:
    def brittle(a: Tensor, b: Tensor) -> Tensor:
        if b.dim() != 2:
            raise kind("odd")
        return a + b

    found = short(of(brittle))
    assert found["b-unsqueezed"] == f"it fails with {kind.__name__}, and its reference accepts the call"


def test_an_unclear_error_where_the_reference_raises_holds() -> None:
    def plain(a: Tensor, b: Tensor) -> Tensor:
        return a + b  # torch's own RuntimeError for shapes that do not fit

    assert not short(of(plain))


def test_a_kernel_that_reads_past_a_shorter_tensor_is_a_finding() -> None:
    def trusting(a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        out = torch.zeros_like(a)
        kernels.add(a, b, out, a.numel(), grid=dotcu.cdiv(a.numel(), 64), block=64)
        return out

    check, outcome = of(trusting)["b-emptied"]
    assert check == "sanitizer-bounds"
    assert isinstance(outcome, Failed)
    assert "out-of-bounds" in outcome.reason


def test_without_a_reference_a_call_that_computes_is_skipped() -> None:
    found = of(careful, reference=None)
    assert found["b-taller"][1] == Skipped(reason="no reference")
    assert isinstance(found["b-float64"][1], Passed)
    assert isinstance(found["unknown-keyword"][1], Passed)


def test_a_tensor_elsewhere_is_refused() -> None:
    found = of(careful)
    for name in ("a-on-meta", "b-on-meta"):
        outcome = found[name][1]
        assert isinstance(outcome, Passed)
        assert "ArgumentError" in outcome.refusal


def test_all_tensors_elsewhere_ask_for_shapes() -> None:
    def negated(a: Tensor) -> Tensor:
        return -a

    assert of(negated, A, reference=torch.neg)["a-on-meta"][1] == Passed(
        note="compared by dtype and shape: meta tensors have no values"
    )


def test_complex_numbers_are_compared() -> None:
    def conjugated(a: Tensor) -> Tensor:
        return a.conj().clone().resolve_conj() if a.is_complex() else a.clone()

    found = of(conjugated, A, reference=torch.clone)
    assert not short(found)  # float32 as complex64 has no imaginary part
    found = of(lambda_twice, A, reference=torch.clone)
    assert "complex" in short(found)["a-complex64"]


def lambda_twice(a: Tensor) -> Tensor:
    return a * (2 if a.is_complex() else 1)


def out_overload(*, checks: bool) -> dotcu.operator.Overload:
    made = operator(careful, dotcu.Sample(A, B), reference=torch.add)

    def careful_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
        total = careful(a, b)
        if checks and (out.shape, out.dtype, out.device) != (total.shape, total.dtype, total.device):
            raise ValueError("out= must fit")
        out.flatten()[: total.numel()].copy_(total.flatten()[: out.numel()])

    return made.overload("out", mutates_args=("out",))(careful_out)


def test_an_out_that_does_not_fit_must_be_refused() -> None:
    found = short(outcomes(out_overload(checks=False)))
    wanted = {"out-float64", "out-int32", "out-unsqueezed", "out-flattened", "out-taller", "out-emptied"}
    assert wanted <= set(found)
    assert not short(outcomes(out_overload(checks=True)))


def test_what_torch_warns_of_is_no_finding() -> None:
    def warned(a: Tensor) -> Tensor:
        return a.real.clone() if a.is_complex() else a.clone()

    assert not short(of(warned, A, reference=lambda a: a.to(torch.float32) if a.is_complex() else a.clone()))


def test_without_a_sample_of_some_size_nothing_is_tried() -> None:
    (trial,) = errors.plan(subject(operator(careful, dotcu.Sample(A[:0], B[:0]))))
    assert list(trial.run()) == [Skipped(reason="no sample whose tensors have elements")]


def test_a_name_alone_makes_the_same_call() -> None:
    made = operator(careful, dotcu.Sample(A, B), reference=torch.add)
    one, again = ([str(trial.id) for trial in errors.plan(subject(made))] for _ in range(2))
    assert one == again
    assert len(set(one)) == len(one)


def above(x: Tensor, t: float) -> Tensor:
    if x.dtype != torch.float32:
        raise TypeError("float32")
    return (x > t).sum().to(torch.int32)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x, t: torch.tensor(len(x[x > t]), dtype=torch.int32),
        lambda x, t: torch.tensor(int((x.numpy() > t).sum()), dtype=torch.int32),
        lambda x, t: torch.tensor(sum(v > t for v in x.flatten().tolist()), dtype=torch.int32),
        lambda x, t: torch.bincount((x > t).flatten().long(), minlength=2)[1].to(torch.int32),
    ],
    ids=["mask", "numpy", "tolist", "bincount"],
)
def test_a_reference_that_reads_values_says_nothing_of_a_call_on_meta(reference: Callable[..., Any]) -> None:
    found = of(above, A, 2.5, reference=reference)
    assert short(found) == {}
    assert found["x-on-meta"][1] == Skipped(reason="the reference computes no tensors on meta")


def rows_of(ptr: Tensor, n: int) -> Tensor:
    return torch.repeat_interleave(torch.arange(ptr.numel() - 1), ptr.diff(), output_size=n)


def segment_sum(v: Tensor, ptr: Tensor, scale: int) -> Tensor:
    """A sum for each row of a CSR matrix, by a body that cannot look at the values of `ptr`."""
    if v.dtype != torch.float32 or ptr.dtype != torch.int64 or v.dim() != 1 or ptr.dim() != 1:
        raise ValueError("v is float32[n], ptr is int64[rows + 1]")
    cut = ptr.clamp(0, v.numel())
    sums = torch.cat([v.new_zeros(1), v.cumsum(0)])
    return scale * (sums[cut[1:]] - sums[cut[:-1]]) if ptr.numel() else v.new_empty(0)


def csr(v: Tensor, ptr: Tensor, scale: int) -> Tensor:
    if int(ptr[0]) != 0 or int(ptr[-1]) != v.numel() or bool((ptr.diff() < 0).any()):
        raise ValueError("ptr must ascend from 0 to len(v)")
    return scale * v.new_zeros(ptr.numel() - 1).index_add(0, rows_of(ptr, v.numel()), v)


def test_a_size_that_must_fit_the_values_of_an_index_need_not_be_refused() -> None:
    found = of(segment_sum, torch.randn(7), torch.tensor([0, 3, 3, 7]), 2, reference=csr)
    assert short(found) == {}


def test_a_shape_that_the_reference_refuses_whatever_the_values_must_be_refused() -> None:
    def lenient(x: Tensor, index: Tensor) -> Tensor:
        return x.flatten()[: index.numel()].clone()

    found = short(of(lenient, A[0], torch.tensor([0, 1]), reference=lambda x, i: x.index_select(0, i)))
    assert found["index-unsqueezed"] == "it accepts arguments that it must refuse"

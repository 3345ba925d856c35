"""First and second gradients, and operators that have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.trials.gradients import _missing, plan
from dotcu.operator import Operator
from helpers.quick_cases import quick
from helpers.trial_operators import Said, differentiable, multiply, name, said, squaring, subject

DOUBLE = (torch.float32, torch.float64)


def of(check: str, outcomes: Said) -> dict[str, CheckResult]:
    return {case: outcome for (kind, case), outcome in outcomes.items() if kind == check}


def test_a_right_gradient_holds_in_every_way() -> None:
    outcomes = said(plan, differentiable(squaring(dtypes=DOUBLE)))
    assert all(isinstance(outcome, Passed) for outcome in outcomes.values()), outcomes
    given = [case for kind, case in outcomes if kind == "gradients" and case.count("-") == 2]
    assert given == [
        "float64-s0-gradcheck",
        "float64-s1-gradcheck",
        *(f"float64-s{i}-{ending}" for i in (0, 1) for ending in ("dense", "expanded", "strided")),
        "float32-s1-transposed",
        "float64-s0-kept",
        "float32-s0-dense",
    ]
    assert list(of("second-gradients", outcomes)) == ["float64-s0-gradcheck", "float64-s1-gradcheck"]


@pytest.mark.slow
def test_each_element_is_moved_alone_where_there_are_few_at_full() -> None:
    operator = differentiable(squaring(dtypes=DOUBLE, sizes=((5,),)), lambda grad, x: grad * 2 * x + 1e-2)
    outcome = said(plan, operator, Level.FULL)["gradients", "float64-s0-gradcheck"]
    assert isinstance(outcome, Failed)
    assert "not what finite differences give" in outcome.reason
    assert "numerical" in outcome.evidence


def test_a_wrong_gradient_shows_its_worst_element() -> None:
    operator = differentiable(squaring(), lambda grad, x: grad * x)
    outcome = said(plan, operator)["gradients", "float32-s0-dense"]
    assert isinstance(outcome, Failed)
    assert "20 of 20 elements are wrong" in outcome.reason
    assert outcome.evidence.startswith("gradient 0[")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", quick([torch.bfloat16], [torch.float16, torch.bfloat16]))
def test_half_types_are_held_to_what_torch_loses(dtype: torch.dtype) -> None:
    right = said(plan, differentiable(squaring(dtypes=(torch.float32, dtype))))
    case = ("gradients", f"{str(dtype)[6:]}-s0-dense")
    assert isinstance(right[case], Passed)
    wrong = differentiable(
        squaring(dtypes=(torch.float32, dtype)),
        lambda grad, x: grad * x * (2.2 if grad.dtype == dtype else 2),
    )
    assert isinstance(said(plan, wrong)[case], Failed)


def test_a_backward_that_raises_fails() -> None:
    operator = differentiable(squaring(), lambda grad, x: (grad, grad))
    outcome = said(plan, operator)["gradients", "float32-s0-dense"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "the backward fails"
    assert "one gradient for each positional argument" in outcome.evidence


def product() -> Operator:
    """Of two tensors and a list of tensors that goes without a gradient, with two results."""

    @dotcu.op(name(), dtypes=(torch.float64,))
    def product(a: Tensor, b: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        return multiply(a, b), index.clone()

    product.reference(lambda a, b, index: (a * b, index.clone()))
    product.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]))

    @product.samples
    def _(place: torch.device, dtype: torch.dtype) -> Any:
        a, b = (torch.randn(9, device=place, dtype=dtype) for _ in range(2))
        yield dotcu.Sample(a, b, torch.arange(3, device=place))

    return product


def test_inputs_with_and_without_a_gradient_are_mixed() -> None:
    operator = product()

    @operator.backward
    def _(ctx: Any, grad: Tensor, _: Any) -> Any:
        a, b = ctx.saved_tensors
        first, second = ctx.needs_input_grad[:2]
        return grad * b if first else None, grad * a if second and first else grad, None

    outcomes = said(plan, operator)
    assert isinstance(outcomes["gradients", "float64-s0-dense"], Passed)
    assert isinstance(outcomes["gradients", "float64-s0-dense-0"], Passed)
    assert isinstance(outcomes["gradients", "float64-s0-dense-1"], Failed)


def first_alone(reference: Any) -> Said:
    """Check a product whose backward gives the first factor a gradient, and the second none."""
    operator = product()
    operator.reference(reference)

    @operator.backward
    def _(ctx: Any, grad: Tensor, _: Any) -> Any:
        return grad * ctx.saved_tensors[1], None, None

    return said(plan, operator)


def test_an_input_that_the_reference_detaches_needs_no_gradient() -> None:
    outcomes = first_alone(lambda a, b, index: (a * b.detach(), index.clone()))
    found = of("gradients", outcomes)
    assert not [outcome for outcome in found.values() if isinstance(outcome, Failed)]
    assert isinstance(found["float64-s0-gradcheck"], Passed)


def test_a_gradient_that_is_missing_says_what_declares_that_there_is_none() -> None:
    outcome = first_alone(lambda a, b, index: (a * b, index.clone()))["gradients", "float64-s0-dense"]
    assert isinstance(outcome, Failed)
    assert "none for `b`. If it has none, say so in the reference: b.detach()" in outcome.evidence


def test_an_imaginary_gradient_is_not_missing() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    operator = squaring(dtypes=(x.dtype,))
    words = [_missing(subject(operator), dotcu.Sample(x), (0,), [gradient]) for gradient in (1j * x, 0 * x)]
    assert words[0] == ""
    assert "none for `x`" in words[1]


def test_a_result_that_hangs_on_no_input_has_zeros_as_its_gradient() -> None:
    @dotcu.op(name())
    def square(x: Tensor) -> tuple[Tensor, Tensor]:
        return multiply(x, x), torch.zeros_like(x)

    square.reference(lambda x: (x * x, torch.zeros_like(x)))
    square.setup_context(lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    square.backward(lambda ctx, grad, of_zeros: grad * 2 * ctx.saved_tensors[0])
    square.samples(lambda place, dtype: [dotcu.Sample(torch.randn(20, device=place, dtype=dtype))])
    outcomes = said(plan, square)
    assert {"float32-s0-dense", "float32-s0-strided"} <= set(of("gradients", outcomes))
    assert all(isinstance(outcome, Passed) for outcome in outcomes.values()), outcomes


def test_an_empty_call_is_differentiated_too() -> None:
    operator = differentiable(squaring(sizes=((20,), (0, 3))))
    assert said(plan, operator)["gradients", "float32-s1-dense"] == Passed(ratio=0.0)


def test_other_sizes_and_layouts_are_differentiated_too_in_the_first_dtype_when_quick() -> None:
    outcomes = said(plan, differentiable(squaring(dtypes=DOUBLE)), Level.QUICK)
    derived = [case for case in of("gradients", outcomes) if case.count("-") > 2]
    layouts = ("2d-transposed", "sliced", "2d-rows-sliced", "expanded", "offset-1")
    words = {"n1", "n33", "n257", "large", *layouts}
    assert sorted(derived) == sorted(f"float32-s0-{word}-dense" for word in words)
    standard = said(plan, differentiable(squaring(dtypes=DOUBLE)))
    for dtype in ("float32", "float64"):
        for word in ("n0", "n33"):
            assert ("gradients", f"{dtype}-s0-{word}-dense") in standard


def test_what_a_backward_leaves_unwritten_at_another_size_is_seen() -> None:
    @dotcu.op(name())
    def all_but_the_tail(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
        whole = a.numel() // 4 * 4
        out.view(-1)[:whole].copy_(multiply(a, b).view(-1)[:whole])
        return out

    operator = differentiable(squaring(), lambda grad, x: all_but_the_tail(grad, 2 * x))
    outcomes = said(plan, operator, Level.QUICK)
    assert isinstance(outcomes["gradients", "float32-s0-dense"], Passed)
    unwritten = outcomes["gradients", "float32-s0-n33-dense"]
    assert isinstance(unwritten, Failed)
    assert "1 of 33 elements" in unwritten.reason
    assert "nan" in unwritten.evidence


def test_a_backward_that_ignores_strides_of_what_was_saved_is_seen() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * 2 * x.as_strided(x.shape, x.contiguous().stride(), x.storage_offset())

    outcomes = said(plan, differentiable(squaring(), backward), Level.QUICK)
    assert isinstance(outcomes["gradients", "float32-s0-offset-1-dense"], Passed)
    assert isinstance(outcomes["gradients", "float32-s0-sliced-dense"], Failed)
    assert isinstance(outcomes["gradients", "float32-s0-2d-transposed-dense"], Failed)


def test_a_derived_call_that_is_refused_holds_with_its_refusal() -> None:
    def body(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise ValueError("x must be contiguous\nand more")
        return multiply(x, x)

    outcome = said(plan, differentiable(squaring(body)), Level.QUICK)["gradients", "float32-s0-sliced-dense"]
    assert outcome == Passed(refusal="ValueError: x must be contiguous")


def test_a_derived_call_that_the_reference_cannot_take_is_no_case() -> None:
    operator = differentiable(squaring())
    operator.reference(lambda x: x * x + torch.zeros((20,) if x.dim() == 1 else x.shape))
    outcomes = said(plan, operator, Level.QUICK)
    assert ("gradients", "float32-s0-n33-dense") not in outcomes
    assert isinstance(outcomes["gradients", "float32-s0-sliced-dense"], Passed)


def test_elements_that_share_memory_are_moved_apart() -> None:
    operator = differentiable(squaring(dtypes=(torch.float64,)))
    operator.samples(
        lambda place, dtype: [dotcu.Sample(torch.randn(4, device=place, dtype=dtype).expand(5, 4))]
    )
    outcomes = said(plan, operator)
    assert all(isinstance(outcome, Passed) for outcome in outcomes.values()), outcomes


def test_finite_differences_of_very_many_elements_are_not_taken() -> None:
    operator = differentiable(squaring(dtypes=(torch.float64,), sizes=((6000,),)))
    outcome = said(plan, operator, Level.QUICK)["gradients", "float64-s0-gradcheck"]
    assert outcome == Skipped(reason="6000 elements are too many for finite differences")


def test_without_float64_and_reference_there_is_nothing_to_compare_with() -> None:
    operator = differentiable(squaring())
    operator._reference = None
    outcomes = said(plan, operator)
    assert len(outcomes) == 2
    assert all(isinstance(o, Skipped) and "nothing to compare with" in o.reason for o in outcomes.values())


def test_a_reference_that_torch_cannot_differentiate_is_no_fault() -> None:
    operator = differentiable(squaring())
    operator.reference(lambda x: x.detach() ** 2)
    outcome = said(plan, operator)["gradients", "float32-s0-dense"]
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("the reference cannot be differentiated")


def test_whole_numbers_have_no_gradient() -> None:
    outcomes = said(plan, squaring(dtypes=(torch.int32,)))
    assert set(outcomes.values()) == {Skipped(reason="no floating dtype")}


# ------------------------------------------------------------------ second gradients


@pytest.mark.parametrize("dtypes", quick([(torch.float32,)], [(torch.float32,), DOUBLE]))
def test_a_lost_second_gradient_is_seen_in_any_dtype(dtypes: tuple[torch.dtype, ...]) -> None:
    operator = differentiable(squaring(dtypes=dtypes), lambda grad, x: grad * 2 * x.detach())
    outcomes = said(plan, operator)
    assert all(isinstance(outcome, Passed) for outcome in of("gradients", outcomes).values())
    second = of("second-gradients", outcomes)
    assert len(second) == 2
    assert all(isinstance(outcome, Failed) for outcome in second.values())


@pytest.mark.slow
def test_a_backward_of_operators_without_gradient_has_no_second_and_says_so() -> None:
    part = squaring()
    operator = differentiable(squaring(dtypes=DOUBLE), lambda grad, x: grad * part(x) / x * 2)
    second = of("second-gradients", said(plan, operator))
    assert len(second) == 2
    assert all(isinstance(o, Skipped) and "has no backward" in o.reason for o in second.values()), second
    assert all("\n" not in o.reason for o in second.values() if isinstance(o, Skipped))


def test_a_backward_that_is_declared_differentiable_once_is_left_at_that() -> None:
    operator = differentiable(squaring(dtypes=DOUBLE))
    operator.backward(once_differentiable(lambda ctx, grad: grad * 2 * ctx.saved_tensors[0]))
    outcomes = said(plan, operator)
    assert all(isinstance(outcome, Passed) for outcome in of("gradients", outcomes).values()), outcomes
    assert set(of("second-gradients", outcomes).values()) == {
        Skipped(reason="its backward is declared once_differentiable")
    }

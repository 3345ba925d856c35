"""What a fake kernel tells of a result, beside the result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.trials.fake import plan
from helpers.trial_operators import device, multiply, name, said, squaring


def test_given_cases_and_a_few_sizes_and_layouts_are_tried_when_quick() -> None:
    outcomes = said(plan, squaring(), Level.QUICK)
    given = ("s0", "s1", "s1-transposed")
    derived = ("n0", "n1", "n33", "0d", "2d-transposed", "sliced", "2d-rows-sliced", "expanded")
    derived += ("4d-channels-last", "offset-1")
    names = {*given, *(f"s0-{word}" for word in derived)}
    assert outcomes == {("fake", f"float32-{word}"): Passed() for word in names}


def test_every_size_is_tried_at_standard_and_no_other_values() -> None:
    outcomes = said(plan, squaring())
    assert ("fake", "float32-s0-n31") in outcomes
    assert ("fake", "float32-s0-n1009") in outcomes
    assert ("fake", "float32-s0-nan") not in outcomes


@pytest.mark.slow
def test_every_dtype_is_tried_at_full() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    cases = {case for _, case in said(plan, operator, Level.FULL)}
    assert {case for case in cases if case.startswith("int32")} == {
        "int32-s0",
        "int32-s1",
        "int32-s1-transposed",
    }


@pytest.mark.parametrize(
    ("fake", "words"),
    [
        (lambda x: x.new_empty(x.numel() + 1), "output 0 has shape [20], the fake kernel gives [21]"),
        (
            lambda x: x.new_empty(x.shape, dtype=torch.int8),
            "has dtype torch.float32, the fake kernel gives torch.int8",
        ),
        (lambda x: x.new_empty(x.shape, device="meta"), "the fake kernel gives meta"),
        (lambda x: x.new_empty((*x.shape, 2))[..., 0], "output 0 has strides [1], the fake kernel gives [2]"),
    ],
)
def test_what_is_reported_wrongly_is_named(fake: Any, words: str) -> None:
    operator = squaring()
    operator.fake(fake)
    outcome = said(plan, operator)["fake", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert words in outcome.reason


def test_another_number_of_outputs_is_named() -> None:
    @dotcu.op(name())
    def twice(x: Tensor) -> list[Tensor]:
        return [multiply(x, x), multiply(x, x)]

    twice.fake(lambda x: [torch.empty_like(x)])

    @twice.samples
    def _(device: torch.device, dtype: torch.dtype) -> Any:
        yield dotcu.Sample(torch.randn(9, device=device, dtype=dtype))

    outcome = said(plan, twice)["fake", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.reason.endswith("it gives 1 outputs, the call gives 2")


def test_strides_that_no_element_shows_may_differ() -> None:
    operator = squaring(sizes=((1, 5), (0, 5)))
    operator.fake(lambda x: torch.empty_strided(x.shape, (77, 1), dtype=x.dtype, device=x.device))
    assert said(plan, operator)["fake", "float32-s0"] == Passed()
    assert said(plan, operator)["fake", "float32-s1"] == Passed()


@pytest.mark.parametrize(
    ("right", "case"),
    [
        (lambda x: x.is_contiguous(), "float32-s0-sliced"),
        (lambda x: x.numel() != 33, "float32-s0-n33"),
        (lambda x: x.dim() > 0, "float32-s0-0d"),
    ],
    ids=["layout", "size", "rank"],
)
def test_a_fake_that_is_right_for_the_samples_alone_is_seen(right: Any, case: str) -> None:
    operator = squaring(sizes=((20,),))
    operator.fake(lambda x: x.new_empty(x.shape if right(x) else (*x.shape, 2)))
    outcomes = said(plan, operator, Level.QUICK)
    assert outcomes["fake", "float32-s0"] == Passed()
    assert isinstance(outcomes["fake", case], Failed)


def test_of_a_derived_call_that_fails_without_a_refusal_nothing_is_said() -> None:
    def body(x: Tensor) -> Tensor:
        if x.numel() == 33:
            raise RuntimeError("not of this size")
        return multiply(x, x)

    outcomes = said(plan, squaring(body), Level.QUICK)
    assert ("fake", "float32-s0-n33") not in outcomes
    assert outcomes["fake", "float32-s0-n1"] == Passed()


def positives(x: Tensor) -> Tensor:
    kept = x.flatten()[x.flatten() > 50]
    return multiply(kept, kept)


def test_a_body_that_reads_a_value_needs_a_fake_of_its_own() -> None:
    operator = squaring(lambda x: multiply(x, x) if x.sum().item() > 0 else -multiply(x, x))
    outcome = said(plan, operator)["fake", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert "reads a value" in outcome.reason
    assert ".fake" in outcome.evidence


def test_a_shape_that_hangs_on_values_is_skipped_where_all_else_is_right() -> None:
    operator = squaring(positives)
    operator.fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
    outcome = said(plan, operator)["fake", "float32-s0"]
    assert isinstance(outcome, Skipped)
    assert "output 0 depends on values" in outcome.reason


def test_a_shape_that_hangs_on_values_does_not_excuse_another_dtype() -> None:
    operator = squaring(positives)
    operator.fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int32))
    assert isinstance(said(plan, operator)["fake", "float32-s0"], Failed)


def test_a_body_that_knows_its_device_alone_may_refuse_meta_tensors() -> None:
    def body(x: Tensor) -> Tensor:
        if x.device.type != device().type:
            raise ValueError("made for one device")
        return multiply(x, x)

    outcome = said(plan, squaring(body))["fake", "float32-s0"]
    assert outcome == Passed(note="does not accept meta tensors: ValueError: made for one device")


def test_a_fake_that_is_wrong_on_meta_tensors_alone_is_reported() -> None:
    operator = squaring()
    operator.fake(lambda x: x.new_empty(x.numel() + (type(x) is Tensor)))
    outcome = said(plan, operator)["fake", "float32-s0"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "wrong on meta tensors: output 0 has shape [20], the fake kernel gives [21]"


def test_a_refused_transposed_call_holds_with_its_refusal() -> None:
    def body(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise ValueError("x must be contiguous\nand more")
        return multiply(x, x)

    outcome = said(plan, squaring(body))["fake", "float32-s1-transposed"]
    assert outcome == Passed(refusal="ValueError: x must be contiguous")

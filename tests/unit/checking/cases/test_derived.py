"""Taking arguments out of a call, and putting others in."""

from __future__ import annotations

import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.derived import (
    arguments,
    completed,
    generator_for,
    has_indices,
    with_arguments,
)
from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import mapped
from helpers.derivable_operators import first, operator, subject


def scaled(a: Tensor, alpha: float, *, block_size: int = 32) -> Tensor:
    return a * alpha


def test_a_derived_case_makes_its_tensors_at_each_look() -> None:
    made: list[Tensor] = []

    def build() -> dotcu.Sample:
        made.append(torch.zeros(3))
        return dotcu.Sample(made[-1])

    case = Case(dtype=torch.float32, number=0, variant="n3", build=build)
    assert not made
    assert case.derived
    assert case.make().tensors[0].tolist() == [0.0] * 3
    assert case.sample.tensors[0] is made[1]


def test_arguments_have_their_names_whichever_way_they_are_given() -> None:
    signature = operator(scaled).signature
    x = torch.ones(2)
    for sample in (dotcu.Sample(x, 2.0, block_size=64), dotcu.Sample(alpha=2.0, a=x, block_size=64)):
        assert arguments(signature, sample) == {"a": x, "alpha": 2.0, "block_size": 64}
        changed = with_arguments(signature, sample, {"alpha": 3.0, "block_size": 8})
        assert arguments(signature, changed) == {"a": x, "alpha": 3.0, "block_size": 8}
        assert len(changed.args) == len(sample.args)


def test_a_tensor_given_twice_is_changed_once() -> None:
    x = torch.ones(2)
    a, (b,) = mapped(dotcu.Sample(x, [x]), torch.clone).args
    assert a is b
    assert a is not x


def test_a_changed_tensor_has_no_history() -> None:
    x = torch.ones(2, requires_grad=True)
    (a,) = mapped(dotcu.Sample(x), lambda t: t * 2).args
    assert not a.requires_grad


def test_outputs_are_taken_away_and_made_anew() -> None:
    base = operator(scaled, dotcu.Sample(torch.ones(3), 2.0), reference=lambda a, alpha: a * alpha)

    def scaled_out(a: Tensor, alpha: float, *, out: Tensor) -> None:
        out.copy_(a * alpha)

    one = subject(base.overload("out", mutates_args=("out",))(scaled_out))
    inputs = one.inputs(first(one).sample)
    assert not inputs.kwargs
    whole = completed(one, inputs)
    assert whole is not None
    assert bool(whole.kwargs["out"].isnan().all())
    base.reference(lambda a, alpha: 1 / 0)
    assert completed(one, inputs) is None


def test_integers_beside_data_are_indices() -> None:
    sample = dotcu.Sample(torch.ones(3), torch.ones(3, dtype=torch.int32))
    assert has_indices(sample, torch.float32)
    assert not has_indices(sample, torch.int32)
    assert not has_indices(dotcu.Sample(torch.ones(3, dtype=torch.bool)), torch.float32)


def test_random_numbers_hang_on_name_and_seed() -> None:
    drawn = [torch.rand(3, generator=generator_for(*key)) for key in [("a", 0), ("a", 0), ("a", 1), ("b", 0)]]
    assert [torch.equal(drawn[0], other) for other in drawn] == [True, True, False, False]

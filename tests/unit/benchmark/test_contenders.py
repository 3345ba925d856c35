"""Contenders: the operator, its reference in eager mode and compiled, and what a user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import (
    MODES,
    BareTarget,
    Baseline,
    bare_contenders,
    contenders,
    prepare_calls,
)
from dotcu.errors import UsageError
from dotcu.operator import Operator, Sample
from helpers.derivable_operators import operator, subject


def body(x: Tensor, alpha: float = 1.0, *, block_size: int = 32) -> Tensor:
    return x + alpha


def reference(x: Tensor, alpha: float = 1.0, **launch: Any) -> Tensor:
    return x + alpha


def mine(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x - -alpha


X = torch.arange(4.0)
SAMPLE = Sample(X, 2.0, block_size=64)


@pytest.fixture(scope="module")
def added() -> Operator:
    return operator(body, SAMPLE, reference=reference)


def results(of: Operator, *against: Baseline) -> dict[str, Any]:
    calls, failed = prepare_calls(contenders(subject(of), against))
    assert not failed, failed
    with dotcu.simulate():
        return {name: call(SAMPLE) for name, call in calls.items()}


def test_the_operator_comes_first_and_each_computes_the_same(added: Operator) -> None:
    found = results(added, "eager", mine, reference)
    assert list(found) == [OWN, "eager", "mine", "reference"]
    assert all(torch.equal(result, X + 2) for result in found.values())


def test_a_function_does_not_get_keywords_that_it_does_not_have(added: Operator) -> None:
    def plain(x: Tensor, alpha: float) -> Tensor:
        return x + alpha

    assert "block_size" in SAMPLE.kwargs
    assert torch.equal(results(added, plain)["plain"], X + 2)


def test_names_are_unique(added: Operator, tmp_path: Path) -> None:
    file = tmp_path / "baselines.py"
    file.write_text("def mine(x, alpha):\n    return x + alpha\n")
    place = f"{file}:mine"
    found = contenders(subject(added), [lambda x: x, mine, place, lambda x: x])
    assert list(found) == [OWN, "lambda", "mine", place, "lambda-2"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("eagr", r"no baseline 'eagr'. Did you mean 'eager'"),
        ("quux", r"no baseline 'quux'\.\nA baseline is eager, compile"),
        ("no/such.py:fn", "there is no file"),
        ("math:sqr", "Did you mean math:sqrt"),
    ],
)
def test_an_unknown_baseline_is_answered_with_the_nearest(added: Operator, given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        contenders(subject(added), [given])


def test_without_a_reference_its_baselines_fail_and_the_others_remain() -> None:
    calls, failed = prepare_calls(contenders(subject(operator(body, SAMPLE)), ["eager", "compile", mine]))
    assert list(calls) == [OWN, "mine"]
    assert "has no reference, and 'eager' is its reference" in failed["eager"]
    assert set(failed) == {"eager", "compile"}


def test_torch_compiles_for_one_shape_without_graphs_and_forgets_earlier_cases(
    added: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(torch, "compile", lambda fn, **options: asked.append((fn, options)) or fn)
    monkeypatch.setattr(torch._dynamo, "reset", lambda: asked.append(("reset", {})))
    results(added, "compile", "max-autotune")
    assert asked == [
        ("reset", {}),
        (reference, {"dynamic": False, "mode": None}),
        (reference, {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}),
    ]
    assert set(MODES) == {"compile", "max-autotune"}


def test_baselines_do_not_get_what_a_call_only_writes(added: Operator) -> None:
    made = operator(body, SAMPLE, reference=reference)

    @made.overload("out", mutates_args=("out",))
    def _(x: Tensor, alpha: float = 1.0, *, block_size: int = 32, out: Tensor) -> None:
        out.copy_(x + alpha)

    calls, _ = prepare_calls(contenders(subject(made.overloads["out"]), ["eager", mine]))
    sample = Sample(X, 2.0, block_size=64, out=torch.empty(4))
    with dotcu.simulate():
        given = {name: call(sample) for name, call in calls.items()}
    assert given[OWN] is sample.kwargs["out"]
    assert all(torch.equal(result, X + 2) for result in given.values())


def test_a_bare_kernel_and_its_baselines_are_called_without_arguments() -> None:
    bare = BareTarget(name="kernel", function=lambda: 1, reference=lambda: 2, device=torch.device("cpu"))
    calls, _ = prepare_calls(bare_contenders(bare, ["eager", lambda: 3]))
    assert {name: call(Sample()) for name, call in calls.items()} == {OWN: 1, "eager": 2, "lambda": 3}

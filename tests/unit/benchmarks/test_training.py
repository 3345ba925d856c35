"""benchmarks/training.py without a GPU: its model, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import training
from calls import timing, transformer
from calls.report import Timing
from calls.timing import Skipped
from calls.transformer import EAGER, GALLERY, MODES, OWN, TORCH, Sizes, Trainer

CPU = torch.device("cpu")
SMALL = Sizes(layers=1, width=16, heads=2, vocabulary=32, tokens=8)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "measure", partial(timing.measure, warm_calls=1, synchronize=int))


def test_both_models_have_the_same_losses_and_begin_anew() -> None:
    own, eager = (Trainer(functions, EAGER, CPU, SMALL) for functions in (OWN, TORCH))
    losses = own.losses(5)
    training.require_agreement(losses, eager.losses(5))
    assert own.losses(5) == losses


def test_the_model_with_matmul_and_attention_has_the_same_losses() -> None:
    tied = replace(SMALL, tied=True)
    losses = Trainer(GALLERY, EAGER, CPU, tied).losses(2)
    training.require_agreement(losses, Trainer(TORCH, EAGER, CPU, tied).losses(2))


@pytest.mark.parametrize("losses", [[3.0, float("nan")], [3.0, 2.0], [3.0, 3.0]])
def test_losses_that_differ_or_do_not_fall_are_refused(losses: list[float]) -> None:
    training.require_agreement([3.0, 2.9], [3.0, 2.9])
    with pytest.raises(ValueError, match="loss"):
        training.require_agreement(losses, [3.0, 2.9])


def test_a_model_that_fails_is_skipped_and_the_other_one_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(OWN, cross_entropy=lambda logits, target: 2 * transformer.cross_entropy(logits, target))
    monkeypatch.setattr(training, "OWN", wrong)
    (skipped, timed), times = training.measure_steps([EAGER], CPU, rounds=1, sizes=SMALL)
    assert isinstance(skipped, Skipped)
    assert "torch eager" in skipped.reason
    assert isinstance(timed, Timing)
    assert set(times) == {"step, eager, torch"}


def test_goals_name_contenders_that_there_are() -> None:
    names = {training.step_name(mode, functions) for mode in MODES for functions in (OWN, GALLERY, TORCH)}
    assert {name for goal in training.GOALS for name in goal.needs} <= names


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert training.main([]) == 3
    assert "GPU" in capsys.readouterr().err

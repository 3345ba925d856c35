"""The graph trial, with graphs that only note what is called, and call it again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.subject import Subject
from dotcu.checking.trials import gpu

_names = (f"trials_graph_test::op{i}" for i in itertools.count())


class FakeGraph:
    """Holds what is to be done at a replay."""

    capturing: FakeGraph | None = None

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []

    def replay(self) -> None:
        for each in self.work:
            each()


class capture_of:
    """Captures until the block ends, which fails where the capture was spoilt."""

    spoilt = False

    def __init__(self, graph: FakeGraph, stream: object) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        FakeGraph.capturing = self._graph
        capture_of.spoilt = False

    def __exit__(self, *args: object) -> None:
        FakeGraph.capturing = None
        if capture_of.spoilt:
            raise RuntimeError("capture was invalidated")


current: list[object] = []


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    current[:] = ["the default stream"]
    for name, value in {
        "CUDAGraph": FakeGraph,
        "graph": capture_of,
        "Stream": object,
        "current_stream": lambda: current[-1],
        "set_stream": current.append,
        "device": lambda device: nullcontext(),
        "synchronize": lambda *device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


def subject_of(compute: Callable[[Tensor], Tensor], **told: Any) -> Subject:
    @dotcu.op(next(_names), **told)
    def negate(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @negate.reference
    def _(x: Tensor) -> Tensor:
        return compute(x)

    @negate.samples
    def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        return [dotcu.Sample(torch.randn(5, device=device, dtype=dtype))]

    return Subject(overload=negate, device=torch.device("cpu"))


def outcome_of(
    monkeypatch: pytest.MonkeyPatch, compute: Callable[[Tensor], Tensor], *, frozen: bool
) -> CheckResult:
    """What the trial says of an operator; a frozen one gives at each replay what it gave in the capture."""
    subject = subject_of(compute)
    plain = Subject.call

    def call(self: Subject, sample: dotcu.Sample) -> tuple[Tensor, ...]:
        results = plain(self, sample)
        if FakeGraph.capturing is not None and not frozen:
            FakeGraph.capturing.work.append(lambda: results[0].copy_(plain(self, sample)[0]))
        return results

    monkeypatch.setattr(Subject, "call", call)
    (case,) = subject.given(torch.float32)
    return gpu.look(subject, case, gpu.look_at_graph)


def test_a_call_whose_replays_compute_from_new_values_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_of(monkeypatch, torch.neg, frozen=False) == Passed()


def test_replays_that_give_what_the_capture_gave_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(monkeypatch, torch.neg, frozen=True)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "replay 1 of a CUDA graph of it is wrong"
    assert "elements are wrong" in outcome.evidence


def test_what_spoils_a_capture_is_reported_and_not_how_the_capture_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def synchronize(x: Tensor) -> Tensor:
        if FakeGraph.capturing is not None:
            capture_of.spoilt = True
            raise RuntimeError("operation not permitted when stream is capturing")
        return -x

    outcome = outcome_of(monkeypatch, synchronize, frozen=False)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "cannot be captured in a CUDA graph"
    assert "not permitted when stream is capturing" in outcome.evidence
    assert "cudagraph_unsafe" in outcome.evidence
    assert current[-1] == "the default stream", "a capture that failed leaves no stream current"


def test_an_operator_that_is_declared_unsafe_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(torch.neg, tags=(torch.Tag.cudagraph_unsafe,))
    monkeypatch.setattr(Subject, "on_gpu", True)
    monkeypatch.setattr(gpu, "chosen", lambda subject: [])
    (trial,) = [each for each in gpu.plan(subject) if each.kind == "graph"]
    (outcome,) = trial.run()
    assert outcome == Skipped(reason="declared cudagraph_unsafe by a tag")

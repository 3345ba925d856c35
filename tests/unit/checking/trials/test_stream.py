"""The stream trial, with streams that only note what is done on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.subject import Subject
from dotcu.checking.trials import gpu

_names = (f"trials_stream_test::op{i}" for i in itertools.count())


class FakeStream:
    """A stream by number. The default one is 0."""

    current = 0
    asleep: set[int] = set()  # noqa: RUF012  (the fixture empties it)
    _numbers = itertools.cycle(range(1, 33))

    def __init__(self, number: int | None = None) -> None:
        self.cuda_stream = next(self._numbers) if number is None else number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeStream) and other.cuda_stream == self.cuda_stream

    __hash__ = None  # type: ignore[assignment]

    def synchronize(self) -> None:
        self.asleep.discard(self.cuda_stream)

    def query(self) -> bool:
        return self.cuda_stream not in self.asleep


@contextmanager
def on(stream: FakeStream) -> Iterator[None]:
    before, FakeStream.current = FakeStream.current, stream.cuda_stream
    try:
        yield
    finally:
        FakeStream.current = before


@pytest.fixture(autouse=True)
def _streams(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeStream.asleep.clear()
    for name, value in {
        "Stream": FakeStream,
        "stream": on,
        "default_stream": lambda: FakeStream(0),
        "device": lambda device: nullcontext(),
        "synchronize": lambda *device: FakeStream.asleep.clear(),
        "_sleep": lambda clocks: FakeStream.asleep.add(FakeStream.current),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


def outcome_of(reference: Any) -> CheckResult:
    """What the trial says of an operator that computes this."""

    @dotcu.op(next(_names))
    def negate(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    negate.reference(reference)

    @negate.samples
    def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        return [dotcu.Sample(torch.randn(5, device=device, dtype=dtype))]

    subject = Subject(overload=negate, device=torch.device("cpu"))
    (case,) = subject.given(torch.float32)
    return gpu.look(subject, case, gpu.look_at_streams)


def test_an_operator_on_the_current_stream_holds() -> None:
    assert isinstance(outcome_of(lambda x: -x), Passed)


def test_one_that_does_not_wait_for_the_current_stream_reads_too_early() -> None:
    outcome = outcome_of(lambda x: x * 0 if FakeStream.current in FakeStream.asleep else -x)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("reads its inputs before earlier work on a side stream")


def test_one_that_the_current_stream_does_not_wait_for_is_read_too_early() -> None:
    def on_another(x: Tensor) -> Tensor:
        others = FakeStream.asleep - {FakeStream.current}
        return x * 0 if others else -x

    outcome = outcome_of(on_another)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("is not complete when a side stream, the stream of the call, is")


def test_a_call_that_fails_anyway_is_no_fault_of_streams() -> None:
    def fail(x: Tensor) -> Tensor:
        raise ValueError("not today")

    assert outcome_of(fail) == Skipped(reason="a plain call fails: not today")

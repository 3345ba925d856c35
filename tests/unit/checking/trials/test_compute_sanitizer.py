"""compute-sanitizer's trials without the tool: who is asked together, and what a bare call is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped
from dotcu.checking.protocol import Request
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import compute_sanitizer
from dotcu.compile import toolchain

kernels = dotcu.load_inline("""
template <typename T>
__global__ void twice(const T* x, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
""")
_names = (f"trials_sanitizer_test::op{i}" for i in itertools.count())


@dotcu.op(next(_names))
def twice(x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    kernels.twice[x.dtype](x, out, x.numel(), grid=2, block=32)
    return out


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
    big = torch.randn(9, 9, device=device, dtype=dtype)
    return [dotcu.Sample(big), dotcu.Sample(big[2:5, 1::2]), dotcu.Sample(big[:0])]


def request_for(name: str) -> Request:
    return Request(target="x", overload=name, device="cuda:0", level=2, seed=0, trials=(), threads=1)


class FakeWatch:
    """Finds fault with the overloads whose name has the tool's in it."""

    def __init__(self, tool: str, options: Sequence[str], path: Path, number: int) -> None:
        self.tool = tool

    def outcomes(self, requests: Sequence[Request]) -> Iterator[tuple[str, Outcome]]:
        for request in requests:
            wrong = self.tool in request.overload
            yield request.overload, FellShort(reason="seen") if wrong else Held()

    def kill(self) -> None:
        pass


def trials_of(*names: str) -> list[Trial]:
    return [
        Trial(overload=name, kind=tool, case="", checks=(tool,), run=lambda: ())
        for name in names
        for tool in compute_sanitizer.TOOLS
    ]


def test_every_tool_is_run_once_for_all_its_overloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sanitizer, "Watch", FakeWatch)
    monkeypatch.setattr(toolchain, "find_tool", lambda name: Path("/somewhere") / name)
    names = ("a::racecheck", "a::good")
    other = Trial(overload="a::good", kind="call", case="", checks=("numerics",), run=lambda: ())
    found = compute_sanitizer.run({name: request_for(name) for name in names}, [other, *trials_of(*names)])
    outcomes = {result.trial: (result.check, result.outcome) for result in found}
    assert len(outcomes) == 8
    assert outcomes["a::racecheck/racecheck"] == ("racecheck", FellShort(reason="seen"))
    assert sum(outcome == Held() for _, outcome in outcomes.values()) == 7


def test_without_the_tool_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = list(compute_sanitizer.run({"a::b": request_for("a::b")}, trials_of("a::b")))
    assert len(found) == 4
    for result in found:
        assert isinstance(result.outcome, Skipped)
        assert "pip install nvidia-cuda-sanitizer-api" in result.outcome.why


def test_nobody_is_asked_where_no_trial_needs_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: pytest.fail("it was looked for"))
    assert list(compute_sanitizer.run({}, [])) == []


def test_an_operator_that_no_other_process_finds_is_not_looked_at() -> None:
    @dotcu.op(next(_names))
    def local(x: Tensor) -> Tensor:
        return x.clone()

    subject = Subject(overload=local, device=torch.device("cuda", 0))
    verdicts = list(compute_sanitizer.alone(subject, "memcheck"))
    assert verdicts == [("memcheck", Skipped(why=compute_sanitizer.NOT_ELSEWHERE))]


def test_the_bare_call_is_the_smallest_one_in_memory_of_its_own() -> None:
    subject = Subject(overload=twice, device=torch.device("cpu"))
    (trial,) = compute_sanitizer.bare(subject)
    assert trial.case == "float32-s1"
    strided = subject.given(torch.float32)[1].sample.tensors[0]
    made = compute_sanitizer.exact(strided)
    assert torch.equal(made, strided)
    assert made.stride() == strided.stride()
    assert made.untyped_storage().nbytes() == 4 * (2 * 9 + 3 * 2 + 1), "nothing lies beside it"
    if torch.cuda.is_available():
        (trial,) = compute_sanitizer.bare(Subject(overload=twice, device=torch.device("cuda", 0)))
        ((check, outcome),) = trial.run()
        assert check == "memcheck"
        assert outcome == Held(note="twice")

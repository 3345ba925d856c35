"""`dotcu.check` and `dotcu check`: what they report of right and wrong operators."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
from dotcu.checking.checker import prepare
from dotcu.checking.planning import select
from dotcu.checking.results import Failed, Trial
from helpers.check_reports import bare, identity

kernels = dotcu.load_inline("""
template <typename T>
__global__ void negate(const T* a, T* out, long long n, long long stop) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < stop) out[i] = -a[i];
}
""")
_names = (f"check_test::op{i}" for i in itertools.count())


def negate(*, miss: int = 0) -> dotcu.operator.Operator:
    @dotcu.op(next(_names), dtypes=(torch.float32, torch.float64))
    def negate(a: Tensor) -> Tensor:
        out = torch.zeros_like(a)
        n = a.numel()
        kernels.negate[a.dtype](a, out, n, n - miss, grid=dotcu.cdiv(n, 64) + 1, block=64)
        return out

    negate.reference(lambda a: -a)
    negate.setup_context(lambda ctx, inputs, output: None)
    negate.backward(lambda ctx, grad: negate(grad))

    @negate.samples
    def _(device: torch.device, dtype: torch.dtype) -> Any:
        for n in (0, 1, 100):
            yield dotcu.Sample(torch.randn(n, device=device, dtype=dtype))

    @negate.overload("out", mutates_args=("out",))
    def _(a: Tensor, *, out: Tensor) -> None:
        out.copy_(negate(a))

    return negate


def test_a_case_is_waived_with_a_reason_that_the_report_shows() -> None:
    operator = negate()
    operator.reference(lambda a: (-a).nan_to_num(0, 0, 0))  # NaN is wrong, and so is an infinity
    name = operator.qualified_name
    operator.waive("nan", "padding has the weight 0")
    report = dotcu.check(operator, level="quick", only=f"{name}/call/")
    assert {str(one.trial) for one in report.failures} == {f"{name}/call/float32-s1-inf"}
    assert "waived: padding has the weight 0" in str(report)
    operator.waive("call/float32-s1-inf", "as NaN")
    assert dotcu.check(operator, level="quick", only=f"{name}/call/").passed
    with pytest.raises(errors.UsageError, match="takes a case and a reason"):
        operator.waive("nan", "")


def test_a_right_operator_holds(device: torch.device) -> None:
    operator = negate()
    both = (f"{operator.qualified_name}/call/", f"{operator.qualified_name}.out/call/")
    report = dotcu.check(operator, level="quick", only=both)
    assert report.passed, str(report)
    name, out = (one.name for one in report.overloads)
    assert out == f"{name}.out"
    assert [one.dtypes for one in report.overloads] == [("float32", "float64")] * 2
    assert report.device == ("cuda:0" if device.type == "cuda" else "simulator")
    assert {str(r.trial) for r in report.results if r.trial.overload == out} >= {
        f"{out}/call/{dtype}-s{n}" for dtype in ("float32", "float64") for n in range(3)
    }


def test_an_element_that_is_not_written_fails_in_the_cases_that_have_one() -> None:
    operator = negate(miss=1)
    report = dotcu.check(operator, level="quick", only=f"{operator.qualified_name}/call/")
    assert not report.passed
    short = {result.trial.case for result in report.failures if result.check == "numerics"}
    assert short >= {f"{dtype}-s{n}" for dtype in ("float32", "float64") for n in (1, 2)}
    assert short.isdisjoint({"float32-s0", "float64-s0"})


def test_a_finding_fails_with_its_line() -> None:
    if torch.cuda.is_available():
        pytest.skip("a fault on the GPU ends the process's context; the simulator names it")
    operator = negate(miss=-1)
    report = dotcu.check(operator, level="quick", only=f"{operator.qualified_name}/call/")
    assert not report.passed
    found = [bare(result) for result in report.failures if result.check == "sanitizer-bounds"]
    assert isinstance(found[0], Failed)
    assert found[0].reason == "out-of-bounds in the simulator"
    assert "inline.cu:5" in found[0].evidence


def test_an_operator_without_samples_does_not_hold_and_says_what_to_do() -> None:
    @dotcu.op(next(_names))
    def untried(a: Tensor) -> Tensor:
        return a.clone()

    untried.reference(torch.clone)
    report = dotcu.check(untried, level="quick")
    assert not report.passed
    (name,) = (one.name.rpartition("::")[2] for one in report.overloads)
    assert f"give the operator samples, with @{name}.samples" in str(report)


def test_an_operator_without_a_reference_says_which_checks_still_ran() -> None:
    operator = negate()
    operator.reference(None)  # type: ignore[arg-type]
    shown = str(dotcu.check(operator, level="quick", only=f"{operator.qualified_name}/call/"))
    assert "numerics: no reference" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("  passed "))
    assert " written, bounds, inputs" in line


@pytest.mark.parametrize(("step", "held"), [(1.0, True), (-1.0, False)])
def test_what_an_operator_writes_is_compared(step: float, held: bool) -> None:
    @dotcu.op(next(_names), mutates_args=("y",))
    def increment(y: Tensor) -> None:
        y.add_(step)

    increment.reference(lambda y: [y.add_(1.0)][1:] or None)
    increment.samples(lambda device, dtype: [dotcu.Sample(torch.randn(5, device=device))])
    report = dotcu.check(increment, level="quick", only=f"{increment.qualified_name}/call/")
    assert report.passed is held, str(report)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(errors.UsageError, match="'cuda' or in the 'simulator'"):
        dotcu.check(negate(), device="meta")


@pytest.mark.parametrize("device", ["bogus", "", "cuda:x"])
def test_a_device_that_torch_does_not_know_is_wrong_usage(device: str) -> None:
    with pytest.raises(errors.UsageError, match="'cuda' or 'simulator'"):
        dotcu.check(negate(), device=device)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("good", r"got 'good'(.|\n)*dotcu check good"),
        (5, "got 5"),
        ([], "got none"),
        ([torch.add], "got <built-in"),
    ],
)
def test_what_is_no_operator_is_wrong_usage(given: Any, said: str) -> None:
    with pytest.raises(errors.UsageError, match=said):
        dotcu.check(given)


def test_code_that_does_not_compile_fails_once() -> None:
    broken = dotcu.load_inline("__global__ void broken(float* out) { out[0] = nonsense; }")

    @dotcu.op(next(_names))
    def uncompiled(a: Tensor) -> Tensor:
        out = torch.empty_like(a)
        broken.broken(out, grid=1, block=1)
        return out

    uncompiled.reference(torch.clone)
    uncompiled.samples(lambda device, dtype: [dotcu.Sample(torch.ones(n, device=device)) for n in (1, 2, 3)])
    names = [f"{uncompiled.qualified_name}/call/float32-s{n}" for n in range(3)]
    report = dotcu.check(uncompiled, level="quick", only=names)
    assert {result.check for result in report.failures} == {"call"}
    assert str(report).count("CompileError: ") == 1
    assert len(report.failures) == 1
    assert "its kernel does not compile" in str(report)


def sampled(samples: Any, *dtypes: torch.dtype) -> dotcu.operator.Operator:
    @dotcu.op(next(_names), dtypes=dtypes)
    def plain(a: Tensor) -> Tensor:
        if a.dim() != 1 or a.numel() != 3:
            raise ValueError("three elements are required")
        return a.clone()

    plain.reference(torch.clone)
    plain.samples(samples)
    return plain


def test_a_dtype_without_a_sample_does_not_hold() -> None:
    def samples(device: torch.device, dtype: torch.dtype) -> Any:
        if dtype == torch.float32:
            yield dotcu.Sample(torch.ones(3, device=device))

    operator = sampled(samples, torch.float32, torch.float16)
    report = dotcu.check(operator, level="quick")
    assert not report.failures
    assert not report.passed
    assert report.not_tried(operator.qualified_name) == {"float16": "no sample of it"}


def test_samples_without_an_element_do_not_hold() -> None:
    @dotcu.op(next(_names))
    def plain(a: Tensor) -> Tensor:
        return a.clone()

    plain.reference(torch.clone)
    plain.samples(lambda device, dtype: [dotcu.Sample(torch.ones(0, 3, device=device, dtype=dtype))])
    report = dotcu.check(plain, level="quick")
    assert not report.failures
    assert not report.passed
    assert report.not_tried(plain.qualified_name) == {"float32": "every sample is empty"}
    plain.samples(lambda device, dtype: [dotcu.Sample(torch.ones(n, device=device)) for n in (0, 3)])
    assert not dotcu.check(plain, level="quick").not_tried(plain.qualified_name)


def test_an_operator_that_takes_its_samples_alone_holds_and_says_so() -> None:
    operator = sampled(
        lambda device, dtype: [dotcu.Sample(torch.ones(3, device=device, dtype=dtype))], torch.float32
    )
    report = dotcu.check(operator, level="quick", only=f"{operator.qualified_name}/call/")
    assert report.passed, str(report)
    tried, refusals = report.derived(operator.qualified_name)
    assert tried > len(refusals) > 0
    assert refusals[0] == "ValueError: three elements are required"


def test_a_body_that_ends_the_process_is_a_finding() -> None:
    @dotcu.op(next(_names))
    def leaving(a: Tensor) -> Tensor:
        sys.exit(0)

    leaving.reference(torch.clone)
    leaving.samples(lambda device, dtype: [dotcu.Sample(torch.ones(3, device=device))])
    report = dotcu.check(leaving, level="quick", only=f"{leaving.qualified_name}/call/float32-s0")
    assert not report.passed
    assert "SystemExit: 0" in str(report)


def test_a_reference_that_fails_is_a_finding_of_each_overload() -> None:
    operator = negate()
    operator.reference(lambda a: 1 / 0)
    both = (f"{operator.qualified_name}/call/", f"{operator.qualified_name}.out/call/")
    report = dotcu.check(operator, level="quick", only=both)
    assert not any(report.passed_by(one.name) for one in report.overloads)
    assert "test_checker.py" in str(report)
    assert "ZeroDivisionError: division by zero" in str(report)


def _raising(device: torch.device, dtype: torch.dtype) -> Any:
    yield dotcu.Sample(torch.ones(3, device=device, dtype=dtype))
    raise KeyError("shape")


def _forgetful(device: torch.device, dtype: torch.dtype) -> Any:
    return None


def _yielding_a_tensor(device: torch.device, dtype: torch.dtype) -> Any:
    yield dotcu.Sample(torch.ones(3, device=device, dtype=dtype))
    yield torch.ones(3)


def _listing_a_number(device: torch.device, dtype: torch.dtype) -> Any:
    return [5]


@pytest.mark.parametrize(
    ("function", "line", "said"),
    [
        (_raising, 2, "KeyError: 'shape'"),
        (_forgetful, 0, "the samples of .* are None"),
        (_yielding_a_tensor, 2, r"the samples .* have float32\[3\], which is not a dotcu\.Sample"),
        (_listing_a_number, 0, r"the samples .* have 5, which is not a dotcu\.Sample"),
        (lambda device, dtype: sys.exit(3), 0, "SystemExit: 3"),
    ],
)
def test_samples_that_are_none_are_named_with_their_line(function: Any, line: int, said: str) -> None:
    operator = negate()
    operator.samples(function)
    line += function.__code__.co_firstlineno
    with pytest.raises(errors.OperatorError, match=rf"test_checker\.py:{line}: {said}"):
        dotcu.check(operator)


def test_a_check_is_seeded_and_leaves_the_random_numbers_as_they_were(device: torch.device) -> None:
    drawn = []

    @dotcu.op(next(_names))
    def copied(a: Tensor) -> Tensor:
        drawn.append(a.tolist())
        return a.clone()

    copied.reference(torch.clone)
    copied.samples(lambda device, dtype: [dotcu.Sample(torch.randn(2, device=device))])
    before = torch.get_rng_state()
    for _ in range(2):
        dotcu.check(copied, level="quick", only=f"{copied.qualified_name}/call/float32-s0")
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn[0] == drawn[len(drawn) // 2]


def test_every_shortfall_has_the_call_that_shows_it_again(device: torch.device) -> None:
    operator = negate(miss=1)
    only = f"{operator.qualified_name}/call/"
    report = dotcu.check(operator, device=device, level="quick", seed=3, only=only)
    failure = report.failures[0]
    assert isinstance(failure, Failed)
    again = eval(failure.reproduce, {"dotcu": dotcu, "negate": operator})
    assert {result.trial for result in again.results} == {failure.trial}
    assert [bare(r) for r in again.failures if r.check == failure.check] == [bare(failure)]
    assert (again.seed, again.level, again.only) == (3, "quick", (str(failure.trial),))


class TestOnly:
    TRIALS = tuple(
        Trial(id=identity(f"{overload}/call/{case}"), checks=("numerics",), run=list)
        for overload in ("a::b", "a::b.out")
        for case in ("float32-s1", "float32-s10")
    )

    def names(self, *only: str) -> list[str]:
        return [str(trial.id) for trial in select(self.TRIALS, only)]

    def test_nothing_picks_all(self) -> None:
        assert len(self.names()) == 4

    def test_a_whole_name_picks_its_trial_alone(self) -> None:
        assert self.names("a::b/call/float32-s1") == ["a::b/call/float32-s1"]

    def test_a_beginning_picks_all_that_begin_so(self) -> None:
        assert self.names("a::b/") == ["a::b/call/float32-s1", "a::b/call/float32-s10"]

    def test_several_are_taken_together_in_the_order_of_the_plan(self) -> None:
        assert self.names("a::b.out/call/float32-s1", "a::b/call/float32-s10") == [
            "a::b/call/float32-s10",
            "a::b.out/call/float32-s1",
        ]

    def test_a_name_of_none_is_answered_with_one_that_there_is(self) -> None:
        with pytest.raises(errors.UsageError, match=r"'a::c'\.\n.*a::b/call/float32-s1"):
            self.names("a::b/", "a::c")

    def test_where_there_is_no_trial_at_all_that_is_said(self) -> None:
        with pytest.raises(errors.UsageError, match="There are none"):
            select([], ("a::b",))


def test_only_the_overloads_that_were_picked_are_reported() -> None:
    operator = negate()
    report = dotcu.check(operator, level="quick", only=f"{operator.qualified_name}.out/call/float32-s1")
    assert [one.name for one in report.overloads] == [f"{operator.qualified_name}.out"]
    assert report.passed, str(report)


def test_an_interrupted_check_reports_how_much_is_left() -> None:
    operator = negate()
    planned = prepare(operator, level="quick")
    results = list(itertools.islice(planned.run(), 1))
    report = planned.report(results, seconds=1.0, interrupted=True)
    assert report.unfinished == len(planned.trials) - 1
    assert not report.passed
    assert planned.report((), seconds=1.0, interrupted=True).unfinished == len(planned.trials)
    assert f"interrupted: {report.unfinished} not run" in str(report)


def test_an_interrupt_after_the_last_trial_does_not_pass() -> None:
    operator = negate()
    planned = prepare(operator, level="quick", only=f"{operator.qualified_name}/call/")
    told = list(planned.run())
    assert planned.report(told, seconds=1.0, interrupted=False).passed
    report = planned.report(told, seconds=1.0, interrupted=True)
    assert (report.passed, report.interrupted, report.unfinished) == (False, True, 0)
    assert report.to_json()["interrupted"]


@pytest.mark.parametrize("level", ["fast", "", None])
def test_a_level_that_there_is_not_is_wrong_usage(level: Any) -> None:
    with pytest.raises(errors.UsageError, match="use one of quick, standard, full"):
        dotcu.check(negate(), level=level)

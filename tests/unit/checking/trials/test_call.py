"""One trial of a call: what it calls, in what order, and what it says of each check."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import NAN_BYTE, OTHER_BYTE
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.running import run_one
from dotcu.checking.subject import Subject
from dotcu.checking.trials import call
from dotcu.operator import Operator, Overload
from dotcu.simulator.machine.schedule import Scheduler
from helpers.check_reports import bare
from helpers.trial_operators import bug_of_dotcu

_names = (f"call_test::op{i}" for i in itertools.count())


def operator(body: Any, reference: Any = torch.clone, **options: Any) -> Operator:
    """An operator of one tensor whose body launches nothing."""

    def first(x: Tensor) -> Tensor:
        made: Tensor = body(x)
        return made

    made = dotcu.op(next(_names), **options)(first)
    if reference is not None:
        made.reference(reference)
    return made


def case(*args: Any, derived: bool = False, **kwargs: Any) -> Case:
    sample = dotcu.Sample(*(args or (torch.randn(6),)), **kwargs)
    return Case(dtype=torch.float32, number=0, build=lambda: sample, variant="derived" if derived else "")


def subject(overload: Overload) -> Subject:
    return Subject(overload=overload, device=torch.device("cpu"))


def looked(overload: Overload, *args: Any, **options: Any) -> dict[str, CheckResult]:
    (trial,) = call.plan(subject(overload), [case(*args, **options)])
    results = run_one(trial)
    outcomes = {result.check: bare(result) for result in results}
    assert len(outcomes) == len(results)  # at most one for each check
    return outcomes


def short(outcomes: dict[str, CheckResult]) -> dict[str, Failed]:
    return {check: outcome for check, outcome in outcomes.items() if isinstance(outcome, Failed)}


def fails(x: Tensor) -> Tensor:
    raise RuntimeError("it fails")


def refuses(x: Tensor) -> Tensor:
    raise errors.ArgumentError("not such a tensor\nGive another.")


class TestTheOrder:
    def test_the_reference_comes_last(self) -> None:
        order: list[str] = []
        noting = operator(lambda x: (order.append("body"), x.clone())[1])
        noting.reference(lambda x: (order.append("reference"), x.clone())[1])
        looked(noting)
        assert order[:3] == ["body", "body", "reference"]
        assert set(order[3:]) == {"reference"}

    def test_both_calls_have_equal_inputs_in_other_memory(self) -> None:
        seen: list[Tensor] = []
        looked(operator(lambda x: (seen.append(x), x.clone())[1]))
        first, second = seen
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()

    def test_torchs_random_numbers_are_others_in_the_second_call(self) -> None:
        drawn: list[float] = []
        body = lambda x: (drawn.append(torch.rand(()).item()), x.clone())[1]  # noqa: E731
        looked(operator(body))
        assert drawn[0] != drawn[1]
        looked(operator(body, tags=(torch.Tag.nondeterministic_seeded,)))
        assert drawn[2] == drawn[3]


class TestASoundCall:
    def test_holds_in_every_check_that_applies(self) -> None:
        outcomes = looked(operator(torch.clone))
        always = {
            "call",
            "numerics",
            "written",
            "bounds",
            "inputs",
            "result",
            "determinism",
            *call.SANITIZERS,
        }
        assert set(outcomes) == always
        assert all(isinstance(outcome, Passed) for outcome in outcomes.values())
        assert outcomes["numerics"] == Passed(ratio=0.0)

    def test_without_a_reference_has_no_values_to_compare(self) -> None:
        outcomes = looked(operator(torch.clone, reference=None))
        assert outcomes["numerics"] == Skipped(reason="no reference")
        assert isinstance(outcomes["determinism"], Passed)

    def test_with_a_random_reference_has_none_if_it_is_declared_random(self) -> None:
        seeded = {"tags": (torch.Tag.nondeterministic_seeded,)}
        outcomes = looked(operator(torch.rand_like, torch.rand_like, **seeded))
        assert outcomes["numerics"] == Skipped(reason="declared random, and so is its reference")
        assert isinstance(outcomes["determinism"], Passed)
        assert isinstance(looked(operator(torch.clone, **seeded))["numerics"], Passed)
        assert "determinism" in short(looked(operator(torch.rand_like, torch.rand_like)))

    def test_a_declared_tolerance_stands(self) -> None:
        assert short(looked(operator(lambda x: 1.001 * x))).keys() == {"numerics"}
        assert not short(looked(operator(lambda x: 1.001 * x, tolerance=0.01)))

    def test_nothing_is_left_unwritten_in_an_empty_result(self) -> None:
        assert not short(looked(operator(torch.empty_like), torch.empty(0)))


class TestWhatIsWritten:
    def test_what_is_left_unwritten_is_not_reported_twice(self) -> None:
        outcomes = looked(operator(torch.empty_like))
        assert short(outcomes).keys() == {"written"}
        assert outcomes["numerics"] == Skipped(reason="not all of the result is written")

    @pytest.mark.parametrize("byte", [NAN_BYTE, OTHER_BYTE])
    def test_a_result_that_looks_like_poison_is_written(self, byte: int) -> None:
        x = torch.full((6,), byte, dtype=torch.uint8)
        assert not short(looked(operator(torch.clone), x))

    def test_bools_in_a_strided_out_are_reported(self) -> None:
        skipping = operator(torch.clone)

        @skipping.overload("out", mutates_args=("out",))
        def _(x: Tensor, *, out: Tensor) -> None:
            out[:-1] = x[:-1]

        x, out = torch.tensor([True, False, True]), torch.zeros(6, dtype=torch.bool)[::2]
        found = short(looked(skipping.overloads["out"], x, out=out))
        assert found.keys() == {"written"}
        assert found["written"].reason == "leaves 1 of 3 elements of output 0 unwritten, the first at [2]"

    def test_an_argument_that_is_also_read_keeps_its_values(self) -> None:
        @dotcu.op(next(_names), mutates_args=("total",))
        def added(x: Tensor, *, total: Tensor) -> None:
            total.add_(x)

        @added.reference
        def _(x: Tensor, *, total: Tensor) -> None:
            total.add_(x)

        assert not short(looked(added, torch.ones(3), total=torch.ones(3)))


class TestMutation:
    @pytest.fixture
    def negate_(self) -> Operator:
        @dotcu.op(next(_names), mutates_args=("y",))
        def negate_(y: Tensor, active: bool) -> None:
            if active:
                y.neg_()

        @negate_.reference
        def _(y: Tensor, active: bool) -> None:
            y.neg_()

        return negate_

    def test_that_happens_holds(self, negate_: Operator) -> None:
        outcomes = looked(negate_, torch.ones(3), True)
        assert not short(outcomes)
        assert isinstance(outcomes["mutation"], Passed)

    def test_that_does_not_happen_is_reported_once(self, negate_: Operator) -> None:
        found = short(looked(negate_, torch.ones(3), False))
        assert {check: one.reason for check, one in found.items()} == {
            "mutation": "does not change argument 0, which it declares as mutated"
        }

    def test_that_changes_nothing_by_right_holds(self, negate_: Operator) -> None:
        assert not short(looked(negate_, torch.ones(0), False))

    def test_of_other_values_is_one_of_numbers(self, negate_: Operator) -> None:
        negate_.reference(lambda y, active: [y.mul_(3)][1:] or None)
        assert short(looked(negate_, torch.ones(3), True)).keys() == {"numerics"}


class TestACallThatFails:
    def test_on_the_authors_sample_fails(self) -> None:
        assert looked(operator(fails))["call"].reason == "it raises RuntimeError"  # type: ignore[union-attr]

    def test_on_dotcus_own_sample_may_refuse(self) -> None:
        outcomes = looked(operator(refuses), derived=True)
        assert outcomes == {"errors": Passed(refusal="ArgumentError: not such a tensor")}

    def test_on_dotcus_own_sample_fails_where_the_reference_computes(self) -> None:
        found = short(looked(operator(fails), derived=True))
        assert found.keys() == {"errors"}
        assert found["errors"].evidence.endswith("RuntimeError: it fails")

    def test_on_dotcus_own_sample_may_fail_where_the_reference_does(self) -> None:
        assert not short(looked(operator(fails, reference=fails), derived=True))

    def test_for_want_of_something_on_the_machine_raises(self) -> None:
        def lacks(x: Tensor) -> Tensor:
            raise errors.ToolchainError("there is no compiler")

        with pytest.raises(errors.ToolchainError):
            looked(operator(lacks), derived=True)

    def test_for_want_of_an_instruction_in_the_simulator_is_skipped(self) -> None:
        def lacks(x: Tensor) -> Tensor:
            raise errors.UnsupportedInstruction("wgmma is not simulated\nUse a GPU.")

        outcomes = looked(operator(lacks))
        assert outcomes == {"call": Skipped(reason="the simulator cannot run it: wgmma is not simulated")}

    def test_at_the_second_time_is_not_determinate(self) -> None:
        times = itertools.count()
        found = short(looked(operator(lambda x: fails(x) if next(times) else x.clone())))
        assert found.keys() == {"determinism"}

    def test_by_what_it_returns_is_reported_as_that(self) -> None:
        found = short(looked(operator(lambda x: x)))
        assert found.keys() == {"result"}
        assert "returned memory of one of its inputs" in found["result"].evidence

    def test_in_the_reference_is_the_references_fault(self) -> None:
        found = short(looked(operator(torch.clone, reference=fails)))
        assert found.keys() == {"reference"}
        assert short(looked(operator(torch.clone, reference=fails), derived=True)).keys() == {"errors"}


class TestABugOfDotcu:
    def test_in_the_comparison_it_is_not_the_references_and_has_its_frames(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numerics, "judge", bug_of_dotcu)
        for derived in (False, True):
            (failed,) = short(looked(operator(torch.clone), derived=derived)).values()
            assert failed.reason == "dotcu itself is at fault: KeyError"
            assert "planted.py" in failed.evidence
            assert "call.py" in failed.evidence

    @pytest.mark.parametrize("derived", [False, True])
    def test_in_the_simulator_it_is_neither_a_refusal_nor_the_bodys(
        self, derived: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copying = dotcu.load_inline("__global__ void copy(float* x, float* y) { *y = *x; }")

        def body(x: Tensor) -> Tensor:
            out = torch.empty_like(x)
            copying.copy(x, out, grid=1, block=1)
            return out

        monkeypatch.setattr(Scheduler, "run", bug_of_dotcu)
        (failed,) = short(looked(operator(body), torch.randn(1), derived=derived)).values()
        assert (failed.reason, failed.kind) == ("dotcu itself is at fault: KeyError", "KeyError")

    def test_a_reference_in_c_that_refuses_a_call_is_none(self) -> None:
        in_c = functools.partial(torch.squeeze, dim=5)
        ((check, failed),) = short(looked(operator(torch.clone, reference=in_c), derived=True)).items()
        assert (check, failed.reason) == ("errors", "the call is accepted, the reference refuses it")


class TestFindings:
    def test_one_that_shows_in_another_order_alone_is_found(self) -> None:
        """The second call has its warps shuffled; a finding there counts as one of the first."""
        times = itertools.count()
        racing = dotcu.load_inline("""
        __global__ void racing(const float* x, float* out, int race) {
            __shared__ float cell;
            if (threadIdx.x == 0 || (race && threadIdx.x == 40)) cell = threadIdx.x;
            __syncthreads();
            out[threadIdx.x] = x[threadIdx.x] + 0 * cell;
        }
        """)

        def body(x: Tensor) -> Tensor:
            out = torch.empty_like(x)
            racing.racing(x, out, next(times), grid=1, block=64)
            return out

        assert short(looked(operator(body), torch.randn(64))).keys() == {"sanitizer-race"}


def test_the_plan_has_a_trial_for_each_case_and_runs_nothing() -> None:
    (trial,) = call.plan(subject(operator(fails)), [case()])
    assert str(trial.id).endswith("/call/float32-s0")
    assert set(call.SANITIZERS) < set(trial.checks)
    assert trial.checks[0] == "call"

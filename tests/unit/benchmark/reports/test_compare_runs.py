"""What became of rows since a run that was saved: by key, with what else differs, and what was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.reports.comparison import RowComparison
from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.results import BenchKey, BenchRow, Protocol
from helpers.bench_reports import H200, report
from helpers.timing_samples import measured

KEY = BenchKey(op="a::b", case="float32-16", contender="dotcu", l2="cold")


def row(us: float = 10.0, blocks: int = 10, by: Any = "cupti", **key: Any) -> BenchRow:
    return BenchRow(
        key=replace(KEY, **key), measured=measured([[us, us * 1.001, us * 0.999]] * blocks, by=by)
    )


def without(status: Any, **key: Any) -> BenchRow:
    return BenchRow(key=replace(KEY, **key), status=status, reason="no memory")


def saved(path: Path, *rows: BenchRow, **changes: Any) -> Path:
    saved_runs.write_run(path, report(*rows, **changes))
    return path


def since(path: Path, *rows: BenchRow, whole: bool = False, **changes: Any) -> BenchReport:
    return report(*rows, **changes).compared_with(path, whole=whole)


def changes(found: BenchReport) -> tuple[RowComparison, ...]:
    assert found.changes is not None
    return found.changes


def the_change(found: BenchReport) -> RowComparison:
    (one,) = changes(found)
    return one


@pytest.fixture
def then(tmp_path: Path) -> Path:
    """A run with two cases, in both states of L2."""
    rows = (row(case=case, l2=l2) for case in ("float32-16", "float32-64") for l2 in ("cold", "warm"))
    return saved(tmp_path / "then.jsonl", *rows)


def test_rows_are_compared_by_their_key(tmp_path: Path) -> None:
    path = saved(tmp_path / "then.jsonl", row(10.0), row(20.0, case="other"), row(5.0, case="gone"))
    found = since(path, row(20.0, case="other"), row(12.0), row(1.0, case="new"))
    assert [(one.row.key.case, one.change and one.change.verdict, one.note) for one in changes(found)] == [
        ("other", "same", ""),
        ("float32-16", "slower", ""),
        ("new", None, "not in then.jsonl"),
        ("gone", None, "only in then.jsonl"),
    ]


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    found = since(saved(tmp_path / "then.jsonl", row()), row())
    change = the_change(found).change
    assert change is not None
    assert (change.verdict, change.ratio.value, the_change(found).note) == ("same", 1.0, "")
    assert found.passed


class TestWhichOfSeveral:
    def test_the_latest_counts(self, tmp_path: Path) -> None:
        old, new = (saved(tmp_path / f"{us}.jsonl", row(us)).read_text() for us in (10.0, 20.0))
        (tmp_path / "both.jsonl").write_text(new + old.replace('"at": "2', '"at": "1'))
        change = the_change(since(tmp_path / "both.jsonl", row(20.0))).change
        assert change is not None
        assert change.verdict == "same"

    def test_a_later_row_without_figures_hides_no_earlier_one(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), without("failed"))
        change = the_change(since(path, row())).change
        assert change is not None
        assert change.verdict == "same"

    def test_nor_does_one_of_another_model_of_gpu(self, tmp_path: Path) -> None:
        here = saved(tmp_path / "here.jsonl", row()).read_text().replace('"at": "2', '"at": "1')
        there = saved(tmp_path / "there.jsonl", row(30.0), machine=replace(H200, gpu="NVIDIA L4")).read_text()
        (tmp_path / "both.jsonl").write_text(here + there)
        assert since(tmp_path / "both.jsonl", row()).passed


class TestDifferences:
    def test_another_driver_or_version_is_reported(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), machine=replace(H200, versions={"driver": "580.1"}))
        other = replace(H200, versions={"driver": "590.2", "torch": "2.13"})
        one = the_change(since(path, row(), machine=other))
        assert one.change is not None
        assert one.note == "driver 580.1 then, 590.2 now; torch unknown then, 2.13 now"

    def test_another_gpu_of_the_same_model_is_reported(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row())
        one = the_change(since(path, row(), machine=replace(H200, uuid="GPU-2")))
        assert one.change is not None
        assert one.note == "another NVIDIA H200 than then"

    def test_another_protocol_is_reported(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row())
        one = the_change(since(path, row(), protocol=Protocol(calls=20, seed=1)))
        assert one.change is not None
        assert one.note == "protocol: calls 10 then, 20 now; protocol: seed 0 then, 1 now"

    def test_a_source_that_did_not_change_is_reported(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), sources={"a::b": "digest"})
        assert the_change(since(path, row(), sources={"a::b": "digest"})).note == "the source is the same"
        assert the_change(since(path, row(), sources={"a::b": "other"})).note == ""


class TestLost:
    @pytest.mark.parametrize("status", ["skipped", "failed", "wrong", "refused", "throttled"])
    def test_figures_that_are_not_there_now(self, then: Path, status: str) -> None:
        rows = [row(case=case, l2=l2) for case in ("float32-16", "float32-64") for l2 in ("cold", "warm")]
        found = since(then, *rows[:3], without(status, case="float32-64", l2="warm"))
        (one,) = found.lost
        assert (one.row.key.l2, one.note) == ("warm", f"no figures now: {status}")
        assert not found.passed

    def test_other_means(self, tmp_path: Path) -> None:
        found = since(saved(tmp_path / "then.jsonl", row()), row(by="events"))
        assert not found.passed
        assert "timed by cupti then, by events now" in found.lost[0].note

    @pytest.mark.parametrize(("before", "after", "when"), [(2, 10, "then"), (10, 2, "now")])
    def test_too_few_blocks(self, tmp_path: Path, before: int, after: int, when: str) -> None:
        found = since(saved(tmp_path / "then.jsonl", row(blocks=before)), row(blocks=after))
        assert not found.passed
        assert found.lost[0].note.startswith(f"2 blocks {when}")

    def test_another_model_of_gpu(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row())
        found = since(path, row(), machine=replace(H200, gpu="NVIDIA L4", uuid="GPU-3"))
        assert not found.passed
        assert found.lost[0].note.startswith("gpu NVIDIA H200 then, NVIDIA L4 now")

    def test_a_state_of_l2_that_a_case_which_does_not_fit_no_longer_has(self, then: Path) -> None:
        found = since(then, row(), row(l2="warm"), without("skipped", case="float32-64"))
        assert [(one.row.key.case, one.row.key.l2) for one in found.lost] == [
            ("float32-64", "cold"),
            ("float32-64", "warm"),
        ]

    def test_an_operator_that_is_not_there_any_more_where_all_were_asked_for(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), row(op="a::gone"))
        found = since(path, row(), whole=True)
        assert not found.passed
        assert found.lost[0].note == "only in then.jsonl: the operator is not there any more"

    def test_not_one_that_was_not_asked_for(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), row(op="a::other"))
        found = since(path, row())
        assert found.passed
        assert changes(found)[1].note == "only in then.jsonl"

    def test_not_one_that_is_there_and_has_no_case_that_was_asked_for(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), row(op="a::other"))
        assert since(path, row(), whole=True, sources={"a::b": "1", "a::other": "2"}).passed

    def test_not_cases_or_states_that_were_not_asked_for(self, then: Path) -> None:
        found = since(then, row(), whole=True)
        assert found.passed
        assert {one.note for one in changes(found)[1:]} == {"only in then.jsonl"}

    def test_not_a_baseline(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), row(contender="eager"), row(contender="compile"))
        found = since(path, row(), without("failed", contender="eager"))
        assert found.passed
        assert [one.note for one in changes(found)[1:]] == ["no figures now: failed", "only in then.jsonl"]

    def test_not_what_had_no_figures_then_either(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "then.jsonl", row(), without("refused", case="float32-64"))
        found = since(path, row(), row(case="float32-64"))
        assert found.passed
        assert changes(found)[1].note == "no figures then: refused"


@pytest.mark.parametrize(
    "rows",
    [(row(case="new"),), (row(contender="eager"),)],
    ids=["no key in common", "baselines alone"],
)
def test_a_run_that_compared_nothing_of_its_own_does_not_hold(
    tmp_path: Path, rows: tuple[BenchRow, ...]
) -> None:
    path = saved(tmp_path / "then.jsonl", row(case="old"), row(contender="eager"))
    found = since(path, *rows)
    assert not found.passed
    assert found.lost == ()
    assert str(found).splitlines()[-1] == "FAILED: 1 of 1 row measured, nothing compared"

"""What a benchmark's report says to programs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.results import Clocks, Machine
from helpers.bench_reports import change, compared, measured, near, report, row


class TestPassed:
    def test_where_everything_was_measured(self) -> None:
        assert report(row(), row(l2="warm")).passed

    def test_not_where_nothing_was(self) -> None:
        assert not report().passed
        assert not report(row(None, status="skipped")).passed

    @pytest.mark.parametrize("status", ["wrong", "refused"])
    @pytest.mark.parametrize("contender", ["dotcu", "eager"])
    def test_not_where_a_figure_or_a_result_is_not_right(self, status: str, contender: str) -> None:
        found = report(row(), row(None, l2="warm", contender=contender, status=status))
        assert not found.passed
        assert [one.key.contender for one in found.faults] == [contender]

    @pytest.mark.parametrize("status", ["failed", "throttled"])
    @pytest.mark.parametrize(("contender", "passed"), [("dotcu", False), ("eager", True)])
    def test_a_baseline_may_fail_and_the_operator_may_not(
        self, status: str, contender: str, passed: bool
    ) -> None:
        assert report(row(), row(None, l2="warm", contender=contender, status=status)).passed is passed

    @pytest.mark.parametrize(
        ("verdict", "contender", "passed"),
        [
            ("slower", "dotcu", False),
            ("slower", "eager", True),
            ("faster", "dotcu", True),
            ("unclear", "dotcu", True),
        ],
    )
    def test_a_regression_of_the_operator_counts(self, verdict: Any, contender: str, passed: bool) -> None:
        one, other = row(contender=contender), row(case="float32-64")
        changes = (
            compared(one, change(verdict, 1.1)),
            compared(one, None, "gone"),
            compared(other, change("same")),
        )
        assert report(one, other, changes=changes).passed is passed

    def test_not_where_an_operator_was_lost(self) -> None:
        lost = compared(row(l2="warm"), None, "no figures now: failed", lost=True)
        found = report(row(), changes=(compared(row(), change("same")), lost))
        assert not found.passed
        assert found.lost == (lost,)

    @pytest.mark.parametrize("contender", ["dotcu", "eager"])
    def test_not_where_no_operator_could_be_compared(self, contender: str) -> None:
        known = change("same") if contender == "eager" else None
        assert not report(row(), changes=(compared(row(contender=contender), known),)).passed

    def test_not_where_it_was_interrupted(self) -> None:
        assert not report(row(), interrupted=True).passed


class TestJson:
    def test_it_has_everything_but_the_samples(self) -> None:
        kept = measured(Clocks(sm_mhz=1980), by="events", stopped="time")
        found = report(row(46.0, measured=kept), row(contender="eager", ratio=near(1.01)))
        plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert (plain["version"], plain["passed"], plain["interrupted"], plain["by"]) == (
            2,
            True,
            False,
            "cupti",
        )
        assert plain["machine"]["gpu"] == "NVIDIA H200"
        assert plain["protocol"]["confidence"] == 0.99
        own, eager = plain["rows"]
        assert [own[name] for name in ("op", "case", "contender", "l2")] == [
            "mylib::add", "float32-4096x4096", "dotcu", "cold",
        ]  # fmt: skip
        assert own["time"]["median_us"] == 46.0
        assert own["time"]["noise"] == pytest.approx(0.001)
        assert (own["by"], own["stopped"]) == ("events", "time")
        assert own["work"]["read_bytes"] == 2**27
        assert own["limit"]["time_us"] == 45.86
        assert eager["ratio"] == {"value": 1.01, "low": pytest.approx(1.008), "high": pytest.approx(1.012)}
        assert own["ratio"] is None
        assert "measured" not in own

    def test_a_row_without_figures_has_its_reason(self) -> None:
        (one,) = report(row(None, reason="no memory")).to_json()["rows"]
        assert (one["status"], one["reason"], one["time"]) == ("failed", "no memory", None)

    def test_numbers_that_are_not_finite_are_null(self) -> None:
        plain = report(row(percent=math.nan), row(l2="warm", percent=math.inf)).to_json()
        assert [one["percent"] for one in plain["rows"]] == [None, None]

    def test_changes_are_there_where_a_run_was_compared(self) -> None:
        assert report(row()).to_json()["changes"] is None
        pairs = (
            compared(row(), change("slower", 1.1, note="other driver"), "moved"),
            compared(row(l2="warm"), None, "new", lost=True),
        )
        one, other = report(row(), changes=pairs).to_json()["changes"]
        assert (one["verdict"], one["ratio"]["value"], one["confidence"]) == ("slower", 1.1, 0.99)
        assert one["note"] == "moved; other driver"
        assert (other["l2"], other["verdict"], other["note"]) == ("warm", None, "new")
        assert (one["lost"], other["lost"]) == (False, True)

    def test_a_read_only_mapping_of_versions_will_do(self) -> None:
        machine = Machine(versions=MappingProxyType({"torch": "2.13"}), clocks=MappingProxyType({}))
        assert report(row(), machine=machine).to_json()["machine"]["versions"] == {"torch": "2.13"}


@pytest.fixture
def calls_of_store(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the store was asked for; it knows of no change."""
    calls: list[tuple[Any, ...]] = []

    def note(*arguments: Any) -> list[Any]:
        calls.append(arguments)
        return []

    monkeypatch.setattr(saved_runs, "write_run", note)
    return calls


def test_a_report_saves_itself(tmp_path: Path, calls_of_store: list[tuple[Any, ...]]) -> None:
    found = report(row())
    found.save(str(tmp_path / "a.jsonl"))
    assert calls_of_store == [(tmp_path / "a.jsonl", found)]

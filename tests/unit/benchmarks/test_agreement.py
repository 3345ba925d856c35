"""benchmarks/agreement.py without a GPU: when runs agree, what cannot be compared, what is left behind."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import agreement
from helpers.bench_reports import report, row, summary
from helpers.timing_samples import measured

CALM = [[10.0, 10.01, 9.99]] * 10


@pytest.mark.parametrize(("us", "agrees"), [(100.0, True), (101.4, True), (101.5, False), (98.5, False)])
def test_medians_agree_that_differ_by_less_than_the_interval_of_their_difference(
    us: float, agrees: bool
) -> None:
    a, b = summary(100.0, noise=0.01), summary(us, noise=0.01)
    assert agreement.agree(a, b) is agrees


def test_intervals_that_overlap_are_not_enough() -> None:
    a, b = summary(100.0, noise=0.01), summary(101.9, noise=0.01)
    assert a.high_us > b.low_us
    assert not agreement.agree(a, b)


def saved(folder: Path, *runs: Any) -> list[Path]:
    """Files of one process."""
    paths = [folder / f"copy.{number}.jsonl" for number in range(len(runs))]
    for path, run in zip(paths, runs, strict=True):
        report(row(10.0, measured=run)).save(path)
    return paths


def test_runs_that_cannot_be_compared_are_counted_so(tmp_path: Path) -> None:
    one = saved(tmp_path, measured(CALM), measured(CALM), measured(CALM, by="events"))
    found = agreement.repeated("copy", [one])
    assert found["within a process"] == {"same": 1, "incomparable": 2}
    assert (found["agree"], found["pairs"]) == (3, 3)


def repeat(agree: int = 100, **verdicts: int) -> dict[str, Any]:
    return {"pairs": 100, "agree": agree, "within a process": verdicts, "between processes": {}}


@pytest.mark.parametrize(
    ("of", "agree", "changed"),
    [
        (repeat(99, same=99, slower=1), True, True),
        (repeat(98, same=98, faster=2), False, False),
        (repeat(100, same=49, slower=1, incomparable=50), True, False),
        (repeat(100, incomparable=100), True, False),
    ],
    ids=["held", "neither", "of those that were compared", "none was"],
)
def test_goals(of: dict[str, Any], agree: bool, changed: bool) -> None:
    goals = agreement.judge([], [of])
    assert goals["agree within their intervals"]["held"] is agree
    assert goals["called changed"]["held"] is changed
    assert agreement.held(goals) is (agree and changed)


AGREED = {
    "us": dict.fromkeys(("dotcu", "do_bench", "events"), 10.0),
    "off": dict.fromkeys(("do_bench", "events"), 0.0),
    "capped": False,
    "held": True,
}


def test_no_folder_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def process(command: list[str], **_: Any) -> None:
        for one in agreement.subjects():
            place = Path(command[-1]) / f"{one.name.replace(' ', '-')}.0.jsonl"
            report(row(10.0, measured=measured(CALM))).save(place)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", process)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(agreement, "agreement", lambda one, rounds: {"name": one.name, **AGREED})
    assert agreement.main(["--processes", "2", "--runs", "1"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_its_usage_line_has_every_option() -> None:
    assert agreement.__doc__ is not None
    usage = agreement.__doc__.splitlines()[2]
    assert all(option in usage for option in ("--save", "--rounds", "--processes", "--runs"))

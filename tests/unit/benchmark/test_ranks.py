"""`dotcu bench --ranks`: what can be seen without GPUs."""

from __future__ import annotations

import pytest
import torch

from dotcu.benchmark.ranks import RankBenchReport, RankRow, bus_bytes
from dotcu.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["dotcu", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


def test_fewer_gpus_than_ranks_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "bench", "dotcu.gallery:all_reduce", "--ranks", "64") == 3
    assert "--ranks 64 needs 64 GPUs, and this machine has" in capsys.readouterr().err


def test_one_rank_is_too_few(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "bench", "dotcu.gallery:all_reduce", "--ranks", "-1") == 2
    assert "Invalid value for '--ranks': -1 is not a number of GPUs, 2 or more." in capsys.readouterr().err


def test_options_that_ranks_have_not_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "bench", "dotcu.gallery:all_reduce", "--ranks", "2", "--cold") == 2
    assert "--ranks was given together with --cold" in capsys.readouterr().err


def test_the_bus_carries_what_must_leave_a_gpu() -> None:
    x = torch.empty(64, dtype=torch.bfloat16)
    assert bus_bytes(x, x, 4) == 2 * 128 * 3 / 4  # a sum
    assert bus_bytes(x, x[:16], 4) == 128 * 3 / 4  # its part
    assert bus_bytes(x[:16], x, 4) == 128 * 3 / 4  # put together


def test_the_table_has_the_share_of_the_link_and_why_a_contender_has_none() -> None:
    row = RankRow(operator="o::p", case="float32-8", contender="dotcu", us=10.0, bus_bytes=1e6)
    other = RankRow(operator="o::p", case="float32-8", contender="nccl", note="not captured: ValueError: no")
    report = RankBenchReport(gpu="H100", ranks=2, link_gb_s=400.0, rows=(row, other))
    assert "100.0" in str(report)
    assert "25 %" in str(report)
    assert "not captured: ValueError: no" in str(report)
    assert report.passed
    assert report.to_json()["rows"][0]["bus_bytes"] == 1e6

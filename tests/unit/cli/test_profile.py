"""`dotcu profile`: its options, its exit codes, and what it prints where."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dotcu.profiling
from dotcu.cli import main


class Report:
    """Stands for a report."""

    def __init__(self, *, counted: bool) -> None:
        self.counted = counted

    def __rich__(self) -> str:
        return "bound by memory"

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, "counted": self.counted}


def run(monkeypatch: pytest.MonkeyPatch, *words: str, counted: bool = True) -> tuple[int, list[Any]]:
    asked: list[Any] = []

    def profile(target: str, **options: Any) -> Report:
        sys.stdout.write("imported\n")
        asked.extend([target, options])
        return Report(counted=counted)

    monkeypatch.setattr(dotcu.profiling, "profile", profile)
    with pytest.raises(SystemExit) as end:
        main.main(["profile", *words])
    return int(end.value.code or 0), asked


def test_the_report_is_printed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, asked = run(monkeypatch, "ops.py:scale")
    assert (code, asked) == (0, ["ops.py:scale", {"shapes": "", "dtype": "", "device": None, "folder": None}])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("bound by memory\n", "imported\n")


def test_options_say_what_is_called_and_where_reports_go(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--shapes", "2^20", "--dtype", "bfloat16", "--device", "cuda:1", "--output", "/tmp")
    _, (_, options) = run(monkeypatch, "ops.py", *words)
    expected = {"shapes": "2^20", "dtype": "bfloat16", "device": "cuda:1", "folder": Path("/tmp")}
    assert options == expected


def test_without_counters_the_environment_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "ops.py", counted=False)[0] == 3


def test_a_stream_that_lacks_a_letter_gets_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(Report, "__rich__", lambda self: "2.5 µs")
    monkeypatch.setattr(sys, "stdout", stream)
    assert run(monkeypatch, "ops.py")[0] == 0
    stream.seek(0)
    assert stream.read() == "2.5 \\xb5s\n"


def test_json_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "ops.py", "--json")
    assert json.loads(capsys.readouterr().out) == {"version": 1, "counted": True}

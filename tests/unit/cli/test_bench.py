"""`dotcu bench`: its options, its exit codes, what it prints where, and what it keeps.

What measures is replaced here: these tests are about the command.
"""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dotcu.benchmark
from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.results import BenchRow
from dotcu.cli import console, main, progress
from dotcu.errors import UsageError
from helpers.bench_reports import change, compared, report, row

OPS = """
import torch
from torch import Tensor

import dotcu

print("imported")


@dotcu.op("cli_bench::{name}")
def {name}(a: Tensor) -> Tensor:
    return a + 1
"""
GOOD, WRONG, REFUSED = row(), row(None, status="wrong", reason="NaN"), row(None, status="refused")


class FirstCall:
    """Stands for what tells of a first call."""

    def __rich__(self) -> str:
        return "import torch 1.9 s"

    def to_json(self) -> dict[str, int]:
        return {"version": 1}


class Bencher:
    """Stands for what plans, measures, saves and compares; notes what it was asked for."""

    def __init__(self) -> None:
        self.rows: list[BenchRow] = [GOOD]
        self.told: dict[str, Any] = {}
        self.stops = False
        self.changes: list[Any] = []
        self.whole: bool | None = None
        self.asked: dict[str, Any] = {}
        self.saved: list[tuple[Path, BenchReport]] = []
        self.first_calls: list[tuple[str, str | None]] = []

    # ------------------------------------------------------------ dotcu.benchmark.bencher

    def prepare(self, operators: Sequence[Any], **asked: Any) -> Bencher:
        self.asked = {"operators": [operator.qualified_name for operator in operators], **asked}
        return self

    @property
    def total(self) -> int:
        return len(self.rows)

    def run(self) -> Iterator[BenchRow]:
        yield from self.rows
        if self.stops:
            raise KeyboardInterrupt

    def report(self, rows: Sequence[BenchRow], *, seconds: float, interrupted: bool) -> BenchReport:
        return report(*rows, interrupted=interrupted, **self.told)

    # ------------------------------------------------------------ dotcu.benchmark.reports.saved_runs

    def read_runs(self, path: Path) -> list[Any]:
        if not path.exists():
            raise UsageError(f"there is no file {path}.")
        return []

    def compare_runs(self, before: Path, found: BenchReport, *, whole: bool, **_: Any) -> list[Any]:
        self.whole = whole
        return self.changes

    def write_run(self, path: Path, found: BenchReport) -> None:
        self.saved.append((path, found))

    # ------------------------------------------------------------ dotcu.benchmark.first_call

    def first_call(self, target: str, name: str | None) -> Any:
        self.first_calls.append((target, name))
        return FirstCall()


@pytest.fixture
def bencher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bencher:
    """What the command meets instead of a GPU, beside a file of operators."""
    found = Bencher()
    for name, words in {
        "bencher": ("prepare",),
        "first_call": ("first_call",),
    }.items():
        module = ModuleType(f"dotcu.benchmark.{name}")
        vars(module).update({word: getattr(found, word) for word in words})
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(dotcu.benchmark, name, module, raising=False)
    monkeypatch.setattr(saved_runs, "read_runs", found.read_runs)
    monkeypatch.setattr(saved_runs, "write_run", found.write_run)
    monkeypatch.setattr(dotcu.benchmark.reports.report, "compare_runs", found.compare_runs)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(OPS.format(name=f"f{abs(hash(tmp_path))}"))
    return found


def bench(*words: str) -> int | str | None:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", *words])
    return caught.value.code


@pytest.mark.parametrize(
    ("rows", "code", "last"),
    [
        ([GOOD], 0, "passed: 1 of 1 row measured"),
        ([GOOD, WRONG], 1, "FAILED: 1 of 2 rows measured, 1 wrong"),
        ([GOOD, REFUSED], 1, "FAILED: 1 of 2 rows measured, 1 refused"),
    ],
    ids=["passed", "wrong", "refused"],
)
def test_the_exit_code_says_whether_it_held(
    bencher: Bencher, capsys: pytest.CaptureFixture[str], rows: list[BenchRow], code: int, last: str
) -> None:
    bencher.rows = rows
    assert bench("ops.py") == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_bare_command_leaves_the_choice_to_the_bencher(bencher: Bencher) -> None:
    bench("ops.py")
    assert bencher.asked.pop("operators")[0].startswith("cli_bench::f")
    assert bencher.asked == {"l2": ("cold", "warm")}


def test_options_are_handed_on(bencher: Bencher) -> None:
    words = ("--against", "eager, best.py:mine", "--shapes", "64x64,2^20", "--dtypes", "float32,bfloat16")
    bench("ops.py", *words, "--warm", "--device", "simulator", "--gpu", "A100")
    del bencher.asked["operators"]
    assert bencher.asked == {
        "against": ("eager", "best.py:mine"),
        "shapes": "64x64,2^20",
        "dtypes": ("float32", "bfloat16"),
        "l2": ("warm",),
        "device": "simulator",
        "gpu": "A100",
    }


def test_cold_and_warm_at_once_are_wrong_usage(bencher: Bencher, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("ops.py", "--cold", "--warm") == 2
    assert capsys.readouterr().err == (
        "error: --cold and --warm were given together; give one of them, or neither for both.\n"
    )


def test_json_is_all_that_is_on_standard_output(bencher: Bencher, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("ops.py", "--json") == 0
    shown, err = capsys.readouterr()
    assert json.loads(shown)["rows"][0]["op"] == "mylib::add"
    assert "imported" in err


def test_a_report_is_saved_and_drawn(bencher: Bencher, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert bench("ops.py", "--save", "now.jsonl", "--plot", "now.svg") == 0
    assert [(path.name, found.rows) for path, found in bencher.saved] == [("now.jsonl", (GOOD,))]
    assert (tmp_path / "now.svg").read_text().startswith("<?xml")


def test_a_regression_ends_with_1_and_the_run_is_saved_all_the_same(
    bencher: Bencher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "then.jsonl").touch()
    bencher.changes = [compared(GOOD, change("slower", 1.05))]
    assert bench("ops.py", "--compare", "then.jsonl", "--save", "then.jsonl") == 1
    assert "against the baseline: 1 slower" in capsys.readouterr().out
    assert len(bencher.saved) == 1


def test_an_operator_that_was_lost_ends_with_1(bencher: Bencher, capsys: pytest.CaptureFixture[str]) -> None:
    lost = compared(row(l2="warm"), None, "only in ops.py", lost=True)
    bencher.changes = [compared(GOOD, change("same")), lost]
    assert bench("ops.py", "--compare", "ops.py") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "FAILED: 1 of 1 row measured, 1 lost"


def test_all_operators_are_asked_for_unless_one_is_named(bencher: Bencher, tmp_path: Path) -> None:
    bench("ops.py", "--compare", "ops.py")
    assert bencher.whole is True
    bench(f"ops.py:f{abs(hash(tmp_path))}", "--compare", "ops.py")
    assert bencher.whole is False


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--compare", "nowhere.jsonl"), "there is no file nowhere.jsonl"),
        (("--plot", "plot.pdf"), "A plot is .svg or .png"),
        (("--save", "nowhere/now.jsonl"), "there is no folder nowhere.\nType: --save now.jsonl"),
        (("--save", "."), ". is a folder.\nType: --save bench.jsonl"),
    ],
    ids=["compare", "plot", "save", "folder"],
)
def test_what_would_fail_in_the_end_is_refused_before_anything_is_measured(
    bencher: Bencher, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert bench("ops.py", *words) == 2
    assert told in capsys.readouterr().err
    assert bencher.asked == {}


def test_an_interrupt_shows_and_saves_what_was_measured(
    bencher: Bencher, capsys: pytest.CaptureFixture[str]
) -> None:
    bencher.stops = True
    assert bench("ops.py", "--save", "now.jsonl") == 130
    assert capsys.readouterr().out.splitlines()[-1] == "interrupted: 1 of 1 row measured"
    assert bencher.saved[0][1].interrupted


def test_an_interrupt_before_the_first_row_saves_nothing(bencher: Bencher) -> None:
    bencher.rows, bencher.stops = [], True
    assert bench("ops.py", "--save", "now.jsonl", "--compare", "ops.py") == 130
    assert bencher.saved == []


def test_an_operator_that_there_is_not_is_answered_with_the_line_to_type(
    bencher: Bencher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("ops.py:nope") == 2
    assert "Type: dotcu bench ops.py:f" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("ops.py:scale", "ops.py", "scale"), ("ops.py", "ops.py", None)])
def test_the_first_call_is_shown_instead(
    bencher: Bencher, capsys: pytest.CaptureFixture[str], words: tuple[str, str, str | None]
) -> None:
    assert bench(words[0], "--first-call") == 0
    assert bencher.first_calls == [words[1:]]
    assert bencher.asked == {}
    assert capsys.readouterr().out == "import torch 1.9 s\n"
    assert bench(words[0], "--first-call", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1}


@pytest.mark.parametrize(
    "words",
    [
        ("--against", "eager"),
        ("--shapes", "64"),
        ("--dtypes", "float32"),
        ("--cold",),
        ("--warm",),
        ("--save", "a.jsonl"),
        ("--compare", "a.jsonl"),
        ("--plot", "a.svg"),
        ("--device", "cuda"),
        ("--gpu", "H200"),
    ],
    ids=lambda words: words[0],
)
def test_the_first_call_refuses_what_it_would_ignore(
    bencher: Bencher, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert bench("ops.py", "--first-call", *words) == 2
    told = capsys.readouterr().err
    assert f"--first-call was given together with {words[0]}.\n" in told
    assert "Type: dotcu bench ops.py --first-call" in told
    assert bencher.first_calls == []


@pytest.mark.parametrize("option", ["--save", "--compare", "--plot"])
def test_without_a_gpu_there_is_nothing_to_keep_and_that_is_said(
    bencher: Bencher, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "a.svg").touch()
    bencher.rows, bencher.told = [], {"estimate": SimpleNamespace()}
    assert bench("ops.py", option, "a.svg") == 3
    assert f"{option} a.svg needs times that were measured on a GPU" in capsys.readouterr().err


class TestProgress:
    @staticmethod
    def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
        stream = io.StringIO()

        def err() -> console.Console:
            return console.Console(file=stream, force_terminal=terminal, width=120, color_system=None)

        monkeypatch.setattr(progress.console, "err", err)
        with progress.measuring(3) as tell:
            for one in (GOOD, WRONG, row(None, status="skipped")):
                tell(one)
        return stream.getvalue()

    def test_a_terminal_shows_the_last_row_the_count_and_those_without_figures(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = self.shown(monkeypatch, terminal=True)
        assert "mylib::add float32-4096x4096 dotcu cold" in told
        assert "1/3" in told
        assert "3/3 1 without figures" in told

    def test_a_pipe_shows_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.shown(monkeypatch, terminal=False).strip() == ""

    def test_no_thread_runs_beside_the_measurement(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def err() -> console.Console:
            return console.Console(file=io.StringIO(), force_terminal=True)

        monkeypatch.setattr(progress.console, "err", err)
        before = threading.active_count()
        with progress.measuring(1):
            assert threading.active_count() == before

"""`dotcu check`: its options, its exit codes, and what it prints where."""

from __future__ import annotations

import io
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotcu.checking.results import CheckResult, Failed, Passed, Trial
from dotcu.cli import console, main, progress
from helpers import forked_scripts
from helpers.check_reports import identity, named

OPS = """
import torch
from torch import Tensor

import dotcu


@dotcu.op("{namespace}::right")
def right(a: Tensor) -> Tensor:
    print("in the body")
    return a + 1


right.reference(lambda a: a + 1)


@dotcu.op("{namespace}::wrong")
def wrong(a: Tensor) -> Tensor:
    return a + 2


wrong.reference(lambda a: a + 1)


@dotcu.op("{namespace}::stopped")
def stopped(a: Tensor) -> Tensor:
    if a.numel() == 2:
        raise KeyboardInterrupt
    return a + 1


stopped.reference(lambda a: a + 1)


@dotcu.op("{namespace}::lacking")
def lacking(a: Tensor) -> Tensor:
    raise dotcu.errors.ToolchainError("no compiler is here")


lacking.reference(lambda a: a + 1)


def samples(device, dtype):
    return [dotcu.Sample(torch.zeros(n, device=device, dtype=dtype)) for n in (1, 2)]


for operator in (right, wrong, stopped, lacking):
    operator.samples(samples)
"""
_numbers = itertools.count()


class Done:
    """What a command came to, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        with pytest.raises(SystemExit) as caught:
            main.main(words)
        self.code = caught.value.code
        self.out, self.err = capsys.readouterr()


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of operators, beside which the command runs; gives its namespace."""
    monkeypatch.chdir(tmp_path)
    namespace = f"cli_check_{next(_numbers)}"
    (tmp_path / "ops.py").write_text(OPS.format(namespace=namespace))
    return namespace


CALLS = ("--quick", "--device", "simulator", "--only")


def test_what_holds_ends_with_0(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check", "ops.py:right", *CALLS, f"{ops}::right/call/float32-s")
    assert done.code == 0, done.out
    assert done.out.startswith("quick on simulator, seed 0, ")
    assert done.out.splitlines()[-1].startswith("passed: 1 overload, ")


def test_what_fails_ends_with_1_and_the_line_that_shows_it_again_does(
    ops: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Done(capsys, "check", "ops.py", "--seed", "5", *CALLS, f"{ops}::wrong/call/float32-s")
    assert done.code == 1
    (line,) = {line for line in done.out.splitlines() if line.endswith("float32-s0") and "again: " in line}
    words = shlex.split(line.partition("again: ")[2])
    assert words[:3] == ["dotcu", "check", "ops.py:wrong"]
    again = Done(capsys, *words[1:])
    assert again.code == 1
    assert f"{ops}::wrong/call/float32-s0 FAILED numerics" in again.out
    assert "float32-s1" not in again.out


def test_a_seed_that_is_no_number_is_refused(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check", "ops.py", "--seed", "x")
    assert done.code == 2
    assert "Invalid value for '--seed': x is not a whole number." in done.err


def test_json_is_all_that_is_on_standard_output(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check", "ops.py:right", "--json", *CALLS, f"{ops}::right/call/float32-s")
    shown = json.loads(done.out)
    assert (done.code, shown["version"], shown["passed"], shown["level"]) == (0, 4, True, "quick")
    assert "in the body" in done.err


@pytest.mark.parametrize(
    ("words", "level"), [([], "standard"), (["--quick"], "quick"), (["--full"], "full")], ids=str
)
def test_the_level_is_an_option(
    ops: str, capsys: pytest.CaptureFixture[str], words: list[str], level: str
) -> None:
    only = f"{ops}::right/call/float32-s0"
    done = Done(capsys, "check", "ops.py:right", "--device", "simulator", "--only", only, "--json", *words)
    assert json.loads(done.out)["level"] == level


def test_two_levels_at_once_are_wrong_usage(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check", "ops.py", "--quick", "--full")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: --quick and --full were given together; give one of them, or neither.\n"


def test_a_trial_that_there_is_not_is_wrong_usage(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done(capsys, "check", "ops.py:right", *CALLS, "right/call")
    assert (done.code, done.out) == (2, "")
    assert "no trial is named 'right/call'" in done.err
    assert f"{ops}::right/" in done.err


def test_an_interrupt_shows_what_was_found_so_far(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (f"{ops}::stopped/call/float32-s{n}" for n in range(2))
    done = Done(capsys, "check", "ops.py:stopped", *CALLS, first, "--only", second)
    assert done.code == 130
    assert f"{ops}::stopped  float32\n  passed " in done.out
    assert done.out.splitlines()[-1].startswith("interrupted: 1 not run; ")


def test_an_interrupt_is_reported_in_json_too(ops: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (f"{ops}::stopped/call/float32-s{n}" for n in range(2))
    done = Done(capsys, "check", "ops.py:stopped", "--json", *CALLS, first, "--only", second)
    shown = json.loads(done.out)
    assert (done.code, shown["passed"]) == (130, False)
    assert shown["unfinished"] == 1
    assert {one["trial"] for one in shown["results"]} == {first}


def test_what_the_machine_lacks_for_one_operator_leaves_the_report_of_the_others(
    ops: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking, right = (f"{ops}::{name}/call/float32-s0" for name in ("lacking", "right"))
    done = Done(capsys, "check", "ops.py", *CALLS, lacking, "--only", right)
    assert done.code == 3
    assert f"{ops}::right  float32\n  passed " in done.out
    assert "no compiler is here" in done.err


def test_a_target_that_is_not_importable_shows_the_users_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes_of_cli_check.py").write_text("def count(n):\n    return 1 / n\n")
    (tmp_path / "ops.py").write_text("from shapes_of_cli_check import count\nN = count(0)\n")
    done = Done(capsys, "check", "ops.py")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: ops.py cannot be imported:\n"
        "    ops.py:2: in <module>\n        N = count(0)\n"
        "    shapes_of_cli_check.py:2: in count\n        return 1 / n\n"
        "    shapes_of_cli_check.py:2: ZeroDivisionError: division by zero\n"
        "For the whole traceback, run the command again with DOTCU_DEBUG=1.\n"
    )


class TestProgress:
    TRIALS = tuple(
        Trial(id=identity(f"a::b/{kind}/float32-s0"), checks=("numerics",), run=list)
        for kind in ("call", "compile")
    )

    @staticmethod
    def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> io.StringIO:
        stream = io.StringIO()

        def err() -> console.Console:
            return console.Console(file=stream, force_terminal=terminal, width=100, color_system=None)

        monkeypatch.setattr(progress.console, "err", err)
        return stream

    def results(self) -> Iterator[CheckResult]:
        for trial, outcome in zip(self.TRIALS, (Failed(reason="wrong"), Passed()), strict=True):
            yield named("numerics", outcome, str(trial.id))

    def test_a_terminal_shows_the_trial_the_count_and_what_failed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = self.shown(monkeypatch, terminal=True)
        with progress.following(self.TRIALS) as tell:
            for result in self.results():
                tell(result)
        assert "a::b call" in stream.getvalue()
        assert "1 failed" in stream.getvalue()
        assert "2/2" in stream.getvalue()

    def test_a_pipe_shows_the_first_failure_of_each_check_as_it_comes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = self.shown(monkeypatch, terminal=False)
        with progress.following(self.TRIALS) as tell:
            for result in self.results():
                tell(result)
                assert stream.getvalue().startswith("a::b/call/float32-s0 FAILED numerics: wrong\n")
        assert stream.getvalue().count("FAILED") == 1

    def test_a_pipe_shows_the_evidence_of_the_first_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = self.shown(monkeypatch, terminal=False)
        outcome = Failed(reason="step-limit in the simulator", evidence="k.cu:7: step-limit: still running")
        with progress.following(self.TRIALS) as tell:
            tell(named("sanitizer-barrier", outcome, str(self.TRIALS[0].id)))
        assert "\n    k.cu:7: step-limit: still running\n" in stream.getvalue()

    def test_a_terminal_shows_one_line_of_a_failure_which_the_report_has_whole(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = self.shown(monkeypatch, terminal=True)
        outcome = Failed(reason=f"race {'in the simulator ' * 9}", evidence="k.cu:7: race: this line reads")
        with progress.following(self.TRIALS) as tell:
            tell(named("sanitizer-race", outcome, str(self.TRIALS[0].id)))
        (line,) = [each for each in stream.getvalue().splitlines() if "FAILED" in each]
        assert "a::b/call/float32-s0 FAILED sanitizer-race: race in the simulator" in line
        assert line.endswith("…")
        assert "k.cu:7" not in stream.getvalue()

    def test_a_pipe_shows_each_kind_of_trial_as_it_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = self.shown(monkeypatch, terminal=False)
        with progress.following(self.TRIALS) as tell:
            first, second = self.results()
            tell(first)
            assert "\na::b call: 1 done, at 0.0 s\n" in stream.getvalue()
            assert "compile" not in stream.getvalue()
            tell(second)
        assert stream.getvalue().endswith("\na::b compile: 1 done, at 0.0 s\n")

    def test_a_pipe_shows_how_long_the_rest_will_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = self.shown(monkeypatch, terminal=False)
        monkeypatch.setattr(progress, "FIRST_S", 0.0)
        with progress.following(self.TRIALS) as tell:
            for result in self.results():
                tell(result)
        assert stream.getvalue().count("1 of 2 done in 0 s; about 0 s more") == 1

    def test_nothing_to_do_is_fine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown(monkeypatch, terminal=True)
        with progress.following([]):
            pass


STARTING = """
import sys

import torch
from torch import Tensor

import dotcu


@dotcu.op("check_starting::plus")
def plus(a: Tensor) -> Tensor:
    return a + 1


@plus.reference
def _(a: Tensor) -> Tensor:
    print("first case:", *sys.modules, file=sys.stderr)
    return a + 1


plus.samples(lambda device, dtype: [dotcu.Sample(torch.zeros(3, device=device, dtype=dtype))])
"""


def test_until_its_first_case_a_check_loads_nothing_that_takes_seconds(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(STARTING)
    words = ("check", "ops.py", "--device", "simulator", "--only", "check_starting::plus/reference")
    done = forked_scripts.command(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    first = next(line for line in done.stderr.splitlines() if line.startswith("first case:"))
    loaded = set(first.split())
    assert {"torch", "dotcu.checking.trials.compiled"} <= loaded
    compilers = {
        "torch._dynamo",
        "torch._inductor",
        "torch.fx.experimental.symbolic_shapes",
        "sympy",
        "triton",
    }
    others = {
        "matplotlib",
        "pytest",
        "dotcu.benchmark",
        "dotcu.inspection",
        "dotcu.shipping",
        "dotcu.profiling",
    }
    assert loaded.isdisjoint(compilers | others)


ENDING = """import os
import dotcu, torch
kernels = dotcu.load_inline("__global__ void k(const float* x, float* y, int n) { *y = *x; }")
@dotcu.op("ending::NAME")
def f(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    kernels.k(x, y, 1, grid=1, block=1)
    return y
@f.reference
def _(x):
    REFERENCE
    return x.clone()
@f.samples
def _(device, dtype):
    SAMPLES
    yield dotcu.Sample(torch.randn(1, device=device, dtype=dtype))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("REFERENCE", "os._exit(0)", "FAILED: 1 of 1 overload"),
        ("REFERENCE", "os.kill(os.getpid(), 11)", "FAILED: 1 of 1 overload"),
        ("SAMPLES", "os._exit(0)", "there is no report"),
        ("return x.clone()", "__import__('atexit').register(os._exit, 0); return x + 1", "FAILED: 1 of 1"),
    ],
)
def test_code_that_ends_the_process_is_no_check_that_passed(
    tmp_path: Path, place: str, code: str, said: str
) -> None:
    text = ENDING.replace("NAME", f"f{os.urandom(4).hex()}").replace(place, code)
    (tmp_path / "ops.py").write_text(text.replace("REFERENCE", "pass").replace("SAMPLES", "pass"))
    command = [sys.executable, "-m", "dotcu", "check", "--quick", "--device", "simulator", "ops.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr

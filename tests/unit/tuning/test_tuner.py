"""Tuning operators: candidates rejected, checked, timed by a table; the file that comes of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dotcu
from dotcu import jobs, locks
from dotcu.benchmark.results import Protocol
from dotcu.checking.target import resolve
from dotcu.errors import OperatorError, UsageError
from dotcu.operator import tuned
from dotcu.tuning import TuneReport, session, tuner
from dotcu.tuning.session import TuneRequest
from dotcu.tuning.tuner import entries, merge, prepare
from dotcu.workers import WorkerCrash
from helpers.fake_timer import FakeTimer

MODULE = '''
from __future__ import annotations
from collections.abc import Iterator
from typing import NamedTuple
import torch
from torch import Tensor
import dotcu

kernels = dotcu.load_inline(r"""
template <int ITEMS, bool WRONG, bool BREAKS, bool WIDE>
__global__ void twice(const float* x, float* out, int n) {
    static_assert(!BREAKS, "this one does not compile");
    __shared__ float tile[WIDE ? 20000 : 1];
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    if (WIDE) *(volatile float*)&tile[threadIdx.x] = 0;
    for (int i = first; i < first + ITEMS; ++i) {
        if (WRONG && n % 32) { if (i <= n) out[i] = 2 * x[i]; }
        else if (i < n) out[i] = 2 * x[i];
    }
}
""")


class Tile(NamedTuple):
    block: int
    items: int
    kind: str = "good"


@dotcu.op("NAME::twice")
def twice(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    tile = twice.configuration(x.dtype, n)
    kernel = kernels.twice[tile.items, tile.kind == "wrong", tile.kind == "breaks", tile.kind == "wide"]
    kernel(x, out, n, grid=dotcu.cdiv(n, tile.block * tile.items), block=tile.block)
    return out


@twice.configurations
def _() -> Iterator[Tile]:
    yield Tile(128, 1)
    yield Tile(64, 2)
    yield Tile(64, 2, "wrong")
    yield Tile(64, 2, "breaks")
    yield Tile(64, 2, "wide")
    yield Tile(2048, 1)
    yield Tile(32, 4)


@twice.reference
def _(x: Tensor) -> Tensor:
    return 2 * x


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for n in (64, 100):
        yield dotcu.Sample(torch.randn(n, device=device, dtype=dtype))
'''


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    path = tmp_path / "tuned_ops.py"
    name = f"tune_{abs(hash(str(tmp_path)))}"
    path.write_text(textwrap.dedent(MODULE.replace("NAME", name)))
    return path


@pytest.fixture
def op(ops: Path) -> Any:
    return resolve(f"{ops}:twice")[0][1]


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer with a table needs few of them, and each is a call in the simulator."""
    few = Protocol(
        blocks=3, most_blocks=3, calls=1, block_s=0.0, warmup_most_s=0.0, least_s=0.0, warmup_s=0.0
    )
    monkeypatch.setattr(session, "ROUNDS", (few,))


def tuned_with(op: Any, us: Mapping[int, float], **options: Any) -> TuneReport:
    """Tune with a timer that has a table of microseconds by candidate."""
    plan = prepare(op, device="cpu", timer=FakeTimer({str(one): time for one, time in us.items()}), **options)
    return jobs.complete(plan)


def test_the_fastest_right_one_is_written_and_used(op: Any, ops: Path) -> None:
    report = tuned_with(op, {0: 10.0, 1: 8.0, 6: 4.0})
    assert report.passed
    assert {row.key for row in report.rows} == {("float32", 64), ("float32", 128)}
    row = report.rows[0]
    assert dict(row.configuration) == {"block": 32, "items": 4, "kind": "good"}
    assert (row.over_runner_up, row.over_default) == (
        pytest.approx(2.0, rel=0.02),
        pytest.approx(2.5, rel=0.02),
    )
    with dotcu.simulate():
        assert op.configuration(torch.float32, 900) == (32, 4, "good")
    assert "block=32 items=4 kind=good" in str(report)
    assert report.to_json()["rows"][0]["key"] == ["float32", 64]
    assert report.files == (str(ops.with_suffix(".tuned.toml")),)


def test_each_unfit_or_wrong_one_is_named_with_its_reason(op: Any) -> None:
    report = tuned_with(op, {2: 1.0}, shapes="64")
    reasons = {tuple(each.configuration.values()): each.reason for each in report.rows[0].rejected}
    assert "this one does not compile" in reasons[64, 2, "breaks"]
    assert "80000 bytes of static shared memory" in reasons[64, 2, "wide"]
    assert "2048" in reasons[2048, 1, "good"]
    assert "out-of-bounds" in reasons[64, 2, "wrong"]  # right at 64 elements, and wrong at 100
    assert len(reasons) == 4
    assert dict(report.rows[0].configuration)["kind"] == "good"


def test_a_default_that_was_rejected_is_said_so_and_compared_with_nothing(ops: Path) -> None:
    ops.write_text(ops.read_text().replace("yield Tile(128, 1)", 'yield Tile(64, 2, "wrong")'))
    (row,) = tuned_with(resolve(f"{ops}:twice")[0][1], {1: 4.0}, shapes="64").rows
    assert row.status == "tuned"
    assert row.over_default == 0
    assert row.reason.startswith("the default was rejected: ")
    assert "out-of-bounds" in row.reason


def test_a_second_run_leaves_the_file_as_it_is(op: Any, ops: Path) -> None:
    file = ops.with_suffix(".tuned.toml")
    tuned_with(op, {0: 10.0, 1: 8.0, 6: 4.0}, shapes="64")
    first = file.read_bytes()
    tuned_with(op, {0: 11.0, 1: 3.97, 6: 4.03}, shapes="64")  # 1 is tied with what the file has
    assert file.read_bytes() == first
    tuned_with(op, {0: 11.0, 1: 2.0, 6: 4.0}, shapes="64")
    assert file.read_bytes() != first


class DyingWorker:
    """Stands for a worker: the second candidate ends it, then it tunes."""

    asked: list[TuneRequest] = []  # noqa: RUF012
    closed = False

    def __init__(self, entry: str) -> None:
        self.asked.clear()
        self._events: list[Any] = []

    def send(self, request: TuneRequest) -> None:
        self.asked.append(request)
        self._events = [{"event": "trying", "candidate": 0}, {"event": "passed", "candidate": 0}]
        if 1 not in request.rejected:
            self._events += [{"event": "trying", "candidate": 1}, WorkerCrash("it did not end within 20 s")]
        else:
            timed = {"winner": 0, "median_us": 5.0, "over_runner_up": 1.0, "over_default": 1.0, "tied": [0]}
            self._events += [{"event": "timed", **timed}, None]

    def receive(self, timeout_s: float) -> Any:
        event = self._events.pop(0)
        if isinstance(event, WorkerCrash):
            raise event
        return event

    def close(self) -> None:
        pass


def test_a_configuration_that_ends_the_worker_is_named_and_the_others_go_on(
    op: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "Worker", DyingWorker)
    plan = prepare(op, device="cpu")
    rows = list(plan.run())
    assert [row.status for row in rows] == ["tuned", "tuned"]
    for row in rows:  # of the second case, too: it was wrong for the dtype
        assert [(dict(each.configuration)["items"], each.reason) for each in row.rejected] == [
            (2, "it did not end within 20 s")
        ]
    assert [request.rejected for request in DyingWorker.asked] == [(), (1,), (1,)]
    assert DyingWorker.asked[-1].gated == (0,)


def test_a_case_that_another_process_refuses_fails_alone(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Exception] = [OperatorError("its samples fail\nMend them.")]

    def receive(worker: DyingWorker, timeout_s: float) -> Any:
        if refused:
            raise refused.pop()
        return DyingWorker.receive(worker, timeout_s)

    monkeypatch.setattr(tuner, "Worker", type("RefusingWorker", (DyingWorker,), {"receive": receive}))
    rows = list(prepare(op, device="cpu").run())
    assert [(row.status, row.reason) for row in rows] == [("failed", "its samples fail"), ("tuned", "")]


def test_a_second_tuner_is_refused() -> None:
    with tuner._held("gpu-of-a-test", wait=False), tuner._held("another-gpu", wait=False):
        second = tuner._held("gpu-of-a-test", wait=False)
        with pytest.raises(UsageError, match="Another `dotcu tune` is at work"):
            second.__enter__()


@contextlib.contextmanager
def stopped(name: str) -> Iterator[int]:
    """Have a process take a tuner's lock and stop, as by Ctrl-Z; it ends when it goes on."""
    text = f"""
import os, signal
from dotcu.tuning import tuner
with tuner._held({name!r}, wait=True):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", text], env=environment) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGCONT)


def test_a_second_tuner_is_told_which_process_is_stopped_with_the_gpu() -> None:
    with (
        stopped("gpu-of-a-stopped-one") as pid,
        pytest.raises(UsageError, match=rf"Process {pid} holds the lock .* kill -CONT {pid}"),
        tuner._held("gpu-of-a-stopped-one", wait=False),
    ):
        pass


def test_files_are_joined_beside_a_stopped_tuner_which_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ops.py"
    path.write_text(MODULE.replace("NAME::", "stoppedtests::"))
    (operator,) = [operator for _, operator in resolve(str(path))]
    other = tmp_path / "other.tuned.toml"
    other.write_text("format = 1\n")
    monkeypatch.setattr(locks, "_TELL_S", 0.1)
    monkeypatch.setitem(locks._LIMITS_S, "stopped", 0.3)
    with stopped(f"file-{path.with_suffix('.tuned.toml').resolve()}") as pid:
        assert merge(operator, [other]) == []
    assert path.with_suffix(".tuned.toml").is_file()
    assert f"kill -CONT {pid}): this process waits for it, at most 0.3 s." in caplog.text
    assert f"kill -CONT {pid}) after 0 s: this process goes on without it." in caplog.text


STRIDED = """
from typing import NamedTuple
import torch
from torch import Tensor
import dotcu

kernels = dotcu.load_inline('''
template <int STRIDE>
__global__ void twice(const float* x, float* out, int n) {
    __shared__ float tile[32 * STRIDE];
    int i = blockIdx.x * 32 + threadIdx.x;
    tile[threadIdx.x * STRIDE] = i < n ? x[i] : 0;
    __syncwarp();
    if (i < n) out[i] = 2 * tile[threadIdx.x * STRIDE];
}
''')

class Layout(NamedTuple):
    stride: int

@dotcu.op("NAME::twice")
def twice(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    stride = twice.configuration(n).stride
    kernels.twice[stride](x, out, n, grid=dotcu.cdiv(n, 32), block=32)
    return out

@twice.configurations
def _():
    yield from (Layout(1), Layout(3), Layout(32))

@twice.reference
def _(x):
    return 2 * x

@twice.samples
def _(device, dtype):
    yield dotcu.Sample(torch.randn(64, device=device))
"""


def test_counters_of_the_simulator_reject_bank_conflicts(tmp_path: Path) -> None:
    path = tmp_path / "strided_ops.py"
    path.write_text(STRIDED.replace("NAME", f"strided_{abs(hash(str(tmp_path)))}"))
    op = resolve(f"{path}:twice")[0][1]
    for asked, said in ((False, []), (True, ["124 bank conflicts in the simulator, and the default 0"])):
        report = tuned_with(op, {}, counters=asked)
        assert [each.reason for each in report.rows[0].rejected] == said


@pytest.mark.slow  # it starts a worker
def test_without_a_gpu_it_rejects_and_checks_and_says_what_it_cannot(op: Any, ops: Path) -> None:
    report = dotcu.tune(op, shapes="64", device="simulator")
    assert [row.status for row in report.rows] == ["gated"]
    assert report.passed
    assert "not timed: there is no GPU" in str(report)
    assert len(report.rows[0].rejected) == 4
    assert not ops.with_suffix(".tuned.toml").exists()


def test_a_budget_that_is_spent_leaves_cases_out(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tuned_with(op, {1: 8.0}, budget_s=1e-9)
    assert {row.status for row in report.rows} == {"skipped"}
    assert not report.passed
    with pytest.raises(UsageError, match="--budget 60"):
        prepare(op, budget_s=0)


def test_no_search_begins_after_the_budget_where_the_fastest_is_wrong(
    op: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = FakeTimer({"1": 8.0, "6": 4.0})
    plan = prepare(op, device="cpu", timer=timer, shapes="64", budget_s=60)
    clock = lambda: 61.0 if timer.blocks else 0.0  # noqa: E731
    monkeypatch.setattr(session, "perf_counter", clock)
    monkeypatch.setattr(tuner, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(
        session, "verify", lambda target, calls, *inputs: dict.fromkeys(calls, ("wrong", "is wrong here"))
    )
    (row,) = plan.run()
    wrong = [each.configuration["block"] for each in row.rejected if "is wrong here" in each.reason]
    assert wrong == [32]
    assert (row.status, row.reason) == ("skipped", "the budget was spent before a right one was found")


def test_an_interrupt_keeps_what_is_done(op: Any, ops: Path) -> None:
    timer = FakeTimer({"6": 4.0})
    plan = prepare(op, device="cpu", timer=timer)
    rows = plan.run()
    first = next(rows)
    timer.failures = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        next(rows)
    (of_operator,) = tuned.read(ops.with_suffix(".tuned.toml")).operators.values()
    assert [entry.key for entry in of_operator] == [first.key]


def test_an_operator_without_configurations_is_refused() -> None:
    from dotcu.gallery import add

    with pytest.raises(UsageError, match="No configurations declared for"):
        prepare(add)


def test_files_of_several_machines_are_joined_and_stale_entries_named(op: Any, ops: Path) -> None:
    tuned_with(op, {6: 4.0}, shapes="64")
    file, other = ops.with_suffix(".tuned.toml"), ops.with_name("other.toml")
    ((name, (entry,)),) = tuned.read(file).operators.items()
    far = replace(entry, gpu="NVIDIA H200", capability="9.0", multiprocessors=132)
    stale = replace(far, key=("float32", 1), digest="old")
    tuned.TunedFile().with_entries(name, [far, stale]).write(other)
    left_out = merge(op, [other])
    assert [(one.key, "have changed" in why) for _, one, why in left_out] == [(("float32", 1), True)]
    assert [one.gpu for _, one, why in entries(op) if not why] == ["simulator", "NVIDIA H200"]
    with pytest.raises(UsageError, match="not as `dotcu tune` wrote it"):
        merge(op, [ops])


def test_a_file_that_is_not_as_written_is_refused_before_anything_runs(op: Any, ops: Path) -> None:
    ops.with_suffix(".tuned.toml").write_text("format = 1\n[[operators")
    with pytest.raises(UsageError, match="not as `dotcu tune` wrote it"):
        prepare(op, device="cpu")

"""Runs on disk: what is written comes back, and damage names its line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.results import (
    BenchKey,
    BenchRow,
    Block,
    CallTime,
    Clocks,
    Machine,
    Means,
    Measured,
    Protocol,
)
from dotcu.benchmark.statistics import Ratio, summary
from dotcu.benchmark.work import Work
from dotcu.errors import UsageError
from helpers.timing_samples import measured

MACHINE = Machine(gpu="NVIDIA H200", uuid="GPU-1", versions={"driver": "580.1"}, clocks={"sm": 1980})
PROTOCOL = Protocol()
KEY = BenchKey(op="a::b", case="float32-16", contender="dotcu", l2="cold")


@dataclass(frozen=True, kw_only=True)
class Report:
    rows: Sequence[BenchRow]
    machine: Machine = MACHINE
    protocol: Protocol = PROTOCOL
    by: Means = "cupti"
    sources: Mapping[str, str] = field(default_factory=dict)


def row(us: float = 10.0, key: BenchKey = KEY) -> BenchRow:
    return BenchRow(key=key, measured=measured([[us, us * 1.001, us * 0.999]] * 10))


def key(case: str) -> BenchKey:
    return replace(KEY, case=case)


def full() -> BenchRow:
    """A row that has everything."""
    clocks = Clocks(sm_mhz=1980, memory_mhz=3201, temperature_c=61, power_w=402.5, reasons=("power cap",))
    calls = (CallTime(time_us=10.016, kernels=2, late=1), CallTime(time_us=9.984, kernels=None, stray=3))
    blocks = (Block(calls=calls, before=clocks), Block(calls=(), after=clocks))
    return BenchRow(
        key=KEY,
        dtype="float32",
        elements=16,
        bytes=192,
        time=summary([[10.0, 10.1], [10.2, 9.9]], confidence=0.99),
        host=summary([[3.0, 3.1]], confidence=0.99),
        work=Work(read_bytes=128, written_bytes=64, flops=16, dtype="float32", declared=True),
        limit=Limit(time_us=0.05, what="memory, 2 reads to 1 write, 4.39 TB/s", floor_us=0.02),
        percent=0.5,
        ratio=Ratio(value=1.5, low=1.4, high=1.6),
        marks=("too small to fill the GPU",),
        dropped=10,
        measured=Measured(
            contender="dotcu", l2="cold", by="cupti", blocks=blocks, host_us=(3.0, 3.1), stopped="noise"
        ),
    )


def saved(path: Path, *rows: BenchRow, **changed: object) -> Path:
    saved_runs.write_run(path, Report(rows=rows, **changed))  # type: ignore[arg-type]
    return path


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    failed = BenchRow(key=key("float16-16"), status="failed", reason="RuntimeError: no\nreally")
    report = Report(rows=(full(), failed), sources={"a::b": "digest"})
    saved_runs.write_run(tmp_path / "bench.jsonl", report)  # type: ignore[arg-type]
    first, second = saved_runs.read_runs(tmp_path / "bench.jsonl")
    assert (first.row, second.row) == report.rows
    assert (first.machine, first.protocol, first.by) == (report.machine, report.protocol, report.by)
    assert first.source == "digest"
    assert first.at.endswith("+00:00")


def test_every_line_stands_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "bench.jsonl", full(), row())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["version"] for line in lines] == [saved_runs.VERSION] * 2
    assert all(line["machine"]["gpu"] == "NVIDIA H200" for line in lines)
    assert lines[0]["row"]["measured"]["blocks"][0]["time_us"] == [10.016, 9.984]
    assert lines[0]["row"]["measured"]["blocks"][0]["kernels"] == [2, None]


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    odd = replace(full(), percent=math.inf)
    path = saved(tmp_path / "bench.jsonl", odd)
    assert "NaN" not in path.read_text()
    assert "Infinity" not in path.read_text()
    (saved_row,) = saved_runs.read_runs(path)
    assert saved_row.row.percent is None


def test_a_file_is_replaced_whole_and_no_temporary_file_remains(tmp_path: Path) -> None:
    path = saved(tmp_path / "bench.jsonl", row(), row(key=key("other")))
    saved(path, row(20.0))
    assert len(saved_runs.read_runs(path)) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["bench.jsonl"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "bench.jsonl", row())
    before = path.read_text()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(UsageError, match="No space left on device"):
        saved(path, row(20.0))
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["bench.jsonl"]


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)cannot be written: No such file.*mkdir -p"):
        saved(tmp_path / "none" / "bench.jsonl", row())
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written: Not a directory"):
        saved(tmp_path / "file" / "bench.jsonl", row())


def test_files_of_several_runs_can_be_joined(tmp_path: Path) -> None:
    first = saved(tmp_path / "a.jsonl", row(), row(key=key("other")))
    second = saved(tmp_path / "b.jsonl", row(20.0), machine=replace(MACHINE, uuid="GPU-2"))
    joined = tmp_path / "c.jsonl"
    joined.write_text(first.read_text() + "\n" + second.read_text())
    assert [each.machine.uuid for each in saved_runs.read_runs(joined)] == ["GPU-1", "GPU-1", "GPU-2"]


def damage(line: str, old: str, new: str) -> str:
    assert old in line
    return line.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"version": 1', '"version": 2', r"version 1 is required \(got 2\)"),
        ('"version": 1, ', "", r"version 1 is required \(got none\)"),
        ('"at"', '"when"', "missing required field `at`"),
        ('"op": "a::b"', '"op": 3', r"Expected `str`, got `int` - at `\$\.row\.key\.op`"),
        (
            '"l2": "cold", "by"',
            '"l2": "tepid", "by"',
            r"Invalid enum value 'tepid' - at `\$\.row\.measured\.l2`",
        ),
        ("[10.0, ", '["ten", ', r"Expected `float`, got `str` - at `\$\.row\.measured\.blocks"),
        ('"kernels": ', '"kernels": [1], "_": ', r"columns of one length are required \(got \[1, 3\]\)"),
        ('"dropped": 0', '"dropped": true', r"Expected `int`, got `bool` - at `\$\.row\.dropped`"),
        ('"marks": []', '"marks": "none"', r"Expected `array`, got `str` - at `\$\.row\.marks`"),
        ('"protocol": {', '"protocol": 1, "x": {', r"Expected `object`, got `int` - at `\$\.protocol`"),
        ("}", "", "it is not whole JSON"),
    ],
)
def test_damage_names_its_line_and_what_is_required(tmp_path: Path, old: str, new: str, what: str) -> None:
    path = saved(tmp_path / "bench.jsonl", row(), row(key=key("other")))
    first, second = path.read_text().splitlines()
    path.write_text("\n".join([first, damage(second, old, new)]))
    with pytest.raises(UsageError, match=what) as caught:
        saved_runs.read_runs(path)
    assert f"{path}:2: " in str(caught.value)
    assert "Remove that line" in str(caught.value)


def test_what_is_no_file_of_runs_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)cannot be read: No such file.*--save"):
        saved_runs.read_runs(tmp_path / "none.jsonl")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    with pytest.raises(UsageError, match="cannot be read: it is not text"):
        saved_runs.read_runs(tmp_path / "picture.png")
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(UsageError, match=r"version 1 is required \(got no object\)"):
        saved_runs.read_runs(tmp_path / "list.json")


def test_keys_of_a_later_dotcu_are_ignored(tmp_path: Path) -> None:
    path = saved(tmp_path / "bench.jsonl", row())
    path.write_text(damage(path.read_text(), '"dropped": 0', '"dropped": 0, "colour": "red"'))
    (saved_row,) = saved_runs.read_runs(path)
    assert saved_row.row == row()


def test_columns_that_a_line_lacks_have_their_defaults(tmp_path: Path) -> None:
    path = saved(tmp_path / "bench.jsonl", full())
    line = json.loads(path.read_text())
    (block, _) = line["row"]["measured"]["blocks"]
    del block["kernels"], block["early"], block["elsewhere"], block["stray"]
    path.write_text(json.dumps(line))
    (saved_row,) = saved_runs.read_runs(path)
    assert saved_row.row.measured is not None
    first, _ = saved_row.row.measured.blocks[0].calls
    assert first == CallTime(time_us=10.016, late=1)


def test_a_result_of_the_repository_is_read() -> None:
    results = Path(__file__).parents[4] / "benchmarks" / "results"
    rows = saved_runs.read_runs(results / "bench_square_h200.jsonl")
    assert {each.machine.gpu for each in rows} == {"NVIDIA H200"}
    measured = [each.row.measured for each in rows if each.row.time]
    assert all(each is not None and each.blocks for each in measured)

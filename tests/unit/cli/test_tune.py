"""`dotcu tune`: its options, its exit codes, what it prints."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dotcu.checking.target import resolve
from dotcu.cli import main
from dotcu.operator.tuned import TunedEntry, TunedFile

OPS = """
from typing import NamedTuple
import torch
from torch import Tensor
import dotcu

class Tile(NamedTuple):
    rows: int

@dotcu.op("cli_tune::{name}")
def {name}(x: Tensor) -> Tensor:
    {name}.configuration(x.numel())
    return x + 1

@{name}.configurations
def _():
    yield Tile(1)
    yield Tile(2)

@{name}.samples
def _(device, dtype):
    yield dotcu.Sample(torch.randn(8, device=device))

@dotcu.op("cli_tune::{name}_plain")
def plain(x: Tensor) -> Tensor:
    return x + 1
"""


_numbers = count()


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["tune", *words])
    return int(caught.value.code or 0)


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    name = f"tuned_by_cli_{next(_numbers)}"
    path = tmp_path / f"{name}.py"
    path.write_text(OPS.format(name=name))
    return path


def write(ops: Path, file: Path, *, digest: str = "") -> None:
    name, op = resolve(f"{ops}:{ops.stem}")[0]
    tunable: Any = op.tunable  # type: ignore[attr-defined]
    entry = TunedEntry(
        gpu="NVIDIA H200", capability="9.0", multiprocessors=132, key=(8,), configuration={"rows": 2},
        median_us=3.25, over_runner_up=1.1, over_default=1.25, digest=digest or tunable.digest,
        date="2026-11-27",
    )  # fmt: skip
    TunedFile().with_entries(f"cli_tune::{name}", [entry]).write(file)


def test_show_is_a_table_against_the_default(ops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(ops), "--show") == 0
    assert capsys.readouterr().out == "nothing is tuned yet\n"
    write(ops, ops.with_suffix(".tuned.toml"))
    assert run(str(ops), "--show") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["runner-up", "default", "date", "remark"]
    assert row.split()[-6:] == ["8", "rows=2", "3.25", "1.100", "1.250", "2026-11-27"]


def test_stale_names_what_no_longer_fits_and_fails(ops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ops.with_suffix(".tuned.toml")
    write(ops, file)
    assert run(str(ops), "--stale") == 0
    assert capsys.readouterr().out == "no entry is stale\n"
    write(ops, file, digest="of an older source")
    assert run(str(ops), "--stale", "--json") == 1
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert "its sources have changed" in entry["left_out"]


def test_merge_adds_the_entries_of_another_file(ops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ops.with_name("h200.toml")
    write(ops, other)
    assert run(str(ops), "--merge", str(other)) == 0
    assert "NVIDIA H200" in capsys.readouterr().out
    assert ops.with_suffix(".tuned.toml").read_text() == other.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--show", "--stale"), "were given together"),
        (("--budget", "-1"), "Invalid value for '--budget': -1 is not a number of seconds above 0."),
        (("--merge", "missing.toml"), "missing.toml cannot be read: No such file"),
        (("--dtypes", "float99"), "has no dtype"),
    ],
)
def test_wrong_usage_exits_with_2(
    ops: Path,
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(str(ops), *words) == 2
    assert said in capsys.readouterr().err


def test_an_operator_without_configurations_is_wrong_usage(
    ops: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{ops}:plain") == 2
    assert "No configurations declared for" in capsys.readouterr().err

"""The lines that run a trial again are lines that do."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import torch

from dotcu.checking.catalogue import Level
from dotcu.checking.checker import by_call, by_command, by_node
from dotcu.checking.subject import Subject
from dotcu.gallery import add, square

TRIAL = "dotcu::square/call/float32-s1"


def under(level: Level = Level.QUICK) -> Subject:
    return Subject(overload=square, device=torch.device("cpu"), level=level, seed=7)


def test_a_call_names_the_operator_as_python_does() -> None:
    assert by_call(square, under(), TRIAL) == (
        'dotcu.check(square, device="simulator", level="quick", seed=7, only="dotcu::square/call/float32-s1")'
    )


@pytest.mark.parametrize("target", ["dotcu.gallery", "dotcu.gallery:square"])
def test_a_command_names_the_one_operator_of_the_target(target: str) -> None:
    line = by_command(target, [("add", add), ("square", square)])(square, under(), TRIAL)
    assert line == (
        "dotcu check dotcu.gallery:square --device simulator --quick --seed 7 "
        "--only dotcu::square/call/float32-s1"
    )


@pytest.mark.parametrize(
    ("level", "words"), [(Level.QUICK, ["--quick"]), (Level.STANDARD, []), (Level.FULL, ["--full"])]
)
def test_a_command_names_its_level_where_that_has_an_option(level: Level, words: list[str]) -> None:
    line = by_command("ops.py", [("square", square)])(square, under(level), TRIAL)
    assert [word for word in line.split() if word in {"--quick", "--standard", "--full"}] == words


def test_a_path_that_a_shell_would_take_apart_is_quoted() -> None:
    line = by_command("my ops.py", [("square", square)])(square, under(), TRIAL)
    assert shlex.split(line)[2] == "my ops.py:square"


@pytest.mark.parametrize(
    ("options", "words"), [({}, []), ({"--dotcu-seed": 3}, ["--dotcu-seed", "3"])], ids=["none", "seed"]
)
def test_a_run_of_pytest_has_the_node_and_the_options(options: dict[str, Any], words: list[str]) -> None:
    node = "tests/test_ops.py::test_ops[dotcu.square.call.float32-s1]"
    line = by_node(node, options)
    assert shlex.split(line) == ["pytest", *words, node]
    assert f"'{node}'" in line

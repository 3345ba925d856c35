"""One tree of errors; bad input is a ValueError or TypeError as well; each knows its exit code."""

from __future__ import annotations

import inspect
import logging
import re

import pytest

from dotcu import errors
from dotcu.simulator.run import Finding

TREE = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.DotcuError)
}


def drawn() -> dict[str, tuple[int, set[str]]]:
    """The tree in the module's docstring: name -> (depth, other bases)."""
    rows = re.findall(
        r"^([ │├└─]+)(\w+)(?:  +[^(\n]*(?:\(also ([^)]*)\))?)?$", errors.__doc__ or "", re.MULTILINE
    )
    return {
        name: (len(indent) // 4, set(filter(None, also.split(", "))))
        for indent, name, also in rows
        if name in TREE
    }


def test_the_drawing_shows_every_error() -> None:
    assert set(drawn()) == set(TREE)


def test_the_drawing_names_the_builtin_bases() -> None:
    for name, (_, also) in drawn().items():
        builtin = {base.__name__ for base in TREE[name].__bases__ if base.__module__ == "builtins"}
        assert also == builtin - {"Exception"}, name


def test_the_drawing_has_each_error_under_its_base() -> None:
    branch: list[str] = []
    for name, (depth, _) in drawn().items():
        branch[depth - 1 :] = [name]
        if depth > 1:
            assert issubclass(TREE[name], TREE[branch[depth - 2]]), name


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CompileError, 1),
        (errors.SimulationError, 1),
        (errors.UsageError, 2),
        (errors.ToolchainError, 3),
        (errors.JitDisabled, 3),
    ],
)
def test_exit_code(error: type[errors.DotcuError], code: int) -> None:
    assert error.exit_code == code


def test_a_kernel_that_is_not_found_shows_its_message_and_not_a_repr_of_it() -> None:
    assert str(errors.KernelNotFound("no kernel 'a'\nnearest: 'b'")) == "no kernel 'a'\nnearest: 'b'"


def test_a_compile_error_keeps_log_and_command() -> None:
    error = errors.CompileError("refused", log="the log", command="nvrtc -x")
    assert (str(error), error.log, error.command, error.diagnostics) == ("refused", "the log", "nvrtc -x", ())


def test_a_finding_error_reads_as_its_finding() -> None:
    finding = Finding(
        kind="race",
        kernel="k",
        file="k.cu",
        line=3,
        block=(0, 0, 0),
        thread=(1, 0, 0),
        lanes=2,
        address_of="tile",
        message="two threads write it",
    )
    error = errors.FindingError(finding)
    assert error.finding is finding
    assert str(error) == str(finding)


HIDING = "lib\x1b]0;owned\x1b\\\x07\x9b2K\u202e.so\r"


def test_no_message_can_write_on_a_terminal_or_turn_its_text_around() -> None:
    shown = r"lib\x1b]0;owned\x1b\\x07\x9b2K\u202e.so\r"
    assert str(errors.UsageError(HIDING)) == shown
    assert str(errors.SourceNotFound(HIDING)) == shown
    assert str(errors.KernelNotFound(HIDING)) == shown


def test_line_ends_tabs_and_letters_of_any_language_stay() -> None:
    text = "µs\tприклад\r\n例 😀"
    assert errors.escaped(text) == text


def test_the_log_escapes_what_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("dotcu").warning("%s is left alone", HIDING)
    assert "\x1b" not in caplog.records[0].getMessage()
    assert r"\x1b]0;owned" in caplog.text

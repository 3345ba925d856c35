"""Errors in a few lines."""

from __future__ import annotations

import logging
import re
import sysconfig

import pytest

from dotcu.errors import ToolchainError
from dotcu.tracebacks import MAX_COLUMNS, MAX_LINES, brief, caller_line, is_user_file, one_line, quiet


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def test_a_long_message_is_cut_in_lines_and_columns() -> None:
    words = brief(raised(ValueError("\n\n".join(["x" * 1000] * 50)))).splitlines()
    assert len(words) == MAX_LINES + 1
    assert words[-1] == "..."
    assert all(len(line) <= MAX_COLUMNS + 3 for line in words)


def test_the_users_line_and_the_kind_come_first() -> None:
    assert "test_brief_errors.py:" in brief(raised(ValueError("seven")))
    assert brief(raised(ValueError("seven"))).endswith("ValueError: seven")


def test_what_it_was_first_raised_from_is_reported_too() -> None:
    words = brief(raised(RuntimeError("traced"), raised(ValueError("between"), ValueError("at first"))))
    assert "RuntimeError: traced" in words
    assert "caused by ValueError: at first" in words
    assert "between" not in words


def test_a_machine_that_lacks_something_is_no_finding() -> None:
    with pytest.raises(ToolchainError):
        brief(raised(RuntimeError("traced"), ToolchainError("no compiler")))


def test_one_line_is_the_first() -> None:
    assert one_line(ValueError("\nfirst\nsecond")) == "first"


def test_frames_of_cpp_are_left_out() -> None:
    words = brief(raised(RuntimeError("no such size\nException raised from make at tensor.cpp:7\nframe #0")))
    assert words.endswith("RuntimeError: no such size")


def test_hints_and_stacks_of_torchs_compiler_are_left_out() -> None:
    hints = "  Explanation: e\n  Hint: h\nCaused by: x\nFor more information"
    text = f"graph break\n{hints}\nUser Stack (most recent)\n  f"
    assert brief(raised(RuntimeError(text))).endswith("RuntimeError: graph break\nCaused by: x")


def test_what_the_users_code_raised_is_reported_though_torch_hides_it() -> None:
    def hidden() -> None:
        try:
            raise IndexError("in their body")
        except IndexError:
            raise TypeError("traced") from None

    with pytest.raises(TypeError) as caught:
        hidden()
    caught.value.__traceback__ = None  # as if torch had raised it
    words = brief(caught.value)
    assert words.splitlines()[0] == "TypeError: traced"
    assert words.splitlines()[1].startswith("caused by ")
    assert words.endswith("IndexError: in their body")


def test_a_console_script_is_not_the_users_code() -> None:
    assert not is_user_file(f"{sysconfig.get_path('scripts')}/dotcu")
    assert is_user_file("/home/me/ops.py")
    assert re.match(r".*test_brief_errors\.py:\d+$", caller_line())


@pytest.mark.parametrize("name", ["torch._dynamo", "torch._subclasses.fake_tensor"])
def test_torch_logs_nothing_in_a_quiet_block_and_as_before_after_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger(name)
    before = logger.level
    with quiet():
        logger.error("a trace of many lines")
    assert not caplog.records
    assert logger.level == before

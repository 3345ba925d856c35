"""Errors of a user's code are told by the user's own lines."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from types import ModuleType

import pytest

from dotcu import settings, tracebacks
from dotcu.errors import ArgumentError, UsageError
from dotcu.tracebacks import as_user_error, describe, shorten, user_traceback


def raised_by(path: Path, text: str) -> BaseException:
    """What running a file raises."""
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), vars(ModuleType(f"theirs{abs(hash(path))}")))
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.fixture(autouse=True)
def _in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def of_theirs(text: str) -> str:
    """The part of a traceback that begins in their file: this test calls it."""
    return text[text.index("ops.py") :]


def test_the_way_to_an_error_is_reported_by_file_line_function_and_code(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "ops.py", "def f(n):\n    return 1 / n\n\nN = f(0)\n")
    assert of_theirs(user_traceback(error)) == (
        "ops.py:4: in <module>\n    N = f(0)\n"
        "ops.py:2: in f\n    return 1 / n\n"
        "ops.py:2: ZeroDivisionError: division by zero"
    )


def test_frames_that_are_not_the_users_are_left_out(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "ops.py", "import json\njson.loads('{')\n")
    assert Path(json.__file__).parent.as_posix() not in user_traceback(error)
    assert of_theirs(user_traceback(error)).splitlines()[:2] == [
        "ops.py:2: in <module>",
        "    json.loads('{')",
    ]


def test_a_line_that_is_no_python_is_shown(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "ops.py", "x = 1\ny = (\n")
    assert (
        of_theirs(user_traceback(error))
        == "ops.py:2:\n    y = (\nops.py:2: SyntaxError: '(' was never closed"
    )


def test_of_a_recursion_the_two_ends_are_shown(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "ops.py", "def f(n):\n    return f(n + 1)\nf(0)\n")
    told = user_traceback(error).splitlines()
    assert len(told) < 20
    assert "    f(0)" in told
    assert any(line.startswith("... ") and line.endswith(" frames ...") for line in told)
    assert told[-1].startswith("ops.py:2: RecursionError")


def test_an_error_in_one_line_names_the_innermost_of_the_users(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "ops.py", "import json\nsize = json.loads('{')\n")
    assert describe(error).startswith("ops.py:2: JSONDecodeError: ")


def test_a_block_that_is_blamed_raises_the_error_asked_for_with_the_way_there(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"(?s)^it cannot be\.*:\n    .*in test_a.*\n.*ZeroDivis.*\nDo so\.$"),
        as_user_error(UsageError, "it cannot be", "Do so."),
    ):
        1 / 0  # noqa: B018


def test_an_error_of_dotcus_passes_as_it_is() -> None:
    with pytest.raises(ArgumentError, match=r"^x$"), as_user_error(UsageError, "it cannot be", "Do so."):
        raise ArgumentError("x")


# ---------------------------------------------------------------- what Python itself shows

OPERATOR = """
import dotcu, torch

kernels = dotcu.load_inline("__global__ void copy(float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }")

@dotcu.op(f"{__name__}::copy")
def copy(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    kernels.copy(x, y, grid=1, block=64)
    return y

@copy.reference
def _(x):
    return x.view(3)

@copy.overload("by")
def copy_by(x: torch.Tensor, by: int) -> torch.Tensor:
    raise ValueError("by is too large")

@copy.samples
def _(device, dtype):
    yield 1 / 0

"""


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("kernels.copy(torch.ones(9), torch.ones(9), grid=1, block=64)", []),
        ("kernels.copy(1, torch.ones(9), grid=1, block=64)", []),
        ("copy(torch.ones(9))", ["return x.view(3)"]),
        ("getattr(torch.ops, __name__).copy(torch.ones(9))", ["return x.view(3)"]),
        ("with dotcu.simulate(): copy(torch.ones(9))", ["kernels.copy(x, y, grid=1, block=64)"]),
        ("copy(torch.ones(9), 1, 2)", []),
        ("copy_by(torch.ones(9), 2)", ['raise ValueError("by is too large")']),
        ('dotcu.load_inline("__global__ void f() { x }").f.compile()', []),
        ("dotcu.check(copy)", []),
        ("dotcu.inspect('no.py')", []),
    ],
)
def test_a_traceback_leads_through_the_users_lines(tmp_path: Path, call: str, lines: list[str]) -> None:
    error = raised_by(tmp_path / "ops.py", OPERATOR + call)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame.line for frame in frames if frame.filename == str(tmp_path / "ops.py")]
    assert theirs == [call, *lines]
    others = [frame for frame in frames[1:] if frame.filename != str(tmp_path / "ops.py")]
    raised_again = [frame for frame in others if str(frame.line).startswith("raise error")]
    assert 1 <= len(raised_again) <= 2
    assert [frame for frame in others if "torch/_ops.py" not in frame.filename] == raised_again
    assert error.__suppress_context__ or error.__context__ is None
    hidden = [
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if "__tracebackhide__" in frame.f_locals
    ]
    assert len(hidden) == len(raised_again), "pytest and IPython leave these out"


def test_with_debugging_on_every_frame_is_there(tmp_path: Path) -> None:
    with settings.override(debug=True):
        error = raised_by(tmp_path / "ops.py", OPERATOR + "kernels.copy(1, torch.ones(9), grid=1, block=64)")
    assert any(frame.name == "pack" for frame in traceback.extract_tb(error.__traceback__))


def test_a_fault_of_dotcu_itself_keeps_its_frames() -> None:
    with pytest.raises(AttributeError) as caught:
        shorten(None)  # type: ignore[arg-type]
    before = traceback.extract_tb(caught.value.__traceback__)
    shorten(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__) == before
    assert before[-1].filename == tracebacks.__file__

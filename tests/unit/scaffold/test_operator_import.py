"""One line goes into an `__init__.py`, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.errors import UsageError
from dotcu.scaffold import with_import

INIT = Path("__init__.py")
LINE = "from mylib.clip import clip as clip\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", LINE),
        ('"""Doc."""\n', f'"""Doc."""\n{LINE}'),
        ('"""Doc."""', f'"""Doc."""\n{LINE}'),
        ("from mylib.ops import a as a\n", f"{LINE}from mylib.ops import a as a\n"),
        ("from mylib.a import a  # why\n", f"from mylib.a import a  # why\n{LINE}"),
        ("from .ops import a\n\nx = 1\n", f"from .ops import a\n{LINE}\nx = 1\n"),
        ("import math\n\nx = 1\n", f"import math\n{LINE}\nx = 1\n"),
        ("from mylib.a import (\n    a,\n)\n", f"from mylib.a import (\n    a,\n)\n{LINE}"),
        ("# only a comment", f"{LINE}# only a comment"),
        (
            "from __future__ import annotations\n\nfrom mylib.ops import a\n",
            f"from __future__ import annotations\n\n{LINE}from mylib.ops import a\n",
        ),
        ("from mylib.a import a\r\n", "from mylib.a import a\r\n" + LINE.replace("\n", "\r\n")),
    ],
)
def test_where_the_line_goes(before: str, after: str) -> None:
    assert with_import(before, INIT, "mylib", "clip") == after


def test_a_line_that_would_be_too_long_is_broken() -> None:
    name = "a_name_that_is_as_long_as_names_can_be"
    after = with_import("", INIT, "mylib", name)
    assert after == f"from mylib.{name} import (\n    {name} as {name},\n)\n"


def test_a_second_statement_on_the_last_line_stays() -> None:
    assert with_import("x = 1; import os\n", INIT, "mylib", "clip") == f"x = 1; import os\n{LINE}"


def test_a_line_that_another_statement_shares_is_refused() -> None:
    before = "x = '''\n'''; from mylib.ops import a\n"
    with pytest.raises(UsageError, match=LINE.strip()):
        with_import(before, INIT, "mylib", "clip")

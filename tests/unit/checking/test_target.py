"""TARGET: which operators a file or module has, and what is said where it has none or is not importable."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from dotcu import errors
from dotcu.checking.target import function, resolve

OPS = """
import torch
import dotcu
from torch import Tensor

@dotcu.op("check_target::one")
def one(a: Tensor) -> Tensor:
    return a + 1

@dotcu.op("check_target::two")
def two(a: Tensor) -> Tensor:
    return a + 2
"""


_numbers = itertools.count()


class TestTarget:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "my_ops.py"
        path.write_text(OPS.replace("check_target", f"check_target_{next(_numbers)}"))
        return path

    def test_a_file_gives_its_operators_in_order(self, file: Path) -> None:
        assert [name for name, _ in resolve(str(file))] == ["one", "two"]

    def test_a_name_picks_one(self, file: Path) -> None:
        assert [name for name, _ in resolve(f"{file}:two")] == ["two"]

    def test_an_unknown_name_is_answered_with_the_nearest(self, file: Path) -> None:
        with pytest.raises(
            errors.UsageError, match=r"no operator .twoo.; it has one, two\.\n.*my_ops\.py:two"
        ):
            resolve(f"{file}:twoo")

    def test_a_missing_file_is_answered_with_the_nearest(self, file: Path) -> None:
        with pytest.raises(errors.UsageError, match=r"Did you mean .*my_ops\.py"):
            resolve(str(file.with_name("my_op.py")))
        with pytest.raises(errors.UsageError, match=rf"ls {file.parent}$"):
            resolve(str(file.with_name("another.py")))

    def test_a_module_is_found(self) -> None:
        assert "add" in [name for name, _ in resolve("dotcu.gallery")]

    def test_an_unknown_module_is_named(self) -> None:
        with pytest.raises(errors.UsageError, match=r"'no\.such\.module'"):
            resolve("no.such.module")

    @pytest.mark.parametrize(
        ("text", "line", "said"),
        [
            ("x = 1\ny = (\n", 2, "SyntaxError"),
            ("x = 1\n1 / 0\n", 2, "ZeroDivisionError: division by zero"),
            ("\n\nimport no_such_module_here\n", 3, "ModuleNotFoundError: No module named 'no_such_mod"),
            ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
            ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
        ],
    )
    def test_a_file_that_cannot_be_imported_is_named_with_its_line(
        self, tmp_path: Path, text: str, line: int, said: str
    ) -> None:
        before = set(sys.modules)
        (tmp_path / "broken_ops.py").write_text(text)
        with pytest.raises(errors.UsageError, match=rf"broken_ops\.py:{line}: {said}"):
            resolve(str(tmp_path / "broken_ops.py"))
        assert not [name for name in set(sys.modules) - before if "broken_ops" in name]

    @pytest.mark.parametrize("target", ["broken_package.ops", "broken_package"])
    def test_a_module_that_cannot_be_imported_is_named_with_its_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
    ) -> None:
        (tmp_path / "broken_package").mkdir()
        (tmp_path / "broken_package" / "__init__.py").write_text("\nimport no_such_module_here\n")
        (tmp_path / "broken_package" / "ops.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(errors.UsageError, match=r"__init__\.py:2: ModuleNotFoundError"):
            resolve(target)

    def test_a_file_named_like_another_module_is_the_one_that_is_loaded(self, tmp_path: Path) -> None:
        (tmp_path / "json.py").write_text(OPS.replace("check_target", "check_target_json"))
        ((_, one), _) = resolve(str(tmp_path / "json.py"))
        assert sys.modules["json"] is json
        assert sys.modules[one.__module__].one is one

    def test_a_file_imports_those_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "beside_my_ops.py").write_text(OPS.replace("check_target", "check_target_beside"))
        (tmp_path / "front.py").write_text("from beside_my_ops import one\n")
        path = list(sys.path)
        assert [name for name, _ in resolve(str(tmp_path / "front.py"))] == ["one"]
        assert sys.path == path

    def test_a_file_of_kernels_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "k.cu").write_text("")
        with pytest.raises(errors.UsageError, match="not a Python file"):
            resolve(str(tmp_path / "k.cu"))

    def test_what_is_there_and_no_file_is_not_said_to_be_missing(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "my ops.py")
        with pytest.raises(errors.UsageError, match=r"is not a regular file.\n.*ls -ld '.*/my ops.py'"):
            resolve(str(tmp_path / "my ops.py"))


class TestFunction:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "my_baselines.py"
        path.write_text("loads = []\nloads.append(1)\n\ndef fast(a):\n    return a + len(loads)\n")
        return path

    def test_a_function_of_a_file_is_found_and_the_file_is_loaded_once(self, file: Path) -> None:
        first, again = function(f"{file}:fast"), function(f"{file}:fast")
        assert first(1) == 2
        assert first is again

    def test_a_function_of_a_module_is_found(self) -> None:
        assert function("math:sqrt")(9) == 3

    def test_an_unknown_function_is_answered_with_the_nearest(self, file: Path) -> None:
        with pytest.raises(errors.UsageError, match=r"no function 'fats'.*\n.*Did you mean .*:fast"):
            function(f"{file}:fats")
        with pytest.raises(errors.UsageError, match="there is no file"):
            function(f"{file.with_name('gone.py')}:fast")

"""Where another process finds an operator: the target is given only where it leads back to it."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import gallery
from dotcu.checking.target import resolve, target_of

FILE = """
import torch
from torch import Tensor
import dotcu

for op in ("before",):
    pass

@dotcu.op("origin_test::{name}")
def double(x: Tensor) -> Tensor:
    return torch.add(x, x)

@double.overload("out", mutates_args=("out",))
def _(x: Tensor, *, out: Tensor) -> None:
    out.copy_(x)

again = double
for op in (double,):
    pass
"""


def test_an_operator_of_a_package_is_found_by_its_module() -> None:
    assert target_of(gallery.add) == "dotcu.gallery.add.op:add"
    for overload in gallery.add.overloads.values():
        assert target_of(overload) == "dotcu.gallery.add.op:add"


def test_the_target_of_an_operator_leads_to_it() -> None:
    target = target_of(gallery.square)
    assert target is not None
    ((_, found),) = resolve(target)
    assert found is gallery.square


def test_an_operator_of_a_file_is_found_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(FILE.format(name="of_a_file"))
    ((name, operator),) = resolve(str(path))
    assert name == "double"
    assert target_of(operator) == f"{path}:{name}"
    assert target_of(operator.overloads["out"]) == f"{path}:{name}"


def test_an_operator_of_a_module_on_the_path_is_found_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "__init__.py").write_text("")
    (tmp_path / "package_of_mine" / "ops.py").write_text(FILE.format(name="of_a_module"))
    monkeypatch.syspath_prepend(str(tmp_path))
    ((_, operator),) = resolve("package_of_mine.ops")
    assert target_of(operator) == "package_of_mine.ops:double"
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert target_of(operator) is None, "imported already, but no other process could"


def test_an_operator_made_in_a_function_is_found_nowhere() -> None:
    @dotcu.op("origin_test::local")
    def local(x: Tensor) -> Tensor:
        return torch.add(x, x)

    assert target_of(local) is None


def test_an_operator_of_the_program_itself_is_found_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    @dotcu.op("origin_test::main")
    def main(x: Tensor) -> Tensor:
        return torch.add(x, x)

    module = types.ModuleType("__main__")
    module.__file__ = __file__
    module.main = main  # type: ignore[attr-defined]
    main.__module__ = "__main__"
    monkeypatch.setitem(sys.modules, "__main__", module)
    assert target_of(main) is None

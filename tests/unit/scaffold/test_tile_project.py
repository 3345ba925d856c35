"""A project with a tile kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import dotcu
from dotcu.checking.target import resolve
from dotcu.errors import UsageError
from dotcu.scaffold import add, create, plan_operator, plan_project


@pytest.mark.slow
def test_its_operator_holds_in_the_simulator(tmp_path: Path) -> None:
    create(plan_project(tmp_path / "tilelib", tile=True))
    assert "__tile_global__" in (tmp_path / "tilelib/src/tilelib/scale_add.cu").read_text()
    ((_, operator),) = resolve(str(tmp_path / "tilelib/src/tilelib/ops.py"), verb="check")
    report = dotcu.check(operator, level="quick", only="tilelib::scale_add/call")
    assert report.passed, str(report)


def test_its_workflow_and_container_bring_the_compiler(tmp_path: Path) -> None:
    files = plan_project(tmp_path / "tilelib", tile=True).files
    assert 'pip install --group dev "dotcu[tile]"' in files[".github/workflows/test.yml"]
    assert '"dotcu[tile]"' in files["Containerfile"]
    assert "dotcu doctor" in files["README.md"]


def test_another_operator_can_be_one_too(tmp_path: Path) -> None:
    create(plan_project(tmp_path / "tilelib"))
    add(plan_operator("halve", tmp_path / "tilelib", tile=True))
    assert "__tile_global__ void halve(" in (tmp_path / "tilelib/src/tilelib/halve.cu").read_text()


def test_launchers_in_cpp_have_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="do not go together"):
        plan_project(tmp_path / "tilelib", tile=True, cpp=True)
    create(plan_project(tmp_path / "cpplib", cpp=True))
    with pytest.raises(UsageError, match="launches no tile kernels"):
        plan_operator("halve", tmp_path / "cpplib", tile=True)

"""A target that is loaded again is what its files say now, and nothing of what they said before."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.errors import DotcuError, UsageError
from dotcu.watching.worker import Loader

OPS = """
import torch
from torch import Tensor
import dotcu
import {helper}

kernels = dotcu.load("scale.cu")


@dotcu.op("{namespace}::scale")
def scale(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    kernels.scale(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


scale.reference(lambda x: x * {helper}.FACTOR)
"""
KERNEL = """
#include "factor.cuh"
__global__ void scale(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = FACTOR * x[i];
}
"""
_numbers = itertools.count()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    number = next(_numbers)
    names = {"helper": f"helper_of_watch_{number}", "namespace": f"watch_loading_{number}"}
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / f"ops_{number}.py").write_text(OPS.format(**names))
    (tmp_path / f"{names['helper']}.py").write_text("FACTOR = 2.0")
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "headers").mkdir()
    (tmp_path / "factor.cuh").write_text('#include "headers/more.cuh"')
    (tmp_path / "headers" / "more.cuh").write_text("#define FACTOR 2.0f")
    return tmp_path


def ops_of(folder: Path) -> Path:
    (found,) = folder.glob("ops_*.py")
    return found


def value(operator: dotcu.op) -> float:  # type: ignore[valid-type]
    with dotcu.simulate():
        return float(operator(torch.ones(1)))  # type: ignore[operator]


def test_kernels_headers_and_helpers_are_those_of_now(folder: Path) -> None:
    loader = Loader(str(ops_of(folder)))
    ((_, first),) = loader.load()
    assert value(first) == 2
    (folder / "headers" / "more.cuh").write_text("#define FACTOR 3.0f")
    next(folder.glob("helper_*.py")).write_text("FACTOR = 3.0")
    ((_, second),) = loader.load()
    assert value(second) == 3
    assert second(torch.ones(1)).item() == 3


def test_every_folder_that_was_read_from_is_named(folder: Path) -> None:
    loader = Loader(str(ops_of(folder)))
    loader.load()
    assert loader.folders() == [str(folder), str(folder / "headers")]


def test_folders_are_named_in_which_a_save_may_bring_what_is_missing(folder: Path) -> None:
    path, loader = ops_of(folder), Loader(str(ops_of(folder)))
    right = path.read_text()
    broken = folder / "broken_package"
    for wrong, wanted in (
        ("import dotcu\ndotcu.load('kernels/none.cu')", folder / "kernels"),
        ("import package_to_come.helper", folder / "package_to_come"),
        ("import broken_package", broken),
    ):
        path.write_text(wrong)
        broken.mkdir(exist_ok=True)
        (broken / "__init__.py").write_text("x = (")
        with pytest.raises(DotcuError) as raised:
            loader.load()
        assert str(wanted) in loader.folders(raised.value), wrong
    path.write_text(right)
    (folder / "factor.cuh").write_text('#include "to/come.cuh"')
    loader.load()
    assert str(folder / "to") in loader.folders()


def test_a_function_may_get_another_name(folder: Path) -> None:
    path = ops_of(folder)
    loader = Loader(str(path))
    loader.load()
    path.write_text(
        path.read_text().replace("def scale(", "def doubled(").replace("scale.ref", "doubled.ref")
    )
    assert [name for name, _ in loader.load()] == ["doubled"]


def test_an_operator_that_is_gone_is_gone_from_torch(folder: Path) -> None:
    path = ops_of(folder)
    loader = Loader(str(path))
    ((_, operator),) = loader.load()
    namespace = operator.signature.namespace
    path.write_text("")
    with pytest.raises(UsageError, match="defines no operator"):
        loader.load()
    assert not hasattr(getattr(torch.ops, namespace), "scale")


def test_a_name_that_the_target_lost_is_answered_with_those_it_has(folder: Path) -> None:
    path = ops_of(folder)
    with pytest.raises(UsageError, match=rf"dotcu watch {path}:scale"):
        Loader(f"{path}:scalee").load()


def test_modules_of_an_older_version_are_not_the_target_s(folder: Path) -> None:
    loader = Loader(str(ops_of(folder)))
    loader.load()
    before = loader.modules()
    loader.load()
    assert len(loader.modules()) == len(before) == 1
    assert loader.modules() != before


def test_a_header_that_is_reached_beside_host_code_is_watched(folder: Path) -> None:
    (folder / "scale.cu").write_text(f"#include <vector>\n{KERNEL}\nint main() {{ std::vector<int> v; }}\n")
    loader = Loader(str(ops_of(folder)))
    ((_, operator),) = loader.load()
    assert torch.equal(operator(torch.ones(4)), torch.full((4,), 2.0))
    assert str(folder / "headers") in loader.folders()

"""A wheel that `dotcu build` made: its code is in packs, and told as any other."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import shipped
from dotcu.inspection.binaries.reading import read


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("brought")
    made = shipped.make(folder / "project", architectures=("8.0", "9.0"))
    shipped.lock(made)
    return shipped.install(made, folder / "site")


def zipped(package: Path, to: Path) -> Path:
    with zipfile.ZipFile(to, "w") as wheel:
        for file in sorted(package.rglob("*")):
            wheel.write(file, file.relative_to(package.parent))
    return to


def test_machine_code_and_ptx_are_told_with_their_kernels(package: Path, tmp_path: Path) -> None:
    report = read(zipped(package, tmp_path / "mylib-0.1-py3-none-any.whl"))
    assert [architecture.arch for architecture in report.architectures] == ["sm_80", "sm_90"]
    assert report.architectures[0].ptx == 1
    by_name = {Path(member.path).name: member for member in report.members}
    cubin = by_name["scale<float>.sm_90.cubin"]
    assert cubin.kind == "cubin"
    assert [kernel.name for kernel in cubin.kernels["sm_90"]] == [
        "void scale<float>(float const*, float*, float, long long)"
    ]
    assert by_name["scale<float>.compute_80.ptx"].kind == "ptx"


def test_a_manifest_that_was_changed_is_told_beside_the_rest(package: Path, tmp_path: Path) -> None:
    wheel = zipped(package, tmp_path / "mylib-0.1-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("other/__dotcu__/manifest.json", "[]")
    report = read(wheel)
    assert any("other/__dotcu__/manifest.json" in told for told in report.damaged)
    assert report.members

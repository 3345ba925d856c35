"""What this machine has, and what is said of it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.compile import Rejected, Target, driver, toolchain, torch_build
from dotcu.compile.nvrtc import load
from dotcu.compile.torch_build import TorchBuild
from dotcu.errors import ToolchainError, UnsupportedPlatform


@pytest.fixture(autouse=True)
def _asked_anew() -> object:
    toolchain._nvrtc.cache_clear()
    toolchain._found.cache_clear()
    yield
    toolchain._nvrtc.cache_clear()
    toolchain._found.cache_clear()


def test_the_compiler_that_is_used_is_there() -> None:
    used = toolchain.nvrtc()
    assert used.path.is_file()
    assert toolchain.nvrtc() is used


def test_on_a_platform_without_a_compiler_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UnsupportedPlatform, match="Darwin on arm64"):
        toolchain.nvrtc()
    assert next(row.fits for row in toolchain.report() if row.name in ("platform", "NVRTC")) is False


def test_a_rocm_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "find", lambda: TorchBuild(version="2.13", cuda=None, hip="6.4"))
    with pytest.raises(UnsupportedPlatform, match=r"ROCm 6\.4"):
        toolchain.nvrtc()


def test_where_no_compiler_fits_the_error_has_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "version", lambda: (11, 8))
    with pytest.raises(ToolchainError, match=r"(?s)the driver of CUDA 11\.8.*pip install"):
        toolchain.nvrtc()
    (row, *_) = [row for row in toolchain.report() if row.name == "NVRTC"]
    assert not row.fits
    assert "pip install" in row.remedy


def test_the_override_is_taken_as_it_is(tmp_path: Path) -> None:
    used = toolchain.nvrtc()
    with settings.override(nvrtc=used.path):
        assert toolchain.nvrtc().origin == "DOTCU_NVRTC"
        assert toolchain.nvrtc().include == used.include
    with (
        settings.override(nvrtc=tmp_path / "none.so"),
        pytest.raises(ToolchainError, match=r"none\.so names no file.*\n.*unset DOTCU_NVRTC"),
    ):
        toolchain.nvrtc()


def test_a_library_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_text("no library")
    with pytest.raises(ToolchainError, match=r"libnvrtc\.so\.13 cannot be loaded"):
        load(tmp_path / "libnvrtc.so.13")


def test_the_target_of_a_gpu_is_planned_with_the_drivers_version(monkeypatch: pytest.MonkeyPatch) -> None:
    used = toolchain.nvrtc()
    monkeypatch.setattr(driver, "version", lambda: used.version)
    assert toolchain.native_target((9, 0)) == Target.parse("sm_90a")
    monkeypatch.setattr(driver, "version", lambda: None)
    assert isinstance(toolchain.native_target((9, 0)), Rejected)


def test_the_report_has_a_row_for_each_thing_and_raises_nothing() -> None:
    names = [row.name for row in toolchain.report()]
    assert names[:2] == ["platform", "driver"]
    assert {"torch", "NVRTC", "toolkit headers", "CCCL headers", *toolchain.TOOLS} <= set(names)
    for row in toolchain.report():
        assert row.fits or (row.note and (row.remedy or row.name == "NVRTC"))


def test_gpus_are_reported_with_their_target(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (
        driver.Gpu(index=0, name="NVIDIA H200", capability=(9, 0)),
        driver.Gpu(index=1, name="K80", capability=(3, 7)),
    )
    used = toolchain.nvrtc()
    monkeypatch.setattr(driver, "version", lambda: used.version)
    monkeypatch.setattr(driver, "gpus", lambda: gpus)
    good, bad = (row for row in toolchain.report() if row.name.startswith("GPU"))
    assert (good.fits, good.note) == (True, "NVIDIA H200: code for sm_90a")
    assert (bad.fits, "3.7" in bad.note) == (False, True)


def test_torchs_build_is_read_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('was imported')")
    (tmp_path / "torch" / "version.py").write_text(
        "__version__ = '2.11.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    )
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert torch_build.find() == TorchBuild(version="2.11.0+cu128", cuda=(12, 8), hip="")


def test_builds_for_rocm_and_for_the_cpu_are_told() -> None:
    assert torch_build.parse("__version__ = '2.13.0+rocm'\ncuda = None\nhip = '6.4.1'\n").hip == "6.4.1"
    assert torch_build.parse("__version__ = '2.13.0+cpu'\ncuda = None\n").cuda is None


@pytest.mark.parametrize("folder", ["bin", "compute-sanitizer"])
def test_a_tool_of_pips_is_found_in_the_folder_that_its_package_has(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia" / "cu13" / folder / "compute-sanitizer"
    tool.parent.mkdir(parents=True)
    tool.write_text("")
    tool.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert toolchain.find_tool("compute-sanitizer") == tool

"""The NVRTCs of a machine and the choice among them, torch, the driver, and the report of all."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.compile import Rejected, Target, driver, toolchain, toolchain_report
from dotcu.compile.nvrtc import architectures
from dotcu.compile.toolchain import (
    ARCHITECTURES,
    Compiler,
    TorchBuild,
    _choose_compiler,
    compiler_at,
    find_compilers,
    nvrtc,
    requirement,
)
from dotcu.errors import ToolchainError, UnsupportedPlatform


def compiler(major: int, minor: int, origin: str = "pip") -> Compiler:
    path = Path(f"/{origin}/libnvrtc.so.{major}.{minor}")
    return Compiler(path=path, version=(major, minor), include=(), origin=origin)


C126, C128, C130, C131 = compiler(12, 6), compiler(12, 8), compiler(13, 0), compiler(13, 1)


@pytest.mark.parametrize(
    ("found", "torch_cuda", "driver", "chosen"),
    [
        ([C128, C130], None, None, C130),  # CPU torch, no driver: the newest
        ([C128, C130], None, (12, 8), C128),  # the driver loads no code of CUDA 13
        ([C128, C130, C131], (13, 0), (13, 2), C130),  # no newer than torch's CUDA
        ([C126, C128, C130], (12, 8), (13, 0), C128),  # an older torch on a newer driver
        ([C130], (13, 0), (13, 0), C130),
        ([C131], (13, 1), (13, 0), C131),  # a driver older in its minor loads cubins
        ([C126, C128], (13, 0), (12, 9), C128),
    ],
)
def test_the_newest_that_fits_driver_and_torch_is_taken(
    found: list[Compiler],
    torch_cuda: tuple[int, int] | None,
    driver: tuple[int, int] | None,
    chosen: Compiler,
) -> None:
    assert _choose_compiler(found, torch_cuda, driver) is chosen
    assert _choose_compiler(found[::-1], torch_cuda, driver) is chosen


def test_of_two_of_one_version_the_first_found_is_taken() -> None:
    pip, toolkit = compiler(13, 0), compiler(13, 0, "CUDA_HOME")
    assert _choose_compiler([pip, toolkit], None, None) is pip


@pytest.mark.parametrize(
    ("found", "torch_cuda", "driver", "reason", "remedy"),
    [
        ([], None, None, "No CUDA compiler", 'pip install "dotcu[cu13]"'),
        ([], None, (12, 4), "No CUDA compiler", 'pip install "dotcu[cu12]"'),
        ([C130], None, (12, 8), "the driver of CUDA 12.8", 'pip install "dotcu[cu12]"'),
        ([C130], (12, 8), (13, 0), "newer than torch's CUDA 12.8", '"nvidia-cuda-nvrtc-cu12==12.8.*"'),
        ([C131], (13, 0), None, "newer than torch's CUDA 13.0", '"nvidia-cuda-nvrtc==13.0.*"'),
        ([compiler(0, 0)], None, None, "lacks its libnvrtc-builtins", "pip install"),
    ],
)
def test_where_none_fits_each_is_refused_with_its_reason(
    found: list[Compiler],
    torch_cuda: tuple[int, int] | None,
    driver: tuple[int, int] | None,
    reason: str,
    remedy: str,
) -> None:
    refused = _choose_compiler(found, torch_cuda, driver)
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    assert remedy in refused.remedy


def test_pips_name_of_a_compiler_lost_its_suffix_with_cuda_13() -> None:
    assert requirement((12, 8)) == '"nvidia-cuda-nvrtc-cu12==12.8.*"'
    assert requirement((13, 0)) == '"nvidia-cuda-nvrtc==13.0.*"'


def lay(folder: Path, version: str, text: str = "library") -> Path:
    folder.mkdir(parents=True)
    (folder / f"libnvrtc-builtins.so.{version}").write_text("builtins")
    library = folder / f"libnvrtc.so.{version.split('.')[0]}"
    library.write_text(text)
    (folder / library.name.replace("libnvrtc", "libnvrtc.alt")).write_text("another build of it")
    return library


def test_each_layout_is_found_with_its_version_and_headers(tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    lay(site / "nvidia/cu13/lib", "13.0")
    (site / "nvidia/cu13/include/cccl").mkdir(parents=True)
    lay(site / "nvidia/cuda_nvrtc/lib", "12.8")
    (site / "nvidia/cuda_runtime/include").mkdir(parents=True)
    (site / "nvidia/curand/include").mkdir(parents=True)
    library = lay(home / "lib64", "12.4")
    (home / "lib64/libnvrtc.so.12.4.1").symlink_to(library)  # the same library by another name
    (home / "include").mkdir()
    found = find_compilers([site, site, tmp_path / "empty"], [("CUDA_HOME", home)])
    include = site / "nvidia/cu13/include"
    assert [(c.version, c.origin, c.include) for c in found] == [
        ((13, 0), "pip", (include, include / "cccl")),
        ((12, 8), "pip", (site / "nvidia/cuda_runtime/include", site / "nvidia/curand/include")),
        ((12, 4), "CUDA_HOME", (home / "include",)),
    ]
    assert compiler_at(found[1].path, ()).include == found[1].include
    assert compiler_at(home / "lib64/libnvrtc.so.12", ()).include == (home / "include",)


def test_an_explicit_library_takes_the_headers_of_one_of_its_version(tmp_path: Path) -> None:
    library = lay(tmp_path / "somewhere", "13.0")
    other = Compiler(path=Path("/x"), version=(13, 0), include=(tmp_path,), origin="pip")
    assert compiler_at(library, [C128, other]).include == (tmp_path,)
    assert compiler_at(library, [C128]).include == ()


def test_a_compilers_identity_is_of_its_bytes_and_not_of_its_path(tmp_path: Path) -> None:
    lay(tmp_path / "a", "13.0")
    lay(tmp_path / "b", "13.0")
    lay(tmp_path / "c", "13.0", "librarY")
    a, b, c = (compiler_at(tmp_path / name / "libnvrtc.so.13", ()).identity for name in "abc")
    assert a == b
    assert a != c
    (tmp_path / "b" / "libnvrtc-builtins.so.13.0").write_text("patched!")
    assert compiler_at(tmp_path / "b" / "libnvrtc.so.13", ()).identity != a


def test_the_headers_identity_is_of_their_names_and_sizes(tmp_path: Path) -> None:
    def identity(name: str) -> str:
        return replace(C130, include=(tmp_path / name,)).headers_identity

    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "cuda_fp16.h").write_text("text")
    assert identity("a") == identity("b")
    (tmp_path / "b" / "cuda_fp16.h").write_text("longer text")
    assert identity("a") != identity("b")


def test_the_table_of_architectures_is_what_the_compiler_says() -> None:
    used = nvrtc()
    asked = architectures(used.path)
    assert ARCHITECTURES.get(used.version, asked) == asked


@pytest.mark.parametrize(
    ("system", "machine", "remedy"),
    [
        ("Darwin", "arm64", "docker run"),
        ("Windows", "ARM64", "wsl --install"),
        ("Windows", "AMD64", "wsl --install"),
        ("Linux", "ppc64le", "docker run"),
        ("FreeBSD", "amd64", "docker run"),
    ],
)
def test_a_platform_without_a_compiler_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, remedy: str
) -> None:
    refused = _platform_refusal(monkeypatch, system, machine)
    assert refused is not None
    assert f"{system} on {machine}" in refused.reason
    assert remedy in refused.remedy


def test_a_rocm_torch_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = _platform_refusal(monkeypatch, "Linux", "x86_64", "6.4.2")
    assert refused is not None
    assert "ROCm 6.4.2" in refused.reason
    assert _platform_refusal(monkeypatch, "Linux", "x86_64") is None
    assert _platform_refusal(monkeypatch, "Linux", "aarch64") is None


def _platform_refusal(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, hip: str = ""
) -> Rejected | None:
    monkeypatch.setattr(toolchain.platform, "system", lambda: system)
    monkeypatch.setattr(toolchain.platform, "machine", lambda: machine)
    monkeypatch.setattr(toolchain, "find_torch", lambda: TorchBuild(version="2.9", cuda=None, hip=hip))
    return toolchain.refuse_platform()


def _install(folder: Path, *, compiler: bool = True, cccl: bool = True, libraries: str = "lib") -> None:
    """A toolkit as pip (`lib`) or an installer (`lib64`) lays it out, by empty files."""
    files = ["include/cuda_runtime_api.h"] if compiler else []
    if compiler:
        files += [f"{libraries}/libnvrtc.so.13", f"{libraries}/libnvrtc-builtins.so.13.0"]
    if cccl:
        files += ["include/cccl/cuda/std/__cccl/version.h"]
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


def test_headers_of_another_site_packages_folder_are_taken(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _install(first / "nvidia" / "cu13", cccl=False)
    _install(second / "nvidia" / "cu13", compiler=False)
    (found,) = find_compilers([first, second], [])
    assert found.include == (
        first / "nvidia" / "cu13" / "include",
        second / "nvidia" / "cu13" / "include",
        second / "nvidia" / "cu13" / "include" / "cccl",
    )


def test_cccl_is_borrowed_from_a_toolkit_of_the_same_version(tmp_path: Path) -> None:
    _install(tmp_path / "nvidia" / "cu13", cccl=False)
    _install(tmp_path / "toolkit", libraries="lib64")
    pip, toolkit = find_compilers([tmp_path], [("CUDA_HOME", tmp_path / "toolkit")])
    assert pip.include == (
        tmp_path / "nvidia" / "cu13" / "include",
        tmp_path / "toolkit" / "include" / "cccl",
    )
    assert toolkit.include[-1] == tmp_path / "toolkit" / "include" / "cccl"


@pytest.fixture(autouse=True)
def _asked_anew() -> object:
    toolchain._nvrtc.cache_clear()
    toolchain._compilers.cache_clear()
    yield
    toolchain._nvrtc.cache_clear()
    toolchain._compilers.cache_clear()


def test_the_compiler_that_is_used_is_there() -> None:
    used = toolchain.nvrtc()
    assert used.path.is_file()
    assert toolchain.nvrtc() is used


def test_on_a_platform_without_a_compiler_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UnsupportedPlatform, match="Darwin on arm64"):
        toolchain.nvrtc()
    assert next(row.fits for row in toolchain_report.report() if row.name in ("platform", "NVRTC")) is False


def test_a_rocm_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_torch", lambda: TorchBuild(version="2.13", cuda=None, hip="6.4"))
    with pytest.raises(UnsupportedPlatform, match=r"ROCm 6\.4"):
        toolchain.nvrtc()


def test_where_no_compiler_fits_the_error_has_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "version", lambda: (11, 8))
    with pytest.raises(ToolchainError, match=r"(?s)the driver of CUDA 11\.8.*pip install"):
        toolchain.nvrtc()
    (row, *_) = [row for row in toolchain_report.report() if row.name == "NVRTC"]
    assert not row.fits
    assert "pip install" in row.remedy


def test_the_override_is_taken_as_it_is(tmp_path: Path) -> None:
    used = toolchain.nvrtc()
    with settings.override(nvrtc=used.path):
        assert toolchain.nvrtc().origin == "DOTCU_NVRTC"
        assert toolchain.nvrtc().include == used.include
    with (
        settings.override(nvrtc=tmp_path / "none.so"),
        pytest.raises(ToolchainError, match=r"none\.so is not a file.*\n.*unset DOTCU_NVRTC"),
    ):
        toolchain.nvrtc()


def test_a_library_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_text("no library")
    with pytest.raises(ToolchainError, match=r"libnvrtc\.so\.13 cannot be loaded"):
        architectures(tmp_path / "libnvrtc.so.13")


def test_the_target_of_a_gpu_is_planned_with_the_drivers_version(monkeypatch: pytest.MonkeyPatch) -> None:
    used = toolchain.nvrtc()
    monkeypatch.setattr(driver, "version", lambda: used.version)
    assert toolchain.target_of_gpu((9, 0)) == Target.parse("sm_90a")
    monkeypatch.setattr(driver, "version", lambda: None)
    assert isinstance(toolchain.target_of_gpu((9, 0)), Rejected)


def test_the_report_has_a_row_for_each_thing_and_raises_nothing() -> None:
    names = [row.name for row in toolchain_report.report()]
    assert names[:2] == ["platform", "driver"]
    assert {"torch", "NVRTC", "toolkit headers", "CCCL headers", *toolchain.TOOLS} <= set(names)
    for row in toolchain_report.report():
        assert row.fits or (row.note and (row.remedy or row.name == "NVRTC"))


def test_gpus_are_reported_with_their_target(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (
        driver.Gpu(index=0, name="NVIDIA H200", capability=(9, 0)),
        driver.Gpu(index=1, name="K80", capability=(3, 7)),
    )
    used = toolchain.nvrtc()
    monkeypatch.setattr(driver, "version", lambda: used.version)
    monkeypatch.setattr(driver, "gpus", lambda: gpus)
    good, bad = (row for row in toolchain_report.report() if row.name.startswith("GPU"))
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
    assert toolchain.find_torch() == TorchBuild(version="2.11.0+cu128", cuda=(12, 8), hip="")


def test_builds_for_rocm_and_for_the_cpu_are_reported() -> None:
    assert (
        toolchain.parse_torch_version("__version__ = '2.13.0+rocm'\ncuda = None\nhip = '6.4.1'\n").hip
        == "6.4.1"
    )
    assert toolchain.parse_torch_version("__version__ = '2.13.0+cpu'\ncuda = None\n").cuda is None


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

"""The host compiler and nvcc are found, told apart, and refused with the line to type."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.cpp import tools
from dotcu.errors import ToolchainError
from helpers.cpp_projects import write_fake

NVCC = """#!/bin/sh
case "$*" in
    *--version*) echo "Cuda compilation tools, release {version}, V{version}.88";;
    *--dryrun*) echo "#$ TOP={top}" >&2;;
esac
"""


def toolkit(folder: Path, version: str = "13.0", *, whole: bool = True) -> Path:
    """A folder with an nvcc that tells a version and compiles nothing."""
    for name in ("bin", "nvvm/bin", "lib64"):
        (folder / name).mkdir(parents=True)
    path = folder / "bin" / "nvcc"
    path.write_text(NVCC.format(version=version, top=folder))
    path.chmod(0o755)
    (folder / "lib64" / "libcudart.so.13").touch()
    if whole:
        (folder / "nvvm" / "bin" / "cicc").touch()
    return folder


@pytest.fixture(autouse=True)
def _nothing_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'empty'}{os.pathsep}/bin-of-nothing")
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    tools._host.cache_clear()


def test_no_host_compiler_is_an_error_with_the_line_to_type() -> None:
    with settings.override(cxx=None), pytest.raises(ToolchainError, match=r"apt install g\+\+"):
        tools.host()


def test_cxx_names_the_compiler_with_its_words(tmp_path: Path) -> None:
    fake = write_fake(tmp_path / "tools")
    with settings.override(cxx=f"{fake.path} -m64"):
        found = tools.host()
    assert found.words == (str(fake.path), "-m64")
    assert found.version == "fake++ 1.0"


def test_cxx_that_names_no_program_is_an_error() -> None:
    with settings.override(cxx="nonesuch"), pytest.raises(ToolchainError, match="unset CXX"):
        tools.host()


def test_nvcc_takes_no_launcher_for_the_host_compiler() -> None:
    words = ("/usr/bin/ccache", "/usr/bin/g++")
    assert tools.HostCompiler(words=words, version="g++", identity="").program == "/usr/bin/g++"


def test_two_versions_of_a_compiler_are_distinguished(tmp_path: Path) -> None:
    first, second = write_fake(tmp_path / "a"), write_fake(tmp_path / "b", version="1.1")
    assert first.compiler().identity != second.compiler().identity


def test_nvcc_of_cuda_home_is_found(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "cuda")
    with settings.override(cuda_home=home):
        found = tools.nvcc((13, 1))
    assert (found.path, found.version, found.library) == (home / "bin" / "nvcc", (13, 0), home / "lib64")


def test_pips_nvcc_comes_before_that_of_cuda_home(tmp_path: Path) -> None:
    pip = toolkit(tmp_path / "site" / "nvidia" / "cu13")
    with settings.override(cuda_home=toolkit(tmp_path / "cuda")):
        assert tools.nvcc(None).path == pip / "bin" / "nvcc"


def test_an_nvcc_of_another_major_is_skipped_and_reported(tmp_path: Path) -> None:
    toolkit(tmp_path / "site" / "nvidia" / "cu13")
    with settings.override(cuda_home=toolkit(tmp_path / "cuda", "12.8")):
        assert tools.nvcc((12, 6)).version == (12, 8)
        with pytest.raises(ToolchainError) as caught:
            tools.nvcc((14, 0))
    message = str(caught.value)
    assert "it is of CUDA 13.0 and torch of CUDA 14.0" in message
    assert "it is of CUDA 12.8 and torch of CUDA 14.0" in message
    assert 'pip install "nvidia-cuda-nvcc==14.0.*"' in message


def test_no_nvcc_reports_how_pip_brings_it() -> None:
    with settings.override(cuda_home=None), pytest.raises(ToolchainError) as caught:
        tools.nvcc((13, 0))
    assert str(caught.value).splitlines()[0] == "No nvcc was found."
    assert 'pip install "nvidia-cuda-nvcc==13.0.*" "nvidia-nvvm==13.0.*"' in str(caught.value)


def test_under_cuda_12_the_toolkit_is_named_since_pip_has_no_nvcc() -> None:
    with settings.override(cuda_home=None), pytest.raises(ToolchainError, match="export CUDA_HOME=FOLDER"):
        tools.nvcc((12, 8))


def test_an_nvcc_that_lacks_its_parts_is_skipped_and_reported(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "cuda", whole=False)
    with settings.override(cuda_home=home), pytest.raises(ToolchainError, match="nvidia-nvvm"):
        tools.nvcc(None)

"""`dotcu build` of C++: what is refused before anything is made, and the wheel in the end."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from dotcu import process, settings
from dotcu.cpp import tools
from dotcu.cpp.build import build_request
from dotcu.cpp.plan import CppRequest, CppTools
from dotcu.cpp.tools import Nvcc
from dotcu.errors import CompileError, ToolchainError, UsageError
from dotcu.scaffold import create, plan_project
from dotcu.shipping import project, wheel
from dotcu.shipping.audit import TOOLS

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="needs a C++ compiler; c++ is not on PATH"
)
needs_tools = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, TOOLS)), reason='needs pip install "dotcu[build]"'
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create(plan_project(tmp_path / "cpplib", cpp=True))
    return tmp_path / "cpplib"


def prepared(root: Path) -> tuple[CppRequest, CppTools]:
    return project.cpp_build(project.read(root))


def has_cuda(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]) -> None:
    """As if torch were built with this CUDA."""
    found = dataclasses.replace(tools.find_torch(), cuda=version)
    monkeypatch.setattr(tools, "find_torch", lambda: found)


def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_nvccs", lambda: iter(()))


def nvcc_of(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]) -> None:
    """As if the only nvcc were of this CUDA."""
    home = Path("/opt/cuda")
    found = Nvcc(
        path=home / "bin" / "nvcc", version=version, home=home, include=home / "include",
        library=home / "lib", identity="nvcc",
    )  # fmt: skip
    monkeypatch.setattr(tools, "_nvccs", lambda: iter([found.path]))
    monkeypatch.setattr(tools, "_nvcc", functools.cache(lambda path: found))
    monkeypatch.setattr(tools, "architectures", lambda nvcc: [75, 80, 86, 89, 90, 100, 120])


@needs_compiler
def test_without_nvcc_the_error_says_how_pip_brings_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_cuda(monkeypatch, (13, 0))
    no_nvcc(monkeypatch)
    with pytest.raises(ToolchainError, match=r'Type: pip install "nvidia-cuda-nvcc==13\.0\.\*" "nvidia-nvvm'):
        prepared(root)


def test_without_a_host_compiler_the_error_names_a_line(root: Path) -> None:
    with settings.override(cxx="no-such-compiler"), pytest.raises(ToolchainError, match="unset CXX"):
        prepared(root)


@needs_compiler
def test_a_cuda_major_that_is_not_torchs_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_cuda(monkeypatch, (12, 8))
    nvcc_of(monkeypatch, (13, 0))
    with pytest.raises(ToolchainError, match=r"it is of CUDA 13\.0 and torch of CUDA 12\.8"):
        prepared(root)


@needs_compiler
def test_machine_code_is_for_every_architecture_and_ptx_for_later_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc_of(monkeypatch, (13, 0))
    with settings.override(arch_list="9.0a;8.0+PTX"):
        assert list(map(str, prepared(root)[0].targets)) == ["sm_80", "sm_90a", "compute_80"]
    with settings.override(arch_list="5.2"), pytest.raises(UsageError, match=r"'5\.2' is unknown"):
        prepared(root)


@needs_compiler
def test_cuda_can_be_left_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_nvcc(monkeypatch)
    with settings.override(use_cuda=False):
        request, _ = prepared(root)
        assert [path.name for path in request.left_out] == ["scale_add.cu"]
        for source in (root / "src" / "cpplib" / "csrc").glob("*.cpp"):
            source.unlink()
        (root / "pyproject.toml").write_text(
            (root / "pyproject.toml").read_text().replace('"src/cpplib/csrc/*.cpp", ', "")
        )
        with pytest.raises(UsageError, match="nothing is left to compile"):
            prepared(root)


@needs_compiler
def test_a_source_that_does_not_compile_is_shown_with_its_line_and_the_whole_log(
    root: Path, cache_dir: Path
) -> None:
    csrc = root / "src" / "cpplib" / "csrc"
    for source in csrc.glob("*.cpp"):
        source.unlink()
    (csrc / "scale_add.cpp").write_text("int good = 1;\nint bad = missing;\nint worse = absent;\n")
    before = sorted(root.rglob("*"))
    with settings.override(use_cuda=False), pytest.raises(CompileError) as refused:
        build_request(*prepared(root))
    text = str(refused.value)
    assert "scale_add.cpp: 2 errors, the first of them:" in text
    assert "scale_add.cpp:2" in text
    assert "int bad = missing;" in text
    log = Path(text.rpartition("The whole output: ")[2])
    assert log.is_relative_to(cache_dir)
    assert "worse" in log.read_text()
    assert sorted(root.rglob("*")) == before


def test_a_folder_for_a_wheel_is_gone_again_where_none_came(tmp_path: Path) -> None:
    with pytest.raises(KeyError), wheel.folder_for(tmp_path / "dist"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with wheel.folder_for(tmp_path / "dist"):
        (tmp_path / "dist" / "a.whl").touch()
    with pytest.raises(KeyError), wheel.folder_for(tmp_path / "dist"):
        raise KeyError
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["a.whl"]


def test_the_hook_asks_for_torch_unless_the_library_is_given(root: Path, tmp_path: Path) -> None:
    described = project.read(root)
    assert project.needed_to_build(described) == ["torch>=2.10"]
    with settings.override(cpp_library=tmp_path / "made.so"):
        assert project.needed_to_build(described) == []
        assert project.cpp_library(described) == tmp_path / "made.so"
    assert project.place_of_library(described) == "cpplib/_cpp.abi3.so"


def test_options_of_kernels_are_refused(root: Path) -> None:
    done = process.run([sys.executable, "-m", "dotcu", "build", str(root), "--locked"], timeout_s=120)
    assert done.status == 2
    assert "--locked is not for a project with C++" in done.stderr


@pytest.mark.slow
@needs_compiler
@needs_tools
def test_a_wheel_is_built_audited_and_runs_where_its_sources_are_not(root: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dotcu", "build", str(root), "--no-isolation", "--cpu-only"]
    done = process.run(words, timeout_s=900)
    assert done.status == 0, done.stderr
    (made,) = (root / "dist").iterdir()
    assert made.name.startswith("cpplib-0.1.0-cp310-abi3-manylinux_2_")
    assert f"python -m twine upload {made}" in done.stdout
    site = tmp_path / "site"
    with zipfile.ZipFile(made) as opened:
        names = opened.namelist()
        opened.extractall(site)
    assert "cpplib/_cpp.abi3.so" in names
    assert not [name for name in names if "csrc" in name or ".libs/" in name]
    shutil.copytree(root / "tests", tmp_path / "tests")
    trial = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "tests"]
    tried = process.run(trial, timeout_s=600, folder=tmp_path, environment={"PYTHONPATH": str(site)})
    assert tried.status == 0, tried.stdout
    assert " passed" in tried.stdout


@pytest.mark.slow
@needs_compiler
@needs_tools
def test_a_wheel_that_uses_unstable_symbols_is_refused_and_not_kept(root: Path) -> None:
    """The source that does is named; the one that keeps to the stable ABI is not."""
    bad = 'namespace c10 { void report(int); }\nextern "C" void call() { c10::report(1); }\n'
    (root / "src" / "cpplib" / "csrc" / "unstable.cpp").write_text(bad)
    words = [sys.executable, "-m", "dotcu", "build", str(root), "--no-isolation", "--cpu-only"]
    done = process.run(words, timeout_s=900)
    assert done.status == 1
    assert "uses what is not in torch's stable ABI: c10::report(int) (in unstable.cpp)." in done.stdout
    assert "the audit refuses this wheel, and it is not kept" in done.stderr
    assert not (root / "dist").exists()

"""The wheel holds everything, and works where there is only torch and what it requires."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from dotcu.inspection.binary import read
from helpers import projects

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"

SMALL_RUN = """
import torch, dotcu
kernels = dotcu.load_inline('''
__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
''')
x = torch.zeros(8)
kernels.k(x, 8, grid=1, block=32)
assert x.tolist() == [1.0] * 8
print(dotcu.__file__)
"""


def run(*words: str | Path, folder: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}"
    return done.stdout


def build(folder: Path, **environment: str) -> Path:
    """Build a wheel from a copy of the sources, so that nothing is made in the tree that is tested."""
    pytest.importorskip("hatchling", reason="builds a wheel, and hatchling is not installed")
    copy, ignored = folder / "tree", shutil.ignore_patterns("__pycache__", "_native*.so")
    shutil.copytree(SOURCES, copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    words = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    run(*words, folder=copy, **environment)
    (built,) = folder.glob("*.whl")
    return built


WHEEL_BYTES = 1_700_000
"""dotcu's own, with the simulator, the checker and the gallery's sources; compiled code comes beside that,
see docs/explanation/decisions.md, "Shipping"."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pure"), CC="there-is-no-such-compiler")


def test_a_wheel_with_the_native_part_serves_every_python_of_its_platform(wheel: Path) -> None:
    if "dotcu/_native.abi3.so" not in zipfile.ZipFile(wheel).namelist():
        pytest.skip("no C compiler with Python's headers here")
    by_zig = "CC" not in os.environ and importlib.util.find_spec("ziglang")
    promised = "manylinux_2_17_{0}.manylinux2014_{0}" if by_zig else "linux_{0}"
    assert wheel.name.endswith(f"-cp310-abi3-{promised.format(platform.machine())}.whl")
    told = read(wheel).wheel
    assert told is not None
    assert told.problems == ()
    assert wheel.stat().st_size < WHEEL_BYTES


def test_without_a_c_compiler_the_wheel_is_pure(pure_wheel: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    assert pure_wheel.stat().st_size < WHEEL_BYTES
    assert not any("_native" in name for name in zipfile.ZipFile(pure_wheel).namelist())


@pytest.fixture
def hatch_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_native_part_is_built_for_a_free_threaded_python(
    hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        hatch_build.subprocess, "run", lambda *words, **kwargs: pytest.fail("it was compiled")
    )
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", 1)
    with pytest.raises(hatch_build.NotBuilt, match="this Python is free-threaded"):
        hatch_build.build()


def test_the_native_part_is_built_where_pythons_headers_include_others_beside_them(
    hatch_build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Debian's do: python3.14/pyconfig.h includes <x86_64-linux-gnu/python3.14/pyconfig.h>."""
    there = Path(sysconfig.get_path("include"))
    try:
        hatch_build.compiler()
    except hatch_build.NotBuilt as reason:
        pytest.skip(str(reason))
    if not (there / "Python.h").exists():
        pytest.skip(f"Python's headers are not in {there}")
    if "/pyconfig.h>" not in (there / "pyconfig.h").read_text():  # those of another system
        headers = tmp_path / "include" / "python"
        shutil.copytree(there, headers)
        (tmp_path / "include" / "machine").mkdir()
        (headers / "pyconfig.h").rename(tmp_path / "include" / "machine" / "pyconfig.h")
        (headers / "pyconfig.h").write_text("#include <machine/pyconfig.h>\n")
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(headers))
    monkeypatch.setattr(hatch_build, "TARGET", tmp_path / "_native.abi3.so")
    assert hatch_build.build().is_file()


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    there = {
        path.relative_to(SOURCES).as_posix()
        for path in (SOURCES / "dotcu").rglob("*")
        if path.is_file() and not {"__pycache__", "native"} & set(path.parts) and path.suffix != ".so"
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"dotcu/py.typed", "dotcu/gallery/add/kernel.cu", "dotcu/include/dotcu/tensor.cuh"} <= there
    assert there <= held
    assert {name.split("/")[0] for name in held} == {"dotcu", f"dotcu-{wheel.name.split('-')[1]}.dist-info"}


PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def clean_environment(folder: Path, wheel: Path) -> Path:
    """Install torch and a wheel of dotcu into a new environment, and return its Python."""
    run(sys.executable, "-m", "venv", "clean", folder=folder)
    python, pins = folder / "clean/bin/python", ROOT / "constraints.txt"
    torch = next(line for line in pins.read_text().splitlines() if line.startswith("torch=="))
    run(python, *PIP, torch, folder=folder)
    run(python, *PIP, "-c", pins, wheel, folder=folder)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "pure_wheel"])
def test_the_wheel_works_in_a_clean_environment(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = clean_environment(tmp_path, request.getfixturevalue(kind))
    cache = {"DOTCU_CACHE_DIR": str(tmp_path / "cache")}
    assert "dotcu works here" in run(tmp_path / "clean/bin/dotcu", "doctor", folder=tmp_path, **cache)
    where = run(python, "-W", "error", "-c", SMALL_RUN, folder=tmp_path, **cache).strip()
    assert Path(where).is_relative_to(tmp_path / "clean")
    run(python, "-m", "pip", "check", folder=tmp_path)


WRITE_ENTRY = """
from dotcu.operator.tuned import TunedEntry, TunedFile
from tuning.ops import scale
entry = TunedEntry(
    gpu="simulator", capability="8.0", multiprocessors=108, key=("float32", 1024),
    configuration={"block": 64, "items": 4}, median_us=1.0, over_runner_up=1.0, over_default=1.0,
    digest=scale.tunable.digest,
)
TunedFile().with_entries("tuning::scale", [entry]).write(scale.tunable.file)
"""

TUNED_CALL = """
import torch, dotcu
from dotcu.kernel.launch import listening_for_kernels
from tuning.ops import scale
requests = []
with dotcu.simulate(), listening_for_kernels(requests.append):
    assert scale(torch.ones(1000)).tolist() == [2.0] * 1000
print(requests[0].kernel, requests[0].config.block[0], scale.tunable.file)
"""


def of_guide(title: str) -> str:
    """Return a file of the guide on tuning."""
    _, _, text = (ROOT / "docs/howto/tune.md").read_text().partition(f'title="{title}"\n')
    return text.partition("\n```")[0] + "\n"


@pytest.mark.slow
def test_an_installed_wheel_of_the_guides_operator_has_its_tuned_file(wheel: Path, tmp_path: Path) -> None:
    package = tmp_path / "project" / "tuning"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("scale.cu", "ops.py"):
        (package / name).write_text(of_guide(name))
    text = projects.PYPROJECT.format(name="tuning", architectures=["8.0"])
    (package.parent / "pyproject.toml").write_text(text.replace('["tuning"]', '["tuning.ops"]'))
    here = {"PYTHONPATH": str(SOURCES), "DOTCU_CACHE_DIR": str(tmp_path / "cache")}
    run(sys.executable, "-c", WRITE_ENTRY, folder=package.parent, **here)
    run(sys.executable, "-m", "dotcu", "build", "--no-isolation", folder=package.parent, **here)
    (built,) = (package.parent / "dist").glob("*.whl")
    python = clean_environment(tmp_path, wheel)
    run(python, *PIP, "--no-deps", built, folder=tmp_path)
    never = {"DOTCU_JIT": "error", "DOTCU_CACHE_DIR": str(tmp_path / "empty")}
    *kernel, block, file = run(python, "-c", TUNED_CALL, folder=tmp_path, **never).split()
    assert (" ".join(kernel), block) == ("scale<float, 4>", "64")
    assert Path(file).is_relative_to(tmp_path / "clean")

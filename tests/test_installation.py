"""The wheel holds everything, and works where there is only torch and what it requires."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds a wheel, and hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_pure_and_small(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 1_000_000


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    there = {
        path.relative_to(SOURCES).as_posix()
        for path in (SOURCES / "dotcu").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"dotcu/py.typed", "dotcu/gallery/add/kernel.cu", "dotcu/include/dotcu/tensor.cuh"} <= there
    assert there <= held
    assert {name.split("/")[0] for name in held} == {"dotcu", f"dotcu-{wheel.name.split('-')[1]}.dist-info"}


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "clean", folder=tmp_path)
    python, pip = (
        tmp_path / "clean/bin/python",
        ("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
    )
    pins = ROOT / "constraints.txt"
    torch = next(line for line in pins.read_text().splitlines() if line.startswith("torch=="))
    run(python, *pip, torch, folder=tmp_path)
    run(python, *pip, "-c", pins, wheel, folder=tmp_path)
    cache = {"DOTCU_CACHE_DIR": str(tmp_path / "cache")}
    assert "dotcu works here" in run(tmp_path / "clean/bin/dotcu", "doctor", folder=tmp_path, **cache)
    where = run(python, "-W", "error", "-c", SMALL_RUN, folder=tmp_path, **cache).strip()
    assert Path(where).is_relative_to(tmp_path / "clean")
    run(python, "-m", "pip", "check", folder=tmp_path)

"""A wheel of C++ on a GPU: under the Python and torch that made it, and under others.

DOTCU_TEST_PYTHON names another Python that has torch 2.10 or later and pytest. DOTCU_TEST_WHEEL names a
wheel of `dotcu new --cpp mylib` that was made elsewhere, and stands for one that is made here.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import driver
from dotcu.scaffold import create, plan_project
from helpers.cpp_projects import missing_nvcc

pytestmark = pytest.mark.gpu

TELL = """
import platform, torch, mylib
print(platform.python_version(), torch.__version__, torch.cuda.get_device_name())
a, b = torch.ones(2, 1000, device="cuda")
assert mylib.scale_add(a, b).eq(2).all()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cpp") / "mylib"
    create(plan_project(folder, cpp=True))
    return folder


@pytest.fixture(scope="module")
def wheel(root: Path) -> Path:
    given = os.environ.get("DOTCU_TEST_WHEEL")
    if given:
        return Path(given).resolve()
    if not shutil.which("c++") or missing_nvcc():
        pytest.skip(f"needs a C++ compiler and nvcc: {missing_nvcc()}")
    for tool in ("auditwheel", "abi3audit", "twine", "hatchling"):
        pytest.importorskip(tool)
    major, minor = driver.gpus()[0].capability
    words = [
        sys.executable,
        "-m",
        "dotcu",
        "build",
        str(root),
        "--no-isolation",
        "--arch",
        f"{major}.{minor}",
    ]
    done = process.run(words, timeout_s=900)
    assert done.status == 0, done.stdout + done.stderr
    return next((root / "dist").glob("*.whl"))


def try_with(python: str, wheel: Path, tests: Path, folder: Path) -> None:
    """Run the project's tests far from its sources, by what the wheel holds."""
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder / "site")
    shutil.copytree(tests, folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(folder / "site")}
    told = process.run([python, "-c", TELL], timeout_s=300, folder=folder, environment=environment)
    assert told.status == 0, told.stderr
    words = [python, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "tests"]
    done = process.run(words, timeout_s=600, folder=folder, environment=environment)
    assert done.status == 0, told.stdout + done.stdout + done.stderr
    assert "skipped" not in done.stdout  # every test of the GPU ran


def test_it_runs_under_this_python_and_torch(wheel: Path, root: Path, tmp_path: Path) -> None:
    try_with(sys.executable, wheel, root / "tests", tmp_path)


def test_it_runs_under_another_python_and_torch(wheel: Path, root: Path, tmp_path: Path) -> None:
    other = os.environ.get("DOTCU_TEST_PYTHON")
    if not other:
        pytest.skip("DOTCU_TEST_PYTHON names no other Python with torch")
    try_with(other, wheel, root / "tests", tmp_path)

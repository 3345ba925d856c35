"""`dotcu run`: a program is compiled once and run, with its own exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dotcu.compile import driver
from helpers import forked_scripts
from helpers.cpp_projects import missing_nvcc

PLAIN = """
#include <cstdio>

int main(int count, char** words)
{
    printf("%s\\n", count > 1 ? words[1] : "nothing");
    return count;
}
"""

LAUNCH = """
#include <cstdio>

__global__ void fill(int* x) { *x = 7; }

int main()
{
    int* x;
    cudaMallocManaged(&x, sizeof(int));
    fill<<<1, 1>>>(x);
    cudaDeviceSynchronize();
    printf("%d\\n", *x);
}
"""

needs_nvcc = pytest.mark.skipif(bool(missing_nvcc()), reason=missing_nvcc())


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dotcu", "run", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@needs_nvcc
def test_a_program_that_needs_no_gpu_runs_with_its_arguments_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(PLAIN)
    done = run("main.cu", "--", "--word", folder=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("--word\n", "", 2)
    assert json.loads(run("main.cu", "--json", folder=tmp_path).stdout)["compiled"] is False


@pytest.mark.slow
@needs_nvcc
def test_a_program_with_a_kernel_says_that_it_needs_a_gpu_or_runs_on_it(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(LAUNCH)
    done = run("main.cu", folder=tmp_path)
    if driver.gpus():
        assert (done.stdout, done.returncode) == ("7\n", 0)
    else:
        assert (done.stdout, done.returncode) == ("", 3)
        assert done.stderr.startswith("error: main is compiled, and needs a GPU to run: none is here.\n")


@pytest.mark.slow
@needs_nvcc
def test_for_a_debugger_the_line_to_type_is_reported(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(PLAIN)
    done = run("main.cu", "--debug", "--", "word", folder=tmp_path)
    assert done.stdout == "word\n"
    assert done.stderr.startswith("cuda-gdb --args /")
    assert done.stderr.endswith("/main word\n")


def test_without_nvcc_the_line_to_type_is_reported(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text(PLAIN)
    compiler = shutil.which("c++") or sys.executable
    missing = {"PATH": "/nowhere", "CUDA_HOME": "", "CXX": compiler}
    done = forked_scripts.command("run", "main.cu", folder=tmp_path, **missing)
    assert done.returncode == 3
    assert 'Type: pip install "nvidia-cuda-nvcc' in done.stderr


def test_what_is_no_cu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(PLAIN)
    done = forked_scripts.here("run", "main.cpp", folder=tmp_path)
    assert done.returncode == 2
    assert "main.cpp is not a .cu file" in done.stderr

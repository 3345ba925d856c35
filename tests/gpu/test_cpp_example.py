"""examples/cpp: what `dotcu build` compiled, called from C++ through the driver alone."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import toolchain

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp"


@pytest.mark.gpu
def test_the_program_gets_the_operators_result(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    copy = tmp_path / "cpp"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("kernels", "dist", "__pycache__"))
    export = "from dotcu.shipping import assembling, wheel, project; from pathlib import Path; \
import sys; planned = wheel.prepare(project.find(Path(sys.argv[1]))); \
assembling.export(wheel.compile_kernels(planned, lambda _: None), Path(sys.argv[2]))"
    done = process.run([sys.executable, "-c", export, copy, tmp_path / "kernels"], timeout_s=300)
    assert done.status == 0, done.stderr
    headers = [f"-I{folder}" for folder in toolchain.nvrtc().include]
    driver = process.find("ldconfig")
    assert driver is not None
    library = next(
        line.rsplit("=> ", 1)[1]
        for line in process.run([driver, "-p"]).stdout.splitlines()
        if "libcuda.so.1" in line
    )
    main = tmp_path / "main"
    words = [compiler, "-std=c++17", EXAMPLE / "main.cpp", *headers, library, "-o", main]
    done = process.run(words, timeout_s=300)
    assert done.status == 0, done.stderr
    done = process.run([main, tmp_path / "kernels"])
    assert (done.status, "0 of 1000 values are wrong" in done.stdout) == (0, True), done

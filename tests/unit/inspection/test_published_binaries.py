"""Libraries that others built and published, held against cuobjdump, readelf and nm."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

from dotcu import process
from dotcu.inspection.binary import BinaryReport, read

# Small ones: CUDA 13.4 with Zstandard; CUDA 12.9 with LZ4, uncompressed code and the older cubins.
WHEELS = ("nvidia-nvjpeg==13.3.2.43", "nvidia-nvjpeg-cu12==12.4.0.76")
SECONDS, MEGABYTES = 10, 1000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=WHEELS)
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", folder]
    done = process.run([*command, request.param], timeout_s=300)
    if done.status != 0:
        pytest.skip(f"{request.param} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if re.search(r"\.so(\.\d+)*$", one)]
        return Path(archive.extract(name, tmp_path_factory.mktemp("library")))


@pytest.fixture(scope="module")
def report(library: Path) -> BinaryReport:
    return read(library)


def test_architectures_are_those_that_cuobjdump_lists(
    report: BinaryReport, library: Path, cuobjdump: Path
) -> None:
    said = process.run([cuobjdump, "-lelf", "-lptx", library], timeout_s=300).stdout
    theirs = Counter(re.findall(r"\.(sm_\d+[af]?)\.(cubin|ptx)$", said, re.MULTILINE))
    ours = {(one.arch, "cubin"): one.sass for one in report.architectures if one.sass}
    ours |= {(one.arch, "ptx"): one.ptx for one in report.architectures if one.ptx}
    assert len(theirs) > 5
    assert ours == theirs


def test_kernels_are_those_that_cuobjdump_lists(library: Path, cuobjdump: Path) -> None:
    said = process.run([cuobjdump, "-arch", "sm_80", "-res-usage", library], timeout_s=300).stdout
    theirs = Counter(re.findall(r"Function (\S+):\n\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", said))
    ours = Counter(
        (kernel.symbol, str(kernel.registers), str(kernel.stack_bytes), str(kernel.smem_bytes))
        for kernel in read(library, kernels=["sm_80"]).kernels["sm_80"]
    )
    assert len(theirs) > 50
    assert ours == theirs


def test_libraries_are_those_of_readelf(report: BinaryReport, library: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("needs binutils' readelf")
    said = process.run(["readelf", "-dW", library]).stdout
    assert report.host is not None
    assert list(report.host.needed) == re.findall(r"\(NEEDED\).*\[(.+)\]", said)


def test_symbols_are_those_of_nm(report: BinaryReport, library: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs binutils' nm")
    said = process.run(["nm", "-D", library]).stdout
    theirs = Counter(re.findall(r"^[0-9a-f ]{16} (\S) ([^@\n]+)", said, re.MULTILINE))
    assert report.host is not None
    assert Counter((s.letter, s.symbol) for s in report.host.symbols) == theirs


def test_the_wheel_keeps_its_promise_and_holds_what_its_library_does(
    wheel: Path, report: BinaryReport
) -> None:
    found = read(wheel)
    assert found.architectures == report.architectures
    assert found.wheel is not None
    assert (found.wheel.lowest.rpartition("_x86")[0], found.wheel.problems) == ("manylinux_2_17", ())


def test_it_runs_natively_where_its_machine_code_fits(report: BinaryReport) -> None:
    assert report.runs_on((9, 0)).how == "native"
    assert report.runs_on((8, 9)).none == 0


_MEASURE = r"""
import re, sys, time
from pathlib import Path
from dotcu.inspection.binary import read
begun = time.perf_counter()
report = read(Path(sys.argv[1]))
report.runs_on((9, 0))
# not ru_maxrss, which also counts what the process that started this one has
kilobytes = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
print(len(report.all_modules), time.perf_counter() - begun, kilobytes)
"""


def test_hundreds_of_megabytes_are_read_in_seconds_and_little_memory() -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    path = Path(torch.origin).parent / "lib" / "libtorch_cuda.so"
    if not path.is_file():
        pytest.skip("needs a torch that is built for CUDA, for its libtorch_cuda.so")
    assert path.stat().st_size > 300e6
    done = subprocess.run([sys.executable, "-c", _MEASURE, path], capture_output=True, text=True, check=True)
    modules, seconds, kilobytes = map(float, done.stdout.split())
    assert modules > 100
    assert seconds < SECONDS
    assert kilobytes < MEGABYTES * 1000

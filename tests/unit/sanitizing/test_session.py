"""`@dotcu.sanitize` and its marker fail a test that has findings, of Triton's kernels too."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import dotcu
from dotcu.errors import FindingError, SimulationError
from dotcu.sanitizing import run_script
from helpers import forked_scripts

SOURCE = """
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * x[i];
}"""


def twice(count: int) -> torch.Tensor:
    x, out = torch.ones(count), torch.empty(count)
    dotcu.load_inline(SOURCE).twice(x, out, count, grid=dotcu.cdiv(count, 64), block=64)
    return out


@dotcu.sanitize
def fine() -> torch.Tensor:
    """Launch what is right."""
    return twice(64)


@dotcu.sanitize(arch="sm_90", seed=1)
def faulty() -> None:
    twice(63)


def test_a_function_keeps_its_name_and_result() -> None:
    assert (fine.__name__, fine.__doc__) == ("fine", "Launch what is right.")
    for _ in range(2):
        assert fine().tolist() == [2] * 64


def test_all_findings_are_raised_together() -> None:
    with pytest.raises(FindingError) as caught:
        faulty()
    assert {finding.kind for finding in caught.value.findings} == {"out-of-bounds"}
    for finding in caught.value.findings:
        assert str(finding) in str(caught.value)


def test_findings_explain_a_wrong_result() -> None:
    def fail() -> None:
        with dotcu.sanitize():
            assert twice(63).sum() == 0

    with pytest.raises(FindingError) as caught:
        fail()
    assert isinstance(caught.value.__cause__, AssertionError)


def test_an_error_without_findings_stays_itself() -> None:
    @dotcu.sanitize
    def fail() -> float:
        return twice(64).sum().item() / 0

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_block_that_launches_nothing_fails() -> None:
    with (
        pytest.raises(SimulationError, match="No kernel was launched, so nothing was checked"),
        dotcu.sanitize(),
    ):
        pass


def test_checks_can_be_chosen() -> None:
    with dotcu.sanitize(checks=("race",)) as run:
        twice(63)
    assert run.findings == []
    assert run.launches["twice"] == 1


def test_code_may_ask_for_a_gpu() -> None:
    with dotcu.sanitize(cuda_as_cpu=True):
        x = torch.ones(64, device="cuda")
        assert x.is_cuda
        twice(64)


TESTS = """
    import dotcu, pytest, torch
    kernels = dotcu.load_inline('''SOURCE''')

    @pytest.mark.dotcu_sanitize(cuda_as_cpu=True)
    @pytest.mark.parametrize("count", [64, 63])
    def test_marked(count):
        x, out = torch.ones(count, device="cuda"), torch.empty(count, device="cuda")
        kernels.twice(x, out, count, grid=1, block=64)
        assert out.sum() == 128

    @pytest.mark.dotcu_sanitize
    def test_nothing(): ...

    def test_unmarked():
        x, out = torch.ones(63), torch.empty(63)
        kernels.twice(x, out, 63, grid=1, block=63)
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    text = textwrap.dedent(TESTS).replace("SOURCE", SOURCE)
    (tmp_path / "test_ops.py").write_text(text)
    return tmp_path


PYTEST = ("-p", "no:cacheprovider", "-q", "--strict-markers", "test_ops.py")


def test_a_marked_test_fails_with_its_findings(tests: Path) -> None:
    script = f"import pytest, sys; sys.exit(pytest.main({list(PYTEST)!r}))"
    done = forked_scripts.run(script, folder=tests)
    assert done.returncode == 1
    assert "2 failed, 2 passed" in done.stdout
    assert "out-of-bounds" in done.stdout
    assert "The test raised test_ops.py:" in done.stdout
    assert "No kernel was launched, so nothing was checked." in done.stdout


def test_a_suite_runs_as_a_module(tests: Path) -> None:
    done = forked_scripts.command("sanitize", "-m", "pytest", *PYTEST, "-k", "unmarked", folder=tests)
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert done.stderr.startswith("No findings. 1 launch of twice")
    done = forked_scripts.command("sanitize", "-m", "pytest", *PYTEST, "-k", "marked and 64", folder=tests)
    assert (done.returncode, done.stderr.split(",")[0]) == (0, "No findings. 1 launch of twice")


# ------------------------------------------------------------------ Triton

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")  # Triton 3.9 warns of 3.10


@pytest.fixture
def triton() -> ModuleType:
    return pytest.importorskip("triton", reason="Triton is not installed")


ADD = """
import sys, torch, triton, triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))

def added(n, device="cpu"):
    x, out = torch.ones(n, device=device), torch.empty(n, device=device)
    add[(triton.cdiv(n, 64),)](x, x, out, n, BLOCK=64)
    return out
"""


@pytest.fixture
def script(triton: ModuleType, tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(ADD + text)
        return str(path)

    return write


def test_a_triton_kernel_is_judged(script: Callable[[str], str]) -> None:
    report = run_script(script("assert added(64).sum() == 128\nadded(63)\n"))
    assert report.counts == {"out-of-bounds": 1}
    assert (report.status, dict(report.launches), report.exit_code) == (0, {"add": 2}, 1)
    assert report.findings[0].line == 7
    assert Path(report.findings[0].file).name == "script.py"


def test_a_copy_of_a_script_is_named_where_it_is(script: Callable[[str], str], tmp_path: Path) -> None:
    path = script("added(63)\n")
    assert run_script(path).findings[0].file == path
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(path, tmp_path / "copy")  # Triton has cached it, by its text
    assert run_script(str(copy)).findings[0].file == str(copy)


def test_a_triton_script_that_asks_for_a_gpu_is_judged(script: Callable[[str], str]) -> None:
    report = run_script(script("assert added(64, 'cuda').cpu().sum() == 128\n"), cuda_as_cpu=True)
    assert (report.findings, report.status, report.exit_code) == ((), 0, 0)


GPU_QUESTIONS = """
from triton.runtime import driver

device = driver.active.get_active_torch_device()
properties = driver.active.utils.get_device_properties(device.index)
x = torch.ones(64, device=device)
assert x.is_cuda and x.device == device
kernel = add.warmup(x, x, torch.empty_like(x), 64, BLOCK=64, grid=(1,))
kernel._init_handles()
assert properties["max_num_regs"] // kernel.n_regs >= properties["warpSize"]
assert added(64, device).sum() == 128
"""


def test_a_script_that_asks_triton_for_its_gpu_gets_answers(script: Callable[[str], str]) -> None:
    report = run_script(script(GPU_QUESTIONS), cuda_as_cpu=True)
    assert (report.error, report.findings, report.status) == ("", (), 0)


BENCHMARK = """
from triton.testing import Benchmark, do_bench, perf_report

ms = do_bench(lambda: added(64))
assert ms != ms
assert len(do_bench(lambda: added(64), quantiles=[0.5, 0.2, 0.8])) == 3
assert len(do_bench(lambda: added(64), return_mode="all")) == 1

@perf_report(Benchmark(x_names=["n"], x_vals=[2**30], line_arg="by", line_vals=["us"], line_names=["us"],
                       plot_name="add", args={}))
def benchmark(n, by):
    raise AssertionError

benchmark.run(print_data=True)
"""


def test_benchmarks_end_at_once(script: Callable[[str], str], caplog: pytest.LogCaptureFixture) -> None:
    report = run_script(script(BENCHMARK))
    assert (report.status, dict(report.launches)) == (0, {"add": 3})
    assert "left out the benchmark benchmark: the simulator measures no time" in caplog.text


def test_a_kernel_that_triton_refuses_is_named_by_its_line(script: Callable[[str], str]) -> None:
    text = "@triton.jit\ndef bad(x_ptr):\n    tl.store(x_ptr, nothing)\n\nbad[(1,)](torch.ones(1))\n"
    path = script(text)
    report = run_script(path)
    line = 1 + Path(path).read_text().splitlines().index("    tl.store(x_ptr, nothing)")
    assert (report.status, report.exit_code) == (1, 1)
    assert report.error.startswith(f"{path}:{line}: Triton refuses the kernel: ")
    assert "nothing is not defined" in report.error


def test_a_tensor_that_is_not_on_the_cpu_is_refused_at_its_line(script: Callable[[str], str]) -> None:
    report = run_script(script("added(64, 'meta')\n"))
    assert report.error.partition(": ")[2].startswith("The argument x_ptr of add is on meta")
    assert report.error.count("\n") == 2

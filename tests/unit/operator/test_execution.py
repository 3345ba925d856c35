"""Bodies in other surroundings: threads, forked workers, deterministic mode, torch's own errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import dotcu
from dotcu.errors import LaunchError
from dotcu.operator import Operator, execution
from helpers import forked_scripts, sample_operators
from helpers.fake_gpu import configured

SIZES = (1, 130, 1000, 130)  # the first call, later ones, one of a size that has been


@pytest.fixture(scope="module")
def axpy() -> Operator:
    return sample_operators.make_axpy()


def test_threads_call_an_operator_at_the_same_time(device: torch.device) -> None:
    axpy, wrong = sample_operators.make_axpy(), []

    def work(number: int) -> None:
        try:
            with dotcu.simulate():
                for n in SIZES:
                    a, b = sample_operators.pair(n + number, device)
                    torch.testing.assert_close(axpy(a, b, 2.0), a + 2 * b)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_cpu_tensors_get_the_reference_again_once_a_fake_gpu_is_gone() -> None:
    axpy, (a, b) = sample_operators.make_axpy(), sample_operators.pair(40, "cpu")
    axpy.reference(lambda a, b, alpha=1.0: 7 * a)
    with configured({}):
        torch.testing.assert_close(axpy(a, b, 2.0), a + 2 * b)
    assert torch.equal(axpy(a, b, 2.0), 7 * a)


class Rows(Dataset[Tensor]):
    """Rows that an operator computes in the worker that is asked for them."""

    def __init__(self, operator: Operator, simulated: bool) -> None:
        self.operator = operator
        self.simulated = simulated

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        a, b = sample_operators.pair(40, "cpu")
        if not self.simulated:
            return self.operator(a, b, float(index))
        with dotcu.simulate():
            return self.operator(a, b, float(index))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("simulated", [False, True], ids=["the reference", "the simulator"])
@pytest.mark.parametrize("context", ["fork", None], ids=["forked workers", "no workers"])
def test_a_data_loader_calls_an_operator_on_cpu_tensors(
    axpy: Operator, simulated: bool, context: str | None
) -> None:
    loader = DataLoader(
        Rows(axpy, simulated),
        batch_size=2,
        num_workers=2 if context else 0,
        multiprocessing_context=context,
        timeout=120 if context else 0,
    )
    a, b = sample_operators.pair(40, "cpu")
    for _ in range(2):  # the workers of the second pass are forked after the first pass's calls
        rows = torch.cat(list(loader))
        torch.testing.assert_close(rows, torch.stack([a + i * b for i in range(6)]))


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("dtype", "filled"),
    [
        (torch.float32, torch.nan),
        (torch.int32, torch.iinfo(torch.int32).max),
        (torch.int64, torch.iinfo(torch.int64).max),
    ],
    ids=str,
)
@pytest.mark.usefixtures("deterministic")
def test_deterministic_mode_fills_what_a_body_leaves_unwritten(
    dtype: torch.dtype, filled: float, device: torch.device
) -> None:
    operator = _half_written(f"execution_test::half_{str(dtype).removeprefix('torch.')}")
    for n in SIZES:
        half = n // 2
        result = operator(torch.ones(n, dtype=dtype, device=device))
        expected = torch.full((n,), filled, dtype=dtype, device=device)
        expected[:half] = 1
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def _half_written(name: str) -> Operator:
    kernels = dotcu.load_inline(
        "template <typename T> __global__ void copy(const T* x, T* out, long long n) {"
        "    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i]; }"
    )

    @dotcu.op(name)
    def half(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernels.copy[x.dtype](x, out, x.numel() // 2, grid=1, block=64)
        return out

    return half


@pytest.mark.usefixtures("deterministic")
def test_what_deterministic_mode_fills_is_unwritten_to_the_simulator_still(axpy: Operator) -> None:
    @dotcu.op("execution_test::forgetful")
    def forgetful(x: Tensor) -> Tensor:
        scratch = torch.empty_like(x)
        return axpy(x, scratch)

    with dotcu.simulate(), pytest.raises(dotcu.errors.FindingError, match="uninitialized"):
        forgetful(torch.ones(4))


def test_a_fault_that_torch_finds_in_a_body_names_the_suspects(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    @dotcu.op("execution_test::finds")
    def finds(x: Tensor) -> Tensor:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(execution, "fault_story", lambda error: "these were launched")
    with pytest.raises(LaunchError, match=r"execution_test::finds failed\.\nthese were launched"):
        finds(torch.ones(1, device=device))
    monkeypatch.setattr(execution, "fault_story", lambda error: None)
    with pytest.raises(torch.AcceleratorError):
        finds(torch.ones(1, device=device))


SCRIPT = """
import sys, torch, dotcu
from dotcu.gallery.square.op import square
from dotcu.kernel.launch_policy import watching_launches

with watching_launches() as launches:
    assert square(torch.ones(3)).tolist() == [1.0] * 3
print([launch.where for launch in launches], "simulator" in repr(square))
assert "torch._dynamo" not in sys.modules, "seconds of imports that no call here needs"
"""


@pytest.mark.parametrize(("value", "printed"), [("1", "['simulator'] True"), ("0", "[] False")])
def test_the_variable_decides_for_the_process(value: str, printed: str) -> None:
    environment = dict(os.environ) | {"DOTCU_SIMULATE": value}
    done = forked_scripts.run(SCRIPT, environment=environment)
    assert done.stdout.strip() == printed, done.stderr

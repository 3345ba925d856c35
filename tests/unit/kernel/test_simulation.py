from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import dotcu
from dotcu.errors import CompileError, FindingError, UsageError
from dotcu.kernel import (
    Module,
    active_run,
    load,
    load_inline,
    simulate,
    simulated_memory,
    tracking_allocations,
)
from dotcu.kernel.arguments.pack import strided
from dotcu.kernel.simulated_memory import active_allocations, tensor_bytes

SOURCE = """
__global__ void copy(const float* x, float* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def run_copy(module: Module, x: torch.Tensor, out: torch.Tensor) -> None:
    module.copy(x, out, x.numel(), grid=1, block=64)


def test_a_read_of_what_empty_allocated_is_found(module: Module) -> None:
    with simulate(), pytest.raises(FindingError) as caught:
        run_copy(module, torch.empty(8), torch.empty(8))
    finding = caught.value.finding
    assert (finding.kind, finding.address_of) == ("uninitialized-read", "x")


@pytest.mark.parametrize("has_advice", [True, False], ids=["as here", "with an older system"])
def test_a_store_to_a_file_that_is_mapped_to_be_read_is_a_finding(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_advice: bool
) -> None:
    if not has_advice:
        monkeypatch.setattr(simulated_memory, "_POPULATE_WRITE", -1)
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))

    def mapped(mode: Literal["r", "c"]) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of an array that is not writable
            return torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode=mode))

    run_copy(module, mapped("r"), out := torch.zeros(3))
    assert out.tolist() == [1, 1, 1]
    with simulate(on_finding="collect") as run:
        run_copy(module, torch.zeros(3), mapped("r"))
    (finding,) = run.findings
    assert (finding.kind, finding.address_of) == ("read-only", "out")
    assert 'its memory cannot be written, as that of numpy.load(..., mmap_mode="r")' in str(finding)
    run_copy(module, torch.zeros(3), out := mapped("c"))  # the advice
    assert out.tolist() == [0, 0, 0]


def test_a_finding_names_the_callers_tensor_and_the_line_of_the_launch(module: Module) -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with simulate(on_finding="collect") as run:
        module.copy(torch.zeros(2, 4), torch.zeros(9, dtype=torch.float32), 9, grid=1, block=64)
    (finding,) = run.findings
    place = f"launched at tests/unit/kernel/test_simulation.py:{line}"
    assert finding.caller == f"`x`, argument 1 of `copy`, shape (2, 4) float32, {place}"
    assert finding.caller in str(finding).splitlines()[2]


def test_strides_before_an_argument_count_as_in_the_kernel() -> None:
    source = "__global__ void k(const float* a, int rows, int columns, float* b) { b[9] = a[0]; }"
    with simulate(on_finding="collect") as run:
        load_inline(source).k(strided(torch.zeros(2, 4).t()), torch.zeros(3), grid=1, block=1)
    assert "`b`, argument 4 of `k`, shape (3,) float32" in run.findings[0].caller


def test_a_finding_in_shared_memory_has_the_line_of_the_launch() -> None:
    source = """__global__ void k(float* a) {
        __shared__ float s[8];
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        a[0] = s[threadIdx.x];
    }"""
    with simulate(on_finding="collect") as run:
        load_inline(source).k(torch.zeros(3), grid=1, block=9)
    assert run.findings[0].caller.startswith("launched at tests/unit/kernel/test_simulation.py:")


UNWRITTEN: dict[str, Callable[[], torch.Tensor]] = {
    "empty": lambda: torch.empty(8),
    "empty_like": lambda: torch.empty_like(torch.zeros(8)),
    "empty_strided": lambda: torch.empty_strided((8,), (1,)),
    "empty_permuted": lambda: torch.empty_permuted((8,), (0,)),
    "new_empty": lambda: torch.zeros(3).new_empty(8),
    "new_empty_strided": lambda: torch.zeros(3).new_empty_strided((8,), (1,)),
    "view": lambda: torch.empty(4, 4)[1:3].view(-1),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_every_way_to_allocate_without_writing_counts(module: Module, name: str) -> None:
    with simulate(on_finding="collect") as run:
        run_copy(module, UNWRITTEN[name](), torch.empty(8))
    assert [f.kind for f in run.findings] == ["uninitialized-read"]


def in_a_list() -> torch.Tensor:
    x = torch.empty(8)
    torch._foreach_zero_([x])
    return x


WRITTEN: dict[str, Callable[[], torch.Tensor]] = {
    "zeros": lambda: torch.zeros(8),
    "fill_": lambda: torch.empty(8).fill_(1),
    "copy_": lambda: torch.empty(8).copy_(torch.ones(8)),
    "normal_": lambda: torch.empty(8).normal_(),
    "a new result": lambda: torch.empty(8) + 1,
    "clone": lambda: torch.empty(8).clone(),
    "out": lambda: torch.add(torch.ones(8), 1, out=torch.empty(8)),
    "in a list": in_a_list,
    "full": lambda: torch.full((8,), 2.0),
    "arange": lambda: torch.arange(8.0),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_an_operator_writes_counts_as_written(module: Module, name: str) -> None:
    with simulate(on_finding="collect") as run:
        run_copy(module, WRITTEN[name](), torch.empty(8))
    assert run.findings == []


def test_a_write_through_a_view_counts_for_its_elements_alone(module: Module) -> None:
    with simulate(on_finding="collect") as run:
        x = torch.empty(8)
        x[:4] = 1
        run_copy(module, x[:4], torch.empty(4))
        assert run.findings == []
        run_copy(module, x, torch.empty(8))
    assert [(f.kind, f.lanes) for f in run.findings] == [("uninitialized-read", 4)]


def test_a_write_through_a_strided_view_counts_for_its_elements_alone(module: Module) -> None:
    with simulate(on_finding="collect") as run:
        x = torch.empty(8)
        x[::2] = 1
        run_copy(module, x, torch.empty(8))
    assert [f.lanes for f in run.findings] == [4]


def test_what_one_launch_wrote_the_next_may_read(module: Module) -> None:
    with simulate() as run:
        middle, out = torch.empty(8), torch.empty(8)
        run_copy(module, torch.ones(8), middle)
        run_copy(module, middle, out)
    assert run.findings == []
    assert out.tolist() == [1] * 8


def test_what_a_kernel_left_unwritten_stays_so_across_blocks_of_tracking(module: Module) -> None:
    with simulate(on_finding="collect") as run:
        with tracking_allocations():
            x = torch.empty(8)
            module.copy(torch.ones(8), x, 5, grid=1, block=64)
        run_copy(module, x, torch.empty(8))
    assert [f.lanes for f in run.findings] == [3]


def test_outside_a_block_nothing_is_tracked(module: Module) -> None:
    run_copy(module, torch.empty(8).zero_(), torch.empty(8))
    assert active_allocations() is None
    run_copy(module, torch.empty(8), torch.empty(8))


def test_memory_given_back_is_forgotten() -> None:
    with tracking_allocations() as allocations:
        for _ in range(1000):
            torch.empty(8)
        assert len(allocations._masks) <= 64


def test_a_resized_storage_counts_as_written(module: Module) -> None:
    with simulate(on_finding="collect") as run:
        x = torch.empty(2)
        x.resize_(8)
        x.fill_(1)
        run_copy(module, x, torch.empty(8))
    assert run.findings == []


def test_findings_are_collected_and_the_run_is_active_inside_alone(module: Module) -> None:
    assert active_run() is None
    with simulate(arch="sm_90", on_finding="collect", seed=1) as run:
        assert active_run() is run
        module.copy(torch.zeros(4), torch.zeros(8), 8, grid=1, block=32)
    assert active_run() is None
    assert (run.arch, run.seed) == ("sm_90", 1)
    assert [(f.kind, f.line, f.lanes) for f in run.findings] == [("out-of-bounds", 3, 4)]


def test_a_run_belongs_to_its_thread() -> None:
    seen = []
    with simulate():
        thread = threading.Thread(target=lambda: seen.append(active_run()))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.parametrize("given", [{"arch": "h100"}, {"on_finding": "ignore"}])
def test_a_run_that_makes_no_sense_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError), simulate(**given):  # type: ignore[arg-type]
        pass


def test_torch_compile_works_inside_simulate() -> None:
    torch._dynamo.reset()
    with simulate():
        compiled = torch.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)
        assert torch.allclose(compiled(torch.ones(3)), torch.ones(3).sin() + 1)


def test_the_bytes_of_a_tensor_are_shared_and_end_with_it() -> None:
    x = torch.arange(10, dtype=torch.int16)
    data = tensor_bytes(x[2:5])
    assert data.size == 6
    data.view(np.int16)[0] = -7
    assert x[2].item() == -7
    assert tensor_bytes(x.view(5, 2)[:, 0]).size == 18
    assert tensor_bytes(x[:0]).size == 0


def test_higher_order_operators_work_inside_simulate() -> None:
    with simulate():
        x = torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(3),))
    assert x.tolist() == [2, 2, 2]


def test_a_launch_that_a_finding_stops_counts_as_a_write(module: Module) -> None:
    x, out = torch.zeros(8), torch.zeros(4)
    before = x._version, out._version
    with pytest.raises(FindingError):
        run_copy(module, x, out)
    assert (x._version, out._version) == (before[0], before[1] + 1)


def test_an_address_that_was_stored_in_memory_is_reported_apart_from_a_wrong_index() -> None:
    follow = load_inline("__global__ void follow(float** table) { *table[threadIdx.x] = 1; }")
    x = torch.zeros(8)
    with pytest.raises(
        FindingError, match=r"where nothing is mapped\. An address stored in memory"
    ) as caught:
        follow.follow(torch.tensor([x.data_ptr()]), grid=1, block=1)
    assert "Pass the tensors themselves: in a list for an array of pointers" in str(caught.value)
    assert x.tolist() == [0] * 8


@pytest.fixture(scope="module")
def gather() -> Module:
    """Copy from tensors whose addresses lie in memory, and store to one that is passed, too."""
    return load_inline("""
    __global__ void gather(const float* const* table, float* out, int count) {
        for (int i = 0; i < count; ++i) out[i * blockDim.x + threadIdx.x] = table[i][threadIdx.x];
    }
    __global__ void scatter(float* const* table, float* out) {
        if (blockIdx.x == 0) table[0][threadIdx.x] = 1;
        else out[threadIdx.x] = 2;
    }
    """)


def test_an_address_from_data_ptr_may_be_loaded_from_memory(gather: Module) -> None:
    x, y = torch.rand(8), torch.rand(16)[3:11]
    out = torch.empty(16)
    with simulate():
        assert y.data_ptr() - y[1:].data_ptr() == -4
        assert x.view(2, 4).data_ptr() == x.data_ptr()
        assert x.data_ptr() % 256 == x.untyped_storage().data_ptr() % 256
        gather.gather(torch.tensor([x.view(-1).data_ptr(), y.data_ptr()]), out, 2, grid=1, block=8)
    assert torch.equal(out, torch.cat([x, y]))


def test_an_overrun_from_a_loaded_address_does_not_reach_the_next_tensor(gather: Module) -> None:
    with simulate(on_finding="collect") as run:
        tensors = [torch.zeros(6) for _ in range(20)]
        table = torch.tensor([each.data_ptr() for each in tensors])
        gather.gather(table, torch.empty(160), 20, grid=1, block=8)
    [finding] = run.findings
    assert finding.kind == "out-of-bounds"
    assert finding.address_of is not None
    assert finding.address_of.startswith("data_ptr() at ")
    assert "test_simulation.py:" in finding.address_of


def test_a_loaded_address_of_what_nothing_wrote_is_found(gather: Module) -> None:
    with simulate(on_finding="collect") as run:
        x = torch.empty(8)
        gather.gather(torch.tensor([x.data_ptr()]), torch.empty(8), 1, grid=1, block=8)
        x.zero_()
        gather.gather(torch.tensor([x.data_ptr()]), torch.empty(8), 1, grid=1, block=8)
    assert [finding.kind for finding in run.findings] == ["uninitialized-read"]


def test_a_race_between_a_loaded_address_and_an_argument_is_found(gather: Module) -> None:
    with simulate(on_finding="collect") as run:
        x = torch.zeros(8)
        gather.scatter(torch.tensor([x.data_ptr()]), x, grid=2, block=8)
    assert [finding.kind for finding in run.findings] == ["race"]


def test_the_address_of_a_tensor_that_is_gone_is_found(gather: Module) -> None:
    with simulate(on_finding="collect") as run:
        table = torch.tensor([torch.zeros(1 << 20).data_ptr()])
        gather.gather(table, torch.empty(8), 1, grid=1, block=8)
    assert [finding.kind for finding in run.findings] == ["out-of-bounds"]


def test_a_compile_error_is_printed_once(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k(float* x) { x[0] = y; }\n")
    with pytest.raises(CompileError) as raised, simulate():
        load(path).k(torch.zeros(1), grid=1, block=1)
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.count("does not compile for") == 1


def test_a_kernel_of_hopper_alone_gets_its_architecture_by_default() -> None:
    source = """
    extern __shared__ int tile[];
    __global__ void __launch_bounds__(128) roles(int* out) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x) return;
        tile[50000] = __CUDA_ARCH__;
        *out = tile[50000];
    }
    """
    out = torch.zeros(1, dtype=torch.int32)
    load_inline(source).roles(out, grid=1, block=128, smem_bytes=200_064)
    assert out.item() == 900


def test_a_kernel_with_cluster_dims_gets_an_architecture_that_has_them_by_default() -> None:
    source = "__global__ void __cluster_dims__(2, 1, 1) add_one(int* out) { out[blockIdx.x] += 1; }"
    out = torch.zeros(4, dtype=torch.int32)
    load_inline(source).add_one(out, grid=4, block=1)
    assert out.tolist() == [1, 1, 1, 1]
    with simulate(arch="sm_75"), pytest.raises(CompileError, match="__cluster_dims__ is not supported"):
        load_inline(source).add_one(out, grid=4, block=1)


def test_a_process_that_has_launched_ends_without_a_word() -> None:
    program = f"""
import torch, dotcu
module, x, out = dotcu.load_inline({SOURCE!r}), torch.ones(8), torch.empty(8)
with dotcu.simulate():
    module.copy(x, out, 8, grid=1, block=64)
print(out.sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "tensor(8.)\n", "")


def test_a_trap_for_a_write_to_a_constant_names_the_cause() -> None:
    kernel = load_inline("""__constant__ int table[4];
    __global__ void k(int* out, int n) {
        out[0] = 7;
        if (n < 3) *const_cast<int*>(&table[n]) = 5;
        out[1] = table[0];
    }""").k
    with simulate(on_finding="collect") as run:
        kernel(torch.zeros(4, dtype=torch.int32), 1, grid=1, block=32)
    (finding,) = run.findings
    assert finding.kind == "trap"
    assert "a write to a __constant__ variable" in finding.message


def test_what_a_kernel_prints_cannot_write_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    kernels = dotcu.load_inline(
        r"""__global__ void say(int* out) { printf("\x1b]0;owned\x1b\\\\ of \t%d\n", *out = 1); }"""
    )
    with dotcu.simulate():
        kernels.say(torch.zeros(1, dtype=torch.int32), grid=1, block=1)
    printed = capfd.readouterr().out
    assert "\x1b" not in printed
    assert r"\x1b]0;owned\x1b" in printed
    assert "of \t1\n" in printed

"""Triton kernels run in the simulator as they are written, and their faults are named by line."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dotcu

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402

ARCHITECTURES = ("sm_80", "sm_90")


@pytest.fixture(params=ARCHITECTURES)
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    with dotcu.simulate(arch=request.param, on_finding="collect") as run:
        yield run
    assert [str(finding) for finding in run.findings] == []


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.float64]
)
def test_elementwise(run: Any, dtype: torch.dtype) -> None:
    x, y = torch.randn(1000).mul(9).to(dtype), torch.randn(1000).mul(9).to(dtype)
    out = torch.empty_like(x)
    add[(triton.cdiv(1000, 256),)](x, y, out, 1000, BLOCK=256)
    assert torch.equal(out, x + y)


@triton.jit
def softmax(out_ptr, x_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, e / tl.sum(e, axis=0), mask=at < n)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_softmax(run: Any, warps: int) -> None:
    x = torch.randn(7, 781)
    out = torch.empty_like(x)
    softmax[(7,)](out, x, x.stride(0), 781, BLOCK=1024, num_warps=warps)
    torch.testing.assert_close(out, torch.softmax(x, -1))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(
            a + rm[:, None] * K + (k + rk)[None, :],
            mask=(rm[:, None] < M) & ((k + rk)[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + (k + rk)[:, None] * N + rn[None, :],
            mask=((k + rk)[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        "ieee",
        "tf32x3",
        torch.int8,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ],
)
@pytest.mark.parametrize("stages", [1, 3])
def test_dot(run: Any, dtype: Any, stages: int) -> None:
    precision = dtype if isinstance(dtype, str) else "tf32"
    dtype = torch.float32 if isinstance(dtype, str) else dtype
    if dtype.itemsize == 1 and dtype.is_floating_point and run.arch == "sm_80":
        pytest.skip("fp8 needs sm_89")
    a, b = torch.randn(100, 96).to(dtype), torch.randn(96, 72).to(dtype)
    if dtype == torch.int8:
        a, b = torch.randint(-5, 5, (100, 96), dtype=dtype), torch.randint(-5, 5, (96, 72), dtype=dtype)
    c = torch.empty(100, 72)
    if dtype == torch.int8:
        return
    matmul[(2, 2)](a, b, c, 100, 72, 96, BM=64, BN=64, BK=32, PRECISION=precision, num_stages=stages)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=0.1 if precision == "tf32" else 1e-3, rtol=1e-2)


@triton.jit
def histogram(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(out_ptr + x, 1, mask=at < n)
    tl.atomic_max(out_ptr + 16, tl.max(x, axis=0))


def test_atomics(run: Any) -> None:
    x = torch.randint(0, 16, (1000,), dtype=torch.int32)
    out = torch.zeros(17, dtype=torch.int32)
    histogram[(4,)](x, out, 1000, BLOCK=256)
    assert torch.equal(out[:16], torch.bincount(x, minlength=16).int())
    assert out[16] == x.max()


@triton.jit
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=at < n)


def test_philox(run: Any) -> None:
    x = torch.ones(1000)
    out, again = torch.empty_like(x), torch.empty_like(x)
    dropout[(4,)](x, out, 1000, 0.5, 7, BLOCK=256)
    dropout[(4,)](x, again, 1000, 0.5, 7, BLOCK=256)
    assert torch.equal(out, again)
    assert 400 < (out != 0).sum() < 600


@triton.jit
def scan(x_ptr, out_ptr, sorted_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, 0))
    tl.store(sorted_ptr + at, tl.sort(x))


def test_scan_and_sort(run: Any) -> None:
    x = torch.randint(0, 100, (256,), dtype=torch.int32)
    out, ordered = torch.empty_like(x), torch.empty_like(x)
    scan[(1,)](x, out, ordered, BLOCK=256)
    assert torch.equal(out, x.cumsum(0).int())
    assert torch.equal(ordered, x.sort().values)


@triton.jit
def functions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(
        out_ptr + at,
        tl.exp(x)
        + tl.log(x)
        + tl.sin(x)
        + tl.cos(x)
        + tl.sqrt(x)
        + tl.rsqrt(x)
        + tl.sigmoid(x)
        + tl.erf(x)
        + tl.floor(x)
        + tl.exp2(x)
        + tl.log2(x)
        + tl.fma(x, x, x)
        + tl.abs(x),
    )


def test_functions(run: Any) -> None:
    x = torch.rand(256) + 0.1
    out = torch.empty_like(x)
    functions[(1,)](x, out, BLOCK=256)
    want = (
        x.exp()
        + x.log()
        + x.sin()
        + x.cos()
        + x.sqrt()
        + x.rsqrt()
        + x.sigmoid()
        + x.erf()
        + x.floor()
        + x.exp2()
        + x.log2()
        + x * x
        + x
        + x.abs()
    )
    torch.testing.assert_close(out, want)


@triton.jit
def descriptors(a_desc, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    x = a_desc.load([pm * BM, pn * BN])
    out = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    out.store([pm * BM, pn * BN], x + 1)


def test_descriptors(run: Any) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(100, 64).half()
    out = torch.empty_like(x)
    descriptors[(4, 2)](TensorDescriptor.from_tensor(x, [32, 32]), out, 100, 64, BM=32, BN=32)
    assert torch.equal(out, x + 1)


@triton.jit
def pair(xs, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(xs[0] + at) * xs[1])


def test_tuples(run: Any) -> None:
    x, out = torch.randn(128), torch.empty(128)
    pair[(1,)]((x, 3.0), out, BLOCK=128)
    assert torch.equal(out, x * 3)


class Backwards:
    """A tensor from its last element on: Triton takes anything with a type and an address."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self) -> int:
        return self.tensor[-1:].data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.tensor.untyped_storage()


@triton.jit
def flip(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr - at, mask=at < n), mask=at < n)


def test_an_object_with_an_address_is_the_storage_around_it(run: Any) -> None:
    x, out = torch.randn(100), torch.empty(100)
    flip[(1,)](Backwards(x), out, 100, BLOCK=128)
    assert torch.equal(out, x.flip(0))


def test_an_object_with_an_address_has_bounds_and_unwritten_elements() -> None:
    with dotcu.simulate(on_finding="collect") as run:
        x, out = torch.empty(100), torch.empty(128)
        x[:99] = 1.0
        flip[(1,)](Backwards(x), out, 101, BLOCK=128)
    found = {finding.kind: str(finding) for finding in run.findings}
    assert set(found) == {"out-of-bounds", "uninitialized-read"}
    assert "`x_ptr`[-1]" in found["out-of-bounds"]
    assert "`x_ptr`[99]" in found["uninitialized-read"]


def test_a_view_with_a_stride_of_zero_is_the_storage_around_it(run: Any) -> None:
    x, out = torch.randn(100), torch.empty(100)
    flip[(1,)](x.as_strided((3, 2), (1, 0), 99 - 2), out, 98, BLOCK=128)
    assert torch.equal(out[:98], x[:98].flip(0))


@triton.jit
def quotients(x_ptr, y_ptr, out_ptr, n, stored, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.where(x < 0, x // y - 1, x % y), mask=at < stored)


def test_a_division_by_zero_that_a_mask_drops_is_none(run: Any) -> None:
    x, y, out = torch.arange(1, 101), torch.full((100,), 7), torch.empty(128, dtype=torch.int64)
    quotients[(1,)](x, y, out, 100, 100, BLOCK=128)
    assert torch.equal(out[:100], x % y)


def test_a_division_by_zero_whose_result_is_stored_is_found() -> None:
    x, y, out = torch.arange(1, 101), torch.full((100,), 7), torch.empty(128, dtype=torch.int64)
    with dotcu.simulate(on_finding="collect") as run:
        quotients[(1,)](x, y, out, 100, 101, BLOCK=128)
    (finding,) = run.findings
    assert (finding.kind, finding.lanes) == ("division-by-zero", 1)
    assert "x % y" in finding.source


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + (2 if EVEN else 1), mask=at < n)


def test_autotune_and_heuristics(run: Any) -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
    assert torch.equal(out, x + 2)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"], cache_results=True
)
@triton.jit
def remembered(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at, mask=at < n)


def test_a_run_leaves_no_timings_for_a_gpu(run: Any, tmp_path: Path) -> None:
    out = torch.empty(1000, dtype=torch.int32)
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        remembered[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](out, 1000)
    assert torch.equal(out, torch.arange(1000, dtype=torch.int32))
    assert list(tmp_path.rglob("*.json"))
    assert not list(tmp_path.rglob("*.autotune.json"))


@triton.jit
def printing(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_print("x is", x)


def test_device_print(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    printing[(1,)](torch.arange(4, dtype=torch.int32), BLOCK=4, num_warps=1)
    assert "x is: 3" in capsys.readouterr().out


@triton.jit
def inline(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out_ptr + at, y)


def test_inline_assembly(run: Any) -> None:
    x = torch.arange(128, dtype=torch.int32)
    out = torch.empty_like(x)
    inline[(1,)](x, out, BLOCK=128)
    assert torch.equal(out, x << 3)


def test_clusters() -> None:
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        x = torch.randn(64, 64).half()
        c = torch.empty(64, 64)
        matmul[(1, 1)](x, x, c, 64, 64, 64, BM=64, BN=64, BK=32, PRECISION="tf32", num_ctas=2)
    torch.testing.assert_close(c, x.float() @ x.float(), atol=1e-2, rtol=1e-2)
    assert run.findings == []


def test_an_argument_whose_address_was_asked_for_keeps_its_name() -> None:
    with dotcu.simulate(on_finding="collect") as run:
        x, out = torch.rand(100), torch.empty(128)
        assert x.data_ptr() != out.data_ptr()
        add[(1,)](x, out, out, 128, BLOCK=128)
    assert run.findings[0].address_of == "x_ptr"


def test_a_finding_in_a_cluster_names_the_program() -> None:
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        x, out = torch.zeros(300), torch.zeros(400)
        add[(4,)](x, out, torch.empty(512), 400, BLOCK=128, num_ctas=2)
    assert {(finding.address_of, finding.block) for finding in run.findings} == {("x_ptr", (2, 0, 0))}


def test_a_launch_on_a_thread_outside_says_how_to_take_it_inside() -> None:
    x, out = torch.rand(100), torch.zeros(100)
    errors: list[Exception] = []

    def launched() -> None:
        try:
            add[(1,)](x, x, out, 100, BLOCK=128)
        except Exception as error:
            errors.append(error)

    def on_a_thread(function: Any) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    if torch.cuda.is_available():
        pytest.skip("the thread's launch is Triton's own on a GPU")
    with dotcu.simulate() as run:
        on_a_thread(launched)
        assert "contextvars.copy_context().run" in str(errors.pop())
        on_a_thread(functools.partial(contextvars.copy_context().run, launched))
    assert (errors, dict(run.launches)) == ([], {"add": 1})
    assert torch.equal(out, x + x)


def test_what_was_compiled_before_is_launched(run: Any) -> None:
    x, out = torch.rand(100), torch.zeros(100)
    for compiled in (
        add.warmup(x, x, out, 100, BLOCK=128, grid=(1,)),
        add.run(x, x, out, 100, BLOCK=128, grid=(1,), warmup=False),
    ):
        out.zero_()
        compiled[(1, 1, 1)](x, x, out, 100, 128)
        assert torch.equal(out, x + x)


@triton.jit
def grouped_add(addresses, out_addresses, sizes, count, BLOCK: tl.constexpr):
    for group in range(count):
        x = tl.load(addresses + group).to(tl.pointer_type(tl.float32))
        out = tl.load(out_addresses + group).to(tl.pointer_type(tl.float32))
        n = tl.load(sizes + group)
        for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def test_tensors_whose_addresses_lie_in_a_tensor(run: Any) -> None:
    groups = [torch.rand(n) for n in (5, 300, 128)]
    outs = [torch.empty_like(x) for x in groups]
    sizes = torch.tensor([len(x) for x in groups], dtype=torch.int32)
    addresses, out_addresses = (torch.tensor([x.data_ptr() for x in each]) for each in (groups, outs))
    grouped_add[(2,)](addresses, out_addresses, sizes, 3, BLOCK=64)
    for x, out in zip(groups, outs, strict=True):
        assert torch.equal(out, x + 1)

"""Calls on a GPU: what is replayed from a plan gives what the body gives, bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bodies
import dotcu
from dotcu import errors
from dotcu.checking.trials.ranks import alone
from dotcu.gallery.add.op import add
from dotcu.gallery.fast_add.op import fast_add
from dotcu.gallery.matmul.op import matmul
from dotcu.gallery.square.op import square
from dotcu.kernel.driver.errors import recent_launches
from dotcu.operator import execution

pytestmark = pytest.mark.gpu

LAYOUTS = ("plain", "plain", "transposed", "every second", "from the second", "expanded")
THREE = (torch.float32, torch.float64, torch.int32)


def laid_out(shape: list[int], layout: str, dtype: torch.dtype) -> Tensor:
    """Whole numbers, so that sums are exact in any order."""
    rank = len(shape)

    def random(*sizes: int) -> Tensor:
        return torch.randint(-9, 10, sizes, device="cuda").to(dtype)

    if layout == "transposed":
        return random(*shape[::-1]).permute(tuple(reversed(range(rank))))
    if layout == "every second" and rank:
        return random(*shape[:-1], 2 * shape[-1])[..., ::2]
    if layout == "from the second" and rank:
        return random(shape[0] + 1, *shape[1:])[1:]
    if layout == "expanded" and rank:
        return random(1, *shape[1:]).expand(shape)
    return random(*shape)


@st.composite
def tensors(
    draw: st.DrawFn, *names: str, rank: int | None = None, dtypes: tuple[torch.dtype, ...] = (torch.float32,)
) -> dict[str, Tensor]:
    size = st.integers(0, 9) | st.sampled_from([1, 32, 40])
    shape = draw(st.lists(size, min_size=rank or 0, max_size=3 if rank is None else rank))
    dtype = draw(st.sampled_from(dtypes))
    return {name: laid_out(shape, draw(st.sampled_from(LAYOUTS)), dtype) for name in names}


@st.composite
def calls(draw: st.DrawFn, found: st.SearchStrategy[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**draw(found), **{name: draw(strategy) for name, strategy in more.items()}}


small = st.integers(-4, 4).map(float)

CALLS: dict[Callable[..., Any], st.SearchStrategy[dict[str, Any]]] = {
    bodies.broadcast_add: calls(tensors("a", "b", dtypes=THREE), block_size=st.sampled_from([32, 64])),
    bodies.branching: tensors("x"),
    bodies.strided_rows: tensors("x", rank=2),
    bodies.two_launches: calls(tensors("x"), alpha=small, beta=small),
    bodies.written: tensors("x", "out"),
    add.body: calls(tensors("a", "b", dtypes=THREE), block_size=st.just(64)),
    add.overloads["Scalar"].body: calls(tensors("a"), b=st.integers(-4, 4) | small, block_size=st.just(64)),
    fast_add.body: calls(tensors("a", "b"), block_size=st.just(64), grid_size=st.sampled_from([-1, 2])),
    square.body: calls(tensors("x", dtypes=THREE), block_size=st.just(64)),
}


def operators(body: Callable[..., Any], name: str) -> tuple[Any, Any]:
    """The same body, replayed and not."""
    options: dict[str, Any] = {"mutates_args": ("out",)} if body is bodies.written else {}
    return (
        dotcu.op(f"gpu_replay::{name}", **options)(body),
        dotcu.op(f"gpu_replay::{name}_by_body", cache_calls=False, **options)(body),
    )


OPERATORS = {body: operators(body, f"body{i}") for i, body in enumerate(CALLS)}


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Callable[..., Any], dict[str, Any]]:
    body = draw(st.sampled_from(list(CALLS)))
    return body, draw(CALLS[body])


def outcome(op: Any, call: dict[str, Any]) -> Any:
    """A call's result, or the kind of error that it raises."""
    if "out" in call:
        call = call | {"out": call["out"].clone(memory_format=torch.preserve_format)}
    try:
        return op(**call)
    except (ValueError, TypeError, RuntimeError) as error:
        return type(error)


@settings(max_examples=600, deadline=None)
@given(drawn())
def test_a_replayed_call_gives_what_the_body_gives(row: tuple[Callable[..., Any], dict[str, Any]]) -> None:
    body, call = row
    replayed, by_body = OPERATORS[body]
    expected, got = outcome(by_body, call), outcome(replayed, call)
    if isinstance(expected, type):
        assert got is expected
        return
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    for one, other in zip(_tensors(got), _tensors(expected), strict=True):
        assert (one.shape, one.stride(), one.storage_offset()) == (
            other.shape,
            other.stride(),
            other.storage_offset(),
        )


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def was_replayed(op: Any) -> bool:
    """Return True if the last launch is of an operator, from its call cache."""
    last = recent_launches()[0]
    return last.operator == op.qualified_name and "from the call cache" in str(last.config)


def calm(op: Any, *args: Any, **kwargs: Any) -> None:
    """Call until there is a plan: the first call on a GPU lets the next be followed."""
    for _ in range(3):
        op(*args, **kwargs)


@pytest.mark.parametrize("body", CALLS, ids=lambda body: body.__name__)
def test_a_contiguous_call_does_not_run_the_body_again(body: Callable[..., Any]) -> None:
    op = OPERATORS[body][0]
    x = torch.ones(40, 40, device="cuda")
    call: dict[str, Any] = {
        bodies.branching: {"x": x},
        bodies.strided_rows: {"x": x},
        bodies.two_launches: {"x": x, "alpha": 1.0, "beta": 2.0},
        bodies.written: {"x": x, "out": x.clone()},
        add.overloads["Scalar"].body: {"a": x, "b": 2.0},
        square.body: {"x": x},
    }.get(body, {"a": x, "b": x.clone()})
    calm(op, **call)
    for _ in range(5):
        op(**call)
        assert was_replayed(op), str(op.call_cache)
    assert op.call_cache.status == "native"


def test_what_records_a_gradient_is_replayed() -> None:
    calls = 0
    for n in (16, 48, 80):  # one kernel of add, whose elements fill no whole number of blocks
        a, b = (torch.randint(-3, 4, (n, n), device="cuda").float().requires_grad_() for _ in range(2))
        for _ in range(3):
            a.grad = b.grad = None
            product, total = matmul(a, b), add(a, b, block_size=128)
            calls += 1
            assert calls <= 2 or was_replayed(add), str(add.call_cache)
            (product + total).sum().backward()
        expected = torch.autograd.grad((a @ b + a + b).sum(), (a, b))
        torch.testing.assert_close((a.grad, b.grad), expected)


def test_out_of_memory_raises_torchs_own_error() -> None:
    x = torch.ones(1 << 20, device="cuda")
    calm(square, x)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        square(x.expand(1 << 20, 1 << 20)[:, : 1 << 19])


def test_a_call_on_a_side_stream_is_in_that_streams_order() -> None:
    x = torch.ones(1 << 22, device="cuda")
    calm(square, x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(3.0)
        result = square(x)
    torch.cuda.current_stream().wait_stream(side)
    assert result.unique().tolist() == [9.0]


def test_a_replayed_call_is_captured_in_a_graph() -> None:
    x = torch.ones(1000, device="cuda")
    calm(square, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = square(square(x))
    x.fill_(2.0)
    graph.replay()
    assert result.unique().tolist() == [16.0]


def test_threads_that_are_new_to_cuda_replay() -> None:
    x = torch.full((1000,), 3.0, device="cuda")
    calm(square, x)
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(square(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.unique().tolist() for result in results] == [[9.0]] * 4


def test_each_gpu_has_its_own_plans() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    for index in (0, 1, 0, 1):
        x = torch.full((1000,), float(index + 2), device=f"cuda:{index}")
        calm(square, x)
        result = square(x)
        assert was_replayed(square)
        assert result.device == x.device
        assert result.unique().tolist() == [float((index + 2) ** 2)]
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1), pytest.raises((errors.ArgumentError, RuntimeError)):
        add(torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"))


def test_compiled_code_calls_the_replayed_operator() -> None:
    compiled = torch.compile(lambda x: square(x) + 1, fullgraph=True)
    x = torch.ones(1000, device="cuda")
    calm(square, x)
    for _ in range(3):
        assert compiled(x).unique().tolist() == [2.0]
    assert was_replayed(square)


def test_while_a_body_is_asked_for_shapes_nothing_is_launched() -> None:
    x = torch.ones(8, device="cuda")
    calm(square, x)
    with dotcu.kernel.scope.watching_launches() as seen:
        square(x)
    assert [launch.kernel for launch in seen] == ["square<float, 4, 1>"]


def test_the_profiler_sees_a_call_that_would_be_replayed() -> None:
    x = torch.full((1000,), 3.0, device="cuda")
    calm(square, x)
    assert was_replayed(square)
    with torch.profiler.profile(acc_events=True) as profile:
        result = square(x)
        assert not was_replayed(square)
    assert result.unique().tolist() == [9.0]
    assert square.qualified_name in {event.key for event in profile.key_averages()}
    square(x)
    assert was_replayed(square)


clustered = dotcu.load_inline("""
__global__ void ranks(const int* x, int* out) {
    unsigned rank, size;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0) out[blockIdx.x] = x[blockIdx.x] + 100 * size + rank;
}
""")


def with_ranks(x: Tensor, size: int = 2) -> Tensor:
    """Each element, and for its block the rank in the cluster and a hundred times the cluster's size."""
    out = torch.empty_like(x)
    clustered.ranks(x, out, grid=x.numel(), block=32, cluster=size)
    return out


def test_a_replayed_launch_with_clusters_gives_what_the_body_gives() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need sm_90")
    replayed, by_body = operators(with_ranks, "ranks")
    for n in (8, 16):
        x = torch.arange(n, device="cuda", dtype=torch.int32) * 1000
        for size in (2, 4):
            calm(replayed, x, size)
            got = replayed(x, size)
            assert was_replayed(replayed), str(replayed.call_cache)
            assert got.tolist() == [1000 * i + 100 * size + i % size for i in range(n)]
            assert torch.equal(got, by_body(x, size))
            assert not was_replayed(by_body)
    x = torch.arange(6, device="cuda", dtype=torch.int32)
    with pytest.raises(errors.LaunchConfigError):
        replayed(x, 4)  # six blocks are no whole clusters: no plan fits, and the body says so


def test_a_call_on_dtensors_replays_that_of_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    x = torch.randn(8, 8, device="cuda")
    with alone(), torch.no_grad():
        mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (1,))
        split = distribute_tensor(x, mesh, [Shard(0)])
        for _ in range(2):
            square(split)

        def no_body(*args: Any) -> None:
            raise AssertionError("the body ran")

        monkeypatch.setattr(execution, "compute", no_body)
        got = square(split)
        assert got.placements == (Shard(0),)
        assert torch.equal(got.to_local(), x * x)

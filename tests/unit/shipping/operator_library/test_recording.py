"""Recordings of calls for C++: what they hold for, and what cannot be recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import sympy
import torch
from torch import Tensor

import dotcu
from dotcu.compile import Target
from dotcu.errors import ArgumentError, LaunchConfigError
from dotcu.operator import schema, tuned
from dotcu.shipping.operator_library.recording import RecordedCall, Recording, Unrecorded

kernels = dotcu.load_inline(r"""
template <typename T, int ITEMS>
__global__ void scale(const T* x, T* out, float by, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; ++i)
        if (i < n) out[i] = by * x[i];
}
struct Pair { int first, second; };
__global__ void fill(float4* out, unsigned char value, Pair pair) { out[threadIdx.x].x = value + pair.first; }
__global__ void alone(int value) {}
__global__ void sums(const float** parts, int count, float* out) {}
__global__ void vectors(float2 by, float* out) {}
""")

scale = kernels.scale[torch.float32, 1]


def record(body: Callable[..., Any], *values: Any, arch: str = "sm_80") -> RecordedCall:
    """Record a body with a value for each of its arguments."""
    signature = schema.infer(body, name="test_recording::body", overload="", mutates_args=())
    overload: Any = SimpleNamespace(body=body, signature=signature, qualified_name=signature.qualified_name)
    return Recording(Target.parse(arch)).run(overload, dict(zip(signature.arguments, values, strict=True)))


def holds(call: RecordedCall, values: dict[str, float]) -> bool:
    """Return whether the guards of a call hold where its symbols have some values."""
    named = {symbol: sympy.sympify(values[symbol.name]) for g in call.guards for symbol in g.free_symbols}
    return all(guard.xreplace(named) == sympy.true for guard in call.guards)


def scaled(x: Tensor, by: float) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    scale(x, out, by, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@pytest.mark.parametrize("fails", [False, True], ids=["waits", "raises"])
def test_a_body_that_reads_what_a_kernel_writes_is_ended_at_once(fails: bool) -> None:
    """Its launches do not happen, so it would wait for ever for what they write, or take it for a fault."""

    def body(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        try:
            while not out[0]:
                if fails:
                    raise RuntimeError("no kernel wrote")
        except Exception:
            return out
        return out

    with pytest.raises(Unrecorded, match=r"calls the operator aten.\w+.default, .*test_recording.py:\d+\."):
        record(body, torch.ones(3))


def test_one_sample_stands_for_all_sizes_and_numbers() -> None:
    calls = {record(scaled, torch.ones(*shape), by) for shape, by in (((3, 4), 2.0), ((1, 7), -0.5))}
    (call,) = calls
    assert call.guards == ()
    assert record(scaled, torch.ones(0, 1), 3.0) == call


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda x: x.view(-1),
    "rows": lambda x: x.reshape(-1, x.shape[-1]),
    "joined": lambda x: x.flatten(),
    "itself": lambda x: x.contiguous().view(x.shape),
    "whole": lambda x: x[...],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_of_contiguous_tensors_have_no_guard_against_a_size_of_1(
    view: Callable[[Tensor], Tensor],
) -> None:
    def body(x: Tensor) -> Tensor:
        return scaled(view(x), 2.0).view(x.shape)

    call = record(body, torch.ones(3, 4, 5))
    values = {f"{{0}}.sizes()[{d}]": size for d, size in enumerate((1, 4, 1))}
    assert holds(call, values), call.guards


def test_a_body_takes_the_branch_of_a_gpu() -> None:
    def body(x: Tensor) -> Tensor:
        on_gpu = x.is_cuda and x.device.type == "cuda" and not x.is_cpu
        return scaled(x, 2.0) if on_gpu else x.clone()

    assert len(record(body, torch.ones(3)).launches) == 1


def test_a_branch_on_sizes_is_a_guard() -> None:
    def body(x: Tensor, most: int) -> Tensor:
        out, n = torch.empty_like(x), x.shape[0]
        scale(x, out, 1.0, n, grid=min(n, most * dotcu.sm_count(x)), block=64)
        return out

    few, many = (record(body, torch.ones(n), 2) for n in (10, 1000))
    values = {"{0}.sizes()[0]": 300.0, "{1}": 2.0, "call.multiprocessors()": 200.0}
    assert (holds(few, values), holds(many, values)) == (True, False)
    values["call.multiprocessors()"] = 100
    assert (holds(few, values), holds(many, values)) == (False, True)


def test_what_python_computes_with_floats_is_computed_in_c() -> None:
    def body(x: Tensor, by: float) -> Tensor:
        return scaled(x, by / 2 + x.shape[0])

    (number, _) = record(body, torch.ones(3), 3.0).launches[0].fields[2:]
    assert number.kind == "float"
    named = {"{1}": 7.0, "{0}.sizes()[0]": 5}
    assert number.value.subs({s: named[s.name] for s in number.value.free_symbols}) == 8.5


@pytest.mark.parametrize(
    "by", [lambda n: math.sqrt(n), lambda n: n**-0.5, lambda n: 2.0**n], ids=["sqrt", "root", "power"]
)
def test_what_has_no_c_holds_for_the_sample_s_numbers(by: Callable[[int], float]) -> None:
    def body(x: Tensor) -> Tensor:
        return scaled(x, by(x.shape[0]))

    call = record(body, torch.ones(4, 5))
    fits = {n: holds(call, {"{0}.sizes()[0]": n}) for n in (3, 4, 5)}
    assert fits == {3: False, 4: True, 5: False}
    assert all(not field.value.free_symbols for field in call.launches[0].fields if field.kind == "float")


def test_a_vector_holds_for_the_sample_s_numbers() -> None:
    def body(x: Tensor, by: float) -> Tensor:
        kernels.vectors((by, x.shape[0]), out := torch.empty_like(x), grid=1, block=32)
        return out

    call = record(body, torch.ones(4), 2.0)
    fits = [holds(call, {"{0}.sizes()[0]": n, "{1}": by}) for n, by in ((4, 2.0), (5, 2.0), (4, 3.0))]
    assert fits == [True, False, False]


def test_alignment_is_a_guard_on_the_address() -> None:
    def body(x: Tensor) -> Tensor:
        return scaled(x[1:], 2.0 if dotcu.is_aligned(x[2:], 16) else 1.0)

    whole = record(body, torch.ones(9))
    part = record(body, torch.ones(11)[2:])
    values = {"{0}.sizes()[0]": 20}
    fits = [
        (holds(whole, values | at), holds(part, values | at))
        for at in ({"Call::address({0})": n} for n in (64, 72))
    ]
    assert fits == [(True, False), (False, True)]


def test_the_strides_of_a_sample_that_is_not_contiguous_may_vary() -> None:
    kernel = dotcu.load_inline("__global__ void rows(const float* x, int a, int b, float* out) {}").rows

    def body(x: Tensor) -> Tensor:
        out = torch.empty(x.shape, device=x.device)
        kernel(dotcu.strided(x), out, grid=x.shape[0], block=32)
        return out

    call = record(body, torch.ones(4, 3).t())
    assert not any("strides" in symbol.name for guard in call.guards for symbol in guard.free_symbols)
    strides = [str(field.value) for field in call.launches[0].fields if field.kind == "int32_t"]
    assert strides == ["{0}.strides()[0]", "{0}.strides()[1]"]


def test_occupancy_holds_for_one_capability_and_takes_a_size_for_its_block() -> None:
    def body(x: Tensor) -> Tensor:
        out, block = torch.empty_like(x), x.shape[0]
        scale(x, out, 1.0, block, grid=scale.occupancy(block), block=block)
        return out

    call = record(body, torch.ones(64))
    assert call.exactly
    assert {n: holds(call, {"{0}.sizes()[0]": n}) for n in (32, 64)} == {32: False, 64: True}
    assert not record(scaled, torch.ones(64), 1.0).exactly


def _returned(x: Tensor) -> Tensor:
    return x


def _twice(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(x)
    return out, out.view(-1)


def _on_cpu(x: Tensor) -> Tensor:
    return torch.empty(3)


def _struct(x: Tensor) -> Tensor:
    kernels.fill(out := torch.empty_like(x), 1, {"first": 1, "second": 2}, grid=1, block=1)
    return out


def _listed(x: Tensor) -> Tensor:
    kernels.sums([x, x], 2, out := torch.empty_like(x), grid=1, block=1)
    return out


def _tupled(x: Tensor) -> Tensor:
    kernels.sums((x,), 1, out := torch.empty_like(x), grid=1, block=1)
    return out


def _alone(x: Tensor) -> Tensor:
    kernels.alone(1, grid=1, block=1)
    return torch.empty_like(x)


REFUSED: dict[Callable[..., Any], str] = {
    _returned: "it returns an argument's memory",
    _twice: "it returns the same memory twice",
    _on_cpu: "it makes a tensor on cpu, and its arguments are on the GPU",
    _struct: "fill takes the members of a struct",
    _listed: "it passes a list for parts, and C++ makes no array of it",
    _tupled: "it passes a list for parts, and C++ makes no array of it",
    _alone: "alone is launched without a tensor, so on the current GPU",
    lambda x: x.t().contiguous() if x.dim() > 1 else x[::2].contiguous(): "contiguous() copies here",
    lambda x: x.half(): "it calls the operator aten._to_copy.default, and only launches can be recorded",
    lambda x: tuned_scale(x): "it calls the operator test_recording.tuned_scale.default, and only launches",
    lambda x: x.fill_(x.sum()): "it calls the operator aten.sum.default",
    lambda x: x.new_empty(x.data_ptr() % 7): "it asks for an address: ask dotcu.is_aligned",
    lambda x: x.new_empty(x.storage_offset()): "it asks for a storage offset: ask dotcu.is_aligned",
    lambda x: x.__setitem__(0, 1.0): "it assigns to a part of a tensor",
    lambda x: x[..., [0]]: "it indexes a tensor with a list, which copies",
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_c_cannot_repeat_is_refused_with_the_reason(body: Callable[..., Any], reason: str) -> None:
    def typed(x: Tensor) -> Tensor:
        return body(x)

    def several(x: Tensor) -> tuple[Tensor, Tensor]:
        return body(x)

    with pytest.raises(Unrecorded) as refused:
        record(several if body is _twice else typed, torch.ones(8))
    assert str(refused.value).startswith(reason)


def test_a_tensor_that_is_no_argument_is_refused() -> None:
    constant = torch.ones(3)

    def body(x: Tensor) -> Tensor:
        scale(constant, out := torch.empty_like(x), 1.0, 3, grid=1, block=32)
        return out

    with pytest.raises(Unrecorded, match="a tensor of unknown origin"):
        record(body, torch.ones(3))


def test_a_launch_that_python_refuses_is_refused_alike() -> None:
    def wrong(x: Tensor) -> Tensor:
        return scaled(x, 2.0)

    with pytest.raises(ArgumentError, match="takes a contiguous float32 tensor"):
        record(wrong, torch.ones(3, dtype=torch.float64))

    def large(x: Tensor) -> Tensor:
        scale(x, out := torch.empty_like(x), 1.0, 3, grid=1, block=x.shape[0])
        return out

    with pytest.raises(LaunchConfigError, match="2000"):
        record(large, torch.ones(2000))


class Tile(NamedTuple):
    block: int
    items: int


@dotcu.op("test_recording::tuned_scale")
def tuned_scale(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    tile = tuned_scale.configuration(x.dtype, n)
    kernel = kernels.scale[x.dtype, tile.items]
    kernel(x, out, 2.0, n, grid=dotcu.cdiv(n, tile.block * tile.items), block=tile.block)
    return out


@tuned_scale.configurations
def _() -> Iterator[Tile]:
    yield Tile(128, 1)
    yield Tile(64, 2)


def test_a_tuned_configuration_holds_for_the_sizes_of_its_bucket(tmp_path: Any) -> None:
    space = tuned_scale.tunable
    assert space is not None
    found = tuned.TunedEntry(
        gpu="simulator", capability="8.0", multiprocessors=108, key=("float32", 64),
        configuration={"block": 64, "items": 2}, median_us=3.0, over_runner_up=1.0, over_default=1.5,
        digest=space.digest,
    )  # fmt: skip
    before, space.file = space.file, tmp_path / "ops.tuned.toml"
    tuned.TunedFile().with_entries(space.name, [found]).write(space.file)
    space.forget()
    try:
        call = record(tuned_scale.body, torch.ones(100))
    finally:
        space.file = before
        space.forget()
    assert (call.launches[0].kernel, call.launches[0].config.block) == ("scale<float, 2>", (64, 1, 1))
    assert call.exactly
    fits = {n: holds(call, {"{0}.sizes()[0]": n}) for n in (64, 65, 128, 129)}
    assert fits == {64: False, 65: True, 128: True, 129: False}

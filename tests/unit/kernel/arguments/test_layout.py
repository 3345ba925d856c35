"""Structs with tensors in them, lists of tensors, and tensor maps in memory."""

from __future__ import annotations

import ctypes
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import settings
from dotcu.errors import ArgumentError, FindingError, GradientError
from dotcu.kernel import Module, cuda, load_inline, simulate
from dotcu.kernel.arguments.pack import Placement, pack, tensors_in
from dotcu.kernel.arguments.signature import TypeLayout
from dotcu.kernel.launch import GpuDevice
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.kernel.simulation import simulated_device

SOURCE = """
#include <cuda_fp16.h>

namespace ns {
enum class Mode : unsigned char { ADD, MULTIPLY };
template <typename T> struct Bias { const T* values; T all; };
}
struct Head { long long rows; };
struct Params : Head {
    float* x;
    const int* __restrict__ idx;
    int n;
    ns::Bias<float> bias;
    float* rows[3];
    ns::Mode mode;
    union { int whole; float part; };
    float4 four;
    __half half;
    void (*hook)(int);
};
struct Node { Node* next; float* x; };
struct Flags { int low : 3; int high : 4; float* x; };
class Hidden {
    float* x_;
    int n_;
  public:
    __device__ float* x() { return x_; }
    __device__ int n() { return n_; }
};

__global__ void step(Params params, float* out) {
    int i = threadIdx.x;
    if (i >= params.n) return;
    params.x[i] = 2 * params.x[i] + params.bias.values[i] + params.bias.all;
    for (int r = 0; r < 3; ++r) if (params.rows[r]) params.rows[r][i] = r + params.idx[i];
    if (i == 0) {
        out[0] = params.Head::rows;
        out[1] = params.mode == ns::Mode::MULTIPLY;
        out[2] = params.part;
        out[3] = params.four.z;
        out[4] = __half2float(params.half);
    }
}
__global__ void add_all(float* const* xs, const float* const* ys, int count, int n) {
    for (int t = blockIdx.x; t < count; t += gridDim.x)
        if (threadIdx.x < n) xs[t][threadIdx.x] += ys[t][threadIdx.x];
}
__global__ void follow(Node node) {
    for (Node* one = &node; one; one = one->next) one->x[threadIdx.x] += 1;
}
__global__ void in_groups(const Node* nodes, int count) {
    for (int i = 0; i < count; ++i) nodes[i].x[threadIdx.x] = i;
}
__global__ void flags(Flags flags) { flags.x[0] = flags.low; }
__global__ void hidden(Hidden one) { one.x()[0] = one.n(); }
__global__ void unnamed(Node, float* out) { out[0] = 1; }
__global__ void swap(float** pair) {
    float* first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
    pair[0][0] = 1;
}

template <int depth, int most> struct Tensors {
    void* addresses[depth][most];
    int sizes[most];
    unsigned char block_to_tensor[8];
    int block_to_chunk[8];
};
template <int depth, int most>
__global__ void scale(int chunk, volatile int* overflow, Tensors<depth, most> tensors, float by) {
    int which = tensors.block_to_tensor[blockIdx.x], start = tensors.block_to_chunk[blockIdx.x] * chunk;
    const float* in = static_cast<const float*>(tensors.addresses[0][which]);
    float* out = static_cast<float*>(tensors.addresses[1][which]);
    for (int i = start + threadIdx.x; i < min(start + chunk, tensors.sizes[which]); i += blockDim.x) {
        out[i] = by * in[i];
        if (!isfinite(out[i])) *overflow = 1;
    }
}
"""


@pytest.fixture(scope="module")
def kernels() -> Module:
    return load_inline(SOURCE)


Bias = namedtuple("Bias", ["values", "all"])


@dataclass
class Params:
    rows: Any
    x: Tensor
    idx: Tensor
    n: int
    bias: Any
    mode: int = 1
    part: float = 0.5
    four: tuple[int, ...] = (1, 2, 3, 4)
    half: float = 1.5
    hook: None = None


NODE = {"next": None}


class Node(ctypes.Structure):
    _fields_ = (("next", ctypes.c_void_p), ("x", ctypes.py_object))


def test_a_struct_takes_a_value_for_each_member(kernels: Module, device: torch.device) -> None:
    x, out = torch.arange(5.0, device=device), torch.zeros(5, device=device)
    values, idx = torch.ones(5, device=device), torch.arange(5, dtype=torch.int32, device=device)
    rows = [torch.zeros(5, device=device), None, torch.zeros(5, device=device)]
    given = vars(Params(rows, x, idx, 5, Bias(values, 0.25)))
    kernels.step({**given, "Head::rows": 1 << 40}, out, grid=1, block=32)
    assert x.tolist() == [1.25, 3.25, 5.25, 7.25, 9.25]
    assert rows[2] is not None
    assert rows[2].tolist() == [2, 3, 4, 5, 6]
    assert out.tolist() == [float(1 << 40), 1, 0.5, 3, 1.5]
    assert (x._version, rows[2]._version, idx._version, values._version) == (1, 1, 0, 0)


def test_dataclasses_named_tuples_and_structures_of_ctypes_are_alike(
    kernels: Module, device: torch.device
) -> None:
    pair = namedtuple("pair", ["next", "x"])
    made = dataclass(type("Made", (), {"__annotations__": {"next": Any, "x": Any}}))
    kinds = [pair, made, Node, lambda next, x: {"x": x, "next": next}]
    for make in kinds:
        x = torch.zeros(4, device=device)
        kernels.follow(make(None, x), grid=1, block=4)
        assert x.tolist() == [1, 1, 1, 1]
        assert x._version == 1


def test_a_pointer_to_structs_takes_them_in_a_list(kernels: Module, device: torch.device) -> None:
    x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
    kernels.in_groups([{"next": None, "x": x}, Node(None, y)], 2, grid=1, block=4)
    assert (x.tolist(), y.tolist()) == ([0] * 4, [1] * 4)
    kernels.follow({"next": {"next": [{"next": None, "x": x}], "x": y}, "x": x}, grid=1, block=4)
    assert (x.tolist(), y.tolist()) == ([2] * 4, [2] * 4)


def test_members_of_a_class_and_parameters_without_a_name(kernels: Module, device: torch.device) -> None:
    x = torch.zeros(1, device=device)
    kernels.hidden({"x_": x, "n_": 7}, grid=1, block=1)
    assert x.item() == 7
    kernels.unnamed(Node(None, x), x, grid=1, block=1)
    assert x.item() == 1


def test_a_list_of_tensors_is_an_array_of_pointers(kernels: Module, device: torch.device) -> None:
    xs = [torch.full((7,), float(i), device=device) for i in range(5)]
    ys = [torch.ones(7, device=device) for _ in xs]
    kernels.add_all(xs, tuple(ys), 5, 7, grid=2, block=32)
    assert [x[6].item() for x in xs] == [1, 2, 3, 4, 5]
    assert ({x._version for x in xs}, {y._version for y in ys}) == ({1}, {0})
    kernels.add_all([], [], 0, 7, grid=2, block=32)


def test_an_array_of_pointers_is_the_launchs_own(kernels: Module, device: torch.device) -> None:
    x, y = torch.zeros(1, device=device), torch.zeros(1, device=device)
    pair = [x, y]
    kernels.swap(pair, grid=1, block=1)
    assert (pair[0] is x, x.item(), y.item()) == (True, 0, 1)


def chunks_of(tensors: list[list[Tensor]], chunk: int) -> dict[str, Any]:
    blocks = [(i, c) for i, x in enumerate(tensors[0]) for c in range(-(-x.numel() // chunk))]
    return {
        "addresses": tensors,
        "sizes": [x.numel() for x in tensors[0]],
        "block_to_tensor": bytes(i for i, _ in blocks).ljust(8, b"\0"),
        "block_to_chunk": [c for _, c in blocks],
    }


def test_a_kernel_over_many_tensors_runs_as_it_is(kernels: Module, device: torch.device) -> None:
    ins = [torch.randn(n, device=device) for n in (100, 31, 260)]
    outs = [torch.empty_like(x) for x in ins]
    overflow = torch.zeros(1, dtype=torch.int32, device=device)
    many = kernels.scale[2, 4]
    many(100, overflow, chunks_of([ins, outs], 100), 2.0, grid=5, block=32)
    for x, out in zip(ins, outs, strict=True):
        assert torch.equal(out, 2 * x)
    assert overflow.item() == 0


# What does not fit


OK = {"next": None, "x": torch.zeros(4)}


def refused(kernel: Any, *args: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        kernel(*args, grid=1, block=4)
    return str(caught.value)


def test_a_member_that_does_not_fit_is_named_by_its_path(kernels: Module) -> None:
    x = torch.zeros(4)
    message = refused(kernels.follow, {**OK, "x": x.double()})
    assert message.startswith(
        "follow: parameter 1, Node node: node.x, takes a contiguous float32 tensor, or None, got a float64 "
        "tensor of shape (4,) on cpu.\nPass tmp = t.to(torch.float32), or"
    )
    assert "After the launch t.copy_(tmp)" in message
    read = refused(kernels.add_all, [x], [x.double()], 1, 4)
    assert read.endswith("\nPass t.to(torch.float32), or a kernel for torch.float64.")
    nested = {"next": [{**OK, "x": 3}], "x": x}
    assert "node.next[0].x, takes a contiguous float32 tensor" in refused(kernels.follow, nested)
    assert "params.rows[1], takes a contiguous float32" in refused(kernels.step, rows_of([x, 1]), x)
    assert "params.rows, takes a list of up to 3, " in refused(kernels.step, rows_of([x] * 4), x)
    assert "got 4 values.\nPass at most 3" in refused(kernels.step, rows_of([x] * 4), x)
    assert "params.n, takes an int" in refused(kernels.step, {**rows_of([]), "n": 1.5}, x)
    assert "xs[1], takes a contiguous float32" in refused(kernels.add_all, [x, x.int()], [x, x], 2, 4)


def rows_of(rows: list[Any]) -> dict[str, Any]:
    x = torch.zeros(4)
    return {**vars(Params(rows, x, x.int(), 4, Bias(x, 1.0))), "Head::rows": 1}


def test_the_names_are_those_of_the_struct(kernels: Module) -> None:
    assert refused(kernels.follow, {"x": torch.zeros(4)}) == (
        "follow: parameter 1, Node node, takes its members in a dataclass, a dict or a ctypes.Structure, or "
        "its 16 bytes, got no value for next (Node*).\nThe members: next (Node*), x (float*)."
    )
    assert (
        "got a value for nxt, which is no member.\nDid you mean next? The members: next (Node*)"
        in refused(kernels.follow, {**OK, "nxt": None})
    )
    assert "params.bias, takes its members" in refused(kernels.step, {**rows_of([]), "bias": 3}, None)


def test_of_a_union_one_member_is_given(kernels: Module) -> None:
    rows = {**rows_of([]), "whole": 1, "part": 2.0}
    assert "got whole and part, which share bytes.\nPass one of them." in refused(kernels.step, rows, None)


def test_what_holds_itself_is_refused(kernels: Module) -> None:
    node: dict[str, Any] = {"x": torch.zeros(4)}
    node["next"] = [node]
    assert "Does it hold itself?" in refused(kernels.follow, node)


def test_a_tensor_for_an_array_of_pointers_is_refused_with_the_list(kernels: Module) -> None:
    x = torch.zeros(4)
    assert "Pass a list of tensors, of which dotcu makes an array: [t]." in refused(
        kernels.add_all, x, [x], 1, 4
    )


def test_a_union_with_a_tensor_in_it_is_not_taken_for_bytes(kernels: Module) -> None:
    either = type("Either", (ctypes.Union,), {"_fields_": [("x", ctypes.py_object), ("n", ctypes.c_int)]})
    message = refused(kernels.follow, {"next": None, "x": either(torch.zeros(1))})
    assert "node.x, takes a contiguous float32 tensor" in message
    pair = type("Pair", (ctypes.Union,), {"_fields_": [("all", ctypes.py_object * 2)]})
    assert "got a Pair with Python objects.\nPass a dict of its members." in refused(kernels.follow, pair())


def test_bit_fields_take_bytes(kernels: Module) -> None:
    message = refused(kernels.flags, {"low": 1, "high": 2, "x": torch.zeros(1)})
    assert "member low is a bit-field" in message
    assert "Pass a ctypes.Structure without tensors" in message


def test_tensors_in_a_struct_count_for_device_and_gradients(kernels: Module) -> None:
    x = torch.zeros(4, requires_grad=True)
    assert tensors_in([{"a": [x, (1, x)]}, Node(None, x), 3])[2] is x
    with pytest.raises(GradientError):
        kernels.follow({"next": None, "x": x}, grid=1, block=4)
    assert "xs" in refused(kernels.add_all, [torch.zeros(4), torch.zeros(4, device="meta")], [], 2, 4)


def test_without_a_compiler_a_struct_takes_its_bytes(kernels: Module) -> None:
    fresh = load_inline(SOURCE + "// alone\n")
    fresh.kernels["unnamed"].warm()
    with settings.override(jit="error"):
        assert "Pass its bytes" in refused(fresh.unnamed, OK, torch.zeros(1))
        fresh.unnamed(bytes(16), torch.zeros(1), grid=1, block=1)


def test_where_debug_information_is_turned_off_a_struct_takes_its_bytes() -> None:
    module = load_inline(
        "struct P { float* x; }; __global__ void k(P p) { p.x[0] = 1; }", options=["-dopt=on"]
    )
    assert "Pass its bytes" in refused(module.k, {"x": torch.zeros(1)})


# What the simulator finds


def finding(kernel: Any, *args: Any, **config: Any) -> Any:
    with simulate(), pytest.raises(FindingError) as caught:
        kernel(*args, **{"grid": 1, "block": 4, **config})
    return caught.value.finding


def test_findings_name_the_member(kernels: Module) -> None:
    short = {"next": [{"next": None, "x": torch.zeros(2)}], "x": torch.zeros(4)}
    found = finding(kernels.follow, short)
    assert (found.kind, found.address_of) == ("out-of-bounds", "node.next[0].x")
    assert "`node.next[0].x`[2]" in found.message
    assert "`node.next[0].x`, in argument 1 of `follow`, shape (2,) float32, launched at " in str(found)
    assert "holds 2 elements of 4 bytes" in found.message


def test_findings_name_the_item_of_a_list(kernels: Module) -> None:
    xs = [torch.zeros(4), torch.zeros(3)]
    found = finding(kernels.add_all, xs, [torch.zeros(4)] * 2, 2, 4)
    assert (found.kind, found.address_of) == ("out-of-bounds", "xs[1]")
    found = finding(kernels.add_all, xs, [torch.zeros(4)], 2, 3)
    assert (found.kind, found.address_of) == ("out-of-bounds", "ys")
    found = finding(kernels.add_all, [None], [torch.zeros(4)], 1, 4)
    assert found.kind == "null-pointer"


def test_a_list_that_shares_a_storage_is_reported_apart(kernels: Module) -> None:
    x = torch.zeros(8)
    found = finding(kernels.follow, {"next": None, "x": x[:2]})
    assert (found.kind, found.address_of) == ("out-of-bounds", "node.x")


def test_reads_of_what_nothing_wrote_and_races_name_the_member(kernels: Module) -> None:
    with simulate():
        unwritten = torch.empty(4)
        with pytest.raises(FindingError) as caught:
            kernels.add_all([torch.zeros(4)], [unwritten], 1, 4, grid=1, block=4)
    assert (caught.value.finding.kind, caught.value.finding.address_of) == ("uninitialized-read", "ys[0]")
    found = finding(kernels.follow, {"next": None, "x": torch.zeros(4)}, grid=2)
    assert (found.kind, found.address_of) == ("race", "node.x")


# Tensor maps in memory

MAPS = """
#include <dotcu/tma.cuh>

namespace cute { using TmaDescriptor = struct alignas(64) { unsigned long long opaque[16]; }; }
struct Both { CUtensorMap x; CUtensorMap out; int n; };

__device__ void twice(const CUtensorMap& x, const CUtensorMap& out) {
    __shared__ alignas(128) float tile[8][16];
    __shared__ dotcu::mbarrier arrived;
    if (threadIdx.x == 0) arrived.init(1);
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived.arrive_expect(sizeof(tile));
        dotcu::tma_load(tile, x, arrived, 0, 0);
    }
    arrived.wait(0);
    for (int i = threadIdx.x; i < 8 * 16; i += blockDim.x) tile[i / 16][i % 16] *= 2;
    dotcu::tma_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        dotcu::tma_store(out, tile, 0, 0);
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
__device__ const CUtensorMap& map(const cute::TmaDescriptor& of) {
    return reinterpret_cast<const CUtensorMap&>(of);
}
__global__ void behind(const CUtensorMap* x, const CUtensorMap* out) { twice(*x, *out); }
__global__ void listed(const CUtensorMap* maps) { twice(maps[0], maps[1]); }
__global__ void within(const __grid_constant__ Both both) { twice(both.x, both.out); }
__global__ void named(const __grid_constant__ cute::TmaDescriptor x, const cute::TmaDescriptor* out) {
    twice(map(x), map(*out));
}
__global__ void copied(cute::TmaDescriptor x) {
    if (threadIdx.x > 999) x.opaque[threadIdx.x % 16] = 1;
    twice(map(x), map(x));
}
"""


@pytest.fixture(scope="module")
def maps() -> Module:
    return load_inline(MAPS)


@pytest.mark.parametrize(
    ("name", "place", "is_exact"),
    [
        ("behind", lambda x, out: (x, out), True),
        ("listed", lambda x, out: ([x, out],), False),
        ("within", lambda x, out: ({"x": x, "out": out, "n": 1},), False),
        ("named", lambda x, out: (x, out), True),
    ],
)
def test_tensor_maps_are_followed_in_memory(maps: Module, name: str, place: Any, is_exact: bool) -> None:
    x, out = torch.randn(8, 16), torch.zeros(8, 16)
    with simulate(arch="sm_90"):
        args = place(dotcu.tensor_map(x, box=(8, 16)), dotcu.tensor_map(out, box=(8, 16)))
        maps.kernels[name](*args, grid=1, block=64)
    assert torch.equal(out, 2 * x)
    assert out._version == 1
    assert x._version == (0 if is_exact else 1), "maps in one argument cannot be told apart"


def test_a_map_that_is_copied_is_refused(maps: Module) -> None:
    with simulate(arch="sm_90"), pytest.raises(ArgumentError, match="const __grid_constant__ cute::TmaDesc"):
        maps.copied(dotcu.tensor_map(torch.zeros(8, 16), box=(8, 16)), grid=1, block=64)


# The other roads


def test_an_operator_takes_them_in_its_body(kernels: Module) -> None:
    @dotcu.op("test_layout::increased")
    def increased(x: Tensor) -> Tensor:
        out = x.clone()
        kernels.follow({"next": None, "x": out}, grid=1, block=x.numel())
        return out

    x = torch.arange(6.0)
    assert [increased(x + i)[0].item() for i in range(3)] == [1, 2, 3]
    compiled = torch.compile(increased, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), x + 1)


def test_a_launch_on_a_gpu_gets_their_addresses(
    kernels: Module, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Tensor] = []
    launched: list[Any] = []

    def device_copy(data: bytes, index: int) -> Tensor:
        copies.append(torch.frombuffer(bytearray(data), dtype=torch.int64))
        return copies[-1]

    monkeypatch.setattr(cuda, "device_copy", device_copy)
    monkeypatch.setattr(cuda, "launch", lambda *args: launched.append(args[4]))
    x, y, code = torch.zeros(4), torch.zeros(4), Gpu(simulated_device().code(kernels.follow.unit))
    config = simulated_config()
    GpuDevice(index=0).run(code, "add_all", code.plan("add_all"), [[x, y], [y, x], 2, 4], config)
    assert [copy.tolist() for copy in copies] == [
        [x.data_ptr(), y.data_ptr()],
        [y.data_ptr(), x.data_ptr()],
    ]
    assert [int.from_bytes(each, "little") for each in launched[0]] == [
        copies[0].data_ptr(), copies[1].data_ptr(), 2, 4,
    ]  # fmt: skip
    GpuDevice(index=0).run(code, "follow", code.plan("follow"), [Node(None, x)], config)
    assert launched[1] == (bytes(8) + x.data_ptr().to_bytes(8, "little"),)
    assert (x._version, y._version) == (2, 1)


class Gpu:
    """Code for the simulator, where a GPU would load it."""

    def __init__(self, code: Any) -> None:
        self.plan, self.symbol = code.plan, code.symbol

    def library(self, kernel: str) -> None:
        return None


def simulated_config() -> Any:
    from dotcu.kernel.config import read_config

    return read_config("k", grid=1, block=32)


def test_a_skipped_launch_looks_at_nothing(kernels: Module) -> None:
    with entering_scope(LaunchPolicy.SKIP):
        kernels.follow(object(), grid=1, block=1)


def test_the_layout_is_the_compilers(kernels: Module) -> None:
    code = simulated_device().code(kernels.step.unit)
    layout = code._layout("step", 0)
    assert isinstance(layout, TypeLayout)
    rows = [
        (name, offset, member.size, str(member.ctype).removeprefix("ns::"))
        for name, offset, member in layout.members()
    ]
    assert rows == [
        ("Head::rows", 0, 8, "long long"),
        ("x", 8, 8, "float*"),
        ("idx", 16, 8, "const int*"),
        ("n", 24, 4, "int"),
        ("bias", 32, 16, "Bias<float>"),
        ("rows", 48, 24, "float*[3]"),
        ("mode", 72, 1, "Mode"),
        ("whole", 76, 4, "int"),
        ("part", 76, 4, "float"),
        ("four", 80, 16, "float4"),
        ("half", 96, 2, "__half"),
        ("hook", 104, 8, "void (*)()"),
    ]
    assert layout.size == 112


def test_packing_needs_no_layout_for_bytes(kernels: Module) -> None:
    plan = simulated_device().code(kernels.follow.unit).plan("follow")
    to = Placement(lambda *tensor: 0, lambda *tensor_map: b"", lambda *data: 0)
    assert pack(plan, [bytes(range(16))], to)[0] == (bytes(range(16)),)

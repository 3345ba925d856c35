from __future__ import annotations

import pytest
import torch

from dotcu.errors import ArgumentError, KernelNotFound, SourceError, TracedLaunchError
from dotcu.kernel import Module, load_inline, simulate
from dotcu.kernel.context import Place, entering

SOURCE = """
__constant__ float table[4];
__device__ int counter;
namespace ns { __constant__ int offset; }
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void count(int* out) { *out = atomicAdd(&counter, 1) + ns::offset; }
template <int N> __global__ void scaled(float* out) { out[threadIdx.x] = N * table[threadIdx.x]; }
"""


@pytest.fixture
def module() -> Module:
    return load_inline(SOURCE)


def looked_up(module: Module, device: torch.device | str) -> list[float]:
    out = torch.zeros(4, device=device)
    module.look_up(out, grid=1, block=4)
    return out.tolist()


def test_a_constant_table_is_written_before_and_after_loading(module: Module, device: torch.device) -> None:
    assert looked_up(module, device) == [0, 0, 0, 0]
    module.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    assert looked_up(module, device) == [1, 2, 3, 4]
    module.variable("table").write(torch.tensor([5.0, 6, 7, 8], device=device))
    assert looked_up(module, device) == [5, 6, 7, 8]


def test_a_write_reaches_copies_that_are_loaded_later(module: Module, device: torch.device) -> None:
    module.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    out = torch.zeros(4, device=device)
    module.scaled[10](out, grid=1, block=4)
    assert out.tolist() == [10, 20, 30, 40]
    with simulate(arch="sm_90"):
        assert looked_up(module, "cpu") == [1, 2, 3, 4]
    module.variable("table").write(torch.zeros(4))
    module.scaled[10](out, grid=1, block=4)
    assert out.tolist() == [0, 0, 0, 0]


def test_a_device_variable_keeps_what_kernels_store(module: Module, device: torch.device) -> None:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    module.variable("counter").write(torch.tensor([40], dtype=torch.int32))
    module.variable("offset").write(torch.tensor(100, dtype=torch.int32))
    for expected in (140, 141):
        module.count(out, grid=1, block=1)
        assert out.item() == expected


def test_a_strided_tensor_is_written_in_its_order(module: Module, device: torch.device) -> None:
    module.variable("table").write(torch.arange(8.0)[::2])
    assert looked_up(module, device) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.zeros(3), r"has 16 bytes, got a float32 tensor of shape \(3,\) on cpu of 12 bytes"),
        (torch.zeros(4, dtype=torch.float64), "of 32 bytes"),
        ([1.0, 2.0], "takes a tensor, got list"),
        (torch.zeros(4, device="meta"), "without memory"),
    ],
)
def test_a_value_of_another_size_is_refused(module: Module, value: object, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        module.variable("table").write(value)  # type: ignore[arg-type]


def test_an_unknown_variable_lists_those_that_there_are(module: Module) -> None:
    with pytest.raises(KernelNotFound, match=r"no variable named 'tabel'; it has table, "):
        module.variable("tabel")


def test_a_variable_that_the_preprocessor_hides_says_so() -> None:
    hidden = load_inline("#define N 0\n#if N\n__constant__ int gone;\n#endif\n__global__ void k() {}")
    with pytest.raises(KernelNotFound, match="gone"):
        hidden.variable("gone").write(torch.zeros(1, dtype=torch.int32))
    hidden.k(grid=1, block=1)


def test_nothing_is_written_where_only_shapes_are_asked_for(module: Module) -> None:
    with entering(Place.SKIP):
        module.variable("table").write(torch.ones(4))
    assert looked_up(module, "cpu") == [0, 0, 0, 0]


def test_a_variable_says_what_it_is(module: Module) -> None:
    variable = module.variable("ns::offset")
    assert repr(variable) == "<dotcu variable ns::offset of inline.cu, not written>"
    variable.write(torch.tensor(1, dtype=torch.int32))
    assert repr(variable) == "<dotcu variable ns::offset of inline.cu, written>"


COUNTER = """
__device__ int counter;
__device__ const int step = 1;
template <typename T> __global__ void bump(T* out) { atomicAdd(&counter, step); *out = T(0); }
template <typename T> __global__ void fill(T* out) { *out = T(step); }
__global__ void read(int* out) { *out = counter; }
"""


def test_instantiations_named_together_share_a_device_variable(device: torch.device) -> None:
    module = load_inline(COUNTER, instantiate={"bump": [torch.float32, (torch.int32,)]})
    out, scratch = torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(1, device=device)
    module.bump[torch.float32](scratch, grid=2, block=1)
    module.bump[torch.int32](out, grid=1, block=1)
    module.read(out, grid=1, block=1)
    assert out.item() == 3


def test_a_second_copy_of_a_device_variable_is_refused(device: torch.device) -> None:
    module = load_inline(COUNTER)
    out, scratch = torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(1, device=device)
    module.bump[torch.float32](scratch, grid=1, block=1)
    with pytest.raises(SourceError, match=r"copy of its own of the __device__ variable counter") as caught:
        module.read(out, grid=1, block=1)
    assert 'instantiate={"bump": [(torch.float32,)]}' in str(caught.value)


def test_a_template_that_writes_no_variable_needs_no_naming(device: torch.device) -> None:
    module = load_inline(COUNTER)
    scratch = torch.zeros(1, device=device)
    module.fill[torch.float32](scratch, grid=1, block=1)
    module.read(torch.zeros(1, dtype=torch.int32, device=device), grid=1, block=1)
    assert scratch.item() == 1


def test_a_write_where_nothing_may_be_launched_is_refused(module: Module) -> None:
    with (
        entering(Place.REFUSE, operator="ns::op", reason="in its backward"),
        pytest.raises(TracedLaunchError, match=r"table was written in ns::op in its backward"),
    ):
        module.variable("table").write(torch.ones(4))
    assert looked_up(module, "cpu") == [0, 0, 0, 0]


def test_a_table_that_only_the_host_writes_may_have_many_copies(device: torch.device) -> None:
    module = load_inline("""
        __device__ float large[4];
        template <int N> __global__ void look_up(float* out) { out[threadIdx.x] = N * large[threadIdx.x]; }
        template <typename T> __global__ void fill(T* x) { large[threadIdx.x] = x[threadIdx.x]; }
    """)
    out = torch.zeros(4, device=device)
    module.variable("large").write(torch.arange(4.0))
    for factor in (1, 2):
        module.look_up[factor](out, grid=1, block=4)
        assert out.tolist() == [0, factor, 2 * factor, 3 * factor]
    with pytest.raises(SourceError, match=r"fill<float> would get a copy .* look_up<1>, look_up<2> already"):
        module.fill[torch.float32](out, grid=1, block=4)
    module.look_up[3](out, grid=1, block=4)


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int next() { static int n; return atomicAdd(&n, 1); }",
        "template <typename T> __device__ T n;\n__device__ int next() { return atomicAdd(&n<int>, 1); }",
        "#define DEV __device__ int\n#define N(n) DEV n\nN(n);\nDEV next() { return atomicAdd(&n, 1); }",
        "static __device__ int n;\n__device__ int next() { return atomicAdd(&n, 1); }",
        "namespace { __device__ int n; }\n__device__ int next() { return atomicAdd(&n, 1); }",
    ],
)
def test_state_of_any_kind_is_never_split(device: torch.device, text: str) -> None:
    text += "\ntemplate <typename T> __global__ void draw(T* x) { *x = T(next()); }"
    split = load_inline(text)
    numbers, halves = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.float16, device=device)
    split.draw[torch.float32](numbers, grid=1, block=1)
    with pytest.raises(SourceError, match=r"draw<__half> would get a copy of its own") as caught:
        split.draw[torch.float16](halves, grid=1, block=1)
    assert 'instantiate={"draw": [(torch.float32,), (torch.float16,)]}' in str(caught.value)
    joined = load_inline(text, instantiate={"draw": [torch.float32, torch.float16]})
    joined.draw[torch.float32](numbers, grid=1, block=1)
    joined.draw[torch.float16](halves, grid=1, block=1)
    assert (numbers.item(), halves.item()) == (0, 1)

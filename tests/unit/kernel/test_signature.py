from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source, kernels
from dotcu.kernel.arguments import plan
from dotcu.kernel.signature import Signature, signature
from dotcu.simulator import entry_headers

SOURCE = """
namespace ns {
template <typename T, int R> struct box { T* data; long long sizes[R]; };
struct info { int a; };
enum class Mode { A, B };
template <typename... A> struct pack { int x; };
}
struct Pair { int a; double b; struct In { int q; }; };
template <ns::Mode M> struct chosen { int a; };
__global__ void k(ns::box<const float, 2> a, ns::box<float, 1> b, ns::box<const float, 2> c, ns::info d,
                  const Pair e, Pair::In f, const Pair* g, float4 h, const float4* i,
                  chosen<ns::Mode::B> j, ns::pack<int, const float*, Pair> l, const ns::pack<>* m,
                  float (*n)[4], volatile int* __restrict__ o, const void* const* p, ns::Mode q,
                  unsigned long long* r, const bool s, signed char t, unsigned short* u) {}
namespace ns { template <typename T, int N> __global__ void inner(T* x, const box<T, N>* y, T z) {} }
extern "C" __global__ void plain(const float* __restrict__ x, float* __restrict__ y, const int n) {}
"""


def read(name: str, expression: str = "") -> Signature:
    source = inline_source(SOURCE)
    expression = expression or name
    code = build(source, options=CompileOptions(), target=Target.parse("compute_80"), names=[expression])
    declaration = next(d for d in kernels(SOURCE) if d.name == name)
    entry = entry_headers(code.ptx)[code.lowered[expression]].params
    return signature(
        expression, probe=code.signatures[expression], names=declaration.parameter_names, entry=entry
    )


def test_what_the_compiler_mangles_is_read_back_as_it_was_written() -> None:
    assert [str(p) for p in read("k").parameters] == [
        "ns::box<const float, 2> a",
        "ns::box<float, 1> b",
        "ns::box<const float, 2> c",
        "ns::info d",
        "Pair e",
        "Pair::In f",
        "const Pair* g",
        "float4 h",
        "const float4* i",
        "chosen<(ns::Mode)1> j",
        "ns::pack<int, const float*, Pair> l",
        "const ns::pack<>* m",
        "float (* n)[4]",
        "volatile int* o",
        "const void* const* p",
        "ns::Mode q",
        "unsigned long long* r",
        "bool s",
        "signed char t",
        "unsigned short* u",
    ]


def test_sizes_alignments_and_offsets_are_the_entrys() -> None:
    layout = [(p.size, p.alignment, p.offset) for p in read("k").parameters][:9]
    assert layout == [
        (24, 8, 0), (16, 8, 24), (24, 8, 40), (4, 4, 64), (16, 8, 72), (4, 4, 88), (8, 8, 96),
        (16, 16, 112), (8, 8, 128),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expression", "spelled"),
    [
        ("plain", "", "plain(const float* x, float* y, int n)"),
        (
            "ns::inner",
            "ns::inner<double, 3>",
            "ns::inner<double, 3>(double* x, const ns::box<double, 3>* y, double z)",
        ),
    ],
)
def test_templates_and_extern_c_have_their_whole_type(name: str, expression: str, spelled: str) -> None:
    assert str(read(name, expression)) == spelled


def test_every_parameter_of_it_has_a_packer() -> None:
    takes = [packer.takes for packer in plan(read("k")).packers]
    assert takes[0] == "its 24 bytes"
    assert takes[7] == "a tuple of 4 numbers"
    assert takes[12] == "a contiguous float32 tensor, or None"
    assert takes[15] == "an int from -2147483648 to 4294967295"

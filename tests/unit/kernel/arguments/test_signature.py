"""A kernel's parameter list and mangled names."""

from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source, kernels
from dotcu.errors import SourceError
from dotcu.kernel.arguments.pack import packing_plan
from dotcu.kernel.arguments.signature import (
    KernelParameter,
    parameter_types,
    qualified_name,
    read_parameters,
    shown_name,
)
from dotcu.ptx.module import parse_module

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


def read(name: str, expression: str = "") -> tuple[KernelParameter, ...]:
    source = inline_source(SOURCE)
    expression = expression or name
    code = build(source, options=CompileOptions(), target=Target.parse("compute_80"), names=[expression])
    declaration = next(d for d in kernels(SOURCE) if d.name == name)
    entry = parse_module(code.ptx).entries[code.lowered[expression]].params
    return read_parameters(
        expression, probe=code.signatures[expression], names=declaration.parameter_names, entry=entry
    )


def test_what_the_compiler_mangles_is_read_back_as_it_was_written() -> None:
    assert [str(p) for p in read("k")] == [
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


def test_sizes_are_the_entrys() -> None:
    assert [p.size for p in read("k")][:9] == [24, 16, 24, 4, 16, 4, 8, 16, 8]


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
    assert str(packing_plan(expression or name, read(name, expression))) == spelled


def test_every_parameter_of_it_has_a_packer() -> None:
    takes = [packer.takes for packer in packing_plan("k", read("k")).packers]
    assert takes[0] == "its members in a dataclass, a dict or a ctypes.Structure, or its 24 bytes"
    assert takes[7] == "a tuple of 4 numbers"
    assert takes[12] == "a contiguous float32 tensor, or None"
    assert takes[15] == "an int from -2147483648 to 4294967295"


def spelled(symbol: str) -> list[str]:
    return [str(ctype) for ctype in parameter_types(symbol)]


def test_the_probe_of_the_design_is_read() -> None:
    assert spelled("_Z13__dotcu_probeIPFvPKfS1_fPfxEEvv") == [
        "const float*",
        "const float*",
        "float",
        "float*",
        "long long",
    ]


def test_a_kernel_without_parameters_has_none() -> None:
    assert spelled("_Z13__dotcu_probeIPFvvEEvv") == []


@pytest.mark.parametrize(
    ("code", "spelling"),
    [
        ("a", "signed char"),
        ("h", "unsigned char"),
        ("c", "char"),
        ("b", "bool"),
        ("m", "unsigned long"),
        ("y", "unsigned long long"),
        ("d", "double"),
        ("6__half", "__half"),
        ("13__nv_bfloat16", "__nv_bfloat16"),
        ("P6float4", "float4*"),
        ("PK6float4", "const float4*"),
        ("PPf", "float**"),
        ("PKPKf", "const float* const*"),
        ("Pv", "void*"),
        ("PVKf", "const volatile float*"),
        ("PFffE", "float (*)(float)"),
        ("PA4_f", "float (*)[4]"),
        ("N5dotcu6tensorIKfLi2EEE", "dotcu::tensor<const float, 2>"),
        ("N2ns3boxIJifEEE", "ns::box<int, float>"),
        ("3boxILb1ELin3EE", "box<true, -3>"),
        ("3boxILN2ns4ModeE2EE", "box<(ns::Mode)2>"),
        ("N12_GLOBAL__N_13boxE", "(anonymous namespace)::box"),
        ("St4pairIifE", "std::pair<int, float>"),
        ("NSt3__14pairIifEE", "std::__1::pair<int, float>"),
    ],
)
def test_a_type_is_spelled_as_in_the_source(code: str, spelling: str) -> None:
    assert spelled(f"_Z13__dotcu_probeIPFv{code}EEvv") == [spelling]


def test_substitutions_reach_names_prefixes_and_templates() -> None:
    symbol = "_Z13__dotcu_probeIPFvN5dotcu6tensorIKfLi2EEENS1_IfLi1EEES3_NS0_4infoEEEvv"
    assert spelled(symbol)[:2] == ["dotcu::tensor<const float, 2>", "dotcu::tensor<float, 1>"]
    assert spelled(symbol)[2:] == ["dotcu::tensor<const float, 2>", "dotcu::info"]


def test_template_arguments_are_values() -> None:
    (ctype,) = parameter_types("_Z13__dotcu_probeIPFvN5dotcu6tensorIKfLi2EEEEEvv")
    assert ctype.name == "dotcu::tensor"
    element, rank = ctype.arguments
    assert (element.const, element.name, rank) == (True, "float", 2)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "symbol", ["_Z3fooi", "plain", "_Z13__dotcu_probeIPFvUlvE_EEvv", "_Z13__dotcu_probeIPFvS9_EEvv"]
)
def test_what_is_no_probe_is_refused(symbol: str) -> None:
    with pytest.raises(SourceError):
        parameter_types(symbol)


@pytest.mark.parametrize(
    ("symbol", "name", "template"),
    [
        ("_Z3addPKfPf", "add", False),
        ("_ZN2ns3addEPf", "ns::add", False),
        ("_Z3addIfEvPT_", "add", True),
        ("plain", "plain", False),
    ],
)
def test_an_entry_gives_its_qualified_name(symbol: str, name: str, template: bool) -> None:
    assert qualified_name(symbol) == (name, template)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"),
        ("_Z5plainPi", "plain"),
        ("_Z5scaleIfLi256EEvPT_", "scale<float, 256>"),
        ("_ZN2ns5inner5scaleINS_4PairEEEvPT_", "ns::inner::scale<ns::Pair>"),
        ("_Znot a name", "_Znot a name"),
    ],
)
def test_a_symbol_is_shown_as_a_source_would_write_it(symbol: str, name: str) -> None:
    assert shown_name(symbol) == name

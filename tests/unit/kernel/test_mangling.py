from __future__ import annotations

import pytest

from dotcu.errors import SourceError
from dotcu.kernel.mangling import parameter_types, qualified_name, shown_name


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

"""Names that the compiler does not know, and the header that brings each."""

from __future__ import annotations

import pytest

from dotcu.compile import Diagnostic
from dotcu.compile.undefined import first, hint


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("int64_t", "<cstdint>"),
        ("UINT32_MAX", "<cstdint>"),
        ("INT_MAX", "<climits>"),
        ("FLT_MAX", "<cfloat>"),
        ("M_PI", "<cmath>"),
        ("half2", "<cuda_fp16.h>"),
        ("__float2half_rn", "<cuda_fp16.h>"),
        ("__nv_bfloat16", "<cuda_bf16.h>"),
        ("__nv_fp8_e4m3", "<cuda_fp8.h>"),
        ("cooperative_groups", "<cooperative_groups.h>"),
        ("nvcuda", "<mma.h>"),
        ("cudaGridDependencySynchronize", "<cuda_runtime.h>"),
    ],
)
def test_a_known_name_has_its_header(name: str, header: str) -> None:
    assert hint(f'identifier "{name}" is undefined') == f"{name} comes with: #include {header}"


def test_a_member_of_a_namespace_has_its_header() -> None:
    assert "#include <cstdint>" in hint('namespace "std" has no member "uint8_t"')


@pytest.mark.parametrize("message", ['identifier "my_half" is undefined', 'expected a ";"'])
def test_another_message_has_no_hint(message: str) -> None:
    assert hint(message) == ""


def test_unknown_names_come_first_and_those_with_a_header_before_them() -> None:
    messages = ['expected a ";"', 'identifier "x" is undefined', 'identifier "half" is undefined', "bad"]
    errors = [Diagnostic(severity="error", file="", line=0, column=0, message=text) for text in messages]
    assert [messages.index(error.message) for error in first(errors)] == [2, 1, 0, 3]

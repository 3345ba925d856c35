"""Names that the compiler does not know, and the header that brings each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dotcu.compile.diagnostics import Diagnostic

# Names, as a pattern, and their header. Source: the headers of CUDA 13.0 and dotcu/include/nvrtc.
HEADERS = (
    (r"u?int(_fast|_least)?(8|16|32|64)_t|u?int(ptr|max)_t|U?INT(8|16|32|64)_(MAX|MIN|C)", "<cstdint>"),
    (r"s?size_t|ptrdiff_t|nullptr_t", "<cstddef>"),
    (r"FLT_\w+|DBL_\w+", "<cfloat>"),
    (r"(U?(INT|LONG|LLONG|CHAR|SHRT)|SCHAR)_(MAX|MIN)|CHAR_BIT", "<climits>"),
    (r"M_PI\w*|M_E|M_SQRT\w+|M_LN\w+|INFINITY|NAN|HUGE_VALF?", "<cmath>"),
    (r"numeric_limits", "<limits>"),
    (
        (
            r"is_same(_v)?|enable_if(_t)?|conditional(_t)?|is_integral(_v)?|is_floating_point(_v)?"
            r"|remove_(cv|reference|const)\w*|decay(_t)?|integral_constant|true_type|false_type"
        ),
        "<type_traits>",
    ),
    (r"move|forward|swap|pair", "<utility>"),
    (r"assert", "<cassert>"),
    (
        r"__half2?(_raw)?|half2?|__(float2half|half2float|float22half|hadd|hmul|hfma|low2|high2)\w*",
        "<cuda_fp16.h>",
    ),
    (
        r"__nv_bfloat16\w*|nv_bfloat16\w*|__(float2bfloat16|bfloat162float|float22bfloat16)\w*",
        "<cuda_bf16.h>",
    ),
    (r"__nv_fp8\w*|__nv_cvt_\w*fp8\w*", "<cuda_fp8.h>"),
    (r"__nv_fp6\w*", "<cuda_fp6.h>"),
    (r"__nv_fp4\w*", "<cuda_fp4.h>"),
    (r"cu\w*Complex\w*", "<cuComplex.h>"),
    (r"cooperative_groups|cg", "<cooperative_groups.h>"),
    (r"wmma|nvcuda", "<mma.h>"),
    (r"__pipeline_\w+", "<cuda_pipeline.h>"),
    (r"CUtensorMap\w*", "<cuda.h>"),
    (r"cuda(GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)", "<cuda_runtime.h>"),
    (r"cub", "<cub/cub.cuh>"),
)
_HEADERS = [(re.compile(pattern), header) for pattern, header in HEADERS]
_UNDEFINED = re.compile(r'^identifier "(\w+)" is undefined|(?:has no member) "(\w+)"')


def hint(message: str) -> str:
    """Which `#include` brings the name that a message is about; "" where it is no known one."""
    asked = name(message)
    header = next((header for pattern, header in _HEADERS if pattern.fullmatch(asked)), "")
    return f"{asked} comes with: #include {header}" if header else ""


def comes_with(names: Iterable[str]) -> frozenset[str]:
    """The headers that bring some names, of those that are known."""
    found = {header for name in names for pattern, header in _HEADERS if pattern.fullmatch(name)}
    return frozenset(found)


def name(message: str) -> str:
    """The name that a message says is not known; "" where it is about something else."""
    match = _UNDEFINED.search(message)
    return (match[1] or match[2]) if match else ""


def first(errors: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Errors about names that are not known before those that follow from them."""
    return sorted(errors, key=lambda error: _rank(error.message))


def _rank(message: str) -> int:
    if hint(message):
        return 0
    return 1 if _UNDEFINED.search(message) else 2

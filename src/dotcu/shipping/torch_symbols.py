"""Which of torch's functions a library may use, and since which torch they are there.

Functions of C++ (`at::`, `c10::`, `torch::`) change with each release, in their names or silently in what
they mean. The stable ABI is C: `aoti_torch_*` and `torch_*`, which are added and never taken away.
"""

from __future__ import annotations

import re

from dotcu.inspection.binaries import Symbol

Version = tuple[int, int]

FIRST: Version = (2, 10)

_CPP = re.compile(r"(?<![\w:])(?:at|c10|torch|caffe2)::")
_MANGLED = re.compile(r"_ZT?[NISVH]*[KVRO]*(?:2at|3c10|5torch|6caffe2)\d")  # where nothing can demangle
_PYTHONS = re.compile(r"_?THP[A-Z]\w*")

_DTYPES = ("float8_e8m0fnu", "float4_e2m1fn_x2")
_TAGS = (
    "core", "cudagraph_unsafe", "data_dependent_output", "dynamic_output_shape", "flexible_layout",
    "generated", "inplace_view", "maybe_aliasing_or_mutating", "needs_contiguous_strides",
    "needs_exact_strides", "needs_fixed_stride_order", "nondeterministic_bitwise", "nondeterministic_seeded",
    "out_variant", "pointwise", "pt2_compliant_tag", "reduction", "view_copy",
)  # fmt: skip

# Source: TORCH_FEATURE_VERSION in torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h of
# torch 2.13. What is not here is of 2.10 or before.
SINCE: dict[str, Version] = {
    **dict.fromkeys([*(f"torch_dtype_{name}" for name in _DTYPES), "torch_from_blob"], (2, 11)),
    **dict.fromkeys([f"aoti_torch_dtype_{name}" for name in _DTYPES], (2, 12)),
    **dict.fromkeys([*(f"torch_tag_{name}" for name in _TAGS), "torch_library_def_with_tags"], (2, 12)),
    **dict.fromkeys(
        [
            "torch_library_set_python_module", "torch_exception_get_what",
            "torch_exception_get_what_without_backtrace", "torch_new_stable_ivalue",
            "torch_delete_stable_ivalue", "torch_stream_native_handle", "torch_new_generator_handle",
            "torch_delete_generator", "torch_generator_get_device",
        ],
        (2, 13),
    ),
}  # fmt: skip

# Functions that a torch without CUDA lacks. Source: the libraries of torch 2.13 without CUDA, of 2.10 with.
_OF_CUDA = re.compile(r"(?:aoti_torch|torch)_(?!device_type|tag_)\w*cuda\w*")


def is_unstable(symbol: Symbol) -> bool:
    """Whether an undefined symbol is torch's, and not of its stable ABI."""
    if _PYTHONS.fullmatch(symbol.symbol):
        return True
    return bool(_CPP.search(symbol.name) if symbol.name != symbol.symbol else _MANGLED.match(symbol.symbol))


def is_torchs(symbol: Symbol) -> bool:
    """Whether a symbol is of the stable ABI."""
    return symbol.symbol.startswith(("aoti_torch_", "torch_"))


def since(symbol: Symbol) -> Version:
    """The first torch that has a function of the stable ABI."""
    return SINCE.get(symbol.symbol, FIRST)


def needs_cuda(symbol: Symbol) -> bool:
    """Whether a torch without CUDA cannot load what uses it: weak symbols may be missing."""
    return symbol.letter == "U" and _OF_CUDA.fullmatch(symbol.symbol) is not None

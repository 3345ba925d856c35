"""Kernels of spelled instructions: operands of one recipe each, a row of results for each spelling."""

from __future__ import annotations

import numpy as np

import golden_recipes as recipes
from golden_case import KERNELS, Case, In, Out
from golden_compare import Spelled, spellings
from golden_recipes import THREADS, Recipe


def _spelled(name: str, a: Recipe, b: Recipe | None = None, c: Recipe | None = None) -> Case:
    rows = spellings((KERNELS / f"{name}.cu").read_text("utf-8"))
    return Case(
        name=name,
        args={"a": In(a), "b": In(b or a), "c": In(c or a), "out": Out((len(rows), THREADS), np.uint64)},
        compare=Spelled(rows),
    )


_INTEGERS = recipes.integers
_F16_PAIRS, _BF16_PAIRS = recipes.pairs(recipes.f16), recipes.pairs(recipes.bf16)

SPELLED = (
    _spelled("integer_add", _INTEGERS),
    _spelled("integer_multiply", _INTEGERS),
    _spelled("integer_multiply_add", _INTEGERS),
    _spelled("integer_24_bits", _INTEGERS),
    _spelled("integer_divide", _INTEGERS, recipes.divisors),
    _spelled("integer_extremes", _INTEGERS),
    _spelled("integer_logic", _INTEGERS),
    _spelled("integer_shift", _INTEGERS, recipes.amounts),
    _spelled("integer_carry", _INTEGERS),
    _spelled("integer_packed", _INTEGERS),
    _spelled("integer_video", _INTEGERS),
    _spelled("bits_count", _INTEGERS),
    _spelled("bits_field", _INTEGERS, _INTEGERS, recipes.amounts),
    _spelled("bits_extract", _INTEGERS, recipes.amounts, recipes.amounts),
    _spelled("bits_funnel", _INTEGERS, _INTEGERS, recipes.amounts),
    _spelled("bits_permute", _INTEGERS),
    _spelled("bits_logic3", _INTEGERS),
    _spelled("bits_dot", _INTEGERS),
    _spelled("bits_masks", recipes.amounts, recipes.amounts, recipes.amounts),
    _spelled("float_add", recipes.f32),
    _spelled("float_subtract", recipes.f32),
    _spelled("float_multiply", recipes.f32),
    _spelled("float_fma", recipes.f32),
    _spelled("float_divide", recipes.f32),
    _spelled("float_root", recipes.f32),
    _spelled("float_extremes", recipes.f32),
    _spelled("float_sign", recipes.f32),
    _spelled("float_xorsign", recipes.f32),
    _spelled("float_f64", recipes.f64),
    _spelled("float_f64_far", recipes.wide_f64),
    _spelled("approx_reciprocal", recipes.positive_f32, recipes.f32),
    _spelled("approx_root_f64", recipes.f64),
    _spelled("approx_exponential", recipes.exponents),
    _spelled("approx_logarithm", recipes.positive_f32),
    _spelled("approx_angle", recipes.angles),
    _spelled("approx_tanh", recipes.exponents),
    _spelled("half_arithmetic_f16", _F16_PAIRS),
    _spelled("half_arithmetic_bf16", _BF16_PAIRS),
    _spelled("half_fma_f16", _F16_PAIRS),
    _spelled("half_fma_bf16", _BF16_PAIRS),
    _spelled("half_extremes_f16", _F16_PAIRS),
    _spelled("half_extremes_bf16", _BF16_PAIRS),
    _spelled("half_xorsign_f16", _F16_PAIRS),
    _spelled("half_xorsign_bf16", _BF16_PAIRS),
    _spelled("approx_half_f16", _F16_PAIRS),
    _spelled("approx_half_bf16", _BF16_PAIRS),
    _spelled("compare_integers", _INTEGERS),
    _spelled("compare_f32", recipes.f32),
    _spelled("compare_f64", recipes.f64),
    _spelled("compare_combined", recipes.f32_in_f64),
    _spelled("compare_f16", _F16_PAIRS),
    _spelled("compare_bf16", _BF16_PAIRS),
    _spelled("compare_pairs", _F16_PAIRS),
    _spelled("compare_set_integers", _INTEGERS),
    _spelled("compare_set_floats", recipes.f32_in_f64),
    _spelled("compare_set_f16", _F16_PAIRS),
    _spelled("compare_set_bf16", _BF16_PAIRS),
    _spelled("compare_select", _INTEGERS),
    _spelled("convert_integers", _INTEGERS),
    _spelled("convert_float_to_integer_f32", recipes.f32),
    _spelled("convert_float_to_integer_f64", recipes.f64),
    _spelled("convert_float_to_integer_f16", recipes.f16),
    _spelled("convert_float_to_integer_bf16", recipes.bf16),
    _spelled("convert_integer_to_float", _INTEGERS),
    _spelled("convert_f32", recipes.f32),
    _spelled("convert_f64", recipes.f64),
    _spelled("convert_f16", recipes.f16),
    _spelled("convert_bf16", recipes.bf16),
    _spelled("convert_pairs", recipes.f32),
    _spelled("convert_pack", _INTEGERS),
    _spelled("convert_to_fp8", recipes.to_fp8),
    _spelled("convert_pair_to_fp8", _F16_PAIRS),
    _spelled("convert_from_fp8", recipes.fp8_pairs),
    _spelled("atomic_shared", _INTEGERS),
    _spelled("atomic_global", _INTEGERS),
    _spelled("atomic_floats", recipes.f32),
    _spelled("atomic_halves", _F16_PAIRS),
)

"""Kernels of spelled instructions: operands of one recipe each, a row of results for each spelling."""

from __future__ import annotations

import numpy as np

import golden_recipes as recipes
from golden_case import KERNELS, Case, In, Out
from golden_compare import Spelled, spellings
from golden_recipes import Recipe, crossed


def _spelled(
    name: str, a: Recipe, b: Recipe | None = None, c: Recipe | None = None, finding: str = ""
) -> Case:
    rows = spellings((KERNELS / f"{name}.cu").read_text("utf-8"))
    inputs = {"a": In(a), "b": In(b or a), "c": In(c or a)}
    lanes = len(a(f"a {name}"))
    return Case(
        name=name,
        args={**inputs, "out": Out((len(rows), lanes), np.uint64)},
        block=lanes,
        compare=Spelled(rows),
        on_purpose=finding,
    )


_INTEGERS = crossed(recipes.integers, recipes.CORE_INTEGERS)
_AMOUNTS = crossed(recipes.amounts, recipes.CORE_AMOUNTS)
_F32, _F64 = crossed(recipes.f32, recipes.CORE_F32), crossed(recipes.f64, recipes.CORE_F64)
_F16, _BF16 = crossed(recipes.f16, recipes.CORE_F16), crossed(recipes.bf16, recipes.CORE_BF16)
_POSITIVE_F32 = crossed(recipes.positive_f32, recipes.CORE_F32)
_EXPONENTS = crossed(recipes.exponents, recipes.CORE_F32)
_F16_PAIRS, _BF16_PAIRS = recipes.pairs(_F16), recipes.pairs(_BF16)

SPELLED = (
    _spelled("integer_add", _INTEGERS),
    _spelled("integer_multiply", _INTEGERS),
    _spelled("integer_multiply_add", _INTEGERS),
    _spelled("integer_24_bits", _INTEGERS),
    _spelled("integer_divide", _INTEGERS, finding="division-by-zero"),
    _spelled("integer_extremes", _INTEGERS),
    _spelled("integer_logic", _INTEGERS),
    _spelled("integer_shift", _INTEGERS, _AMOUNTS),
    _spelled("integer_carry", _INTEGERS),
    _spelled("integer_packed", _INTEGERS),
    _spelled("integer_video", _INTEGERS),
    _spelled("bits_count", _INTEGERS),
    _spelled("bits_field", _INTEGERS, _INTEGERS, _AMOUNTS),
    _spelled("bits_extract", _INTEGERS, _AMOUNTS, _AMOUNTS),
    _spelled("bits_funnel", _INTEGERS, _INTEGERS, _AMOUNTS),
    _spelled("bits_permute", _INTEGERS),
    _spelled("bits_logic3", _INTEGERS),
    _spelled("bits_dot", _INTEGERS),
    _spelled("bits_masks", _AMOUNTS, _AMOUNTS, _AMOUNTS),
    _spelled("float_add", _F32),
    _spelled("float_subtract", _F32),
    _spelled("float_multiply", _F32),
    _spelled("float_fma", _F32),
    _spelled("float_divide", _F32),
    _spelled("float_root", _F32),
    _spelled("float_extremes", _F32),
    _spelled("float_sign", _F32),
    _spelled("float_xorsign", _F32),
    _spelled("float_f64", _F64),
    _spelled("float_f64_far", crossed(recipes.wide_f64, recipes.CORE_F64)),
    _spelled("approx_reciprocal", _POSITIVE_F32, _F32),
    _spelled("approx_root_f64", _F64),
    _spelled("approx_exponential", _EXPONENTS),
    _spelled("approx_logarithm", _POSITIVE_F32),
    _spelled("approx_angle", crossed(recipes.angles, recipes.CORE_ANGLES)),
    _spelled("approx_tanh", _EXPONENTS),
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
    _spelled("compare_f32", _F32),
    _spelled("compare_f64", _F64),
    _spelled("compare_combined", recipes.f32_in_f64),
    _spelled("compare_f16", _F16_PAIRS),
    _spelled("compare_bf16", _BF16_PAIRS),
    _spelled("compare_pairs", _F16_PAIRS),
    _spelled("compare_set_integers", _INTEGERS),
    _spelled("compare_set_floats", recipes.f32_in_f64),
    _spelled("compare_set_f16", _F16_PAIRS),
    _spelled("compare_set_bf16", _BF16_PAIRS),
    _spelled("compare_select", _INTEGERS, _INTEGERS, _F32),
    _spelled("convert_integers", _INTEGERS),
    _spelled("convert_float_to_integer_f32", _F32),
    _spelled("convert_float_to_integer_f64", _F64),
    _spelled("convert_float_to_integer_f16", _F16),
    _spelled("convert_float_to_integer_bf16", _BF16),
    _spelled("convert_integer_to_float", _INTEGERS),
    _spelled("convert_f32", _F32),
    _spelled("convert_f64", _F64),
    _spelled("convert_f16", _F16),
    _spelled("convert_bf16", _BF16),
    _spelled("convert_pairs", _F32),
    _spelled("convert_pack", _INTEGERS),
    _spelled("convert_to_fp8", crossed(recipes.to_fp8, recipes.CORE_F32)),
    _spelled("convert_pair_to_fp8", _F16_PAIRS),
    _spelled("convert_from_fp8", crossed(recipes.fp8_pairs, recipes.CORE_F16)),
    _spelled("atomic_shared", _INTEGERS),
    _spelled("atomic_global", _INTEGERS),
    _spelled("atomic_floats", recipes.f32_in_f64),
    _spelled("atomic_halves", _F16_PAIRS),
)

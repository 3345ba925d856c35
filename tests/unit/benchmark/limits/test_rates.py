from __future__ import annotations

from dataclasses import dataclass, field

from dotcu.benchmark.limits.limit import NOMINAL, tflops


@dataclass(frozen=True)
class Gpu:
    matrix_tflops: dict[str, float] = field(
        default_factory=lambda: {"float64": 67.0, "tf32": 495.0, "bfloat16": 989.0, "float8": 1979.0}
    )
    plain_tflops: dict[str, float] = field(default_factory=lambda: {"float32": 66.0, "float64": 33.0})


def test_halves_and_bytes_are_compared_with_tensor_cores() -> None:
    assert tflops(Gpu(), "bfloat16") == 989
    assert tflops(Gpu(), "float8_e5m2") == 1979


def test_float32_is_compared_with_ordinary_instructions() -> None:
    assert tflops(Gpu(), "float32") == 66


def test_float32_by_tensor_cores_can_be_believed() -> None:
    assert tflops(Gpu(), "float32", beyond=True) == 495
    assert tflops(Gpu(), "bfloat16", beyond=True) == 989


def test_float64_has_the_better_of_both() -> None:
    assert tflops(Gpu(), "float64") == 67
    assert tflops(Gpu(matrix_tflops={}), "float64") == 33


def test_of_other_dtypes_and_of_rates_that_were_not_measured_nothing_is_known() -> None:
    assert tflops(Gpu(), "int64") is None
    assert tflops(Gpu(), "") is None
    assert tflops(Gpu(), "float16") is None


def test_dtypes_have_the_names_that_torch_gives_them() -> None:
    import torch

    assert all(isinstance(getattr(torch, name), torch.dtype) for name in NOMINAL if name != "tf32")

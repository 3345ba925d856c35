"""Operators of a library that is not dotcu's: registered with torch from Python, or compiled from C++."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library

_namespaces = (f"foreign{i}" for i in itertools.count())
_kept: list[Library] = []

SCALE = "scale(Tensor x, float by) -> Tensor"


def foreign(schema: str = SCALE, **kernels: Callable[..., Any]) -> str:
    """Register an operator in a namespace of its own: `foreign(CPU=..., Meta=...)`; its qualified name."""
    library = Library(next(_namespaces), "DEF")
    name = schema.partition("(")[0]
    library.define(schema)
    for key, kernel in kernels.items():
        library.impl(name, kernel, key)
    _kept.append(library)
    return f"{library.ns}::{name}"


def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    """What `SCALE` computes, without a gradient, as a kernel in C++ has none."""
    with torch.no_grad():
        return x * by


# Each operator takes float32 tensors that are contiguous, and doubles them; all but the first do so wrongly.
CPP = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Call {
    Tensor out;
    const float* from;
    float* to;
    int64_t n;
};

Call begin(const Tensor& x)
{
    STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float && x.is_contiguous(), "contiguous float32, please");
    Tensor out = torch::stable::empty_like(x);
    return {out, static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), x.numel()};
}

Tensor right(const Tensor& x)
{
    Call call = begin(x);
    for (int64_t i = 0; i < call.n; ++i) call.to[i] = 2 * call.from[i];
    return call.out;
}

Tensor last_one_wrong(const Tensor& x)
{
    Call call = begin(x);
    for (int64_t i = 0; i < call.n; ++i) call.to[i] = (i + 1 < call.n ? 2 : 3) * call.from[i];
    return call.out;
}

Tensor last_one_unwritten(const Tensor& x)
{
    Call call = begin(x);
    for (int64_t i = 0; i + 1 < call.n; ++i) call.to[i] = 2 * call.from[i];
    return call.out;
}

Tensor one_too_many(const Tensor& x)
{
    Call call = begin(x);
    for (int64_t i = 0; i < call.n; ++i) call.to[i] = 2 * call.from[i];
    call.to[call.n] = 0;
    return call.out;
}

Tensor changes_its_input(const Tensor& x)
{
    Call call = begin(x);
    float* input = static_cast<float*>(x.data_ptr());
    for (int64_t i = 0; i < call.n; ++i) call.to[i] = input[i] *= 2;
    return call.out;
}

Tensor kept(const Tensor& x)
{
    static Tensor first = right(x);
    return first;
}

Tensor crashes(const Tensor& x)
{
    *reinterpret_cast<volatile int*>(8) = 1;
    return x;
}

STABLE_TORCH_LIBRARY(@NAME@, m)
{
    m.def("right(Tensor x) -> Tensor");
    m.def("last_one_wrong(Tensor x) -> Tensor");
    m.def("last_one_unwritten(Tensor x) -> Tensor");
    m.def("one_too_many(Tensor x) -> Tensor");
    m.def("changes_its_input(Tensor x) -> Tensor");
    m.def("kept(Tensor x) -> Tensor");
    m.def("crashes(Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(@NAME@, CPU, m)
{
    m.impl("right", TORCH_BOX(&right));
    m.impl("last_one_wrong", TORCH_BOX(&last_one_wrong));
    m.impl("last_one_unwritten", TORCH_BOX(&last_one_unwritten));
    m.impl("one_too_many", TORCH_BOX(&one_too_many));
    m.impl("changes_its_input", TORCH_BOX(&changes_its_input));
    m.impl("kept", TORCH_BOX(&kept));
    m.impl("crashes", TORCH_BOX(&crashes));
}
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.bencher import kernel_digests, source_digest

TEXT = "__global__ void fill(float* out) { out[threadIdx.x] = %s; }"


def fill(number: int) -> Tensor:
    out = torch.empty(32)
    dotcu.load_inline(TEXT % number).fill(out, grid=1, block=32)
    return out


def test_each_kernel_is_named_once_in_order() -> None:
    first, second = kernel_digests(lambda: fill(1)), kernel_digests(lambda: fill(2))
    assert first != second
    assert kernel_digests(lambda: [fill(2), fill(1), fill(2)]) == (*second, *first)


def test_a_call_without_kernels_has_no_digests() -> None:
    assert kernel_digests(lambda: torch.ones(3) + 1) == ()


def one(x: Tensor) -> Tensor:
    return x + 1


def two(x: Tensor) -> Tensor:
    return x + 2


def test_the_digest_changes_with_a_kernel_and_with_the_body() -> None:
    found = {
        source_digest(["ab"], one),
        source_digest(["ab"], two),
        source_digest(["ac"], one),
        source_digest(["a", "b"], one),
        source_digest(["ab"]),
    }
    assert len(found) == 5
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in found)


def test_the_digest_is_the_same_for_the_same_code() -> None:
    assert source_digest(["ab"], one) == source_digest(["ab"], one)


def test_a_body_without_a_file_is_identified_by_its_code() -> None:
    bodies: dict[str, object] = {}
    exec("def f(x): return x + 1\ndef g(x): return x * x", bodies)
    f, g = bodies["f"], bodies["g"]
    assert source_digest([], f) != source_digest([], g)  # type: ignore[arg-type]

from __future__ import annotations

import re

from torch import Tensor

from dotcu.benchmark.bencher import source_digest


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
    }
    assert len(found) == 4
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in found)


def test_the_digest_is_the_same_for_the_same_code() -> None:
    assert source_digest(["ab"], one) == source_digest(["ab"], one)


def test_a_body_without_a_file_is_identified_by_its_code() -> None:
    bodies: dict[str, object] = {}
    exec("def f(x): return x + 1\ndef g(x): return x * x", bodies)
    f, g = bodies["f"], bodies["g"]
    assert source_digest([], f) != source_digest([], g)  # type: ignore[arg-type]

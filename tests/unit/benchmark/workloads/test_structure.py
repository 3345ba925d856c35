"""Which values mean something together, and so are not moved about."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.benchmark.workloads import structure
from dotcu.benchmark.workloads.structure import kept, structured

f16, bf16, f32 = torch.float16, torch.bfloat16, torch.float32


def normal(*shape: int, dtype: torch.dtype = f32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def gram(n: int = 40, dtype: torch.dtype = f32) -> Tensor:
    x = normal(n, n, dtype=dtype)
    return x @ x.mH


MASK = torch.full((64, 64), -torch.inf).triu(1)

MEANT = {
    "positive definite": gram(),
    "positive definite, bfloat16": gram(dtype=bf16),
    "hermitian": torch.complex(gram(), normal(40, 40) - normal(40, 40).T),
    "symmetric, complex": torch.complex(gram(), gram()),
    "batch of symmetric": torch.stack([gram(), gram() + 1]),
    "transposed view": gram().T,
    "lower factor": torch.linalg.cholesky(gram() + torch.eye(40)),
    "upper factor, float8": normal(40, 40).triu().to(torch.float8_e4m3fn),
    "causal mask": MASK,
    "some NaN": torch.where(normal(100) > 2, torch.nan, normal(100)),
    "bins with open ends": torch.tensor([-torch.inf, 0.0, 1.0, torch.inf]),
    "mask of 0 and 1": (normal(99) > 0).float(),
    "small mask": torch.tensor([0.0, 1, 1, 0, 1, 1, 0, 0]),
    "ones": torch.ones(16),
    "signs": normal(50).sign(),
    "probabilities": normal(30, 7).softmax(-1),
    "probabilities, bfloat16": normal(30, 70, dtype=bf16).softmax(-1),
    "one distribution": normal(200).softmax(0),
}


@pytest.mark.parametrize("name", MEANT)
def test_structure_is_seen(name: str) -> None:
    assert structured(MEANT[name])


FREE = {
    "normal": normal(1000),
    "square": normal(64, 64),
    "square, bfloat16": normal(64, 64, dtype=bf16),
    "square, float8": normal(64, 64).to(torch.float8_e4m3fn),
    "square, complex": torch.complex(normal(9, 9), normal(9, 9) ** 2),
    "uniform": normal(1000).sigmoid(),
    "one number": normal(1),
    "scalar": torch.tensor(0.5),
    "three numbers": normal(3),
    "one by one": normal(1, 1),
    "empty": torch.empty(0, 3, 3),
    "few bits": normal(5000).to(torch.float8_e5m2),
    "columns that sum to 1": normal(30, 7).softmax(0),
}


@pytest.mark.parametrize("name", FREE)
def test_what_has_none_is_free_to_move(name: str) -> None:
    assert not structured(FREE[name])


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_halves_are_looked_at_too() -> None:
    assert structured(torch.complex(gram(9), gram(9)).to(torch.complex32))
    assert not structured(torch.complex(normal(9, 9), gram(9)).to(torch.complex32))


@pytest.mark.parametrize("shape", [(64, 64), (2, 50, 3, 64, 64), (1, 4096)], ids=str)
def test_of_a_large_tensor_a_part_is_looked_at(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "LOOKED", 256)
    x = normal(*shape)
    assert not structured(x)
    assert structured(x.softmax(-1))
    assert structured((x > 0).float())
    if shape[-2] == shape[-1]:
        assert structured(x + x.mT)
        assert structured(x.tril())
    x[-1, ..., -1] = -torch.inf
    assert structured(x)


def test_whole_numbers_keep_theirs_and_what_shares_memory_is_not_written() -> None:
    assert kept(torch.arange(100))
    assert kept(torch.ones(3, dtype=torch.bool))
    assert kept(MASK)
    assert not kept(normal(100))
    assert not kept(torch.arange(10).as_strided((5, 4), (1, 1)))

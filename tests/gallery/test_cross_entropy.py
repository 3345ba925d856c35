"""cross_entropy: the loss of class indices, and the log-sum-exp of each row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import dotcu
from dotcu.gallery import cross_entropy
from helpers.quick_cases import quick, quick_pairs

INF = math.inf
REDUCTIONS = ["mean", "sum", "none"]


def some(
    rows: int, n: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Logits, and classes of which every third is ignored."""
    target = torch.randint(n, (rows,), device=device)
    target[::3] = -100
    return (3 * torch.randn(rows, n, device=device)).to(dtype), target


LENGTHS = [1, 2, 31, 64, 257, 1024, 2056, 8200, 20_003]
QUICK = {(31, "mean"), (20_003, "mean"), (2, "sum"), (64, "none")}
QUICK_GRADIENTS = {(3, "mean")}


@pytest.mark.parametrize(("n", "reduction"), quick_pairs(QUICK, LENGTHS, REDUCTIONS))
def test_rows_of_every_length_agree_with_torch(n: int, reduction: str, device: torch.device) -> None:
    logits, target = some(7, n, device)
    loss, lse = cross_entropy(logits, target, reduction=reduction)
    torch.testing.assert_close(loss, functional.cross_entropy(logits, target, reduction=reduction))
    torch.testing.assert_close(lse, torch.logsumexp(logits, -1))


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], [torch.float16, torch.bfloat16]), ids=str)
def test_half_types_have_a_log_sum_exp_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    logits, target = some(40, 300, device, dtype)
    loss, lse = cross_entropy(logits, target)
    assert (loss.dtype, lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(lse, torch.logsumexp(logits.float(), -1))
    torch.testing.assert_close(loss, functional.cross_entropy(logits.float(), target).to(dtype))


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 65, 300])
def test_any_number_of_rows_is_averaged(rows: int, device: torch.device) -> None:
    logits, target = some(rows, 20, device)
    torch.testing.assert_close(
        cross_entropy(logits, target)[0], functional.cross_entropy(logits, target), equal_nan=True
    )


@pytest.mark.slow
def test_more_rows_than_blocks_are_all_read(device: torch.device) -> None:
    logits, target = some(700, 2100, device)
    with dotcu.simulate(arch="sm_87"):  # holds 96 blocks of these
        loss, lse = cross_entropy(logits, target, reduction="sum")
    torch.testing.assert_close(loss, functional.cross_entropy(logits, target, reduction="sum"))
    torch.testing.assert_close(lse, torch.logsumexp(logits, -1))


@pytest.mark.slow
@pytest.mark.parametrize("fast", quick([True], [True, False]))
@pytest.mark.parametrize(("ignored", "reduction"), quick_pairs(QUICK_GRADIENTS, [3, -100, 0], REDUCTIONS))
def test_gradients_of_both_results_are_right(
    ignored: int, reduction: str, fast: bool, device: torch.device
) -> None:
    logits = torch.randn(2, 2, 5, dtype=torch.float64, device=device, requires_grad=True)
    target = torch.tensor([[ignored, 1], [2, 4]], device=device)

    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = cross_entropy(logits, target, ignored, reduction)
        return result

    assert torch.autograd.gradcheck(call, logits, fast_mode=fast)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_second_gradients_are_right(reduction: str, device: torch.device) -> None:
    logits = torch.randn(2, 5, dtype=torch.float64, device=device, requires_grad=True)
    target = torch.tensor([3, 1], device=device)
    assert torch.autograd.gradgradcheck(lambda x: cross_entropy(x, target, 3, reduction), logits)


@pytest.mark.parametrize("n", quick([33], [33, 1000, 9000]))
def test_gradients_of_every_length_agree_with_torch(n: int, device: torch.device) -> None:
    logits, target = some(6, n, device)
    logits.requires_grad_()
    (got,) = torch.autograd.grad(cross_entropy(logits, target)[0], logits)
    (expected,) = torch.autograd.grad(functional.cross_entropy(logits, target), logits)
    torch.testing.assert_close(got, expected)


def test_ignored_rows_have_no_gradient_of_the_loss_but_one_of_the_log_sum_exp(device: torch.device) -> None:
    logits, target = torch.randn(2, 5, device=device, requires_grad=True), torch.tensor([-100, 1]).to(device)
    loss, lse = cross_entropy(logits, target)
    (of_loss,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert of_loss[0].tolist() == [0] * 5
    (of_lse,) = torch.autograd.grad(lse.sum(), logits)
    torch.testing.assert_close(of_lse, torch.softmax(logits, -1))


def test_the_mean_of_nothing_is_nan_and_its_gradient_zero(device: torch.device) -> None:
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    target = torch.full((3,), -100, device=device)
    loss, _ = cross_entropy(logits, target)
    assert loss.isnan()
    loss.backward()
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    assert cross_entropy(logits[:0], target[:0])[0].isnan()
    assert cross_entropy(logits, target, reduction="sum")[0] == 0


@pytest.mark.parametrize("wrong", [5, -1, 2**40, -(2**63)])
def test_a_target_that_is_no_class_gives_nan_in_its_row_alone(wrong: int, device: torch.device) -> None:
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    target = torch.tensor([2, wrong, 4], device=device)
    loss, lse = cross_entropy(logits, target, reduction="none")
    assert loss.isnan().tolist() == [False, True, False]
    assert lse.isfinite().all()
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    assert grad.isnan().all(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("n", quick([400], [4, 400, 5000]))
def test_infinities_and_nan_come_out_as_in_torch(n: int, device: torch.device) -> None:
    starts = [[-INF, -INF], [INF, 1], [-INF, 2], [math.nan, 1], [3e38, 3e38], [0, -200]]
    logits = torch.full((len(starts), n), -INF)
    logits[:, :2] = torch.tensor(starts)
    logits, target = logits.to(device), torch.ones(len(starts), dtype=torch.int64, device=device)
    loss, lse = cross_entropy(logits, target, reduction="none")
    expected = functional.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(loss, expected, equal_nan=True)
    torch.testing.assert_close(lse, torch.logsumexp(logits, -1), equal_nan=True)


def test_large_logits_lose_nothing_of_the_loss(device: torch.device) -> None:
    logits = torch.tensor([[1e6, 1e6 - 1, 1e6 - 2]], device=device)
    target = torch.tensor([1], device=device)
    expected = functional.cross_entropy(logits.double(), target).float()
    torch.testing.assert_close(cross_entropy(logits, target)[0], expected)


def test_the_mean_has_the_same_bits_every_time(device: torch.device) -> None:
    logits, target = some(500, 40, device)
    first = cross_entropy(logits, target)[0]
    for seed in range(3):
        with dotcu.simulate(seed=seed):
            assert torch.equal(cross_entropy(logits, target)[0], first)


@pytest.mark.slow
def test_logits_off_any_alignment_are_right(device: torch.device) -> None:
    logits = torch.randn(6 * 96 + 1, device=device).to(torch.bfloat16)[1:].view(6, 96)
    target = torch.arange(6, device=device)
    torch.testing.assert_close(cross_entropy(logits, target)[1], torch.logsumexp(logits.float(), -1))


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    logits, target = torch.ones(3, 5, device=device), torch.zeros(3, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match=r"got \(3, 5\) and \(2,\)"):
        cross_entropy(logits, target[:2])
    with pytest.raises(ValueError, match=r"got \(3, 0\) and \(3,\)"):
        cross_entropy(logits[:, :0], target)
    with pytest.raises(TypeError, match=r"int64 .got torch.int32."):
        cross_entropy(logits, target.int())
    with pytest.raises(ValueError, match=r'"mean", "sum" or "none" .got .max.'):
        cross_entropy(logits, target, reduction="max")


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3000, 5001), (700, 32768), (9, 262144)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_vocabularies_agree_with_torch(shape: tuple[int, int], reduction: str, dtype: torch.dtype) -> None:
    logits, target = some(*shape, torch.device("cuda"), dtype)
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    loss, lse = cross_entropy(logits, target, reduction=reduction)
    expected = functional.cross_entropy(exact, target, reduction=reduction)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(loss, expected.to(dtype), rtol=4 * eps, atol=4 * eps)
    torch.testing.assert_close(lse, torch.logsumexp(exact, -1).float())
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    (of_exact,) = torch.autograd.grad(expected.sum(), exact)
    torch.testing.assert_close(grad.double(), of_exact, rtol=1e-2, atol=1e-7)

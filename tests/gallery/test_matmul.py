"""matmul: the naive and the tiled kernel."""

from __future__ import annotations

import pytest
import torch

import dotcu
from dotcu.gallery import grouped_matmul, matmul, matmul_fp8, matmul_swiglu, quantize_fp8
from dotcu.gallery.matmul import op
from helpers.quick_cases import quick, quick_pairs

SIZES = [(2, 2, 20), (20, 2, 2), (3, 7, 11), (1, 1, 1), (16, 16, 16), (17, 33, 15), (40, 1, 40), (1, 100, 1)]


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
@pytest.mark.parametrize("dtype", quick([torch.float32, torch.bfloat16], matmul.dtypes), ids=str)
def test_it_agrees_with_a_product_in_float64(dtype: torch.dtype, kernel: str, device: torch.device) -> None:
    for m, k, n in SIZES:
        a = torch.randn(m, k, device=device).to(dtype)
        b = torch.randn(k, n, device=device).to(dtype)
        expected = (a.double() @ b.double()).to(dtype)
        torch.testing.assert_close(
            matmul(a, b, algorithm=kernel), expected, msg=lambda t, s=(m, k, n): f"{s}: {t}"
        )


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
@pytest.mark.parametrize(("m", "k", "n"), [(3, 0, 4), (0, 3, 4), (3, 4, 0), (0, 0, 0)])
def test_an_empty_side_gives_zeros_or_nothing(
    m: int, k: int, n: int, kernel: str, device: torch.device
) -> None:
    got = matmul(torch.ones(m, k, device=device), torch.ones(k, n, device=device), algorithm=kernel)
    assert torch.equal(got, torch.zeros(m, n, device=device))


@pytest.mark.parametrize(
    ("kernel", "block_size"),
    quick_pairs({("tiled", 7), ("tiled", 32), ("naive", 8)}, ["tiled", "naive"], [1, 7, 8, 32]),
)
def test_any_tile_gives_the_same(block_size: int, kernel: str, device: torch.device) -> None:
    a = torch.randn(13, 21, dtype=torch.float64, device=device)
    b = torch.randn(21, 35, dtype=torch.float64, device=device)
    torch.testing.assert_close(matmul(a, b, algorithm=kernel, block_size=block_size), a @ b)


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
def test_strides_of_both_factors_are_followed(kernel: str, device: torch.device) -> None:
    a = torch.randn(40, 50, device=device).T[1::3, ::2]
    b = torch.randn(1, 9, device=device).expand(20, 9)
    torch.testing.assert_close(matmul(a, b, algorithm=kernel), a @ b)
    torch.testing.assert_close(matmul(a, a.T, algorithm=kernel), a @ a.T)


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
def test_half_types_add_up_in_float32(kernel: str, device: torch.device) -> None:
    ones = torch.ones(1, 600, dtype=torch.bfloat16, device=device)  # bfloat16 counts to 256
    assert matmul(ones, ones.T, algorithm=kernel).item() == 600


@pytest.mark.slow
def test_more_tiles_than_blocks_are_all_computed(device: torch.device) -> None:
    a, b = torch.randn(20, 3, device=device), torch.randn(3, 21, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 256 blocks
        torch.testing.assert_close(matmul(a, b, block_size=1), a @ b)
        torch.testing.assert_close(matmul(a, b, block_size=1, algorithm="naive"), a @ b)


def test_out_may_be_a_factor(device: torch.device) -> None:
    a, b = torch.randn(33, 33, device=device), torch.randn(33, 33, device=device)
    expected = a @ b
    torch.testing.assert_close(matmul(a, b, out=a), expected)


@pytest.mark.filterwarnings(
    "ignore:Attempting to run cuBLAS:UserWarning"
)  # torch's own, in autograd's thread
def test_a_gradient_has_its_factors_layout(device: torch.device) -> None:
    a, b = torch.randn(20, 9, device=device).T, torch.randn(33, 20, device=device).T
    grad, factors = torch.randn(9, 33, device=device), (a.requires_grad_(), b.requires_grad_())
    found = torch.autograd.grad(matmul(a, b), factors, grad)
    torch.testing.assert_close(found, torch.autograd.grad(a @ b, factors, grad))
    assert [by.stride() for by in found] == [a.stride(), b.stride()]


def test_gradients_flow_only_where_they_are_asked_for(device: torch.device) -> None:
    a = torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True)
    b = torch.randn(4, 2, dtype=torch.float64, device=device)
    matmul(a, b, algorithm="naive", block_size=4).sum().backward()
    assert b.grad is None
    torch.testing.assert_close(a.grad, torch.ones(3, 2, dtype=torch.float64, device=device) @ b.T)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3,), (3, 4)), ((2, 3, 4), (4, 5)), ((), (1, 1))])
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], device: torch.device
) -> None:
    a, b = (torch.ones(shape, device=device) for shape in shapes)
    with pytest.raises(ValueError, match=r"\(M, K\) and \(K, N\)"):
        matmul(a, b)


def test_two_dtypes_are_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32 and torch.float64"):
        matmul(torch.ones(2, 2, device=device), torch.ones(2, 2, dtype=torch.float64, device=device))


def test_work_counts_multiplications_and_additions() -> None:
    sample = dotcu.Sample(torch.ones(3, 5), torch.ones(5, 7))
    assert matmul.work_of(sample, torch.ones(3, 7)) == ((15 + 35 + 21) * 4, 2 * 3 * 5 * 7)


# Tensor cores

SPLITS = [instance for instance, *_ in op.INSTANCES if instance[4] > 1]
SPLIT = min(SPLITS, key=lambda instance: instance[0] * instance[1])
LEFT_IN_PLACE = next(each for each in SPLITS if each[:2] == (128, 128))
"""Its blocks read each other's parts where these lie; those of smaller tiles send them."""


def halves(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.randn(*shape, device=device).bfloat16()


def near(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Within a rounding of bfloat16, in norm."""
    return bool((got.double() - expected.double()).norm() <= 4e-3 * expected.double().norm())


@pytest.mark.parametrize(
    "kernel", quick(["mma", "wgmma"], ["mma", "wgmma", "specialized", "clusters", "persistent"])
)
def test_every_step_of_the_ladder_multiplies(kernel: str, device: torch.device) -> None:
    a, b = halves(130, 72, device=device), halves(72, 136, device=device)
    assert near(matmul(a, b, algorithm=kernel), a.double() @ b.double())


@pytest.mark.parametrize("layout", quick({"tn"}, ["nn", "nt", "tn", "tt"]))
def test_both_layouts_of_both_factors_are_read_as_they_are(layout: str, device: torch.device) -> None:
    a = halves(72, 40, device=device) if layout[0] == "n" else halves(40, 72, device=device).T
    b = halves(40, 136, device=device) if layout[1] == "n" else halves(136, 40, device=device).T
    for kernel in ("mma", "persistent"):
        assert near(matmul(a, b, algorithm=kernel), a.double() @ b.double()), kernel


@pytest.mark.parametrize("kernel", ["mma", "persistent"])
def test_odd_sizes_and_unaligned_rows_are_taken(kernel: str, device: torch.device) -> None:
    a, b = halves(2, 71, 36, device=device)[:, :, 1:], halves(2, 35, 67, device=device)
    assert near(matmul(a, b, algorithm=kernel), a.double() @ b.double())


@pytest.mark.parametrize(
    ("dtype", "instance"),
    [
        (torch.bfloat16, SPLIT),
        (torch.bfloat16, LEFT_IN_PLACE),
        pytest.param(torch.float16, SPLIT, marks=pytest.mark.slow),
        pytest.param(torch.float32, SPLIT, marks=pytest.mark.slow),
        pytest.param(torch.float8_e4m3fn, SPLIT, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_blocks_that_share_k_add_up_the_same_each_time(
    dtype: torch.dtype, instance: op.HopperInstance, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setattr(op, "_instance", lambda *rest: instance)
    a, b, bias = (torch.randn(*shape, device=device) for shape in ((20, 330), (40, 330), (40,)))
    if dtype == torch.float8_e4m3fn:
        (x, of_x), (y, of_y), shift = quantize_fp8(a), quantize_fp8(b), bias.bfloat16()
        a, b = x.double() * of_x, y.double() * of_y
        found = [matmul_fp8(x, y.T, of_x, of_y.T, shift, algorithm="persistent") for _ in range(2)]
    else:
        a, b, shift = a.to(dtype), b.to(dtype), bias.to(dtype)
        found = [matmul(a, b.T, shift, tf32=True, algorithm="persistent") for _ in range(2)]
    assert near(found[0], a.double() @ b.double().T + shift.double())
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("m", "n", "steps", "sms", "splits"),
    [
        (256, 256, 128, 132, range(4, 17)),
        (128, 128, 256, 132, range(9, 17)),
        (128, 128, 256, 78, range(4, op.PORTABLE + 1)),  # a GPU whose clusters may be smaller
        (256, 256, 3, 132, range(1, 2)),
        (1024, 1024, 16, 132, range(1, 2)),
        (4096, 4096, 64, 132, range(1, 2)),
    ],
)
def test_a_long_k_is_divided_where_tiles_are_few(m: int, n: int, steps: int, sms: int, splits: range) -> None:
    assert op._instance(1, m, n, steps, sms, 0, b_mn=True, aligned=True)[4] in splits


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("split", {each[:2]: each for each in SPLITS}.values(), ids=str)
def test_every_split_of_k_adds_up_all_of_it(
    split: op.HopperInstance, layout: str, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setattr(op, "_instance", lambda *rest: split)
    m, n, k = split[0] + 6, split[1] + 8, 64 * (2 * split[4] + 1)
    a = halves(m, k, device=device) if layout[0] == "n" else halves(k, m, device=device).T
    b = halves(k, n, device=device) if layout[1] == "n" else halves(n, k, device=device).T
    assert near(matmul(a, b, algorithm="persistent"), a.double() @ b.double())


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_tile_that_is_no_whole_number_of_boxes_is_right(layout: str, device: torch.device) -> None:
    space = matmul.tunable
    assert space is not None
    a, b = halves(200, 136, device=device), halves(136, 440, device=device)
    b = b if layout == "nn" else b.T.contiguous().T
    with dotcu.simulate(arch="sm_90a"), space.using(next(each for each in space.space if each.bn == 224)):
        found = matmul(a, b, algorithm="persistent")
    assert near(found, a.double() @ b.double())


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 6])
def test_warpgroups_take_turns_at_tiles(
    blocks: int, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    space = matmul.tunable
    assert space is not None
    turns = next(each for each in space.space if each.turns)
    a = halves(5 * turns.bm, 64 * (turns.stages + 2), device=device)
    b, bias = halves(2 * turns.bn, a.shape[1], device=device).T, halves(2 * turns.bn, device=device)
    monkeypatch.setattr(dotcu, "sm_count", lambda x: blocks)
    with dotcu.simulate(arch="sm_90a"), space.using(turns):
        found = matmul(a, b, bias, algorithm="persistent")
    assert near(found, a.double() @ b.double() + bias.double())


@pytest.mark.slow
def test_epilogues_see_sums_that_are_not_rounded(device: torch.device) -> None:
    a, b, bias = halves(70, 64, device=device), halves(64, 136, device=device), halves(136, device=device)
    other = halves(70, 136, device=device)
    sum = 0.125 * (a.double() @ b.double()) + bias.double()
    expected = torch.nn.functional.gelu(sum) + 2 * other.double()
    for kernel in ("mma", "persistent"):
        options = {"alpha": 0.125, "beta": 2.0, "activation": "gelu", "algorithm": kernel}
        assert near(matmul(a, b, bias, other, **options), expected), kernel


@pytest.mark.slow
def test_swiglu_multiplies_by_both_halves_of_a_weight(device: torch.device) -> None:
    x, weight = halves(70, 64, device=device), halves(272, 64, device=device) / 8
    gate, up = (half.T for half in weight.chunk(2))
    expected = torch.nn.functional.silu(x.double() @ gate.double()) * (x.double() @ up.double())
    for kernel in ("mma", "persistent"):
        assert near(matmul_swiglu(x, gate, up, algorithm=kernel), expected), kernel


@pytest.mark.slow
def test_fp8_takes_scales_of_rows(device: torch.device) -> None:
    (a, scale_a), (b, scale_b) = (quantize_fp8(torch.randn(n, 64, device=device)) for n in (40, 56))
    expected = (a.double() * scale_a.double()) @ (b.double() * scale_b.double()).T
    assert near(matmul_fp8(a, b.T, scale_a, scale_b.T, algorithm="persistent"), expected)


def test_tf32_reads_ten_bits_of_each_mantissa(device: torch.device) -> None:
    a = torch.full((16, 8), 1 + 2.0**-12, device=device)
    assert torch.equal(matmul(a, a.T, tf32=True), torch.full((16, 16), 8.0, device=device))
    assert (matmul(a, a.T) > 8).all()


def test_a_kernel_that_there_is_not_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="naive, tiled, mma"):
        matmul(torch.ones(2, 2, device=device), torch.ones(2, 2, device=device), algorithm="cutlass")


@pytest.mark.parametrize(
    ("kernel", "ends"),
    [
        ("mma", (13, 13, 90)),
        pytest.param("mma", (0, 60, 60), marks=pytest.mark.slow),
        pytest.param("persistent", (0, 70, 199), marks=pytest.mark.slow),
        pytest.param("persistent", (13, 150, 150), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("transposed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_each_group_of_rows_has_its_own_factor(
    kernel: str, ends: tuple[int, ...], transposed: bool, device: torch.device
) -> None:
    a = torch.randn(200 if kernel == "persistent" else 90, 72, device=device).bfloat16()
    b = torch.randn(3, 72, 40, device=device).bfloat16()
    b = b.mT.contiguous().mT if transposed else b
    with dotcu.simulate(arch="sm_90a"):
        got = grouped_matmul(a, b, torch.tensor(ends, dtype=torch.int32, device=device), algorithm=kernel)
    expected, begin = torch.zeros(len(a), 40, dtype=torch.float64, device=device), 0
    for factor, end in zip(b.double(), ends, strict=True):
        expected[begin:end] = a[begin:end].double() @ factor
        begin = end
    torch.testing.assert_close(got, expected.bfloat16(), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize(("m", "n", "steps"), [(16, 1024, 64), (128, 512, 32), (256, 1024, 64)])
def test_blocks_do_not_share_k_of_a_group(m: int, n: int, steps: int) -> None:
    instance = op._instance(4, m, n, steps, 132, op.GROUPS, b_mn=False, aligned=True)
    assert instance[4] == 1, "the kernel does not compile where blocks split K of groups"


def test_groups_must_fit_their_factors() -> None:
    a, b = torch.ones(4, 8).bfloat16(), torch.ones(2, 8, 3).bfloat16()
    with pytest.raises(ValueError, match="E ends"):
        grouped_matmul(a, b, torch.tensor([4], dtype=torch.int32))
    with pytest.raises(TypeError, match="int32"):
        grouped_matmul(a, b, torch.tensor([2, 4]))


@pytest.mark.parametrize("algorithm", quick([None], ["mma", None]))
def test_one_row_in_float8_has_the_scale_of_each_column(algorithm: str | None, device: torch.device) -> None:
    a = torch.ones(1, 16, device=device).to(torch.float8_e4m3fn)
    b = torch.ones(4, 16, device=device).to(torch.float8_e4m3fn).T
    of_row, of_columns = torch.ones(1, 1, device=device), torch.tensor([[1.0, 2.0, 3.0, 4.0]], device=device)
    with dotcu.simulate(arch="sm_90a"):
        got = matmul_fp8(a, b, of_row, of_columns, algorithm=algorithm)
    assert got.tolist() == [[16.0, 32.0, 48.0, 64.0]]


def test_a_tuned_split_of_k_takes_as_many_waves_as_a_smaller_gpu_needs(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    space = matmul.tunable
    assert space is not None
    split = next(each for each in space.space if each[:5] == SPLIT[:5])
    a = torch.randn(2 * split.bm, 64 * 8, device=device).bfloat16()
    b = torch.randn(64 * 8, split.bn, device=device).bfloat16()
    monkeypatch.setattr(dotcu, "sm_count", lambda x: split.sharing * split.split)
    with dotcu.simulate(arch="sm_90a"), space.using(split):
        found = matmul(a, b, algorithm="persistent")
    torch.testing.assert_close(found, (a.double() @ b.double()).bfloat16(), rtol=2**-7, atol=1e-2)


def test_a_first_backward_of_silu_is_torchs_own_kernel() -> None:
    """Written out, for a second one, it takes many: in bfloat16 their rounding shows, too."""
    x, grad = (torch.randn(64, dtype=torch.bfloat16) for _ in range(2))
    with torch.no_grad():
        once = op._by_silu(grad, x)
    assert torch.equal(once, torch.ops.aten.silu_backward(grad, x))
    torch.testing.assert_close(op._by_silu(grad, x), once)

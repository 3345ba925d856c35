"""Run kernels of other people's repositories, unchanged, and compare their results with torch's.

    python benchmarks/corpus_kernels.py FOLDER [--device cuda] [--save FILE] [--only TEXT]

FOLDER holds the checkouts, each under its repository's name. On CPU tensors a kernel runs in the simulator
with every sanitizer, and what that reports of a kernel counts as a finding. On a GPU a kernel with a known
fault is left out: an illegal address would end the process. Exit codes: 0 every result is right and nothing
was found that is not known, 1 not.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import dotcu
from corpus import include_paths
from dotcu.errors import DotcuError

Results = "tuple[Tensor, Tensor] | Sequence[tuple[Tensor, Tensor]]"
Body = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A kernel of a repository, and how to call it.

    Attributes:
        file: Its path, from the folder of the checkouts.
        kernel: Its name.
        body: Calls it, and returns what it computed beside what is right.
        known: A fault that the kernel has, which is reported rightly.
    """

    file: str
    kernel: str
    body: Body
    known: str = ""


CASES: list[Case] = []


def case(file: str, kernel: str, known: str = "") -> Callable[[Body], Body]:
    """Add a function to the cases."""

    def add(body: Body) -> Body:
        CASES.append(Case(file, kernel, body, known))
        return body

    return add


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What became of a kernel: `right`, `wrong`, `failed`, or `found`: right, but something was reported."""

    repository: str
    kernel: str
    verdict: str
    note: str = ""
    known: str = ""
    seconds: float = 0.0


@functools.cache
def loaded(path: Path, root: Path) -> dotcu.Module:
    """Load a `.cu` as it is, and a header by a line that includes it."""
    if path.suffix == ".cu":
        return dotcu.load(path, include=include_paths(path, root))
    return dotcu.load_inline(f'#include "{path.name}"\n', include=[path.parent, *include_paths(path, root)])


def run(one: Case, folder: Path) -> Ran:
    """Call one kernel, and judge what it gives."""
    root = folder / Path(one.file).parts[0]
    about = {"repository": root.name, "kernel": one.kernel, "known": one.known}
    torch.manual_seed(0)
    start = time.perf_counter()
    try:
        module = loaded(folder / one.file, root)
        with dotcu.simulate(on_finding="collect") as simulated:
            pairs = one.body(module)
    except DotcuError as error:
        return Ran(**about, verdict="failed", note=noted(error, folder))
    took = round(time.perf_counter() - start, 2)
    pairs = [pairs] if isinstance(pairs[0], Tensor) else pairs
    for got, want in pairs:
        try:
            torch.testing.assert_close(got, want.to(got), rtol=tolerance(got), atol=tolerance(got))
        except AssertionError as error:
            return Ran(**about, verdict="wrong", note=noted(error, folder), seconds=took)
    found = [noted(finding, folder) for finding in simulated.findings]
    return Ran(**about, verdict="found" if found else "right", note=" | ".join(found), seconds=took)


def noted(text: object, folder: Path) -> str:
    """Return the start of a text, without the place of the checkouts."""
    return " ".join(str(text).replace(f"{folder}/", "").split())[:300]


def tolerance(result: Tensor) -> float:
    """Return what a result may differ by, of its size and absolutely."""
    return {torch.float32: 2e-4, torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 2e-2}.get(
        result.dtype, 0.0
    )


device = torch.device("cpu")


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers, the same on every device."""
    return torch.randn(*shape).to(device, dtype)


def integers(high: int, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Random integers below a bound."""
    return torch.randint(high, shape).to(device, dtype)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros."""
    return torch.zeros(*shape, dtype=dtype, device=device)


# ---------------------------------------------------------------------------------------------------- llm.c

LLM = "llm.c/dev/cuda/"
half, bf16 = torch.float16, torch.bfloat16


@case(LLM + "adamw.cu", "adamw_kernel2")
def _(m: Any) -> Results:
    p, g, mean, square = normal(1000), normal(1000), normal(1000), normal(1000).abs()
    b1, b2, lr, eps, decay = 0.9, 0.999, 1e-3, 1e-8, 0.01
    mean2, square2 = b1 * mean + (1 - b1) * g, b2 * square + (1 - b2) * g * g
    want = p - lr * (mean2 / 0.5 / ((square2 / 0.25).sqrt() + eps) + decay * p)
    m.adamw_kernel2(p, g, mean, square, 1000, lr, b1, b2, 0.5, 0.25, eps, decay, grid=2, block=512)
    return [(p, want), (mean, mean2), (square, square2)]


@case(LLM + "gelu_forward.cu", "gelu_forward_kernel2")
def _(m: Any) -> Results:
    x, out = normal(4096, dtype=bf16), zeros(4096, dtype=bf16)
    m.gelu_forward_kernel2(out, x, 4096, grid=4, block=128)
    return out, F.gelu(x.float(), approximate="tanh")


@case(LLM + "gelu_backward.cu", "gelu_backward2")
def _(m: Any) -> Results:
    x, dy, dx = normal(2048, dtype=bf16), normal(2048, dtype=bf16), zeros(2048, dtype=bf16)
    m.gelu_backward2(dx, x, dy, 2048, grid=2, block=128)
    leaf = x.float().requires_grad_()
    F.gelu(leaf, approximate="tanh").backward(dy.float())
    return dx, leaf.grad


@case(LLM + "residual_forward.cu", "residual_forward_kernel2")
def _(m: Any) -> Results:
    a, b, out = normal(2048, dtype=bf16), normal(2048, dtype=bf16), zeros(2048, dtype=bf16)
    m.residual_forward_kernel2(out, a, b, 2048, grid=2, block=128)
    return out, a.float() + b.float()


def softmax_of_llm(name: str, grid: int, block: int, shared: int = 0, known: str = "") -> None:
    @case(LLM + "softmax_forward.cu", name, known)
    def _(m: Any) -> Results:
        x, out = normal(8, 200), zeros(8, 200)
        getattr(m, name)(out, x, 8, 200, grid=grid, block=block, smem_bytes=shared)
        return out, x.softmax(-1)


softmax_of_llm("softmax_forward_kernel1", 1, 32)
softmax_of_llm("softmax_forward_kernel2", 8, 128, 512)
softmax_of_llm("softmax_forward_kernel3", 8, 32, 128)
softmax_of_llm("softmax_forward_kernel4", 8, 128, 32, known="a race between its two uses of shared memory")
softmax_of_llm("softmax_forward_online_kernel1", 1, 32)
softmax_of_llm("softmax_forward_online_kernel2", 1, 256)
softmax_of_llm(
    "softmax_forward_kernel7", 8, 128, 32, known="threads past the row read its last element, and drop it"
)
softmax_of_llm("softmax_forward_online_kernel8", 2, 128)


def layer_norm_of_llm(name: str, grid: int, block: int) -> None:
    @case(LLM + "layernorm_forward.cu", name)
    def _(m: Any) -> Results:
        x, w, b = normal(8, 256), normal(256), normal(256)
        out, mean, rstd = zeros(8, 256), zeros(8), zeros(8)
        getattr(m, name)(out, mean, rstd, x, w, b, 8, 256, grid=grid, block=block)
        want = (x.var(-1, correction=0) + 1e-5).rsqrt()
        return [(out, F.layer_norm(x, (256,), w, b)), (mean, x.mean(-1)), (rstd, want)]


layer_norm_of_llm("layernorm_forward_kernel1", 1, 32)
layer_norm_of_llm("layernorm_forward_kernel3", 2, 128)
layer_norm_of_llm("layernorm_forward_kernel4", 2, 128)
layer_norm_of_llm("layernorm_forward_kernel5", 8, 128)


@case(LLM + "crossentropy_forward.cu", "crossentropy_forward_kernel1")
def _(m: Any) -> Results:
    probs, targets, losses = normal(16, 50).softmax(-1), integers(50, 16), zeros(16)
    m.crossentropy_forward_kernel1(losses, probs, targets, 2, 8, 50, grid=1, block=32)
    return losses, -probs.gather(1, targets.long()[:, None])[:, 0].log()


@case(LLM + "crossentropy_softmax_backward.cu", "crossentropy_softmax_backward_kernel1")
def _(m: Any) -> Results:
    probs, targets, scale, out = normal(16, 50).softmax(-1), integers(50, 16), normal(16), zeros(16, 50)
    m.crossentropy_softmax_backward_kernel1(out, scale, probs, targets, 2, 8, 50, grid=4, block=256)
    return out, (probs - F.one_hot(targets.long(), 50)) * scale[:, None]


@case(LLM + "encoder_forward.cu", "encoder_forward_kernel2")
def _(m: Any) -> Results:
    tokens, words, places = integers(20, 2, 8), normal(20, 64, dtype=bf16), normal(8, 64, dtype=bf16)
    out = zeros(2, 8, 64, dtype=bf16)
    m.encoder_forward_kernel2(out, tokens, words, places, 2, 8, 64, grid=4, block=256)
    return out, words.float()[tokens.long()] + places.float()


@case(LLM + "encoder_backward.cu", "encoder_backward_kernel1")
def _(m: Any) -> Results:
    tokens, dout = integers(5, 2, 8), normal(2, 8, 64)
    words, places = zeros(5, 64), zeros(8, 64)
    m.encoder_backward_kernel1(words, places, dout, tokens, 2, 8, 64, grid=4, block=256)
    want = torch.zeros_like(words).index_add_(0, tokens.long().flatten(), dout.reshape(16, 64))
    return [(words, want), (places, dout.sum(0))]


@case(LLM + "matmul_forward.cu", "matmul_forward_kernel1")
def _(m: Any) -> Results:
    x, w, b, out = normal(24, 32), normal(40, 32), normal(40), zeros(24, 40)
    m.matmul_forward_kernel1(out, x, w, b, 24, 32, 40, grid=(2, 3), block=(16, 16))
    return out, F.linear(x, w, b)


@case(LLM + "matmul_forward.cu", "matmul_forward_kernel4")
def _(m: Any) -> Results:
    x, w, b, out = normal(128, 64), normal(128, 64), normal(128), zeros(128, 128)
    m.matmul_forward_kernel4(out, x, w, b, 64, 128, grid=(1, 1), block=(16, 16))
    return out, F.linear(x, w, b)


@case(LLM + "permute.cu", "permute_kernel")
def _(m: Any) -> Results:
    x, out = normal(2, 3, 4, 5), zeros(120)
    m.permute_kernel(x, out, 2, 3, 4, 5, grid=1, block=128)
    return out, x.permute(3, 2, 0, 1).flatten()


@case(LLM + "attention_forward.cu", "attention_query_key_kernel1")
def _(m: Any) -> Results:
    b, t, heads, size = 2, 8, 4, 16
    qkv, scores = normal(b, t, 3, heads, size), zeros(b, heads, t, t)
    m.attention_query_key_kernel1(scores, qkv, b, t, heads * size, heads, grid=2, block=256)
    q, k = (qkv[:, :, i].transpose(1, 2) for i in (0, 1))
    mask = torch.ones(t, t, dtype=torch.bool, device=device).triu(1)
    return scores, (q @ k.mT / math.sqrt(size)).masked_fill(mask, -math.inf)


@case(LLM + "attention_forward.cu", "attention_value_kernel1")
def _(m: Any) -> Results:
    b, t, heads, size = 2, 8, 4, 16
    weights = normal(b, heads, t, t).tril()
    qkv, out = normal(b, t, 3, heads, size), zeros(b, t, heads, size)
    m.attention_value_kernel1(out, weights, qkv, b, t, heads * size, heads, grid=1, block=256)
    return out, (weights @ qkv[:, :, 2].transpose(1, 2)).transpose(1, 2)


@case(LLM + "classifier_fused.cu", "fused_classifier_kernel1")
def _(m: Any) -> Results:
    logits, scale, targets = normal(8, 100), normal(8), integers(100, 8)
    out, losses = zeros(8, 100), zeros(8)
    m.fused_classifier_kernel1(out, losses, logits, scale, targets, 2, 4, 100, 100, grid=8, block=128)
    want = (logits.softmax(-1) - F.one_hot(targets.long(), 100)) * scale[:, None]
    return [(out, want), (losses, F.cross_entropy(logits, targets.long(), reduction="none"))]


# ------------------------------------------------------------------------------------------------ SGEMM_CUDA

SGEMM = "SGEMM_CUDA/src/kernels.cuh"


def matmul_of_sgemm(
    name: str, values: tuple[int, ...], grid: int | tuple[int, int], block: int | tuple
) -> None:
    @case(SGEMM, name)
    def _(m: Any) -> Results:
        a, b, c = normal(128, 128), normal(128, 128), normal(128, 128)
        want = 2 * (a @ b) + 3 * c
        kernel = getattr(m, name)[values] if values else getattr(m, name)
        kernel(128, 128, 128, 2.0, a, b, 3.0, c, grid=grid, block=block)
        return c, want


matmul_of_sgemm("sgemm_naive", (), (4, 4), (32, 32))
matmul_of_sgemm("sgemm_global_mem_coalesce", (32,), (4, 4), 1024)
matmul_of_sgemm("sgemm_shared_mem_block", (32,), (4, 4), 1024)
matmul_of_sgemm("sgemm1DBlocktiling", (64, 64, 8, 8), (2, 2), 512)
matmul_of_sgemm("sgemm2DBlocktiling", (128, 128, 8, 8, 8), (1, 1), 256)
matmul_of_sgemm("sgemmVectorize", (128, 128, 8, 8, 8), (1, 1), 256)
matmul_of_sgemm("sgemmResolveBankConflicts", (128, 128, 8, 8, 8), (1, 1), 256)
matmul_of_sgemm("sgemmResolveBankExtraCol", (128, 128, 8, 8, 8), (1, 1), 256)
matmul_of_sgemm("sgemmWarptiling", (128, 128, 16, 64, 64, 4, 8, 4, 128), (1, 1), 128)

# ------------------------------------------------------------------------------------------- pytorch_cluster

CLUSTER = "pytorch_cluster/csrc/cuda/"
int64 = torch.int64


@case(CLUSTER + "nearest_cuda.cu", "nearest_kernel")
def _(m: Any) -> Results:
    x, y, ends, out = normal(50, 3), normal(10, 3), torch.tensor([0, 50]), zeros(50, dtype=int64)
    ends_y = torch.tensor([0, 10]).to(device)
    m.nearest_kernel["float"](x, y, ends.to(device), ends_y, out, 1, 3, grid=50, block=1024)
    return out, torch.cdist(x, y).argmin(1)


@case(CLUSTER + "grid_cuda.cu", "grid_kernel")
def _(m: Any) -> Results:
    x, size, start, end = (
        normal(40, 2),
        torch.tensor([0.5, 0.25]),
        torch.full((2,), -4.0),
        torch.full((2,), 4.0),
    )
    size, start, end = size.to(device), start.to(device), end.to(device)
    out = zeros(40, dtype=int64)
    m.grid_kernel["float"](x, size, start, end, out, 2, 40, grid=1, block=256)
    cell = ((x - start) / size).long()
    return out, cell[:, 0] + cell[:, 1] * int((8.0 / 0.5) + 1)


@case(CLUSTER + "knn_cuda.cu", "knn_kernel")
def _(m: Any) -> Results:
    x, y, ends = normal(60, 3), normal(20, 3), [torch.tensor([0, n]).to(device) for n in (60, 20)]
    row, col = zeros(80, dtype=int64) - 1, zeros(80, dtype=int64) - 1
    m.knn_kernel["float"](x, y, *ends, row, col, 4, 60, 20, 3, 1, False, grid=1, block=256)
    return col.reshape(20, 4), torch.cdist(y, x).topk(4, largest=False).indices


@case(CLUSTER + "radius_cuda.cu", "radius_kernel")
def _(m: Any) -> Results:
    x, y, ends = normal(60, 3), normal(20, 3), [torch.tensor([0, n]).to(device) for n in (60, 20)]
    row, col = zeros(20 * 60, dtype=int64) - 1, zeros(20 * 60, dtype=int64) - 1
    m.radius_kernel["float"](x, y, *ends, row, col, 1.0, 60, 20, 3, 1, 60, False, grid=1, block=256)
    near = torch.cdist(y, x) < 1
    return (row.reshape(20, 60) >= 0).sum(1), near.sum(1)


@case(
    CLUSTER + "fps_cuda.cu", "fps_kernel", known="a race between the reduction's last read and the next write"
)
def _(m: Any) -> Results:
    x, starts, ends = normal(64, 3), torch.tensor([0]).to(device), torch.tensor([0, 64]).to(device)
    out, distance, picks = (
        zeros(8, dtype=int64),
        torch.full((64,), 5e4).to(device),
        torch.tensor([0, 8]).to(device),
    )
    m.fps_kernel["float"](x, ends, picks, starts, distance, out, 3, grid=1, block=256)
    want, far = [0], torch.full((64,), math.inf, device=device)
    for _ in range(7):
        far = torch.minimum(far, (x - x[want[-1]]).square().sum(1))
        want.append(int(far.argmax()))
    return out, torch.tensor(want)


@case(CLUSTER + "rw_cuda.cu", "uniform_sampling_kernel")
def _(m: Any) -> Results:
    # a ring of six nodes, each with one neighbour: a walk has no choice
    rows, to, start = (
        torch.arange(7).to(device),
        torch.tensor([1, 2, 3, 4, 5, 0]).to(device),
        integers(6, 9, dtype=int64),
    )
    nodes, edges = zeros(5, 9, dtype=int64), zeros(4, 9, dtype=int64)
    random = torch.rand(4, 9).to(device)
    m.uniform_sampling_kernel(rows, to, start, random, nodes, edges, 4, 9, grid=1, block=256)
    return nodes, (start + torch.arange(5, device=device)[:, None]) % 6


# ----------------------------------------------------------------------------------------- fast.cu


def matmul_of_fast_cu(
    number: int,
    *template: Any,
    block: int,
    tile: tuple[int, int],
    smem_bytes: int,
    size: tuple[int, int, int] = (256, 256, 256),
    blocks: int = 0,
    known: str = "",
) -> None:
    """Add a step of a ladder of matmuls by wgmma and TMA.

    Args:
        number: Of the step.
        template: The arguments of its template.
        block: Threads of a block.
        tile: Rows of A and of B that a block multiplies.
        smem_bytes: Dynamic shared memory of a block.
        size: M, N and K.
        blocks: Blocks of a persistent kernel; 0: one for each tile.
        known: A fault of it.
    """
    boxes = {1: lambda x: x, 3: _in_columns_of_64, 5: lambda x: _in_columns_of_64(x)[None, None]}
    rank = 1 if number < 7 else 5 if number == 7 else 3

    def tensor_map(x: Tensor, rows: int) -> Any:
        box = (rows, 64) if rank == 1 else (*[1] * (rank - 2), rows, 64)
        made = dotcu.tensor_map(boxes[rank](x), box=box, swizzle=128)
        return [made] if number < 6 else made

    @case("fast.cu/matmul.cu", f"matmulKernel{number}", known)
    def _(m: Any) -> Results:
        rows, columns, depth = size
        a, b = normal(rows, depth, dtype=torch.bfloat16), normal(columns, depth, dtype=torch.bfloat16)
        out = zeros(columns, rows, dtype=torch.bfloat16)
        debug = (None,) if number == 3 else ()
        grid = blocks or rows // tile[0] * (columns // tile[1])
        maps = (tensor_map(a, tile[0]), tensor_map(b, tile[1]))
        kernel = m.kernels[f"matmulKernel{number}"][template]
        kernel(*size, out, *maps, *debug, grid=grid, block=block, smem_bytes=smem_bytes)
        return out, (a.float() @ b.float().T).T


def _in_columns_of_64(x: Tensor) -> Tensor:
    return x.view(x.shape[0], -1, 64).permute(1, 0, 2)


matmul_of_fast_cu(2, 64, 64, 64, 64, 64, 16, 128, block=128, tile=(64, 64), smem_bytes=0)
matmul_of_fast_cu(3, 128, 128, 64, 128, False, block=128, tile=(128, 128), smem_bytes=2**15)
matmul_of_fast_cu(4, 128, 128, 64, 256, 5, block=256, tile=(128, 128), smem_bytes=5 * 2**15)
matmul_of_fast_cu(5, 128, 256, 64, 384, 3, block=384, tile=(128, 256), smem_bytes=9 * 2**14)
for step, clusters in ((6, ()), (7, ()), (8, (2, 1)), (9, (2, 1))):
    matmul_of_fast_cu(
        step,
        *(128, 256, 64, 384, 3, 16, *clusters),
        block=384,
        tile=(128, 256),
        smem_bytes=9 * 2**14,
        size=(2048, 2048, 64),
        blocks=16,
    )


# ----------------------------------------------------------------------------------------- Pointnet2_PyTorch

POINTNET = "Pointnet2_PyTorch/pointnet2_ops_lib/pointnet2_ops/_ext-src/src/"


@case(POINTNET + "ball_query_gpu.cu", "query_ball_point_kernel")
def _(m: Any) -> Results:
    points, centers, out = normal(2, 40, 3), normal(2, 10, 3), zeros(2, 10, 5, dtype=torch.int32)
    m.query_ball_point_kernel(2, 40, 10, 1.0, 5, centers, points, out, grid=2, block=32)
    near = torch.cdist(centers, points) < 1
    want = torch.zeros_like(out)
    for index in ((b, c) for b in range(2) for c in range(10)):
        found = near[index].nonzero().flatten()[:5]
        if len(found):
            want[index] = found[0].int()
            want[index][: len(found)] = found.int()
    return out, want


@case(POINTNET + "group_points_gpu.cu", "group_points_kernel")
def _(m: Any) -> Results:
    points, index, out = normal(2, 3, 40), integers(40, 2, 10, 5), zeros(2, 3, 10, 5)
    m.group_points_kernel(2, 3, 40, 10, 5, points, index, out, grid=2, block=(16, 4))
    want = points.gather(2, index.long().reshape(2, 1, 50).expand(-1, 3, -1)).reshape(2, 3, 10, 5)
    return out, want


@case(POINTNET + "group_points_gpu.cu", "group_points_grad_kernel")
def _(m: Any) -> Results:
    grad, index, out = normal(2, 3, 10, 5), integers(40, 2, 10, 5), zeros(2, 3, 40)
    m.group_points_grad_kernel(2, 3, 40, 10, 5, grad, index, out, grid=2, block=(16, 4))
    index = index.long().reshape(2, 1, 50).expand(-1, 3, -1)
    return out, torch.zeros_like(out).scatter_add_(2, index, grad.reshape(2, 3, 50))


@case(POINTNET + "interpolate_gpu.cu", "three_nn_kernel")
def _(m: Any) -> Results:
    unknown, points = normal(2, 20, 3), normal(2, 30, 3)
    distance, index = zeros(2, 20, 3), zeros(2, 20, 3, dtype=torch.int32)
    m.three_nn_kernel(2, 20, 30, unknown, points, distance, index, grid=2, block=32)
    want = torch.cdist(unknown, points).square().topk(3, largest=False)
    return [(distance, want.values), (index, want.indices)]


@case(POINTNET + "interpolate_gpu.cu", "three_interpolate_kernel")
def _(m: Any) -> Results:
    points, index, weight, out = normal(2, 4, 30), integers(30, 2, 20, 3), normal(2, 20, 3), zeros(2, 4, 20)
    m.three_interpolate_kernel(2, 4, 30, 20, points, index, weight, out, grid=2, block=(16, 4))
    taken = points.gather(2, index.long().reshape(2, 1, 60).expand(-1, 4, -1)).reshape(2, 4, 20, 3)
    return out, (taken * weight[:, None]).sum(-1)


@case(POINTNET + "sampling_gpu.cu", "gather_points_kernel")
def _(m: Any) -> Results:
    points, index, out = normal(2, 4, 30), integers(30, 2, 10), zeros(2, 4, 10)
    m.gather_points_kernel(2, 4, 30, 10, points, index, out, grid=(2, 4), block=32)
    return out, points.gather(2, index.long()[:, None].expand(-1, 4, -1))


@case(
    POINTNET + "sampling_gpu.cu",
    "furthest_point_sampling_kernel",
    known="a race on the shared result of a round",
)
def _(m: Any) -> Results:
    points = normal(2, 64, 3) * 3
    far, out = torch.full((2, 64), 1e10).to(device), zeros(2, 8, dtype=torch.int32)
    m.furthest_point_sampling_kernel[64](2, 64, 8, points, far, out, grid=2, block=64)
    want = torch.zeros(2, 8, dtype=torch.int32)
    for b in range(2):
        distance = torch.full((64,), math.inf, device=device)
        usable = points[b].square().sum(1) > 1e-3
        for i in range(1, 8):
            distance = torch.minimum(distance, (points[b] - points[b, int(want[b, i - 1])]).square().sum(1))
            want[b, i] = int(torch.where(usable, distance, -1).argmax())
    return out, want


# ------------------------------------------------------------------------------------------------- LeetCUDA

LEET = "LeetCUDA/kernels/"


@case(LEET + "elu/elu.cu", "elu_f16x8_pack_kernel")
def _(m: Any) -> Results:
    x, out = normal(2048, dtype=half), zeros(2048, dtype=half)
    m.elu_f16x8_pack_kernel(x, out, 2048, grid=1, block=256)
    return out, F.elu(x.float())


@case(LEET + "histogram/histogram.cu", "histogram_i32_kernel")
def _(m: Any) -> Results:
    x, out = integers(16, 1000), zeros(16, dtype=torch.int32)
    m.histogram_i32_kernel(x, out, 1000, grid=4, block=256)
    return out, torch.bincount(x, minlength=16)


@case(LEET + "rms-norm/rms_norm.cu", "rms_norm_f32_kernel")
def _(m: Any) -> Results:
    x, out = normal(4, 256), zeros(4, 256)
    m.rms_norm_f32_kernel[256](x, out, 1.5, 4, 256, grid=4, block=256)
    return out, 1.5 * F.rms_norm(x, (256,), eps=1e-5)


@case(LEET + "rms-norm/rms_norm.cu", "rms_norm_f16x8_f32_kernel")
def _(m: Any) -> Results:
    x, out = normal(4, 1024, dtype=half), zeros(4, 1024, dtype=half)
    m.rms_norm_f16x8_f32_kernel[128](x, out, 1.0, 4, 1024, grid=4, block=128)
    return out, F.rms_norm(x.float(), (1024,), eps=1e-5)


@case(
    LEET + "softmax/softmax.cu",
    "online_safe_softmax_f32_per_token_kernel",
    known="32 lanes read the 8 results of warps",
)
def _(m: Any) -> Results:
    x, out = normal(4, 256), zeros(4, 256)
    m.online_safe_softmax_f32_per_token_kernel[256](x, out, 1024, grid=4, block=256)
    return out, x.softmax(-1)


@case(LEET + "softmax/softmax.cu", "safe_softmax_f16x8_pack_f32_per_token_kernel")
def _(m: Any) -> Results:
    x, out = normal(4, 1024, dtype=half), zeros(4, 1024, dtype=half)
    m.safe_softmax_f16x8_pack_f32_per_token_kernel[128](x, out, 4096, grid=4, block=128)
    return out, x.float().softmax(-1)


@case(LEET + "dot-product/dot_product.cu", "dot_prod_f32x4_f32_kernel")
def _(m: Any) -> Results:
    a, b, out = normal(4096), normal(4096), zeros(1)
    m.dot_prod_f32x4_f32_kernel[64](a, b, out, 4096, grid=16, block=64)
    return out, (a * b).sum()[None]


@case(LEET + "embedding/embedding.cu", "embedding_f16x8_pack_kernel")
def _(m: Any) -> Results:
    index, weight, out = integers(10, 16), normal(10, 128, dtype=half), zeros(16, 128, dtype=half)
    m.embedding_f16x8_pack_kernel(index, weight, out, 16, 128, grid=16, block=16)
    return out, weight[index.long()]


@case(LEET + "mat-transpose/mat_transpose.cu", "mat_transpose_f32x4_shared_bcf_col2row2d_kernel")
def _(m: Any) -> Results:
    x, out = normal(64, 64), zeros(64, 64)
    m.mat_transpose_f32x4_shared_bcf_col2row2d_kernel(x, out, 64, 64, grid=(1, 4), block=(16, 16))
    return out, x.T


@case(LEET + "layer-norm/layer_norm.cu", "layer_norm_f32_kernel")
def _(m: Any) -> Results:
    x, out = normal(4, 256), zeros(4, 256)
    m.layer_norm_f32_kernel[256](x, out, 2.0, 0.5, 4, 256, grid=4, block=256)
    return out, 2.0 * F.layer_norm(x, (256,)) + 0.5


@case(LEET + "sgemm/sgemm.cu", "sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf_kernel")
def _(m: Any) -> Results:
    a, b, c = normal(128, 64), normal(64, 128), zeros(128, 128)
    m.sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf_kernel[128, 128, 8, 8, 8, 0](
        a, b, c, 128, 128, 64, grid=(1, 1), block=(16, 16)
    )
    return c, a @ b


@case(LEET + "reduce/block_all_reduce.cu", "block_all_reduce_sum_bf16x8_pack_f32_kernel")
def _(m: Any) -> Results:
    x, out = normal(2048, dtype=bf16), zeros(1)
    m.block_all_reduce_sum_bf16x8_pack_f32_kernel[32](x, out, 2048, grid=8, block=32)
    return out.bfloat16(), x.float().sum()[None]  # each thread adds its eight in bfloat16


@case(LEET + "reduce/block_all_reduce.cu", "block_all_reduce_sum_i8x16_pack_i32_kernel")
def _(m: Any) -> Results:
    x, out = integers(100, 4096, dtype=torch.int8), zeros(1, dtype=torch.int32)
    m.block_all_reduce_sum_i8x16_pack_i32_kernel[32](x, out, 4096, grid=8, block=32)
    return out, x.int().sum()[None]


@case(LEET + "sgemv/sgemv.cu", "sgemv_k128_f32x4_kernel")
def _(m: Any) -> Results:
    a, x, out = normal(16, 128), normal(128), zeros(16)
    m.sgemv_k128_f32x4_kernel(a, x, out, 16, 128, grid=4, block=(32, 4))
    return out, a @ x


@case(LEET + "hgemm/mma/basic/hgemm_mma.cu", "hgemm_mma_m16n8k16_naive_kernel")
def _(m: Any) -> Results:
    a, b, c = normal(32, 64, dtype=half), normal(64, 32, dtype=half), zeros(32, 32, dtype=half)
    m.hgemm_mma_m16n8k16_naive_kernel[16, 8, 16](a, b, c, 32, 32, 64, grid=(4, 2), block=32)
    return c / 8, a.float() @ b.float() / 8


# ------------------------------------------------------------------------------------------------------ apex


@case("apex/csrc/update_scale_hysteresis.cu", "update_scale_hysteresis_cuda_kernel")
def _(m: Any) -> Results:
    scale, growth, left = (
        torch.tensor([8.0]).to(device),
        zeros(1, dtype=torch.int32),
        zeros(1, dtype=torch.int32),
    )
    infinite = torch.tensor([1.0]).to(device)
    m.update_scale_hysteresis_cuda_kernel(scale, growth, left, infinite, 2.0, 0.5, 10, 1, grid=1, block=1)
    return scale, torch.tensor([4.0])


@case("apex/csrc/mlp_cuda.cu", "biasAddRelu_fprop")
def _(m: Any) -> Results:
    x, b = normal(16, 64), normal(64)
    want = (x + b).relu()
    m.biasAddRelu_fprop["float"](x, b, 16, 64, grid=2, block=128)
    return x, want


@case("apex/csrc/mlp_cuda.cu", "Sigmoid_bprop")
def _(m: Any) -> Results:
    dy, y, dx = normal(16, 64), normal(16, 64).sigmoid(), zeros(16, 64)
    m.Sigmoid_bprop["float"](dy, y, 16, 64, dx, grid=2, block=128)
    return dx, dy * y * (1 - y)


# ---------------------------------------------------------------------------------------------- bitsandbytes


@case("bitsandbytes/csrc/kernels.cu", "kDequantizeBlockwise")
def _(m: Any) -> Results:
    code, packed, scale, out = (
        normal(256),
        integers(256, 1024, dtype=torch.uint8),
        normal(4).abs(),
        zeros(1024),
    )
    m.kDequantizeBlockwise["float", 512, 64, 8, "General8bit"](
        code, packed, scale, out, 256, 1024, grid=2, block=64
    )
    return out, code[packed.long()] * scale.repeat_interleave(256)


@case("bitsandbytes/csrc/kernels.cu", "kInt8VectorQuant")
def _(m: Any) -> Results:
    x, out, stats = normal(4, 300, dtype=half), zeros(4, 300, dtype=torch.int8), zeros(4)
    m.kInt8VectorQuant["half", 1024, 0](x, out, stats, 0.0, 4, 300, grid=4, block=1024)
    return stats, x.float().abs().amax(1)


@case("bitsandbytes/csrc/kernels.cu", "kQuantizeBlockwise")
def _(m: Any) -> Results:
    code = torch.linspace(-1, 1, 256).to(device)
    x, scale, out = normal(512), zeros(2), zeros(512, dtype=torch.uint8)
    m.kQuantizeBlockwise["float", 256, 2, 0, "General8bit"](
        code, x, scale, out, None, 0, 512, grid=2, block=128
    )
    return scale, x.reshape(2, 256).abs().amax(1)


# ---------------------------------------------------------------------------------------------- cuda-samples

SAMPLES = "cuda-samples/Samples/"


@case(SAMPLES + "0_Introduction/vectorAdd/vectorAdd.cu", "vectorAdd")
def _(m: Any) -> Results:
    a, b, out = normal(1000), normal(1000), zeros(1000)
    m.vectorAdd(a, b, out, 1000, grid=4, block=256)
    return out, a + b


@case(SAMPLES + "0_Introduction/matrixMul/matrixMul.cu", "MatrixMulCUDA")
def _(m: Any) -> Results:
    a, b, out = normal(64, 32), normal(32, 64), zeros(64, 64)
    m.MatrixMulCUDA[16](out, a, b, 32, 64, grid=(4, 4), block=(16, 16))
    return out, a @ b


for name in ("transposeNaive", "transposeCoalesced", "transposeNoBankConflicts", "transposeDiagonal"):

    @case(SAMPLES + "6_Performance/transpose/transpose.cu", name)
    def _(m: Any, name: str = name) -> Results:
        x, out = normal(64, 64), zeros(64, 64)
        getattr(m, name)(out, x, 64, 64, grid=(2, 2), block=(32, 16))
        return out, x.T


@case(SAMPLES + "2_Concepts_and_Techniques/scan/scan.cu", "scanExclusiveShared")
def _(m: Any) -> Results:
    x, out = integers(100, 1024), zeros(1024, dtype=torch.int32)
    m.scanExclusiveShared(out.view(256, 4), x.view(256, 4), 1024, grid=1, block=256)
    return out, x.cumsum(0) - x


@case(SAMPLES + "2_Concepts_and_Techniques/sortingNetworks/bitonicSort.cu", "bitonicSortShared")
def _(m: Any) -> Results:
    keys, values = integers(10000, 1024), torch.arange(1024, dtype=torch.int32).to(device)
    out, moved = zeros(1024, dtype=torch.int32), zeros(1024, dtype=torch.int32)
    m.bitonicSortShared(out, moved, keys, values, 1024, 1, grid=1, block=512)
    return out, keys.sort().values


@case(SAMPLES + "2_Concepts_and_Techniques/scalarProd/scalarProd_kernel.cuh", "scalarProdGPU")
def _(m: Any) -> Results:
    a, b, out = normal(4, 500), normal(4, 500), zeros(4)
    m.scalarProdGPU(out, a, b, 4, 500, grid=4, block=256)
    return out, (a * b).sum(1)


@case(SAMPLES + "5_Domain_Specific/fastWalshTransform/fastWalshTransform_kernel.cuh", "fwtBatch1Kernel")
def _(m: Any) -> Results:
    x, out = normal(2, 256), zeros(2, 256)
    m.fwtBatch1Kernel(out, x, 8, grid=2, block=64, smem_bytes=1024)
    h = torch.ones(1, 1, device=device)
    for _ in range(8):
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return out, x @ h


@case(SAMPLES + "5_Domain_Specific/BlackScholes/BlackScholes_kernel.cuh", "BlackScholesGPU")
def _(m: Any) -> Results:
    price, strike, years = (torch.rand(256, 2).to(device) * 20 + 5 for _ in range(3))
    call, put = zeros(256, 2), zeros(256, 2)
    m.BlackScholesGPU(call, put, price, strike, years, 0.02, 0.3, 512, grid=2, block=128)
    d1 = ((price / strike).log() + (0.02 + 0.5 * 0.3**2) * years) / (0.3 * years.sqrt())
    d2 = d1 - 0.3 * years.sqrt()
    late = strike * (-0.02 * years).exp()
    return call / 10, (price * torch.special.ndtr(d1) - late * torch.special.ndtr(d2)) / 10


@case(SAMPLES + "2_Concepts_and_Techniques/reduction/reduction_kernel.cu", "reduce3")
def _(m: Any) -> Results:
    x, out = normal(2048), zeros(4)
    m.reduce3["float"](x, out, 2048, grid=4, block=256, smem_bytes=1024)
    return out, x.reshape(4, 512).sum(1)


@case(SAMPLES + "2_Concepts_and_Techniques/histogram/histogram256.cu", "histogram256Kernel")
def _(m: Any) -> Results:
    data, out = integers(1 << 30, 1024), zeros(4, 256, dtype=torch.int32)
    m.histogram256Kernel(out, data, 1024, grid=4, block=192)
    return out.sum(0), torch.bincount(data.view(torch.uint8).long().flatten(), minlength=256)


# ------------------------------------------------------------------------------------------------------ ggml

GGML = "ggml/src/ggml-cuda/"


@case(GGML + "scale.cu", "scale_f32")
def _(m: Any) -> Results:
    x, out = normal(1000), zeros(1000)
    m.scale_f32(x, out, 2.0, 0.5, 1000, grid=4, block=256)
    return out, 2 * x + 0.5


@case(GGML + "clamp.cu", "op_clamp_kernel")
def _(m: Any) -> Results:
    x, out = normal(1000), zeros(1000)
    m.op_clamp_kernel["float"](x, out, -1.0, 0.5, 1000, grid=4, block=256)
    return out, x.clamp(-1, 0.5)


@case(GGML + "norm.cu", "group_norm_f32")
def _(m: Any) -> Results:
    x, out = normal(4, 200), zeros(4, 200)
    m.group_norm_f32[32](x, out, 200, 800, 1e-5, grid=4, block=32)
    return out, F.layer_norm(x, (200,))


@case(GGML + "argmax.cu", "argmax_f32")
def _(m: Any) -> Results:
    x, out = normal(4, 300), zeros(4, dtype=torch.int32)
    m.argmax_f32(x, out, 300, grid=4, block=128)
    return out, x.argmax(1)


@case(GGML + "diagmask.cu", "diag_mask_inf_f32")
def _(m: Any) -> Results:
    x, out = normal(8, 8), zeros(8, 8)
    m.diag_mask_inf_f32(x, out, 8, 8, 0, grid=(8, 1), block=(1, 32))
    return out.tril(), x.tril()


@case(GGML + "softmax.cu", "soft_max_back_f32")
def _(m: Any) -> Results:
    grad, out, dx = normal(4, 100), normal(4, 100).softmax(-1), zeros(4, 100)
    m.soft_max_back_f32(grad, out, dx, 100, 1.0, grid=4, block=32)
    return dx, out * (grad - (grad * out).sum(1, keepdim=True))


@case(GGML + "tsembd.cu", "timestep_embedding_f32")
def _(m: Any) -> Results:
    steps, out = torch.rand(5).to(device), zeros(5, 64)
    m.timestep_embedding_f32(steps, out, 256, 64, 10000, grid=(1, 5), block=256)
    angles = steps[:, None] * torch.exp(-math.log(10000) * torch.arange(32, device=device) / 32)
    return out, torch.cat((angles.cos(), angles.sin()), 1)


# ------------------------------------------------------------------------------------------------- pytorch3d

THREE_D = "pytorch3d/pytorch3d/csrc/"


@case(THREE_D + "compositing/alpha_composite.cu", "alphaCompositeCudaForwardKernel")
def _(m: Any) -> Results:
    features, alphas, index = (
        normal(3, 20),
        torch.rand(2, 4, 5, 6).to(device),
        integers(20, 2, 4, 5, 6, dtype=int64),
    )
    out = zeros(2, 3, 5, 6)
    m.alphaCompositeCudaForwardKernel(out, features, alphas, index, grid=(2, 2), block=64)
    left = torch.cat((torch.ones_like(alphas[:, :1]), (1 - alphas).cumprod(1)[:, :-1]), 1)
    return out, (features[:, index] * alphas * left).sum(2).transpose(0, 1)


@case(THREE_D + "ball_query/ball_query.cu", "BallQueryKernel")
def _(m: Any) -> Results:
    x, y = normal(2, 10, 3), normal(2, 30, 3)
    counts = [torch.tensor([n, n]).to(device) for n in (10, 30)]
    index, distance = zeros(2, 10, 30, dtype=int64) - 1, zeros(2, 10, 30)
    m.BallQueryKernel["float"](x, y, *counts, index, distance, 30, 1.0, 1.0, False, grid=2, block=32)
    return (index >= 0).sum(-1), (torch.cdist(x, y) < 1).sum(-1)


@case(THREE_D + "knn/knn.cu", "KNearestNeighborKernelV0")
def _(m: Any) -> Results:
    x, y = normal(2, 10, 3), normal(2, 30, 3)
    counts = [torch.tensor([n, n]).to(device) for n in (10, 30)]
    index, distance = zeros(2, 10, 4, dtype=int64), zeros(2, 10, 4)
    m.KNearestNeighborKernelV0["float"](x, y, *counts, distance, index, 2, 10, 30, 3, 4, 2, grid=2, block=32)
    want = torch.cdist(x, y).square().topk(4, largest=False).values
    return distance.sort(-1).values, want


@case(THREE_D + "packed_to_padded_tensor/packed_to_padded_tensor.cu", "PackedToPaddedKernelD1")
def _(m: Any) -> Results:
    packed, first, out = normal(10), torch.tensor([0, 4]).to(device), zeros(2, 6)
    m.PackedToPaddedKernelD1["float"](packed, first, out, 2, 6, 10, grid=2, block=32)
    return out, torch.stack((F.pad(packed[:4], (0, 2)), packed[4:]))


# ------------------------------------------------------------- diff-gaussian-rasterization, gsplat

SPLATS = "diff-gaussian-rasterization/cuda_rasterizer/"


@case(SPLATS + "rasterizer_impl.cu", "checkFrustum")
def _(m: Any) -> Results:
    points, view = normal(100, 3), torch.eye(4).to(device)
    out = zeros(100, dtype=torch.bool)
    m.checkFrustum(100, points, view, view, out, grid=1, block=256)
    return out, points[:, 2] > 0.2


@case(SPLATS + "rasterizer_impl.cu", "identifyTileRanges")
def _(m: Any) -> Results:
    tiles = integers(6, 64, dtype=int64).sort().values
    out = zeros(6, 2, dtype=torch.int32)
    m.identifyTileRanges(64, (tiles << 32).view(torch.uint64), out.view(torch.uint32), grid=1, block=256)
    ends = torch.bincount(tiles, minlength=6).cumsum(0)
    want = torch.stack((ends - torch.bincount(tiles, minlength=6), ends), 1)
    return out, torch.where(want[:, :1] == want[:, 1:], 0, want)


@case("gsplat/gsplat/cuda/csrc/AdamCUDA.cu", "adam_kernel")
def _(m: Any) -> Results:
    p, g, mean, square = normal(50, 3), normal(50, 3), normal(50, 3), normal(50, 3).abs()
    mean2, square2 = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g * g
    want = p - 0.1 * mean2 / (square2.sqrt() + 1e-8)
    m.adam_kernel["float"](50, 3, p, g, mean, square, None, 0.1, 0.9, 0.99, 1e-8, grid=1, block=256)
    return [(p, want), (mean, mean2), (square, square2)]


# ---------------------------------------------------------------------------------------------- the program


def table(rows: Sequence[Ran]) -> str:
    """Return how many kernels of each repository gave what, as Markdown."""
    verdicts = ("right", "found", "wrong", "failed")
    lines = ["| repository | kernels | " + " | ".join(verdicts) + " |", "| --- |" + " ---: |" * 5]
    for name in [*sorted({row.repository for row in rows}), "all"]:
        group = [row for row in rows if name in (row.repository, "all")]
        counts = [str(sum(row.verdict == verdict for row in group)) for verdict in verdicts]
        lines.append(f"| {name} | {len(group)} | " + " | ".join(counts) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run, print and save."""
    global device
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", type=Path, help="write every outcome as JSON")
    parser.add_argument("--only", default="", help="kernels with this in their file or name")
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = []
    for one in CASES:
        if options.only in f"{one.file} {one.kernel}" and not (one.known and device.type == "cuda"):
            row = run(one, options.folder.resolve())
            print(
                f"{row.verdict:7}{row.seconds:7.2f} s  {row.repository}  {row.kernel}  {row.note}", flush=True
            )
            rows.append(row)
    print(table(rows))
    if options.save:
        place = torch.cuda.get_device_name(device) if device.type == "cuda" else "simulator"
        document = {"version": 1, "device": place, "kernels": [asdict(row) for row in rows]}
        options.save.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(
        any(row.verdict in ("wrong", "failed") or (row.verdict == "found" and not row.known) for row in rows)
    )


if __name__ == "__main__":
    sys.exit(main())

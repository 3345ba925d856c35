"""gemv: few rows times a matrix of weights, in 16 bits, fp8, int8 or int4: a stream that is read once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.gallery.common import VECTOR_BYTES, PlannedLaunch, random_tensors, require_dtype

kernels = dotcu.load("kernel.cu")
stream_kernels = dotcu.load("stream.cu")
wide_kernels = dotcu.load("wide.cu")

HALVES = (torch.bfloat16, torch.float16)
E4M3 = torch.float8_e4m3fn
MAX_ROWS = 64
LEAST_GROUP = 32

FIRST_WITH_CLUSTERS = (9, 0)
LANES_OF_ROW = 4
ROWS_OF_A, COLUMNS_OF_B = 16, 8
"""The tile of mma.m16n8k16: rows of weights, and rows of x."""


FORMATS = ((E4M3, "e4m3", 8), (torch.int8, "int8", 8), (torch.uint8, "int4_pair", 4))
"""The type in the kernel and the bits of an element, of weights in other dtypes than x."""

QUANTIZED = tuple(dtype for dtype, _, _ in FORMATS)


Tile = tuple[int, int, int, int, int]
"""The work of a block: tiles of 16 rows of weights for each warp, warps with rows of their own, parts of k
with so many warps each; steps of a stage, and stages of the ring in shared memory."""

ANY = 1 << 62
TILES = (
    (16, 8, 1024, (1, 1, 8, 2, 4)),
    (16, 8, 4096, (1, 2, 4, 2, 4)),
    (16, 8, ANY, (1, 8, 1, 2, 4)),
    (16, MAX_ROWS, 4096, (1, 4, 2, 2, 3)),
    (16, MAX_ROWS, ANY, (2, 4, 2, 1, 3)),
    (8, 8, 2048, (2, 2, 4, 1, 4)),
    (8, 8, ANY, (2, 8, 1, 1, 4)),
    (8, MAX_ROWS, ANY, (2, 4, 1, 1, 4)),
    (4, 8, 2048, (2, 2, 4, 1, 4)),
    (4, 8, ANY, (2, 8, 1, 1, 3)),
    (4, MAX_ROWS, ANY, (2, 4, 1, 1, 4)),
)
"""The tile for weights of so many bits; for so many rows of x, and of weights, at most. Weights of fewer bits
need more rows in a block, as each block reads all of x.

Their shared memory is within the 99 KB that every GPU since sm_80 has. They were chosen by trials on an
H100, which no command of benchmarks/ repeats.
"""

HOPPER = 9
LINE = 128
"""Bytes of a row in a stage of stream.cu, as long as the swizzle, which TMA copies."""

STREAMS = (
    (8, 2048, None),
    (8, ANY, (2, 4, 4)),
    (4, 2048, None),
    (4, ANY, (2, 4, 3)),
)
"""The tile of stream.cu for up to 8 rows of x, weights of so many bits, and so many rows of weights at most:
tiles of 16 rows for each warp, warps, and stages. None: kernel.cu is as fast, or it was not tried. Chosen by
trials on an H100."""

TWO_AT_ONCE, THREE_AT_ONCE = 112 * 1024, 74 * 1024
"""Bytes of shared memory of which a Hopper multiprocessor has room for two blocks, and for three."""

CLUSTERS = (1, 2, 4, 8)
LEAST_STEPS = 2
"""Stages of k that each part has at least, where blocks of a cluster share them."""

SLOT = 32
"""Bytes of the scales of a row that stream.cu copies at once."""

LEAST_OF_WIDE = 256
"""Rows of weights, more than which go to wide.cu for 8 rows of x, too."""

MAX_STAGES = 6
"""The stages of wide.cu, if three blocks fit on a multiprocessor with them."""

ROWS_OF_WIDE, WARPS_OF_WIDE, LEAST_WIDE_STEPS = 64, 5, 8
"""A block's rows of weights and its warps; and the stages of k that each part has at least."""

Plan = tuple[PlannedLaunch, tuple[int, ...]]
"""A launch, and the rows of its boxes of x, of weights and of scales, if it takes tensor maps."""


@dotcu.op("dotcu::gemv", dtypes=HALVES, sharding="x:rows -> rows")
def gemv(x: Tensor, weight: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Compute x @ weight.T * scale + bias for few rows of x; sums are in float32, in a fixed order.

    Args:
        x: A tensor (..., K) of bfloat16 or float16, of 64 rows at most.
        weight: A matrix (N, K), as torch.nn.Linear has it, in the dtype of x, in float8_e4m3fn, or in int8;
            or (N, K / 2) in uint8: two elements of 4 bits in a byte, that of even k in the lower half, each
            stored as its value + 8 (0 to 15 for -8 to 7).
        scale: Of weights in 8 or 4 bits, in float32 or in the dtype of x: () or (1,) for the whole tensor,
            (N,) or (N, 1) for each row, or (N, G) for G groups of K / G adjacent elements of a row; the
            elements of a group are a power of two, 32 or more.
        bias: (N,), in the dtype of x.

    Returns:
        (..., N), in the dtype of x. Differentiable by x, bias, and a weight of the dtype of x.
    """
    _require(x, weight, scale, bias)
    n, k = weight.shape[0], x.shape[-1]
    out = x.new_empty((*x.shape[:-1], n))
    if out.numel() == 0:
        return out
    rows, weight = x.contiguous(), weight.contiguous()
    scale = None if scale is None else scale.contiguous()
    bias = None if bias is None else bias.contiguous()
    (kernel, numbers, grid, block, smem_bytes, cluster), boxes = _choose(rows, weight, scale, out)
    m = out.numel() // n
    factors: tuple[Any, ...] = (rows, weight, scale)
    if boxes:
        factors = _boxes(rows.view(m, k), boxes[0]), _boxes(weight, boxes[1])
    if len(boxes) == 3:
        slots = factors[1] if scale is None or boxes[2] == 0 else _slots(scale, boxes[2])
        factors = *factors, slots, scale
    arguments = (*factors, bias, out, m, n, k, *numbers)
    kernel(*arguments, grid=grid, block=block, smem_bytes=smem_bytes, cluster=cluster)
    return out


def _boxes(x: Tensor, rows: int) -> dotcu.TensorMap:
    """Return the tensor map that copies 128 bytes of some rows at once."""
    ahead = 2 * LINE if x.shape[1] * x.element_size() % (2 * LINE) == 0 else 0  # the next stage's, too
    return dotcu.tensor_map(x, box=(rows, LINE // x.element_size()), swizzle=LINE, l2_promotion=ahead)


def _slots(scale: Tensor, rows: int) -> dotcu.TensorMap:
    """Return the tensor map that copies 32 bytes of scales of some rows at once."""
    return dotcu.tensor_map(scale, box=(rows, SLOT // scale.element_size()))


@dotcu.by_layout
def _choose(x: Tensor, weight: Tensor, scale: Tensor | None, out: Tensor) -> Plan:
    n, k = weight.shape[0], x.shape[-1]
    m = out.numel() // n
    name, bits = next((row[1:] for row in FORMATS if row[0] == weight.dtype), ("", 16))
    groups, pitch = _groups(scale, n)
    grouped = groups > 1
    lines = k > 0 and k * x.element_size() % VECTOR_BYTES == 0 and k * bits // 8 % VECTOR_BYTES == 0
    aligned = dotcu.is_aligned(x, VECTOR_BYTES) and dotcu.is_aligned(weight, VECTOR_BYTES)
    if grouped and scale is not None:
        lines = lines and groups * scale.element_size() % VECTOR_BYTES == 0
        aligned = aligned and dotcu.is_aligned(scale, VECTOR_BYTES)
    if lines and aligned and dotcu.capability(out)[0] == HOPPER:
        if name == "" and (m > COLUMNS_OF_B or n > LEAST_OF_WIDE):
            return _wide(x, weight, out)
        tile = next((tile for of, most, tile in STREAMS if of == bits and n <= most), None)
        if m <= COLUMNS_OF_B and tile is not None:
            return _stream(tile, name, bits, groups, pitch, x, weight, scale, out)
    size = VECTOR_BYTES
    while grouped and LANES_OF_ROW * size * 8 // bits > k // groups:
        size //= 2
    elements = size * 8 // bits  # of a lane's piece of a row
    whole = k % elements == 0 and dotcu.is_aligned(x, VECTOR_BYTES) and dotcu.is_aligned(weight, VECTOR_BYTES)
    tiles, across, parts, depth, stages = _tile(m, n, bits)
    columns, rows = dotcu.cdiv(m, COLUMNS_OF_B), ROWS_OF_A * tiles * across
    stage = parts * columns * elements // 8 * 512 + across * parts * tiles * 64 * size
    sums = parts * columns * COLUMNS_OF_B * (rows + 4) * 4
    smem_bytes = max(depth * stages * stage, sums)
    scales = torch.float32 if scale is None else scale.dtype
    types = x.dtype, name or x.dtype, scales
    instance = (*types, size, whole, grouped, tiles, columns, across, parts, depth, stages)
    kernel = kernels.gemv[instance]
    blocks, step = dotcu.cdiv(n, rows), LANES_OF_ROW * elements * depth * parts
    cluster = 1
    if dotcu.capability(out) >= FIRST_WITH_CLUSTERS:
        cluster = _cluster(blocks, dotcu.cdiv(k, step), dotcu.sm_count(out))
    log2_group = (k // groups).bit_length() - 1 if grouped else 31
    block = 32 * across * parts
    clusters = cluster if cluster > 1 else None
    return PlannedLaunch(kernel, (pitch, log2_group), blocks * cluster, block, smem_bytes, clusters), ()


def _stream(
    tile: tuple[int, int, int], name: str, bits: int, groups: int, pitch: int, x: Tensor,
    weight: Tensor, scale: Tensor | None, out: Tensor,
) -> Plan:  # fmt: skip
    """Return the plan of stream.cu."""
    (tiles, warps, stages), n, k = tile, weight.shape[0], x.shape[-1]
    of_piece, rows, step = VECTOR_BYTES * 8 // bits, ROWS_OF_A * tiles * warps, LINE * 8 // bits
    unit = min(LINE // VECTOR_BYTES, k // groups // of_piece) if groups > 1 else 0
    smem_bytes = stages * (rows * LINE + step * x.element_size() * COLUMNS_OF_B)
    scales = torch.float32 if scale is None else scale.dtype
    if unit:
        lasts = SLOT // scales.itemsize // (LINE // VECTOR_BYTES // unit)
        smem_bytes += (1 + dotcu.cdiv(stages - 1, lasts)) * rows * SLOT
    kernel = stream_kernels.gemv_stream[x.dtype, name or x.dtype, scales, unit, tiles, warps, stages]
    blocks = dotcu.cdiv(n, rows)
    cluster = _cluster(blocks, dotcu.cdiv(k, step), dotcu.sm_count(out), smem_bytes)
    log2_group = (k // groups).bit_length() - 1 if groups > 1 else 31
    boxes = COLUMNS_OF_B, rows, rows if unit else 0
    clusters, block, numbers = cluster if cluster > 1 else None, 32 * (warps + 1), (pitch, log2_group)
    return PlannedLaunch(kernel, numbers, blocks * cluster, block, smem_bytes, clusters), boxes


def _wide(x: Tensor, weight: Tensor, out: Tensor) -> Plan:
    """Return the plan of wide.cu."""
    n, k = weight.shape
    columns = dotcu.cdiv(out.numel() // n, COLUMNS_OF_B) * COLUMNS_OF_B
    stage = (ROWS_OF_WIDE + columns) * LINE
    stages = min(MAX_STAGES, THREE_AT_ONCE // stage)
    blocks, steps = dotcu.cdiv(n, ROWS_OF_WIDE), dotcu.cdiv(k * x.element_size(), LINE)
    few = steps // (LEAST_WIDE_STEPS // LEAST_STEPS)
    cluster = _cluster(blocks, few, dotcu.sm_count(out), stages * stage)
    clusters, block = cluster if cluster > 1 else None, 32 * WARPS_OF_WIDE
    kernel = wide_kernels.gemv_wide[x.dtype, columns, stages]
    launch = PlannedLaunch(kernel, (), blocks * cluster, block, stages * stage, clusters)
    return launch, (columns, ROWS_OF_WIDE)


def _tile(m: int, n: int, bits: int) -> Tile:
    """Return the first tile for weights of so many bits that takes m rows of x and n of weights."""
    return next(tile for of, rows, most, tile in TILES if (of, True, True) == (bits, m <= rows, n <= most))


def _cluster(tiles: int, steps: int, sms: int, smem_bytes: int = ANY) -> int:
    """Return the blocks that share the k of a tile: as many as the GPU has room for, while each has work.

    Two blocks for each multiprocessor are fast on an H100 in clusters of two, in clusters of four only if
    there is room for three, and in larger ones never (by trials): a cluster's blocks must be close together.
    """
    room = (smem_bytes <= TWO_AT_ONCE) + (smem_bytes <= THREE_AT_ONCE)
    most = {1: sms, 2: sms * min(1 + room, 2), 4: sms * max(room, 1), 8: sms}
    return [c for c in CLUSTERS if c == 1 or (tiles * c <= most[c] and steps >= LEAST_STEPS * c)][-1]


def _groups(scale: Tensor | None, n: int) -> tuple[int, int]:
    """Return the groups of a row, and the scales from one row to the next."""
    if scale is None or scale.numel() == 1:
        return 1, 0
    groups = scale.shape[1] if scale.dim() == 2 else 1
    return groups, groups


def _require(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> None:
    require_dtype("gemv", x.dtype, HALVES)
    if weight.dtype != x.dtype and weight.dtype not in QUANTIZED:
        raise TypeError(
            f"gemv takes weights of x's dtype {x.dtype}, float8_e4m3fn, int8, or uint8 for two of 4 bits "
            f"(got {weight.dtype}).\nConvert them first: weight.to({x.dtype})"
        )
    per_byte = 2 if weight.dtype == torch.uint8 else 1
    if x.dim() == 0 or weight.dim() != 2 or weight.shape[1] * per_byte != x.shape[-1]:
        raise ValueError(
            f"gemv takes x (..., K) and weights (N, K), or (N, K / 2) of uint8 "
            f"(got {tuple(x.shape)} and {tuple(weight.shape)}).\nType: gemv(x, weight)"
        )
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    if rows > MAX_ROWS:
        raise ValueError(
            f"gemv takes at most {MAX_ROWS} rows of x (got {rows}).\nMultiply more by: x @ weight.T"
        )
    _require_scale(x, weight, scale)
    if bias is not None and (bias.dtype != x.dtype or bias.shape != weight.shape[:1]):
        raise ValueError(
            f"bias has the shape ({weight.shape[0]},) and the dtype {x.dtype} "
            f"(got {tuple(bias.shape)}, {bias.dtype}).\nConvert it first: bias.to({x.dtype})"
        )


def _require_scale(x: Tensor, weight: Tensor, scale: Tensor | None) -> None:
    n, k = weight.shape[0], x.shape[-1]
    if (scale is None) != (weight.dtype == x.dtype):
        raise ValueError(
            f"gemv takes a scale with weights in 8 or 4 bits, and none with others (got weights of "
            f"{weight.dtype} and {'no scale' if scale is None else 'a scale'}).\n"
            "Type: gemv(x, weight, torch.ones(1)) or gemv(x, weight)"
        )
    if scale is None:
        return
    if scale.dtype not in (torch.float32, x.dtype):
        raise TypeError(
            f"gemv takes scales in float32 or in x's dtype {x.dtype} (got {scale.dtype}).\n"
            "Convert them first: scale.float()"
        )
    shape = tuple(scale.shape)
    if shape in ((), (1,), (1, 1), (n,), (n, 1)):
        return
    group = k // shape[1] if len(shape) == 2 and shape[1] > 0 else 0
    if shape[0] != n or group < LEAST_GROUP or group & (group - 1) or group * shape[1] != k:
        raise ValueError(
            f"gemv takes one scale, one for each of the {n} rows, or ({n}, G) for groups of K / G elements, "
            f"a power of two from {LEAST_GROUP} on (got {shape} for K = {k}).\n"
            f"Type: scale.reshape({n}, -1)"
        )


def dequantized(weight: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return weights as `gemv` takes them, as a matrix (N, K) of a floating-point dtype.

    Args:
        weight: In any of the dtypes that `gemv` takes.
        scale: Theirs, or None.
        dtype: Of the result.
    """
    if weight.dtype == torch.uint8:
        weight = torch.stack((weight & 15, weight >> 4), -1).flatten(1).to(torch.int8) - 8
    wide = weight.to(dtype)
    if scale is None:
        return wide
    scale = scale.to(dtype)
    if scale.dim() == 2 and scale.shape[1] > 1:
        scale = scale.repeat_interleave(wide.shape[1] // scale.shape[1], 1)
        return wide * scale
    return wide * scale.reshape(-1, 1)


@gemv.fake
def _(x: Tensor, weight: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    _require(x, weight, scale, bias)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@gemv.reference
def _(x: Tensor, weight: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    if scale is not None:  # constants
        weight, scale = weight.detach(), scale.detach()
    result: Tensor = x.to(wide) @ dequantized(weight, scale, wide).T
    return (result if bias is None else result + bias).to(x.dtype)


@gemv.setup_context
def _(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, weight, scale, bias = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight, scale)


@gemv.backward
def _(ctx: Any, grad: Tensor) -> Any:
    """Two products of torch's; a quantized weight is a constant."""
    x, weight, scale = ctx.saved_tensors
    if scale is not None:
        weight, scale = weight.detach(), scale.detach()
    count = math.prod(grad.shape[:-1])  # -1 is unknown where a size is 0
    rows = grad.reshape(count, grad.shape[-1])
    by_x = grad @ dequantized(weight, scale, x.dtype)
    by_weight = rows.T @ x.reshape(count, x.shape[-1]) if scale is None else None
    return by_x, by_weight, None, rows.sum(0) if ctx.has_bias else None


@gemv.work
def _(x: Tensor, weight: Tensor, scale: Any = None, bias: Any = None) -> tuple[int, int]:
    n, k = weight.shape[0], x.shape[-1]
    m = x.numel() // max(k, 1)
    tensors = [tensor for tensor in (x, weight, scale, bias) if tensor is not None]
    return sum(t.numel() * t.element_size() for t in tensors) + m * n * x.element_size(), 2 * m * n * k


@gemv.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    random = random_tensors(device, dtype, -1, 1)
    bytes = random_tensors(device, torch.uint8, 0, 256)
    signed = random_tensors(device, torch.int8, -128, 128)
    scales = random_tensors(device, torch.float32, 0, 1)
    yield dotcu.Sample(random(3, 320), random(40, 320), None, random(40))
    yield dotcu.Sample(random(1, 75), random(9, 75))
    yield dotcu.Sample(random(2, 9, 96), random(72, 96))
    yield dotcu.Sample(random(64, 40).T, random(64, 20).T)
    yield dotcu.Sample(random(5, 144), random(17, 144).to(E4M3), scales(17))
    yield dotcu.Sample(random(2, 128), signed(17, 128), scales(17, 4).to(dtype), random(17))
    yield dotcu.Sample(random(9, 256), bytes(24, 128), scales(24, 2))
    yield dotcu.Sample(random(0, 16), random(8, 16))
    yield dotcu.Sample(random(3, 40), random(264, 40))  # on Hopper these go by wide.cu and stream.cu
    yield dotcu.Sample(random(2, 16), random(1032, 16), None, random(1032))
    yield dotcu.Sample(random(1, 16), random(2056, 16).to(E4M3), scales(2056))
    yield dotcu.Sample(random(8, 32), bytes(2056, 16), scales(2056))
    yield dotcu.Sample(random(1, 128), bytes(2056, 64), scales(2056, 4))

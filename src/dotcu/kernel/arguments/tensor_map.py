"""Tensor maps: descriptions of tensors for TMA, the hardware that copies boxes of them, or pixels by im2col.

    tensor_map(t, box=...) -> TensorMap -> tiled() at the launch -> Tiled, and an address -> 128 bytes

The values of the user are kept as they are until the launch, so that a body may make maps of fakes. Then
every limit is checked, before the map is encoded.

Source: CUDA Driver API 13.5, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col. That the corners are given
innermost first, as all else: cute's make_im2col_tma_copy_desc passes W, H, D.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dotcu.errors import ArgumentError
from dotcu.kernel.arguments.values import Mismatch, describe

BYTES = 128
"""The size of an encoded map."""

MAP_ALIGNMENT = 64
"""The alignment in bytes of an encoded map."""

MAX_RANK = 5
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
MAX_PIXELS = 1024
CORNER_LIMITS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
"""By rank of an im2col map: each number of a corner is at least minus this, and less than this."""

ALIGNMENT = 16
"""The alignment in bytes of the address, all strides except the innermost, and the innermost box."""

OutsideFill = Literal["zeros", "nan"]
DTYPES: dict[torch.dtype, str] = {
    **dict.fromkeys((torch.uint8, torch.int8, torch.bool), "UINT8"),
    **dict.fromkeys((torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu), "UINT8"),
    **dict.fromkeys((torch.int16, torch.uint16), "UINT16"),
    torch.uint32: "UINT32",
    torch.int32: "INT32",
    torch.uint64: "UINT64",
    torch.int64: "INT64",
    torch.float16: "FLOAT16",
    torch.float32: "FLOAT32",
    torch.float64: "FLOAT64",
    torch.bfloat16: "BFLOAT16",
}
"""The element types that a map knows, by CU_TENSOR_MAP_DATA_TYPE_*. Copies keep every bit, so that a type
of the same size stands for one that is not there."""

_WITH_NAN = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
_WORDS: dict[str, tuple[int | str, ...]] = {
    "swizzle": (0, 32, 64, 128), "l2_promotion": (0, 64, 128, 256), "fill": ("zeros", "nan"),
}  # fmt: skip


@dataclass(slots=True, eq=False)
class TensorMap:
    """A tensor as TMA sees it; see `tensor_map()`. By im2col, its box is of pixels and channels."""

    tensor: Tensor
    box: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    fill: OutsideFill
    element_strides: tuple[int, ...]
    lower_corner: tuple[int, ...] | None = None
    upper_corner: tuple[int, ...] = ()

    def __repr__(self) -> str:
        shown = [f"box={self.box}", f"swizzle={self.swizzle}" if self.swizzle else ""]
        if self.lower_corner is not None:
            corners = f"lower_corner={self.lower_corner}, upper_corner={self.upper_corner}"
            pixels, channels = self.box
            shown[0] = f"{corners}, channels_per_pixel={channels}, pixels_per_column={pixels}"
        return ", ".join([f"a tensor map of {describe(self.tensor)}", *filter(None, shown)])


def tensor_map(
    tensor: Tensor,
    *,
    box: int | Sequence[int] | None = None,
    swizzle: int = 0,
    l2_promotion: int = 0,
    fill: OutsideFill = "zeros",
    element_strides: Sequence[int] | None = None,
    lower_corner: int | Sequence[int] | None = None,
    upper_corner: int | Sequence[int] | None = None,
    channels_per_pixel: int | None = None,
    pixels_per_column: int | None = None,
) -> TensorMap:
    """Pass a tensor for a `const __grid_constant__ CUtensorMap` parameter, for TMA (sm_90 and later).

    Give a `box` for copies of boxes, or both corners, `channels_per_pixel` and `pixels_per_column` for copies
    by im2col, as a convolution reads its images.

    Args:
        tensor: Of one to five dimensions, strided or not, except for the last one, whose stride is 1. Its
            address and the other strides are multiples of 16 bytes.
        box: Elements of a copy in each dimension, in the tensor's order: the last one is innermost, as
            in memory. The kernel gives the coordinates of a copy in the same order to dotcu/tma.cuh, and
            innermost first to PTX; the innermost one is at a multiple of 16 bytes, and none of a store
            is negative.
        swizzle: 32, 64 or 128: the bytes within which the 16-byte chunks of a row change places in
            shared memory, against bank conflicts; a row of the box may not be longer. Each row takes
            that many bytes there, a shorter one too, so that the box needs its rows times `swizzle`.
            0: none.
        l2_promotion: 64, 128 or 256: the bytes that L2 fetches at once. 0: as needed.
        fill: What a copy gives for elements outside the tensor.
        element_strides: The step in each dimension, 1 to 8, in the tensor's order; a copy then has
            `cdiv(box, step)` elements of it. By default 1. By im2col the steps of D, H and W are the
            strides of the convolution, and those of N and C are 1.
        lower_corner: Of images NWC, NHWC or NDHWC, where the first filter begins in each of D, H and W that
            there is, outermost first: at minus the padding.
        upper_corner: Where the last one may begin, counted from the last pixel: at the padding minus
            `dilation * (filter - 1)`.
        channels_per_pixel: Of a copy by im2col, at most 256; their bytes are a row in shared memory, with
            the rules of a row of a box.
        pixels_per_column: Of a copy by im2col, at most 1024: it walks along W, then H, D and N, within the
            corners.

    Note:
        Everything is checked at the launch. A tensor whose map the kernel's code stores through counts
        as written; one that it only loads through does not.

    Example:
        `kernels.copy(dotcu.tensor_map(x, box=(64, 32), swizzle=128), out, grid=..., block=128)`
    """
    is_of_boxes = lower_corner is upper_corner is channels_per_pixel is pixels_per_column is None
    if box is not None and is_of_boxes:
        sizes = box if type(box) is tuple else _numbers(box)
        steps = _ones(len(sizes)) if element_strides is None else tuple(element_strides)
        return TensorMap(tensor, sizes, swizzle, l2_promotion, fill, steps)
    if (
        box is None
        and lower_corner is not None
        and upper_corner is not None
        and channels_per_pixel is not None
        and pixels_per_column is not None
    ):
        steps = (1,) * tensor.dim() if element_strides is None else tuple(element_strides)
        column = pixels_per_column, channels_per_pixel
        corners = _numbers(lower_corner), _numbers(upper_corner)
        return TensorMap(tensor, column, swizzle, l2_promotion, fill, steps, *corners)
    raise ArgumentError(
        f"dotcu.tensor_map got box={box}, lower_corner={lower_corner}, upper_corner={upper_corner}, "
        f"channels_per_pixel={channels_per_pixel}, pixels_per_column={pixels_per_column}.\n"
        "A map is of boxes, or, with all of the four others, of pixels by im2col.\n"
        "Pass box alone, or leave it out and pass the four."
    )


@functools.cache
def _ones(count: int) -> tuple[int, ...]:
    """Return one object for each count, which native code compares at once."""
    return (1,) * count


def _numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """A checked map, as the hardware counts: the innermost dimension first.

    Attributes:
        strides_bytes: Of every dimension except the innermost.
        box: Of an im2col map, the channels and the pixels.
        lower_corner: Of an im2col map; of no numbers for one of boxes.
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    fill: OutsideFill
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()


def tiled(value: TensorMap) -> Tiled:
    """Check a map against every limit of the hardware; what passed once is remembered."""
    tensor, words = value.tensor, (value.swizzle, value.l2_promotion, value.fill)
    lower, upper = value.lower_corner or (), value.upper_corner
    numbers = (*value.box, *value.element_strides, *words, *lower, *upper)
    layout = (tensor.dtype, tensor.shape, tensor.stride(), tensor.data_ptr() % ALIGNMENT)
    lengths = len(value.box), value.lower_corner is None, len(lower), len(upper)
    key = (*layout, *lengths, numbers, tuple(map(type, numbers)))  # with types, as 8.0 equals 8
    try:
        checked = _known.get(key)
    except TypeError:  # a value that cannot be hashed: a check names it
        checked = None
    if checked is None:
        checks = (_rank_faults, _word_faults, _number_faults, _inner_faults, _corner_faults, _place_faults)
        for faults in checks:
            for got, limit, remedy in faults(value):  # each relies on those before it
                raise Mismatch(f"{value!r} with {got}; {limit}", remedy)
        checked = Tiled(
            dtype=tensor.dtype,
            sizes=tuple(reversed(tensor.shape)),
            strides_bytes=outer_strides(tensor.shape, tensor.stride(), tensor.itemsize),
            box=value.box[::-1],
            element_strides=value.element_strides[::-1],
            swizzle=value.swizzle,
            l2_promotion=value.l2_promotion,
            fill=value.fill,
            lower_corner=lower[::-1],
            upper_corner=upper[::-1],
        )
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = checked
    return checked


_known: dict[tuple[object, ...], Tiled] = {}
_MAX_KNOWN = 1024


def outer_strides(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of all but the last dimension, innermost first.

    A dimension of one element is never stepped along, so that its stride, which may be anything in
    torch, becomes one that the hardware takes.

    Args:
        sizes, strides: Of a tensor, in elements; a trace has symbols for them.
    """
    found: list[int] = []
    extent = sizes[-1] * itemsize
    for size, stride in list(zip(sizes, strides, strict=True))[-2::-1]:
        found.append(-(-extent // ALIGNMENT) * ALIGNMENT if size == 1 else stride * itemsize)
        extent = size * found[-1]
    return tuple(found)


Fault = tuple[str, str, str]
"""Got, the limit, and the line to type."""


def _rank_faults(value: TensorMap) -> Iterator[Fault]:
    rank, dtype = value.tensor.dim(), value.tensor.dtype
    numbered = [("element_strides", value.element_strides, rank)]
    if value.lower_corner is None:
        numbered.append(("box", value.box, rank))
    elif rank not in CORNER_LIMITS:
        remedy = "Pass images as NWC, NHWC or NDHWC: t.permute(0, 2, 3, 1).contiguous(), for example."
        yield f"{rank} dimensions", f"an im2col map has 3 to {MAX_RANK}", remedy
    else:
        corners = ("lower_corner", value.lower_corner), ("upper_corner", value.upper_corner)
        numbered += [(name, numbers, rank - 2) for name, numbers in corners]
    if not 1 <= rank <= MAX_RANK:
        merge = "Merge dimensions that a copy takes whole: t.flatten(0, 1)."
        remedy = merge if rank else "Pass t.reshape(1)."
        yield f"{rank} dimensions", f"a map has 1 to {MAX_RANK}", remedy
    for name, numbers, count in sorted(numbered):
        if len(numbers) != count:
            each = "it has one number for each" + ("" if count == rank else " except the first and the last")
            remedy = f"Pass {name} with {count} number{'s' * (count > 1)}, outermost first."
            yield f"{name}={numbers} for {rank} dimensions", each, remedy
    if dtype not in DTYPES:
        other = "Pass t.view(torch.uint8), or another dtype."
        remedy = "Pass torch.view_as_real(t)." if dtype.is_complex else other
        known = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        yield f"elements of {dtype}", f"a map knows {known}", remedy


def _word_faults(value: TensorMap) -> Iterator[Fault]:
    for name, allowed in _WORDS.items():
        word = getattr(value, name)
        if not isinstance(word, (int, str)) or isinstance(word, bool) or word not in allowed:
            takes = ", ".join(repr(each) for each in allowed)
            yield f"{name}={word!r}", f"it is one of {takes}", f"Pass, for example, {name}={allowed[-1]!r}."
    dtype = value.tensor.dtype
    if value.fill == "nan" and dtype not in _WITH_NAN:
        yield f'fill="nan" for {dtype}', "only floats of 16 bits or more have it", 'Pass fill="zeros".'


def _number_faults(value: TensorMap) -> Iterator[Fault]:
    limits: list[tuple[str, Sequence[object], int, int]] = [
        ("element_strides", value.element_strides, 1, MAX_ELEMENT_STRIDE)
    ]
    if value.lower_corner is None:
        limits.insert(0, ("box", value.box, 1, MAX_BOX))
    else:
        limit = CORNER_LIMITS[value.tensor.dim()]
        limits.insert(0, ("pixels_per_column", value.box[:1], 1, MAX_PIXELS))
        limits.insert(0, ("channels_per_pixel", value.box[1:], 1, MAX_BOX))
        limits.append(("lower_corner", value.lower_corner, -limit, limit - 1))
        limits.append(("upper_corner", value.upper_corner, -limit, limit - 1))
    for name, numbers, least, most in limits:
        for dim, size in enumerate(numbers, int(least < 1)):
            if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= most:
                more = "; copy more in several boxes" if least == 1 else ""
                remedy = f"Pass a whole number from {least} to {most}{more}."
                where = "" if "_per_" in name else f" in dimension {dim}"
                yield f"{name} {size!r}{where}", f"the limits are {least} and {most}", remedy


def _inner_faults(value: TensorMap) -> Iterator[Fault]:
    """Check the innermost dimension: its rows are what shared memory gets in one piece."""
    itemsize, swizzle = value.tensor.itemsize, value.swizzle
    row = value.box[-1] * itemsize
    last = "the last number of box" if value.lower_corner is None else "channels_per_pixel"
    got = f"{row} bytes in a row of the box ({value.box[-1]} elements of {itemsize} bytes)"
    if row % ALIGNMENT:
        least = ALIGNMENT // itemsize
        remedy = f"Make {last} a multiple of {least}; what lies outside the tensor is filled."
        yield got, f"they are a multiple of {ALIGNMENT}", remedy
    if swizzle and row > swizzle:
        remedy = f"Let {last} be at most {swizzle // itemsize}, or pass a wider swizzle, or none."
        yield got, f"swizzle={swizzle} allows {swizzle}", remedy
    if value.element_strides[-1] != 1:
        step = f"element_strides {value.element_strides[-1]} in the last dimension"
        yield step, "the hardware does not skip elements there", "Pass 1 for it."


def _corner_faults(value: TensorMap) -> Iterator[Fault]:
    """Check what an im2col map has besides: pixels between its corners, and no steps from image to image."""
    if value.lower_corner is None or not value.tensor.numel():
        return
    corners = zip(value.tensor.shape[1:-1], value.lower_corner, value.upper_corner, strict=True)
    for dim, (size, lower, upper) in enumerate(corners, 1):
        if size + upper <= lower:
            got = f"corners {lower} and {upper} in dimension {dim} of {size} elements"
            remedy = "Pass minus the padding, and the padding minus dilation * (filter - 1)."
            yield got, f"the first is at most {size} - 1 + the second", remedy
    if value.element_strides[0] != 1:
        step = f"element_strides {value.element_strides[0]} in dimension 0"
        yield step, "im2col takes one image after the other", "Pass 1 for it, or a map of t[::n]."


def layout_faults(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> Iterator[Fault]:
    """Yield what the hardware does not take of a layout; a trace guards the answers."""
    for size in sizes:
        if size > 1 << 32:
            yield f"{size} elements in a dimension", f"the limit is {1 << 32}", "Split it."
    if strides[-1] != 1 and sizes[-1] > 1:
        yield f"strides {strides}", "the last one is 1", "Pass t.contiguous(), or a map of t.mT."
    for dim, stride in enumerate(reversed(outer_strides(sizes, strides, itemsize))):
        if stride % ALIGNMENT != 0 or stride >= 1 << 40:
            limit = f"it is a multiple of {ALIGNMENT} and less than 2**40"
            remedy = "Pad the rows: torch.nn.functional.pad(t, (0, n))[..., :size] keeps the padded strides."
            yield f"a stride of {stride} bytes in dimension {dim}", limit, remedy


def _place_faults(value: TensorMap) -> Iterator[Fault]:
    tensor = value.tensor
    yield from layout_faults(tensor.shape, tensor.stride(), tensor.itemsize)
    off = tensor.data_ptr() % ALIGNMENT
    if off:
        got = f"an address {off} bytes past one divisible by {ALIGNMENT}"
        yield got, "it starts at one that is", f"Ask dotcu.is_aligned(t, {ALIGNMENT}), or pass t.clone()."

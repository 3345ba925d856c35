"""Copies by im2col, against torch's own."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.nn.functional import conv2d, pad

import dotcu
from dotcu.errors import UnsupportedInstruction

SOURCE = """
#include <dotcu/tma.cuh>
using u16 = unsigned short;

// out[tap][pixel][channel], of the filter that begins at (n, h, w) and of those after it.
__global__ void columns(const __grid_constant__ CUtensorMap x, float* out, int n, int h, int w, int c,
                        int taps, int dilation) {
    __shared__ alignas(128) float tile[PIXELS * CHANNELS];
    __shared__ dotcu::mbarrier arrived;
    if (threadIdx.x == 0) arrived.init(1);
    __syncthreads();
    const unsigned to = dotcu::shared_address(tile), barrier = dotcu::shared_address(&arrived);
    for (int tap = 0; tap < taps * taps; ++tap) {
        if (threadIdx.x == 0) {
            arrived.arrive_expect(sizeof(tile));
            const u16 right = tap % taps * dilation, down = tap / taps * dilation;
            COPY
        }
        arrived.wait(tap & 1);
        for (int i = threadIdx.x; i < PIXELS * CHANNELS; i += 32) out[tap * PIXELS * CHANNELS + i] = tile[i];
        __syncthreads();
    }
}

__global__ void put(const __grid_constant__ CUtensorMap out, int n, int h, int w) {
    __shared__ alignas(128) float tile[PIXELS * CHANNELS];
    for (int i = threadIdx.x; i < PIXELS * CHANNELS; i += 32) tile[i] = i;
    dotcu::tma_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group"
                     " [%0, {%1, %2, %3, %4}], [%5];"
                     :: "l"(&out), "r"(0), "r"(w), "r"(h), "r"(n), "r"(dotcu::shared_address(tile))
                     : "memory");
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
    }
}
"""
PLACE = '"r"(to), "l"(&x), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier)'
IM2COL = (
    'asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes'
    f' [%0], [%1, {{%2, %3, %4, %5}}], [%6], {{%7, %8}};" :: {PLACE}, "h"(right), "h"(down) : "memory");'
)
PREFETCH = (
    'asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%0, {%1, %2, %3, %4}], {%5, %6};" ::'
    ' "l"(&x), "r"(c), "r"(w), "r"(h), "r"(n), "h"(right), "h"(down));\n'
)
REDUCE = "async.bulk.tensor.4d.global.shared::cta.add"
MEET = """
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const float* all = out;
    out += rank * PIXELS * CHANNELS;
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    const unsigned to"""
BOX = "dotcu::tma_load(tile, x, arrived, n, h, w, c);"


def kernels(pixels: int, channels: int, copy: str = IM2COL) -> dotcu.Module:
    options = (f"-DPIXELS={pixels}", f"-DCHANNELS={channels}")
    return dotcu.load_inline(SOURCE.replace("COPY", copy), options=options)


def im2col(images: torch.Tensor, pixels: int, channels: int, **given: Any) -> Any:
    wanted: dict[str, Any] = {"lower_corner": (0, 0), "upper_corner": (0, 0)}
    return dotcu.tensor_map(
        images, channels_per_pixel=channels, pixels_per_column=pixels, **{**wanted, **given}
    )


def windows(images: torch.Tensor, taps: int, padding: int, stride: int, dilation: int) -> torch.Tensor:
    """[tap][pixel][channel], the pixels in the order of N, H, W: torch's unfold, for any channels."""
    n, _, _, channels = images.shape
    columns = torch.nn.functional.unfold(
        images.permute(0, 3, 1, 2), taps, dilation=dilation, padding=padding, stride=stride
    )
    return columns.view(n, channels, taps * taps, -1).permute(2, 0, 3, 1).flatten(1, 2)


@pytest.mark.parametrize(
    ("taps", "padding", "stride", "dilation"),
    [(3, 1, 1, 1), (3, 0, 1, 1), (2, 1, 2, 1), (3, 2, 1, 2), (3, 1, 3, 2)],
)
def test_columns_are_those_of_unfold(taps: int, padding: int, stride: int, dilation: int) -> None:
    images = torch.randn(2, 5, 6, 8)
    expected = windows(images, taps, padding, stride, dilation)
    count, reach = expected.shape[1], dilation * (taps - 1)
    pixels = count + 3  # past the last image: zeros
    given = im2col(
        images,
        pixels,
        8,
        lower_corner=(-padding, -padding),
        upper_corner=(padding - reach, padding - reach),
        element_strides=(1, stride, stride, 1),
    )
    out = torch.empty(taps * taps, pixels, 8)
    with dotcu.simulate(arch="sm_90"):
        kernels(pixels, 8, PREFETCH + IM2COL).columns(
            given, out, 0, -padding, -padding, 0, taps, dilation, grid=1, block=32
        )
    assert torch.equal(out[:, :count], expected)
    assert not out[:, count:].any()


def test_columns_times_filters_are_a_convolution() -> None:
    images, filters = torch.randn(2, 4, 4, 16), torch.randn(8, 16, 3, 3)
    out = torch.empty(9, 32, 16)
    given = im2col(images, 32, 16, lower_corner=(-1, -1), upper_corner=(-1, -1))
    with dotcu.simulate(arch="sm_90"):
        kernels(32, 16).columns(given, out, 0, -1, -1, 0, 3, 1, grid=1, block=32)
    products = torch.einsum("tpc,oct->po", out, filters.flatten(2))
    expected = conv2d(images.permute(0, 3, 1, 2), filters, padding=1)
    torch.testing.assert_close(products, expected.permute(0, 2, 3, 1).reshape(32, 8))


def test_a_column_begins_inside_an_image_and_channels_beyond_the_last_are_zeros() -> None:
    images = torch.randn(2, 3, 5, 12)
    out = torch.empty(1, 20, 8)
    with dotcu.simulate(arch="sm_90"):
        kernels(20, 8).columns(im2col(images, 20, 8), out, 0, 1, 3, 8, 1, 1, grid=1, block=32)
    expected = pad(images.flatten(0, 2)[8:28, 8:], (0, 4))
    assert torch.equal(out[0], pad(expected, (0, 0, 0, 20 - len(expected))))


def test_a_swizzle_moves_the_chunks_of_each_pixel() -> None:
    images = torch.randn(1, 4, 4, 32)
    out = torch.empty(1, 16, 32)
    with dotcu.simulate(arch="sm_90"):
        kernels(16, 32).columns(im2col(images, 16, 32, swizzle=128), out, 0, 0, 0, 0, 1, 1, grid=1, block=32)
    chunks = torch.arange(16)[:, None] % 8 ^ torch.arange(8)
    found = out.view(16, 8, 4).gather(1, chunks[..., None].expand(16, 8, 4))
    assert torch.equal(found, images.view(16, 8, 4))


@pytest.mark.parametrize(("rank", "shape"), [(3, (3, 4, 4)), (5, (2, 2, 2, 3, 4))])
def test_lines_and_volumes_have_columns_too(rank: int, shape: tuple[int, ...]) -> None:
    images = torch.randn(shape)
    spatial = rank - 2
    count = images.shape[:-1].numel()
    coordinates, offsets = ", ".join(["%3"] * (rank - 1)), ", ".join(["%5"] * spatial)
    copy = (
        f'asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col'
        f'.mbarrier::complete_tx::bytes [%0], [%1, {{%2, {coordinates}}}], [%4], {{{offsets}}};"'
        ' :: "r"(to), "l"(&x), "r"(c), "r"(w), "r"(barrier), "h"(right) : "memory");'
    )
    corner = (0,) * spatial
    given = im2col(images, count, 4, lower_corner=corner, upper_corner=corner)
    out = torch.empty(1, count, 4)
    with dotcu.simulate(arch="sm_90"):
        kernels(count, 4, copy).columns(given, out, 0, 0, 0, 0, 1, 1, grid=1, block=32)
    assert torch.equal(out[0], images.flatten(0, -2))


def test_a_store_writes_the_pixels_between_the_corners() -> None:
    images = torch.zeros(2, 4, 4, 4)
    given = im2col(images, 16, 4, lower_corner=(1, 1), upper_corner=(-1, 0))
    with dotcu.simulate(arch="sm_90"):
        kernels(16, 4).put(given, 0, 1, 1, grid=1, block=32)
    assert torch.equal(images[:, 1:3, 1:].flatten(0, 2), torch.arange(48.0).view(12, 4))
    assert images.count_nonzero() == 47


def test_a_reduction_adds_to_the_pixels_between_the_corners() -> None:
    images = torch.ones(1, 3, 3, 4)
    given = im2col(images, 4, 4, upper_corner=(-1, -1))
    added = SOURCE.replace("cp.async.bulk.tensor.4d.global.shared::cta", f"cp.reduce.{REDUCE}").replace(
        "COPY", ""
    )
    with dotcu.simulate(arch="sm_90"):
        module = dotcu.load_inline(added, options=("-DPIXELS=4", "-DCHANNELS=4"))
        module.put(given, 0, 0, 0, grid=1, block=32)
    expected = torch.ones(1, 3, 3, 4)
    expected[:, :2, :2] += torch.arange(16.0).view(1, 2, 2, 4)
    assert torch.equal(images, expected)


def test_a_column_goes_to_both_blocks_of_a_cluster() -> None:
    images, out = torch.randn(1, 3, 3, 4), torch.empty(2, 9, 4)
    once = IM2COL.replace("::bytes", "::bytes.multicast::cluster").replace("{%7, %8};", "{%7, %8}, %9;")
    once = once.replace('"h"(down)', '"h"(down), "h"((u16)3)')
    text = SOURCE.replace("COPY", f"if (out == all) {{ {once} }}").replace("    const unsigned to", MEET, 1)
    with dotcu.simulate(arch="sm_90"):
        module = dotcu.load_inline(text, options=("-DPIXELS=9", "-DCHANNELS=4"))
        module.columns(im2col(images, 9, 4), out, 0, 0, 0, 0, 1, 1, grid=2, block=32, cluster=2)
    assert torch.equal(out, images.view(1, 9, 4).expand(2, 9, 4))


def only(kernel: str, copy: str, *args: Any) -> str:
    """The one finding of a launch, as its kind and message."""
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        kernels(4, 4, copy).kernels[kernel](*args, grid=1, block=32)
    found = {f"{finding.kind}: {finding.message}" for finding in run.findings if finding.kind != "deadlock"}
    assert len(found) == 1, found
    return found.pop()


OUT = torch.empty(1, 4, 4)
IMAGES = torch.ones(1, 3, 3, 4)
BOXES, COLUMNS = dotcu.tensor_map(IMAGES, box=(1, 2, 2, 4)), im2col(IMAGES, 4, 4)


@pytest.mark.parametrize(
    ("copy", "args", "says"),
    [
        (IM2COL, (BOXES, OUT, 0, 0, 0), "im2col, and its map is of boxes"),
        (BOX, (COLUMNS, OUT, 0, 0, 0), "copies a box, and its map is for im2col"),
        (IM2COL, (COLUMNS, OUT, 0, -1, 0), r"begins at \(-1, 0\), .* allow \(0, 0\) to \(2, 2\)"),
        (IM2COL, (im2col(IMAGES, 4, 4, upper_corner=(0, -1)), OUT, 0, 2, 2), r"begins at \(2, 2\)"),
        (IM2COL.replace('"h"(down)', '"h"((u16)256)'), (COLUMNS, OUT, 0, 0, 0), r"offsets \(256, 0\)"),
    ],
)  # fmt: skip
def test_a_load_that_its_map_does_not_allow_is_found(copy: str, args: tuple[Any, ...], says: str) -> None:
    found = only("columns", copy, *args, 0, 1, 1)
    assert re.search(says, found), found


@pytest.mark.parametrize("corners", [((-1, 0), (0, 0)), ((0, 0), (0, 1))])
def test_a_store_beyond_the_tensor_is_found(corners: Any) -> None:
    lower, upper = corners
    given = im2col(torch.zeros(1, 3, 3, 4), 4, 4, lower_corner=lower, upper_corner=upper)
    assert only("put", IM2COL, given, 0, 0, 0).startswith("out-of-bounds: out-of-bounds store of pixels")


def test_the_modes_of_later_architectures_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"im2col::w.*: it needs an architecture after sm_90"):
        only(
            "columns", IM2COL.replace(".im2col.", ".im2col::w."), im2col(IMAGES, 4, 4), OUT, 0, 0, 0, 0, 1, 1
        )

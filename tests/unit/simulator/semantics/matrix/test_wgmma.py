"""wgmma of every width, and what it refuses; types, layouts and swizzles are held by tests/goldens."""

from __future__ import annotations

import pytest
import torch

import dotcu
from dotcu.errors import UnsupportedInstruction

FLOATS = tuple(range(8, 257, 8))
INTEGERS = (8, 24, *range(16, 257, 16))

# A is ones; row n of B has n + 1 in its first element and zeros behind.
SOURCE = """
struct Both {{ unsigned long long a, b; }};
__device__ Both filled(unsigned* tile) {{
    for (int i = threadIdx.x; i < 512; i += 128) tile[i] = {ones};
    for (int i = threadIdx.x; i < 2048; i += 128) {{
        unsigned n = i / 64 * 8 + i / 4 % 8 + 1;
        tile[512 + i] = i / 32 % 2 || i % 4 ? 0 : {number};
    }}
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned long long at = __cvta_generic_to_shared(tile) >> 4 | 8ull << 16 | 16ull << 32;
    return {{at, at + 128}};
}}
__global__ void widths(unsigned* out) {{
    __shared__ alignas(1024) unsigned tile[2560];
    Both given = filled(tile);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    {body}
}}
"""


def block(columns: int, number: int, spelling: str, tail: str) -> str:
    """The asm statement of one width, which stores its accumulators."""
    count = columns // 2
    stores = " ".join(f"st.global.b32 [%2 + {4 * i}], d{i};" for i in range(count))
    zeros = " ".join(f"mov.b32 d{i}, 0;" for i in range(count))
    names = ", ".join(f"d{i}" for i in range(count))
    return (
        f'asm volatile("{{ .reg .b32 d<{count}>; {zeros} '
        f"wgmma.mma_async.sync.aligned.m64n{columns}{spelling} "
        f"{{{names}}}, %0, %1, 1{tail}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; "
        f'{stores} }}" :: "l"(given.a), "l"(given.b), '
        f'"l"(out + 128 * (128 * {number} + threadIdx.x)) : "memory");'
    )


def sums(
    widths: tuple[int, ...], number: str, ones: str, spelling: str, tail: str, dtype: torch.dtype
) -> torch.Tensor:
    """What a kernel with all widths gives: by width, thread and register."""
    body = "\n".join(block(n, i, spelling, tail) for i, n in enumerate(widths))
    out = torch.zeros(len(widths) * 128 * 128, dtype=torch.int32)
    dotcu.load_inline(SOURCE.format(number=number, ones=ones, body=body)).widths(out, grid=1, block=128)
    return out.view(dtype).view(len(widths), 128, 128)


def columns_of(width: int) -> torch.Tensor:
    """The column of each register of each thread, and 1."""
    thread, register = torch.arange(128)[:, None], torch.arange(width // 2)
    return register // 4 * 8 + thread % 4 * 2 + register % 2 + 1


def test_every_width_of_floats() -> None:
    given = sums(FLOATS, "__float_as_uint(n)", "0x3f800000", "k8.f32.tf32.tf32", ", 1, 1", torch.float32)
    for number, width in enumerate(FLOATS):
        assert torch.equal(given[number, :, : width // 2], columns_of(width).float()), width


def test_every_width_of_integers() -> None:
    given = sums(INTEGERS, "n", "0x01010101", "k32.s32.u8.u8", "", torch.int32)
    for number, width in enumerate(INTEGERS):
        want = columns_of(width) % 256 + columns_of(width) // 256
        assert torch.equal(given[number, :, : width // 2], want.int()), width


@pytest.mark.parametrize(
    "spelling", ["m64n12k16.f32.f16.f16", "m64n8k8.f32.f16.f16", "m64n264k16.f32.f16.f16"]
)
def test_a_shape_that_ptx_lacks_is_refused(spelling: str) -> None:
    columns = int(spelling.split("n")[1].split("k")[0])
    body = block(columns, 0, spelling[spelling.index("k") :], ", 1, 1, 0, 0")
    out = torch.zeros(128 * 256, dtype=torch.int32)
    with pytest.raises(UnsupportedInstruction, match=f"n{columns}"):
        dotcu.load_inline(SOURCE.format(number="n", ones="0", body=body)).widths(out, grid=1, block=128)

"""Which copies by tensor map the GPU takes, and that the simulator takes the same.

Each copy runs in a process of its own: an illegal instruction ends the CUDA context, and a barrier whose
bytes never come would hang. A failure says what the hardware did, and what the simulator.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

import dotcu

pytestmark = pytest.mark.gpu

SOURCE = """
#include <dotcu/tma.cuh>

__device__ void fill(float* tile, float value) {
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = value;
    dotcu::tma_fence();
    __syncthreads();
}

// The tile after a load, and whether its barrier was told of `bytes` in time.
__global__ void load(const __grid_constant__ CUtensorMap x, float* out, int* done, int bytes, int rank, int a,
                     int b, int c) {
    __shared__ alignas(1024) float tile[2048];
    __shared__ dotcu::mbarrier arrived;
    fill(tile, 7);
    if (threadIdx.x == 0) {
        arrived.init(1);
        arrived.arrive_expect(bytes);
        if (rank == 1) dotcu::tma_load(tile, x, arrived, a);
        if (rank == 2) dotcu::tma_load(tile, x, arrived, a, b);
        if (rank == 3) dotcu::tma_load(tile, x, arrived, a, b, c);
        if (rank == 4)  // a column of the image `c` by im2col, and of the tap at (1, 2) of each filter
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                         " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                         :: "r"(dotcu::shared_address(tile)), "l"(&x), "r"(0), "r"(b), "r"(a), "r"(c),
                            "r"(dotcu::shared_address(&arrived)), "h"((short)2), "h"((short)1) : "memory");
    }
    __syncthreads();
    unsigned over = 0;
    for (int i = 0; i < 10000 && !over; ++i) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(dotcu::shared_address(&arrived)) : "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) *done = over;
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) out[i] = tile[i];
}

__global__ void store(const float* in, const __grid_constant__ CUtensorMap out, int* done, int rank, int a,
                      int b, int c) {
    __shared__ alignas(1024) float tile[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = in[i];
    dotcu::tma_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        if (rank == 1) dotcu::tma_store(out, tile, a);
        if (rank == 2) dotcu::tma_store(out, tile, a, b);
        if (rank == 3) dotcu::tma_store(out, tile, a, b, c);
        dotcu::tma_commit();
        dotcu::tma_wait<0>();
        *done = 1;
    }
}
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One copy, of a tensor of a shape, from or to some coordinates."""

    way: str
    at: tuple[int, ...]
    dtype: str = "float32"
    shape: tuple[int, ...] = (16, 64)
    box: tuple[int, ...] = (4, 32)
    swizzle: int = 0
    steps: tuple[int, ...] = ()
    corners: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = [self.way, self.dtype, f"of {self.shape} at {self.at}"]
        words += [f"corners {self.corners}"] * bool(self.corners)
        words += [f"swizzle {self.swizzle}"] * bool(self.swizzle) + [f"steps {self.steps}"] * bool(self.steps)
        return " ".join(words).replace(", ", ",")

    def bytes(self, itemsize: int) -> int:
        steps = self.steps if self.steps and not self.corners else (1, 1, 1)
        sizes = [-(-n // step) for n, step in zip(self.box, steps, strict=False)]
        return torch.Size(sizes).numel() * itemsize


INNERMOST = [
    *(Case(way="load", at=(3, column)) for column in (0, 4, 5, -4, -1)),
    *(Case(way="store", at=(3, column)) for column in (4, 5, -4, -1)),
    *(Case(way="load", at=(3, column), dtype="bfloat16") for column in (8, 4)),
    *(Case(way="load", at=(3, column), dtype="uint8") for column in (16, 8)),
]
OUTSIDE = [
    Case(way=way, at=at)
    for way in ("load", "store")
    for at in ((-9, 0), (16, 0), (0, -32), (0, 72), (-3, 60))
]
OTHERS = [
    Case(way="load", shape=(97,), box=(64,), at=(64,)),
    Case(way="store", shape=(97,), box=(64,), at=(64,)),
    Case(way="load", shape=(30, 20, 8), box=(6, 9, 8), at=(3, 1, 0), steps=(2, 3, 1)),
    Case(way="store", shape=(97,), box=(64,), at=(-4,)),
]
SHORT_ROWS = [
    Case(way=way, shape=(32, 16), box=(32, columns), at=(0, 4), swizzle=span)
    for way in ("load", "store")
    for span, columns in ((32, 4), (64, 4), (128, 8))
]
IMAGES: dict[str, Any] = {"way": "load", "shape": (2, 6, 7, 8), "box": (100, 8)}
COLUMNS = [
    Case(**IMAGES, at=at, corners=corners, steps=steps, swizzle=swizzle)
    for corners, steps in (((-1, -1, -1, -1), ()), ((-1, -2, 0, -2), (1, 2, 3, 1)), ((0, 0, 0, 0), ()))
    for at, swizzle in (((0, 1, 0), 0), ((2, 4, 1), 0), ((1, 1, 0), 32), ((1, 2, -1), 0), ((3, 3, 2), 0))
]
"""By im2col, on and between the steps from the lower corner, and before the first and after the last image.

The corners are of H and W, the lower ones first, and `at` is H, W and N.
"""


def run(case: Case, device: str) -> tuple[str, list[float]]:
    """How a copy ends, and what it leaves: all of the tile of a load, all of the tensor of a store."""
    dtype = getattr(torch, case.dtype)
    count = torch.Size(case.shape).numel()
    numbers = (torch.arange(count) % 251 + 1).to(device, dtype).view(case.shape)
    tensor = numbers if case.way == "load" else torch.zeros_like(numbers)
    given: dict[str, Any] = {"element_strides": case.steps} if case.steps else {}
    if case.corners:
        given |= {"lower_corner": case.corners[:2], "upper_corner": case.corners[2:]}
        given |= {"pixels_per_column": case.box[0], "channels_per_pixel": case.box[1]}
    else:
        given["box"] = case.box
    made = dotcu.tensor_map(tensor, swizzle=case.swizzle, **given)
    tile = torch.arange(1.0, 2049, device=device)
    done = torch.zeros(1, dtype=torch.int32, device=device)
    where = (4 if case.corners else len(case.at), *(*case.at, 0, 0)[:3])
    kernels = dotcu.load_inline(SOURCE)
    if case.way == "load":
        kernels.load(made, tile, done, case.bytes(dtype.itemsize), *where, grid=1, block=64)
    else:
        kernels.store(tile, made, done, *where, grid=1, block=64)
    left = (tile.view(dtype) if case.way == "load" else tensor).flatten().tolist()
    return ("legal" if done.item() else "a barrier that waits for other bytes"), left


def on_hardware(case: Case) -> tuple[str, list[float]]:
    """What a process that only makes this copy says of it."""
    command = [sys.executable, __file__, json.dumps(asdict(case))]
    environment = os.environ | {"CUDA_LAUNCH_BLOCKING": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end within 60 s", []
    if not done.stdout:
        return f"status {done.returncode}: {done.stderr[-2000:]}", []
    verdict, left = json.loads(done.stdout)
    return verdict, left


def in_the_simulator(case: Case) -> tuple[str, list[float]]:
    with dotcu.simulate(arch="sm_90", on_finding="collect") as simulated:
        verdict, left = run(case, "cpu")
    return (simulated.findings[0].kind if simulated.findings else verdict), left


HARDWARE_SAYS = dict.fromkeys(("misaligned", "out-of-bounds"), "an illegal instruction")


@pytest.mark.parametrize("case", [*INNERMOST, *OUTSIDE, *OTHERS, *SHORT_ROWS, *COLUMNS], ids=str)
def test_hardware_and_simulator_agree_about_a_copy(case: Case) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("TMA needs compute capability 9.0")
    verdict, expected = in_the_simulator(case)
    found, left = on_hardware(case)
    assert found == HARDWARE_SAYS.get(verdict, verdict), f"hardware: {found}; simulator: {verdict}"
    if found == "legal":
        assert left == expected, f"hardware left {left[:300]}; the simulator {expected[:300]}"


def answer(text: str) -> None:
    """Make a copy on the GPU, say how it ended, and leave without a look at the context."""
    case = Case(**{name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(text).items()})
    try:
        verdict, left = run(case, "cuda")
    except Exception as error:
        illegal = "illegal instruction" in str(error).lower().replace("_", " ")
        verdict, left = "an illegal instruction" if illegal else f"{type(error).__name__}: {error}", []
    sys.stdout.write(json.dumps((verdict, left)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    answer(sys.argv[1])

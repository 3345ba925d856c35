"""The ceilings of this GPU: bandwidth by mix of reads and writes, and arithmetic by dtype.

Each figure is the best of torch's own operations and dotcu's kernels, timed as rows are. Bandwidth is
measured at once, a rate of arithmetic when a row first needs it. Ceilings are saved for a GPU and its driver:

    <cache>/limits/v1/<uuid>-<driver>.json

A damaged file, or one of another version, is ignored. A folder that cannot be written costs a warning.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dotcu import serialize
from dotcu.benchmark.limits.limit import NOMINAL, Points, Rate, value_of
from dotcu.compile import cache
from dotcu.errors import DotcuError, EnvironmentFault
from dotcu.files import read_file
from dotcu.kernel import Kernel, Module, cdiv, load, sm_count

TimedFunction = Callable[[], Any]
Time = Callable[
    [TimedFunction], float
]  # calls a function several times; returns the median device time of a call in us

THREADS = 256  # of a block; kernels.cu has the same number
VECTOR_BYTES = 16
LOADS = (2, 4, 8)  # vectors that a thread loads at once: which is best depends on the GPU
TILE_BYTES = THREADS * max(LOADS) * VECTOR_BYTES  # the tiles of all kernels divide this
PASSES = 32  # over a buffer that fits in L2, in one launch, so that starting it does not matter


class Buffers:
    """Memory to move: three arrays of whole tiles, and room for the sums of all blocks.

    Values are random and normal: they decide how much power it takes to move them, and so how fast it goes.
    Arrays to `keep` fit in L2 and stay there, for several `passes` of a kernel; others stream past it.
    """

    def __init__(self, nbytes: int, device: torch.device, *, keep: bool) -> None:
        self.nbytes = max(1, nbytes // TILE_BYTES) * TILE_BYTES
        self.a, self.b, self.out = (torch.empty(self.nbytes // 4, device=device).normal_() for _ in range(3))
        tiles = self.nbytes // (THREADS * min(LOADS) * VECTOR_BYTES)
        self.sums = torch.empty(max(tiles, 64 * sm_count(self.a)) * THREADS // 32, device=device)
        self.keep, self.passes = keep, PASSES if keep else 1


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A mix of reads and writes: its kernel in kernels.cu, the buffers that this takes, and torch's own
    operations that move the same bytes.
    """

    kernel: str
    takes: tuple[str, ...]
    by_torch: tuple[Callable[[Buffers], Any], ...]


MIXES: Mapping[str, Mix] = {
    "read": Mix(kernel="stream_read", takes=("a", "sums"), by_torch=(lambda on: torch.sum(on.a),)),
    "two_to_one": Mix(
        kernel="stream_add",
        takes=("a", "b", "out"),
        by_torch=(lambda on: torch.add(on.a, on.b, out=on.out),),
    ),
    "copy": Mix(kernel="stream_copy", takes=("a", "out"), by_torch=(lambda on: on.out.copy_(on.a),)),
    "write": Mix(
        kernel="stream_write",
        takes=("out",),
        by_torch=(lambda on: on.out.zero_(), lambda on: on.out.fill_(1.5)),
    ),
}


@functools.cache
def kernels() -> Module:
    """The kernels of this folder; nothing is compiled before one is launched."""
    return load("kernels.cu")


def _arrays_of(mix: str) -> int:
    return len(set(MIXES[mix].takes) - {"sums"})


def _best_gbps(mix: str, on: Buffers, time: Time) -> float:
    """Return the highest bandwidth of all candidates that can run, in 10^9 bytes a second."""
    reached, failed = [], ""
    for passes, run in _candidates(mix, on):
        try:
            run()  # loads its code, which no capture of a graph could
            taken_us = time(run)
        except (DotcuError, RuntimeError) as error:  # without a compiler, say, torch's operations remain
            failed = failed or str(error).splitlines()[0]
            continue
        if taken_us > 0:
            reached.append(passes * _arrays_of(mix) * on.nbytes / taken_us / 1e3)
    if reached:
        return max(reached)
    raise EnvironmentFault(
        f"The bandwidth of {on.a.device} cannot be measured: {failed or 'nothing took any time'}\n"
        "It needs a GPU that torch can run its own operations on.\nSee: dotcu doctor"
    )


def _candidates(mix: str, on: Buffers) -> Iterator[tuple[int, TimedFunction]]:
    """Yield every way to move a mix's bytes, and how often each moves them."""
    for operation in MIXES[mix].by_torch:
        yield 1, functools.partial(operation, on)
    for loads in LOADS:
        for resident in (False, True):
            yield on.passes, functools.partial(_launch, mix, on, loads, resident=resident)


def _launch(mix: str, on: Buffers, loads: int, *, resident: bool) -> None:
    """Run a mix's kernel by as many blocks as the GPU holds at once, or by a block for each tile."""
    of = MIXES[mix]
    kernel: Kernel = kernels().kernels[of.kernel][loads, not on.keep]
    tiles = cdiv(on.nbytes, THREADS * loads * VECTOR_BYTES)
    most = kernel.occupancy(THREADS) * sm_count(on.a) if resident else tiles
    arguments = (getattr(on, each) for each in of.takes)
    kernel(*arguments, tiles, on.passes, grid=min(tiles, most), block=THREADS)


SIZES, MAX_US = (2048, 4096, 8192), 50_000.0
"""Sides of the matrices; a larger one is skipped where it would take longer."""

CHAINS = 8  # values of a thread of multiply_add; kernels.cu has the same number
LEAST_US = 500.0  # multiply_add does more rounds until it takes so long


def _measure_rate(rate: Rate, device: torch.device, time: Time, sizes: Sequence[int] = SIZES) -> float | None:
    """Return the highest rate in TFLOP/s; None if this GPU, or torch, does not have it."""
    kind, name = rate
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        if kind == "plain":
            return _plain(getattr(torch, name), device, time)
        if name != "tf32":
            return _matrix(name, device, time, sizes)
        matmul = torch.backends.cuda.matmul
        before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
        try:
            return _matrix(name, device, time, sizes)
        finally:
            matmul.fp32_precision = before


def _matrix(name: str, device: torch.device, time: Time, sizes: Sequence[int]) -> float | None:
    best = 0.0
    for size in sizes:
        times_us = []
        with contextlib.suppress(*_LACKING):
            for product in _products(name, size, device):
                with contextlib.suppress(*_LACKING):
                    product()
                    times_us.append(time(product))
        least_us = min((taken_us for taken_us in times_us if taken_us > 0), default=0.0)
        best = max(best, 2 * size**3 / least_us / 1e6 if least_us else 0.0)
        if not least_us or 8 * least_us > MAX_US:
            break
    return best or None


_LACKING = (RuntimeError, NotImplementedError, TypeError)
"""Exceptions of a product whose type this GPU or torch lacks, or for which there is too little memory."""


def _products(name: str, size: int, device: torch.device) -> list[TimedFunction]:
    """Return the products that measure a matrix rate, whose fastest counts."""
    dtype = {"tf32": torch.float32, "float8": torch.float8_e4m3fn}.get(name) or getattr(torch, name)
    a, b = _normal(size, device, dtype), _normal(size, device, dtype)
    if name == "int8":  # transposed is the only layout that every GPU has it for
        return [functools.partial(torch._int_mm, a, other) for other in (b.T, b)]
    if name == "float8":
        one = torch.ones((), device=device)
        scaled = functools.partial(torch._scaled_mm, a, b.T, one, one, out_dtype=torch.bfloat16)
        return [functools.partial(scaled, use_fast_accum=fast) for fast in (True, False)]
    out = torch.empty_like(a)  # which layout is faster depends on the type
    return [functools.partial(torch.mm, a, other, out=out) for other in (b, b.T)]


def _normal(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return random normal values: constants would need less power."""
    values = torch.empty(size, size, device=device, dtype=torch.float32).normal_()
    if dtype == torch.int8:
        return values.mul_(32).clamp_(-127, 127).to(dtype)
    return values.to(dtype)


def _plain(dtype: torch.dtype, device: torch.device, time: Time) -> float | None:
    """Return the rate of multiply-adds in registers, by as many threads as the GPU holds."""
    try:
        kernel = kernels().multiply_add[dtype]
        like = torch.empty(0, device=device)
        grid = kernel.occupancy(THREADS) * sm_count(like)
        start = torch.empty(grid * THREADS, device=device, dtype=dtype).normal_()
        out, rounds = torch.empty_like(start), 1 << 10
        kernel(start, out, 0.999, 0.5, 1, grid=grid, block=THREADS)  # loads it, which no capture could
        while True:
            run = functools.partial(kernel, start, out, 0.999, 0.5, rounds, grid=grid, block=THREADS)
            taken_us = time(run)
            if taken_us >= LEAST_US or rounds >= 1 << 20:
                return 2 * CHAINS * rounds * start.numel() / taken_us / 1e6
            rounds *= 4
    except (DotcuError, RuntimeError):  # no compiler, say
        return None


MAX_BYTES, SHARE_OF_FREE, TIMES_L2 = 4 << 30, 0.25, 4
"""The size of one array, as far as a share of the free memory holds all three; and the least, in sizes of L2:
a smaller one does not measure memory."""

SHARES_OF_L2 = (0.125, 0.25, 0.5)  # of all arrays of a mix; which is best depends on the GPU


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The ceilings of one GPU under one driver: bandwidths of memory and L2 by mix, in 10^9 bytes a second.

    Rates in TFLOP/s by dtype, of matrices and of ordinary instructions, are known as far as they were needed.
    """

    read_gbps: float
    two_to_one_gbps: float
    copy_gbps: float
    write_gbps: float
    l2_read_gbps: float
    l2_copy_gbps: float
    l2_write_gbps: float
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    plain_tflops: Mapping[str, float] = field(default_factory=dict)
    gpu: str = ""
    uuid: str = ""
    driver: str = ""
    measured_at: str = ""

    @property
    def memory(self) -> Points:
        """The bandwidth of memory, by the share of what is written."""
        shares = (0.0, 1 / 3, 0.5, 1.0)
        rates = (self.read_gbps, self.two_to_one_gbps, self.copy_gbps, self.write_gbps)
        return tuple(zip(shares, rates, strict=True))

    @property
    def l2(self) -> Points:
        """The bandwidth of L2, by the share of what is written."""
        return (0.0, self.l2_read_gbps), (0.5, self.l2_copy_gbps), (1.0, self.l2_write_gbps)


def measure_bandwidths(
    device: torch.device, *, time_cold: Time, time_warm: Time, uuid: str = "", driver: str = ""
) -> Ceilings:
    """Measure the bandwidths of a GPU. Takes some seconds, and at most a quarter of its free memory.

    Args:
        device: The GPU.
        time_cold, time_warm: Return the device time of a call with a cold L2, and of a repeated one.
        uuid, driver: What they are saved for.

    Raises:
        EnvironmentFault: Too little of its memory is free; says how much.
    """
    properties = torch.cuda.get_device_properties(device)
    l2_bytes = properties.L2_cache_size
    free, _ = torch.cuda.mem_get_info(device)
    with torch.cuda.device(device):
        memory = _memory_gbps(_array_bytes(free, l2_bytes, str(device)), device, time_cold)
        torch.cuda.empty_cache()
        l2 = _l2_gbps(l2_bytes, device, time_warm)
        torch.cuda.empty_cache()
    bandwidths = {f"{mix}_gbps": gbps for mix, gbps in memory.items()}
    bandwidths |= {f"l2_{mix}_gbps": gbps for mix, gbps in l2.items()}
    measured_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    of = {"gpu": properties.name, "uuid": uuid, "driver": driver, "measured_at": measured_at}
    return serialize.from_plain(Ceilings, {**bandwidths, **of})


def _array_bytes(free: int, l2_bytes: int, device: str) -> int:
    """Return the size of each array with so much free memory, if that is enough to see past L2."""
    nbytes = min(MAX_BYTES, int(free * SHARE_OF_FREE) // 3)
    if nbytes >= TIMES_L2 * l2_bytes:
        return nbytes
    needed = 3 * TIMES_L2 * l2_bytes / SHARE_OF_FREE
    raise EnvironmentFault(
        f"{device} has {free / 2**30:.2f} GiB of memory free, of which a quarter may be taken.\n"
        f"To measure its bandwidth, {needed / 2**30:.2f} GiB have to be free.\nSee who has it: nvidia-smi"
    )


def _memory_gbps(nbytes: int, device: torch.device, time: Time) -> dict[str, float]:
    on = Buffers(nbytes, device, keep=False)
    return {mix: _best_gbps(mix, on, time) for mix in MIXES}


def _l2_gbps(l2_bytes: int, device: torch.device, time: Time) -> dict[str, float]:
    bandwidths = {}
    for mix in ("read", "copy", "write"):
        sizes = [int(share * l2_bytes) // _arrays_of(mix) for share in SHARES_OF_L2]
        bandwidths[mix] = max(_best_gbps(mix, Buffers(size, device, keep=True), time) for size in sizes)
    return bandwidths


def with_rates(ceilings: Ceilings, dtype: str, device: torch.device, time: Time) -> Ceilings:
    """Return ceilings with the rates of a dtype that this GPU has; known ones are not measured again.

    Args:
        ceilings, dtype, device: The ceilings so far, the name of the dtype, and the GPU.
        time: Returns the device time of a call in us.
    """
    for kind, name in NOMINAL.get(dtype, ()):
        if value_of(ceilings, (kind, name)) is None:
            measured = _measure_rate((kind, name), device, time)
            if measured is not None:
                field = f"{kind}_tflops"
                wider: dict[str, Any] = {field: {**getattr(ceilings, field), name: measured}}
                ceilings = replace(ceilings, **wider)
    return ceilings


_log = logging.getLogger("dotcu")
LAYOUT = "v2"  # files of others are ignored: change it also if ceilings are measured in another way


def saved_path(uuid: str, driver: str) -> Path:
    """Return the file for the ceilings of a GPU under a driver; it need not exist."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{uuid}-{driver}")
    return cache.location() / "limits" / LAYOUT / f"{name}.json"


def read_saved(uuid: str, driver: str) -> Ceilings | None:
    """Return the saved ceilings; None if there are none, or the file is damaged."""
    try:
        itself, _, text = read_file(saved_path(uuid, driver), is_mine=True).decode().partition("\n")
        saved = json.loads(text)
        found = serialize.from_plain(Ceilings, saved)
    except (OSError, ValueError, RecursionError):
        return None
    is_whole = (
        itself == _digest(text)
        and serialize.plain(found) == saved
        and min(gbps for _, gbps in (*found.memory, *found.l2)) > 0
    )
    return found if is_whole and (found.uuid, found.driver) == (uuid, driver) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def save(ceilings: Ceilings) -> None:
    """Write ceilings, whole or not at all; a folder that cannot be written costs a warning."""
    path = saved_path(ceilings.uuid, ceilings.driver)
    try:
        cache.Store(cache.location()).make(path.parent)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        text = json.dumps(asdict(ceilings), indent=1)
        temporary.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        _log.warning(
            "The limits of this GPU cannot be saved in %s: %s. They are measured again in the next process. "
            "Choose another directory with: export DOTCU_CACHE_DIR=DIRECTORY",
            path.parent, (error.strerror or str(error)).lower(),
        )  # fmt: skip

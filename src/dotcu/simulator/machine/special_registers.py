"""Special registers as arrays.

Source: PTX ISA, "Special Registers" (chapter 10).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from dotcu.ptx.instructions import SPECIAL_REGISTERS
from dotcu.simulator.machine.shape import WARP, split
from dotcu.simulator.machine.state import Batch
from dotcu.simulator.program.binding import dtype_of
from dotcu.simulator.run import Array

# What a device is said to have; kernels ask only in order to size or place work.
MULTIPROCESSORS = 132

Value = Callable[[Batch], "Array | int"]


def _thread(batch: Batch, axis: int) -> Array | int:
    shape = batch.shape
    if shape.block[axis] == 1:
        return 0
    return np.tile(split(np.arange(shape.pitch), shape.block)[axis].astype(np.uint32), shape.blocks)


def _of_blocks(batch: Batch, extent: int, values: Array) -> Array | int:
    """Give each thread its block's value, of an extent; one value if there is one block, or nothing but 0."""
    if extent == 1:
        return 0
    values = values.astype(np.uint32)
    return values if len(values) == 1 else np.repeat(values, batch.shape.pitch)


def _block(batch: Batch, axis: int) -> Array | int:
    shape = batch.shape
    cluster, rank = shape.numbers()
    inner = split(rank, shape.cluster)[axis]
    values = split(cluster, shape.clusters)[axis] * shape.cluster[axis] + inner
    return _of_blocks(batch, shape.grid[axis], values)


def _cluster(batch: Batch, axis: int) -> Array | int:
    clusters = batch.shape.clusters
    return _of_blocks(batch, clusters[axis], split(batch.shape.numbers()[0], clusters)[axis])


def _in_cluster(batch: Batch, axis: int) -> Array | int:
    cluster = batch.shape.cluster
    return _of_blocks(batch, cluster[axis], split(batch.shape.numbers()[1], cluster)[axis])


def _of_warps(row: Array) -> Value:
    """Make the same 32 values for every warp."""
    return lambda batch: np.tile(row.astype(np.uint32), batch.threads // WARP)


def _warp(batch: Batch) -> Array | int:
    warps = batch.shape.pitch // WARP
    if warps == 1:
        return 0
    return np.tile(np.repeat(np.arange(warps, dtype=np.uint32), WARP), batch.shape.blocks)


def _multiprocessor(batch: Batch) -> Array:
    shape = batch.shape
    linear = np.arange(shape.first, shape.first + shape.blocks) % MULTIPROCESSORS
    return np.repeat(linear.astype(np.uint32), shape.pitch)


_AXES = tuple(enumerate("xyz"))
_BIT = np.int64(1) << np.arange(WARP)
# Of the special registers that are constant for a whole launch.
SPECIAL_VALUES: Mapping[str, Value] = {
    **{f"tid.{a}": partial(_thread, axis=i) for i, a in _AXES},
    **{f"ctaid.{a}": partial(_block, axis=i) for i, a in _AXES},
    **{f"clusterid.{a}": partial(_cluster, axis=i) for i, a in _AXES},
    **{f"cluster_ctaid.{a}": partial(_in_cluster, axis=i) for i, a in _AXES},
    **{f"ntid.{a}": partial(lambda batch, axis: batch.shape.block[axis], axis=i) for i, a in _AXES},
    **{f"nctaid.{a}": partial(lambda batch, axis: batch.shape.grid[axis], axis=i) for i, a in _AXES},
    **{f"nclusterid.{a}": partial(lambda batch, axis: batch.shape.clusters[axis], axis=i) for i, a in _AXES},
    **{
        f"cluster_nctaid.{a}": partial(lambda batch, axis: batch.shape.cluster[axis], axis=i)
        for i, a in _AXES
    },
    "cluster_ctarank": lambda batch: _of_blocks(batch, batch.shape.cluster_blocks, batch.shape.numbers()[1]),
    "cluster_nctarank": lambda batch: batch.shape.cluster_blocks,
    "is_explicit_cluster": lambda batch: batch.launch.cluster is not None,
    "laneid": _of_warps(np.arange(WARP)),
    "warpid": _warp,
    "nwarpid": lambda batch: batch.shape.pitch // WARP,
    "smid": _multiprocessor,
    "nsmid": lambda batch: MULTIPROCESSORS,
    "gridid": lambda batch: 1,
    "lanemask_eq": _of_warps(_BIT),
    "lanemask_le": _of_warps(2 * _BIT - 1),
    "lanemask_lt": _of_warps(_BIT - 1),
    "lanemask_ge": _of_warps(-_BIT),
    "lanemask_gt": _of_warps(-2 * _BIT),
    "dynamic_smem_size": lambda batch: batch.launch.smem_bytes,
    "total_smem_size": lambda batch: batch.launch.shared_bytes,
    "aggr_smem_size": lambda batch: batch.launch.shared_bytes,
    "reserved_smem_offset_begin": lambda batch: batch.launch.reserved_offset,
    "reserved_smem_offset_end": lambda batch: batch.launch.allotted_bytes,
    "reserved_smem_offset_cap": lambda batch: batch.launch.allotted_bytes - batch.launch.reserved_offset,
    # Where a cooperative launch keeps what its grid-wide barrier counts (cooperative_groups.h).
    **{f"envreg{number}": lambda batch: 0 for number in range(32)},
    "envreg1": lambda batch: _workspace(batch) >> 32,
    "envreg2": lambda batch: _workspace(batch) & 0xFFFFFFFF,
    # Two pieces that do not meet; cooperative groups take less than 512 bytes of theirs.
    "reserved_smem_offset_0": lambda batch: batch.launch.reserved_offset,
    "reserved_smem_offset_1": lambda batch: batch.launch.reserved_offset + 512,
    "current_graph_exec": lambda batch: 0,
}


def _workspace(batch: Batch) -> int:
    batch.launch.asks_workspace = True
    return batch.launch.workspace


# Read again by each instruction that names them: a loop may wait for them to advance.
CLOCKS: Mapping[str, Callable[[Batch], int]] = {
    "clock": lambda batch: batch.launch.steps & 0xFFFFFFFF,
    "clock_hi": lambda batch: batch.launch.steps >> 32,
    "clock64": lambda batch: batch.launch.steps,
    "globaltimer": lambda batch: time.time_ns(),
    "globaltimer_lo": lambda batch: time.time_ns() & 0xFFFFFFFF,
    "globaltimer_hi": lambda batch: time.time_ns() >> 32,
}


def special_arrays(batch: Batch, wanted: Mapping[str, int]) -> None:
    """Set the registers in which a kernel keeps the special registers that it reads."""
    for name, slot in wanted.items():
        value = SPECIAL_VALUES[name](batch)
        dtype = dtype_of(SPECIAL_REGISTERS[name])
        batch.registers[slot] = value if isinstance(value, np.ndarray) else np.full(1, value, dtype)

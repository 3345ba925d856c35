"""Launches in the simulator: CPU tensors as buffers, without a copy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dotcu.errors import SimulationError
from dotcu.kernel.allocations import Allocations, extent, tracked
from dotcu.kernel.arguments import Packed, Plan, pack
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.tensor_maps import Tiled
from dotcu.kernel.units import Code
from dotcu.simulator import Buffer, Map, Memory, Run
from dotcu.simulator import launch as simulate


class _Bytes:
    """Memory that a tensor owns, for NumPy to look at; keeps the tensor."""

    def __init__(self, owner: Tensor, address: int, count: int) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "|u1",
            "version": 3,
        }


def tensor_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """The bytes from a tensor's first element to its last, shared with it."""
    count = extent(tensor) * tensor.itemsize
    if count == 0:
        return np.empty(0, np.uint8)
    return np.asarray(_Bytes(tensor, tensor.data_ptr(), count))


def buffer(tensor: Tensor, name: str, *, writable: bool, allocations: Allocations | None) -> Buffer:
    """A tensor as the simulator sees it: its own elements, and which of them are written."""
    data = tensor_bytes(tensor)
    mask = allocations.mask(tensor) if allocations is not None else None
    start = tensor.storage_offset() * tensor.itemsize
    written = mask[start : start + data.size] if mask is not None else None
    storage = tensor.untyped_storage()
    return Buffer(
        name=name,
        data=data,
        written=written if written is not None and written.size == data.size else None,
        read_only=not writable,
        storage=(storage.data_ptr(), storage.nbytes()) if data.size else None,
        itemsize=tensor.itemsize,
    )


class Mapped:
    """The memory of one launch: each tensor argument mapped into simulated addresses."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._allocations = tracked()

    def address(self, tensor: Tensor, name: str, writable: bool) -> int:
        """Map a tensor; the address that the kernel gets."""
        made = buffer(tensor, name, writable=writable, allocations=self._allocations)
        return self.memory.map(made)


def pack_simulated(plan: Plan, args: Sequence[Any]) -> tuple[Packed, Memory]:
    """Check and pack arguments for the simulator."""
    mapped = Mapped()
    return pack(plan, args, mapped.address, encode), mapped.memory


def encode(tiled: Tiled, address: int) -> bytes:
    """A tensor map in the simulator's own format.

    Raises:
        SimulationError: It fills with NaN, whose bits no document says.
    """
    if tiled.fill == "nan":
        raise SimulationError(
            'A tensor map has fill="nan"; the simulator fills what lies outside a tensor with zeros.\n'
            'Pass fill="zeros", or launch on CUDA tensors.'
        )
    return Map(
        address=address,
        sizes=tiled.sizes,
        strides_bytes=tiled.strides_bytes,
        box=tiled.box,
        steps=tiled.element_strides,
        itemsize=tiled.dtype.itemsize,
        swizzle=tiled.swizzle,
    ).encode()


def launch(
    code: Code, name: str, packed: Packed, memory: Memory, config: LaunchConfig, run: Run, kernel: str
) -> None:
    """Run a kernel in the simulator.

    Raises:
        SimulationError: It is to run in clusters.
        FindingError: The run stops at findings, and there was one.
        UnsupportedInstruction: The kernel holds an instruction that the simulator does not execute.
    """
    if config.cluster not in (None, (1, 1, 1)):
        raise SimulationError(
            f"{kernel}: got cluster={config.cluster}; the simulator has no clusters.\n"
            "Leave cluster out, or launch on CUDA tensors."
        )
    said = len(run.output)
    try:
        _simulate(code, name, packed, memory, config, run, kernel)
    finally:
        for line in run.output[said:]:  # the kernel's own printf, which on a GPU the driver passes on
            sys.stdout.write(line if line.endswith("\n") else line + "\n")


def _simulate(
    code: Code, name: str, packed: Packed, memory: Memory, config: LaunchConfig, run: Run, kernel: str
) -> None:
    simulate(
        code.loaded(),
        code.symbol(name),
        params=packed.parameters,
        memory=memory,
        grid=config.grid,
        block=config.block,
        smem_bytes=config.smem_bytes,
        run=run,
        kernel=kernel,
        cooperative=config.cooperative,
        parameter_names=tuple(p.label for p in code.plan(name).signature.parameters),
    )

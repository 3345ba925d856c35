"""What the launches of a body are in Python, to hold those in C++ against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dotcu.compile import Target
from dotcu.kernel import Kernel, simulate
from dotcu.kernel.arguments.pack import Placement, PointerPacker, TensorPacker, expanded, pack
from dotcu.kernel.config import read_config
from dotcu.kernel.scope import LaunchPolicy, entering_scope


@dataclass
class Launches:
    """The launches of a body on real tensors, as `scope.recording` is told of them.

    Attributes:
        rows: Grid, block, dynamic shared memory and parameters of each, and at which of their bytes a
            pointer to which tensor is.
    """

    target: Target
    rows: list[tuple[dict[str, Any], bytearray, list[tuple[int, Tensor]]]] = field(default_factory=list)

    def launched(self, kernel: Kernel, args: Sequence[Any], grid: Any, shape: tuple[Any, ...]) -> None:
        config = read_config(kernel.name, grid, *shape)
        if not config.blocks:
            return
        plan = kernel.unit.code(self.target).plan(kernel.name)
        packed, _ = pack(
            plan, args, Placement(lambda tensor, *_: tensor.data_ptr(), lambda *_: b"", lambda *_: 0)
        )
        parameters, pointers = bytearray(), []
        for packer, value, data in zip(plan.packers, expanded(args), packed, strict=True):
            parameters += bytes(-len(parameters) % 16)
            if isinstance(packer, (PointerPacker, TensorPacker)) and value is not None:
                pointers.append((len(parameters), getattr(value, "tensor", value)))
            parameters += data
        row = {"grid": [*config.grid], "block": [*config.block], "smem_bytes": config.smem_bytes}
        self.rows.append((row, parameters, pointers))

    def aligned(self, tensor: Tensor, bytes: int) -> bool:
        return tensor.data_ptr() % bytes == 0

    def multiprocessors(self, count: int) -> int:
        return count

    def asked_device(self) -> None:
        pass

    def hint(self, size: int) -> int:
        return size

    def placed(self, tensors: Sequence[Any], addresses: Sequence[int]) -> list[dict[str, Any]]:
        """Return the launches with the tensors at other addresses."""
        placed = []
        for row, parameters, pointers in self.rows:
            data = bytearray(parameters)
            for offset, tensor in pointers:
                storage = tensor.untyped_storage().data_ptr()
                owner = next(
                    at for at, one in enumerate(tensors)
                    if isinstance(one, Tensor) and one.untyped_storage().data_ptr() == storage
                )  # fmt: skip
                moved = (
                    addresses[owner] + tensor.data_ptr() - tensors[owner].data_ptr() if tensor.numel() else 0
                )
                data[offset : offset + 8] = moved.to_bytes(8, "little")
            placed.append({**row, "parameters": data.hex()})
        return placed


def launches_of(
    body: Callable[..., Any], args: Sequence[Any], keyword_only: Sequence[str], arch: str
) -> tuple[Launches, list[Tensor]]:
    """Return the launches of a body on an architecture, and its results."""
    launches, count = Launches(Target.parse(arch)), len(args) - len(keyword_only)
    with simulate(arch=arch), torch.no_grad(), entering_scope(LaunchPolicy.SKIP, recording=launches):
        given = body(*args[:count], **dict(zip(keyword_only, args[count:], strict=True)))
    return launches, [] if given is None else [given] if isinstance(given, Tensor) else list(given)

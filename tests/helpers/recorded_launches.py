"""What the launches of a body are in Python, to hold those in C++ against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dotcu.compile import Target
from dotcu.kernel import Kernel, simulate
from dotcu.kernel.arguments.pack import Placement, PointerPacker, TensorPacker, expanded, pack
from dotcu.kernel.config import read_config
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.kernel.simulated_memory import FunctionMode
from dotcu.operator import Overload


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


def launches_of(overload: Overload, args: Sequence[Any], arch: str) -> tuple[Launches, list[Tensor]]:
    """Return the launches of a body on an architecture, and its results: tensors say they are on a GPU."""
    assert overload.body is not None
    launches, names = Launches(Target.parse(arch)), overload.signature.arguments
    keywords = {name: args[names.index(name)] for name in overload.signature.keyword_only}
    skipped = entering_scope(LaunchPolicy.SKIP, recording=launches)
    with simulate(arch=arch), torch.no_grad(), FunctionMode(_on_gpu), skipped:
        given = overload.body(*args[: len(args) - len(keywords)], **keywords)
    return launches, [] if given is None else [given] if isinstance(given, Tensor) else list(given)


def _on_gpu(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return func == _IS_CUDA or func(*args, **named)


_IS_CUDA = Tensor.is_cuda.__get__

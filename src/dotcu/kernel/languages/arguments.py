"""The arguments of a kernel that another language compiled, as the simulator takes them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dotcu.errors import ArgumentError
from dotcu.kernel.simulated_memory import offset_in, simulated_memory, tensor_buffer
from dotcu.simulator import Buffer
from dotcu.tracebacks import caller_line

MAP_TYPES = {
    0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f64", 9: "bf16",
}  # fmt: skip
"""PTX's names of the element types of a tensor descriptor, by the number in its metadata.

Source: CUtensorMapDataType of the CUDA driver; Triton's compiler has the numbers 8 to 10 in another order."""
SWIZZLES = (0, 32, 64, 128)
"""The bytes within which 16-byte chunks change places, by the number in a descriptor's metadata."""


class LaunchArguments:
    """The parameters of a launch, as bytes, their names, and the memory that they point to."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.memory = simulated_memory()
        self.packed: list[bytes] = []
        self.names: list[str] = []
        self._mapped: dict[tuple[Any, ...], int] = {}
        self._tensors: dict[str, Tensor] = {}

    def address(self, label: str, tensor: Tensor) -> int:
        """Return the address of a tensor in the simulator's memory."""
        if tensor.device.type != "cpu":
            raise ArgumentError(
                f"The argument {label} of {self.kernel} is on {tensor.device}, and simulate() is in force.\n"
                "The simulator takes tensors on the CPU.\n"
                f"Pass {label}.cpu(), or launch outside of simulate()."
            )
        self._tensors.setdefault(label, tensor)
        if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            return self.storage_address(label, tensor)
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._mapped:
            self._mapped[key] = self.memory.map(tensor_buffer(tensor, label, writable=True))
        return self._mapped[key]

    def storage_address(self, label: str, pointer: Any) -> int:
        """Return the address of what has one in a tensor's storage: all of the storage may be accessed.

        So is a tensor with a stride of 0, which libraries make by `as_strided` for a kernel that computes
        offsets of its own: the elements that it names do not say which ones it stands for.
        """
        storage = pointer.untyped_storage()
        whole = torch.empty(0, dtype=pointer.dtype).set_(storage)
        for region in [region for region in self.memory.regions if region.handed_out]:
            if region.storage == (storage.data_ptr(), storage.nbytes()):
                self.memory.remove(region)
        return self.address(label, whole) + offset_in(storage, int(pointer.data_ptr()))

    def caller(self, name: str) -> str:
        """Return the tensor that findings call by a name, and the line of the launch."""
        line = caller_line()
        told = [f"launched at {line}"] if line else []
        if (tensor := self._tensors.get(name)) is not None:
            dtype = str(tensor.dtype).removeprefix("torch.")
            told.insert(0, f"`{name}`, shape {tuple(tensor.shape)} {dtype}")
        return ", ".join(told)

    def scratch(self, label: str, nbytes: int) -> None:
        """Pass a pointer to memory that the kernel uses for itself; null for none."""
        data = np.zeros(nbytes, np.uint8)
        written = np.zeros(nbytes, np.uint8)
        buffer = Buffer(name=label, data=data, written=written)
        self.put(label, "Q", self.memory.map(buffer) if nbytes else 0)

    def put(self, label: str, form: str, value: Any) -> None:
        """Pass a number, in a format of `struct`."""
        try:
            self.put_bytes(label, struct.pack("<" + form, value))
        except (struct.error, OverflowError) as error:
            raise ArgumentError(f"The argument {label} of {self.kernel} got {value!r}: {error}.") from None

    def put_bytes(self, label: str, data: bytes) -> None:
        """Pass a value as its bytes."""
        self.packed.append(data)
        self.names.append(label)

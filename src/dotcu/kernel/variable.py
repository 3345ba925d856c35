"""`__constant__` and `__device__` variables, written from tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dotcu.errors import ArgumentError, KernelNotFound
from dotcu.kernel import captures, context, cuda
from dotcu.kernel.launch import default_place
from dotcu.kernel.packers import describe
from dotcu.kernel.tensors import fault, is_plain
from dotcu.kernel.tracing import refuse_write, require_seen

if TYPE_CHECKING:
    from dotcu.kernel.module import Module


class Variable:
    """A handle on a variable of a module.

    Every unit of compilation, on every device and in the simulator, has its own copy; `write`
    reaches all of them, also those that are loaded later.
    """

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self.name = name

    def write(self, tensor: Tensor) -> None:
        """Copy a tensor's elements into every copy of the variable.

        Args:
            tensor: On any device, of as many bytes as the variable; strided is fine. Its dtype must
                be the variable's: only the size can be checked.

        Raises:
            ArgumentError: It has another size.
            TracedLaunchError: A trace would lose the write, or it stands in a backward.
            CaptureError: A CUDA graph is being captured.

        Note:
            On a GPU it is ordered on torch's current stream, and waits for the copy. What kernels
            themselves stored into the variable is overwritten.
        """
        scope = context.current()
        if scope.place is context.Place.SKIP:
            return
        if scope.place is context.Place.REFUSE:
            refuse_write(self.name, scope.operator, scope.reason)
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{self.name}: write takes a tensor, got {describe(tensor)}.\nPass torch.tensor(x)."
            )
        if scope.place is context.Place.OUTSIDE:
            require_seen(f"the write of {self.name}", [tensor.detach()])
        if cuda.capturing():
            captures.refuse_write(self.name, self._module.name)
        self._write(tensor)

    def _write(self, tensor: Tensor) -> None:
        mismatch = None if is_plain(tensor) else fault(tensor)
        if mismatch is not None:
            raise ArgumentError(f"{self.name}: write got {mismatch.got}.\n{mismatch.remedy}")
        host = tensor.detach().cpu().contiguous().reshape(-1)
        data = host.view(torch.uint8).numpy().tobytes() if host.numel() else b""
        size = self.size()
        if len(data) != size:
            raise ArgumentError(
                f"{self.name} of {self._module.name} has {size} bytes, got {describe(tensor)} of {len(data)} "
                "bytes.\nPass a tensor of the variable's element type and number of elements."
            )
        self._module.contents[self.name] = data
        for unit in self._module.units():
            for code in unit.codes():
                code.write(self.name, data)

    def size(self) -> int:
        """Its size in bytes; compiles the module's plain kernels where nothing is compiled yet."""
        size = default_place().code(self._module.units()[0]).variable_bytes(self.name)
        if size is None:
            raise KernelNotFound(
                f"{self._module.name} declares the variable {self.name}, but the compiler does not see it.\n"
                "Is it inside an #if? Pass the macro: load(..., define={...})."
            )
        return size

    def __repr__(self) -> str:
        state = "written" if self.name in self._module.contents else "not written"
        return f"<dotcu variable {self.name} of {self._module.name}, {state}>"

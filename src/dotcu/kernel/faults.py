"""Faults of CUDA as errors: the driver's statuses, and what a fork forbids.

A kernel's fault ends the device's context for good and is reported by whatever asks next: a later launch, or
torch. So the error lists the launches that came before it, unless every launch is waited for
(CUDA_LAUNCH_BLOCKING=1), when the fault is the kernel's own.

A child of a process that had started CUDA can never use a GPU: the driver keeps threads and mappings that a
fork does not copy. torch notes that in the child; a flag here repeats it, since every launch reads it.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from dotcu.errors import CaptureError, LaunchError
from dotcu.kernel.config import LaunchConfig

REMEDIES = {
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "Use a smaller block, or __launch_bounds__(threads).",
    "CUDA_ERROR_INVALID_VALUE": "Compare the configuration with kernel.attributes.",
    "CUDA_ERROR_INVALID_IMAGE": "The code is not for this driver; see: dotcu doctor",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "The code is not for this GPU; see: dotcu doctor",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "The driver is older than the compiler; see: dotcu doctor",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "Use grid=dotcu.sm_count(t) * kernel.occupancy(block).",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "Use a smaller cluster, or less shared memory: its blocks run at "
    "once, on neighbouring multiprocessors. 8 blocks is what every GPU takes.",
    "CUDA_ERROR_OUT_OF_MEMORY": "Free memory on the device: torch.cuda.empty_cache().",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "Load everything before the capture: module.warm().",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "Load everything before the capture: module.warm().",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": "Capture on a stream of torch's: with torch.cuda.graph(graph).",
    "CUDA_ERROR_NOT_INITIALIZED": "In a forked process CUDA cannot be used once its parent has used it: "
    'start it with multiprocessing.set_start_method("spawn").',
    "CUDA_ERROR_INVALID_CONTEXT": "Leave the device's primary context alone: torch and dotcu use it.",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "Leave the device's primary context alone: torch and dotcu use it.",
    "CUDA_ERROR_SYSTEM_NOT_READY": "The machine's GPUs are not ready; see: nvidia-smi",
}
"""What to do, by the driver's name of a status."""

_SIMULATE = "Run it on CPU tensors inside `with dotcu.simulate():`, where the simulator names the line."

FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("read or wrote outside its memory", _SIMULATE),
    "CUDA_ERROR_MISALIGNED_ADDRESS": ("used a misaligned address", _SIMULATE),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": ("used an address of another memory space", _SIMULATE),
    "CUDA_ERROR_INVALID_PC": ("jumped to an address without code", _SIMULATE),
    "CUDA_ERROR_LAUNCH_FAILED": (
        "trapped, or was stopped for a reason that the driver does not report",
        _SIMULATE,
    ),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        "trapped, or requested what the GPU cannot do, such as a box of a tensor map at an unaligned address",
        _SIMULATE,
    ),
    "CUDA_ERROR_ASSERT": (
        "failed an assert",
        "The assert's file, line, block and thread are on stderr; /dotcu/ there stands for your folder.",
    ),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (
        "overflowed or damaged its stack",
        "Look for a deep recursion or a large local array; kernel.attributes has local_bytes.",
    ),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "ran longer than the display's watchdog allows",
        "Split the work, or run it on a GPU without a display; a loop without end is named by the simulator.",
    ),
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": (
        "ended with tensor memory that it had not freed",
        "Free the memory of tcgen05.alloc on every path.",
    ),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "hit a memory error that the GPU could not correct",
        "This is the machine's fault; see: nvidia-smi -q -d ECC",
    ),
}
"""What ends a context, by the driver's name: what the kernel did, and what to do about it.

Source: CUDA driver API, CUresult; after most of these "the process must be terminated and relaunched".
"""

_RESTART = "No kernel runs in this process any more: restart it."


def driver_error(
    doing: str, function: str, name: str, text: str, waited: LaunchLabel | None = None
) -> LaunchError:
    """Return the error for a status of the driver.

    Args:
        doing: What was tried: `Launching scale on cuda:0 with grid=(1, 1, 1), block=(32, 1, 1)`.
        function: The driver's function that gave the status.
        waited: The launch that a fault comes from, where every launch is waited for.
    """
    if waited is not None and name in FAULTS:
        did, remedy = FAULTS[name]
        return LaunchError(f"{waited} failed: {name} ({text}).\nThe kernel {did}.\n{remedy}\n{_RESTART}")
    happened = f"{doing} failed: {function} gave {name} ({text})."
    if name in FAULTS:
        return LaunchError(f"{happened}\n{fault_suspects(name)}")
    kind = CaptureError if name.startswith("CUDA_ERROR_STREAM_CAPTURE") else LaunchError
    return kind(f"{happened}\n{REMEDIES.get(name, 'See what fits together: dotcu doctor')}")


def fault_suspects(name: str) -> str:
    """List the launches that a fault may come from, and say how to find the one."""
    did, remedy = FAULTS[name]
    labels = recent_launches()
    if not labels:
        return f"A kernel {did}; dotcu has launched none in this process.\n{remedy}\n{_RESTART}"
    listed = "".join(f"\n    {label}" for label in labels)
    return (
        f"A kernel before this {did}. dotcu's last launches, the newest first:{listed}\n"
        "One of them is at fault, or a kernel of torch's, of another library or of a replayed graph. To know "
        "which, run the program again with CUDA_LAUNCH_BLOCKING=1.\n"
        f"{remedy}\n{_RESTART}"
    )


# The last launches on GPUs, from which a fault may come. References are kept; text is made for a fault alone.


class LaunchLabel(NamedTuple):
    """A launch that the driver has taken, or what the launches of a plan have in common.

    Attributes:
        operator: The qualified name of the operator whose body made it; empty outside any operator.
        device: The GPU's index.
    """

    operator: str
    kernel: str
    config: LaunchConfig
    device: int

    def __str__(self) -> str:
        by = f" of {self.operator}" if self.operator else ""
        return f"{self.kernel}{by} on cuda:{self.device} with {self.config}"

    def at(self, grid: tuple[int, int, int], smem_bytes: int) -> LaunchLabel:
        """Return the label of one launch of a plan."""
        return self._replace(config=replace(self.config, grid=grid, smem_bytes=smem_bytes))


_Row = tuple[LaunchLabel, Any, tuple[int, int, int], int]
"""A launch: its label, or that of its plan; then the scope, the grid and the dynamic shared memory."""

_WHOLE = (0, 0, 0)
"""The grid of a row whose label is of that launch alone."""

_launches: deque[_Row] = deque(maxlen=8)
_native: Any = None


def use_native_record(native: Any) -> None:
    """Let native code keep the launches from now on: its own and those of Python."""
    global _native
    if _native is not None:
        return
    for row in _launches:
        native.note(_label(row))
    _native = native


def record_launch(
    label: LaunchLabel, scope: Any = None, grid: tuple[int, int, int] = _WHOLE, smem_bytes: int = 0
) -> None:
    """Keep a launch; the ninth pushes out the first. Safe from any thread.

    Args:
        label: Of the launch, or of its plan; then the rest is that of the launch.
    """
    row = label, scope, grid, smem_bytes
    if _native is None:
        _launches.append(row)
    else:
        _native.note(_label(row))


def _label(row: _Row) -> LaunchLabel:
    label, scope, grid, smem_bytes = row
    return label.at(grid, smem_bytes)._replace(operator=scope.operator) if any(grid) else label


def recent_launches() -> tuple[LaunchLabel, ...]:
    """Return the last launches of all threads, newest first."""
    rows = reversed(tuple(_launches)) if _native is None else _native.launches()
    return tuple(map(_label, rows))


_forked = torch.cuda._is_in_bad_fork()  # where dotcu is imported only after the fork


def _note() -> None:
    global _forked
    _forked = torch.cuda._is_in_bad_fork()


os.register_at_fork(after_in_child=_note)


def forked_with_cuda() -> bool:
    """Return whether a process that had started CUDA was forked, and this is its child or a later one."""
    return _forked


def require_own_cuda(doing: str) -> None:
    """Refuse to touch the driver, to do something, where a fork has made it unusable."""
    if _forked:
        raise LaunchError(
            f"{doing} failed: this process was forked after CUDA was initialized.\n"
            "CUDA does not work in such a child; the simulator does, on CPU tensors.\n"
            'Start the child with multiprocessing.set_start_method("spawn") or "forkserver", or '
            'DataLoader(..., multiprocessing_context="spawn"); or fork before the first CUDA call, and '
            "torch.cuda.is_available() is one."
        )

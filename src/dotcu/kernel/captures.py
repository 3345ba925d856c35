"""What must not happen while a CUDA graph is captured: loading code, writing variables.

The driver forbids both there, and a failed try would spoil the capture. So they are refused
before the driver is asked: the capture stays as it was and can be ended.
"""

from __future__ import annotations

from typing import NoReturn

from dotcu.errors import CaptureError
from dotcu.kernel import context


def refuse_load(kernel: str, file: str, index: int) -> NoReturn:
    """Raise for a kernel that is not loaded yet."""
    operator = context.current().operator
    name = operator.partition("::")[2].partition(".")[0] or "op"
    by = f", launched by {operator}," if operator else ""
    raise CaptureError(
        f"{kernel} of {file}{by} is not loaded on cuda:{index}, and torch's current stream is being captured "
        "in a CUDA graph.\n"
        "Code can only be loaded before a capture. Nothing was tried, so the capture can be ended.\n"
        f"Before it, type: {name}.warm() for what an operator's samples reach, kernels.warm() for a file's "
        "kernels and the instantiations used so far; or call it once, as in the warm-up that a capture "
        "by torch.cuda.graph needs anyway."
    )


def refuse_write(variable: str, file: str) -> NoReturn:
    """Raise for a write of a variable."""
    raise CaptureError(
        f"{variable} of {file} was written while torch's current stream is being captured in a CUDA graph.\n"
        "A write waits for the GPU, and a replay would not repeat it. Nothing was written.\n"
        f'Before the capture, type: kernels.variable("{variable}").write(tensor)\n'
        "or pass the kernel a tensor instead."
    )


def refuse_warming(what: str) -> NoReturn:
    """Raise where an operator is warmed too late."""
    raise CaptureError(
        f"{what}.warm() was called while torch's current stream is being captured in a CUDA graph.\n"
        "It calls the operator, and waits for the GPU.\n"
        f"Before the capture, type: {what}.warm()"
    )

"""Object code to something to call.

    load -> Module -> Kernel -> launch -> {cuda, simulated}

A launch happens where its tensors live: on their GPU, or in the simulator.
"""

from dotcu.kernel.allocations import tracking_allocations
from dotcu.kernel.arguments import strided
from dotcu.kernel.kernel import Kernel, KernelAttributes
from dotcu.kernel.module import Module, load, load_inline
from dotcu.kernel.queries import cdiv, is_aligned, sm_count
from dotcu.kernel.runs import active_run, simulate
from dotcu.kernel.tensor_maps import TensorMap, tensor_map
from dotcu.kernel.variable import Variable

__all__ = [
    "Kernel",
    "KernelAttributes",
    "Module",
    "TensorMap",
    "Variable",
    "active_run",
    "cdiv",
    "is_aligned",
    "load",
    "load_inline",
    "simulate",
    "sm_count",
    "strided",
    "tensor_map",
    "tracking_allocations",
]

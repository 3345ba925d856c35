"""Object code to something to call.

    load -> Module -> Kernel -> launch -> {cuda, simulated}

A launch happens where its tensors live: on their GPU, or in the simulator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.kernel.allocations import tracking_allocations
    from dotcu.kernel.arguments import strided
    from dotcu.kernel.kernel import Kernel, KernelAttributes
    from dotcu.kernel.module import Module, load, load_inline
    from dotcu.kernel.queries import by_layout, cdiv, is_aligned, sm_count
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
    "by_layout",
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

_HOMES = {
    "Kernel": "kernel",
    "KernelAttributes": "kernel",
    "Module": "module",
    "TensorMap": "tensor_maps",
    "Variable": "variable",
    "active_run": "runs",
    "by_layout": "queries",
    "cdiv": "queries",
    "is_aligned": "queries",
    "load": "module",
    "load_inline": "module",
    "simulate": "runs",
    "sm_count": "queries",
    "strided": "arguments",
    "tensor_map": "tensor_maps",
    "tracking_allocations": "allocations",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used: what needs no torch here is used without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

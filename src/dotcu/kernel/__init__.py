"""Kernels to call: from a source to launches.

    load -> Module -> Kernel -> Stages -> native code, or launch() in Python -> driver or simulator

A launch happens where its tensors live: on their GPU, or in the simulator. Reading order: module.py,
kernel.py, staging.py (prepared once), launch.py (the rest, in Python), native.py (the same, without Python).
Also: compiled.py (code for each target), arguments/ (values to bytes), driver/ (CUDA), scope.py (where
launches are refused, skipped or observed).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.kernel.arguments.pack import strided
    from dotcu.kernel.arguments.tensor_map import TensorMap, tensor_map
    from dotcu.kernel.kernel import Kernel, KernelAttributes
    from dotcu.kernel.module import DeviceVariable, Module, load, load_inline
    from dotcu.kernel.shape_queries import by_layout, cdiv, is_aligned, sm_count
    from dotcu.kernel.simulation import active_run, simulate, tracking_allocations

__all__ = [
    "DeviceVariable",
    "Kernel",
    "KernelAttributes",
    "Module",
    "TensorMap",
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
    "DeviceVariable": "module",
    "Kernel": "kernel",
    "KernelAttributes": "kernel",
    "Module": "module",
    "TensorMap": "arguments.tensor_map",
    "active_run": "simulation",
    "by_layout": "shape_queries",
    "cdiv": "shape_queries",
    "is_aligned": "shape_queries",
    "load": "module",
    "load_inline": "module",
    "simulate": "simulation",
    "sm_count": "shape_queries",
    "strided": "arguments.pack",
    "tensor_map": "arguments.tensor_map",
    "tracking_allocations": "simulation",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used: what needs no torch here is used without it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

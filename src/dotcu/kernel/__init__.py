"""Kernels to call: from a source to launches.

    load -> Module -> Kernel -> LaunchPlans -> native code, or launch() in Python -> driver or simulator

A launch happens where its tensors live: on their GPU, or in the simulator. Reading order: loading.py,
module.py, launch.py (in Python, and what is planned once), native.py (the same, without Python). Also:
compiled.py (code for each target), arguments/ (values to bytes), cuda.py (the driver), launch_policy.py
(where launches are refused, skipped or observed).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.kernel.arguments.pack import extents, strided
    from dotcu.kernel.arguments.tensor_map import TensorMap, tensor_map
    from dotcu.kernel.loading import load, load_inline, load_ptx
    from dotcu.kernel.module import DeviceVariable, Kernel, KernelAttributes, Module
    from dotcu.kernel.ranks import Peers, all_gather, peers, simulate_ranks, workspace
    from dotcu.kernel.shape_queries import by_layout, capability, cdiv, is_aligned, sm_count
    from dotcu.kernel.simulated_memory import active_run, tracking_allocations
    from dotcu.kernel.simulation import simulate

__all__ = [
    "DeviceVariable",
    "Kernel",
    "KernelAttributes",
    "Module",
    "Peers",
    "TensorMap",
    "active_run",
    "all_gather",
    "by_layout",
    "capability",
    "cdiv",
    "extents",
    "is_aligned",
    "load",
    "load_inline",
    "load_ptx",
    "peers",
    "simulate",
    "simulate_ranks",
    "sm_count",
    "strided",
    "tensor_map",
    "tracking_allocations",
    "workspace",
]

_HOMES = {
    "arguments.pack": ("extents", "strided"),
    "arguments.tensor_map": ("TensorMap", "tensor_map"),
    "loading": ("load", "load_inline", "load_ptx"),
    "module": ("DeviceVariable", "Kernel", "KernelAttributes", "Module"),
    "ranks": ("Peers", "all_gather", "peers", "simulate_ranks", "workspace"),
    "shape_queries": ("by_layout", "capability", "cdiv", "is_aligned", "sm_count"),
    "simulated_memory": ("active_run", "tracking_allocations"),
    "simulation": ("simulate",),
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used: what needs no torch here is used without it."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""dotcu: from a .cu file to a PyTorch operator.

    kernels = dotcu.load("scale.cu")                       # device code only; nothing is compiled yet
    kernels.scale[torch.float32](x, out, n, grid=dotcu.cdiv(n, 256), block=256)

Every public name is here, and each is fetched when it is first used: `import dotcu` loads
no torch, touches no driver and makes no directory.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dotcu import errors as errors
from dotcu.__about__ import __version__ as __version__

if TYPE_CHECKING:  # the names of `_PUBLIC`, for type checkers; a test compares the two
    from dotcu.benchmark import bench as bench
    from dotcu.checking import check as check
    from dotcu.cpp import CppLibrary as CppLibrary
    from dotcu.cpp import load_cpp as load_cpp
    from dotcu.inspection import inspect as inspect
    from dotcu.kernel import Kernel as Kernel
    from dotcu.kernel import Module as Module
    from dotcu.kernel import all_gather as all_gather
    from dotcu.kernel import by_layout as by_layout
    from dotcu.kernel import capability as capability
    from dotcu.kernel import cdiv as cdiv
    from dotcu.kernel import extents as extents
    from dotcu.kernel import is_aligned as is_aligned
    from dotcu.kernel import load as load
    from dotcu.kernel import load_inline as load_inline
    from dotcu.kernel import load_ptx as load_ptx
    from dotcu.kernel import peers as peers
    from dotcu.kernel import simulate as simulate
    from dotcu.kernel import simulate_ranks as simulate_ranks
    from dotcu.kernel import sm_count as sm_count
    from dotcu.kernel import strided as strided
    from dotcu.kernel import tensor_map as tensor_map
    from dotcu.kernel import workspace as workspace
    from dotcu.operator import Sample as Sample
    from dotcu.operator import op as op
    from dotcu.sanitizing import sanitize as sanitize
    from dotcu.telemetry import metrics as metrics
    from dotcu.tuning import tune as tune

_PUBLIC = {
    "dotcu.benchmark": ("bench",),
    "dotcu.checking": ("check",),
    "dotcu.cpp": ("CppLibrary", "load_cpp"),
    "dotcu.inspection": ("inspect",),
    "dotcu.kernel": (
        "Kernel", "Module", "all_gather", "by_layout", "capability", "cdiv", "extents", "is_aligned", "load",
        "load_inline", "load_ptx", "peers", "simulate", "simulate_ranks", "sm_count", "strided", "tensor_map",
        "workspace",
    ),
    "dotcu.operator": ("Sample", "op"),
    "dotcu.sanitizing": ("sanitize",),
    "dotcu.telemetry": ("metrics",),
    "dotcu.tuning": ("tune",),
}  # fmt: skip
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(["errors", *_HOMES])

_HOMES["load_ipython_extension"] = "dotcu.notebook.magic"  # what IPython's `%load_ext dotcu` asks for


def __getattr__(name: str) -> Any:
    """Fetch a public name from its home, once (PEP 562).

    Raises:
        EnvironmentFault: The name needs torch, and torch is not installed; has the line to type.
    """
    if name not in _HOMES:
        module = sys.modules[__name__]  # with it Python proposes the nearest name
        raise AttributeError(f"module 'dotcu' has no attribute {name!r}", name=name, obj=module)
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise errors.without_torch(f"dotcu.{name}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

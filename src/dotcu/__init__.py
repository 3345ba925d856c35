"""dotcu: from a .cu file to a PyTorch operator.

    kernels = dotcu.load("scale.cu")                       # device code only; nothing is compiled yet
    kernels.scale[torch.float32](x, out, n, grid=dotcu.cdiv(n, 256), block=256)

Every public name is here, and each is fetched when it is first used: `import dotcu` loads
no torch, touches no driver and makes no directory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dotcu import errors
from dotcu.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from dotcu.benchmark import bench
    from dotcu.checking import check
    from dotcu.extension import NativeLibrary, load_native
    from dotcu.inspection import inspect
    from dotcu.kernel import (
        Kernel,
        Module,
        by_layout,
        cdiv,
        is_aligned,
        load,
        load_inline,
        simulate,
        sm_count,
        strided,
        tensor_map,
    )
    from dotcu.operator import Sample, op

__all__ = [
    "Kernel",
    "Module",
    "NativeLibrary",
    "Sample",
    "bench",
    "by_layout",
    "cdiv",
    "check",
    "errors",
    "inspect",
    "is_aligned",
    "load",
    "load_inline",
    "load_native",
    "op",
    "simulate",
    "sm_count",
    "strided",
    "tensor_map",
]

_HOMES = {  # and what IPython's `%load_ext dotcu` asks for
    "Kernel": "dotcu.kernel",
    "Module": "dotcu.kernel",
    "NativeLibrary": "dotcu.extension",
    "Sample": "dotcu.operator",
    "bench": "dotcu.benchmark",
    "by_layout": "dotcu.kernel",
    "cdiv": "dotcu.kernel",
    "check": "dotcu.checking",
    "inspect": "dotcu.inspection",
    "is_aligned": "dotcu.kernel",
    "load": "dotcu.kernel",
    "load_inline": "dotcu.kernel",
    "load_ipython_extension": "dotcu.notebook.extension",
    "load_native": "dotcu.extension",
    "op": "dotcu.operator",
    "simulate": "dotcu.kernel",
    "sm_count": "dotcu.kernel",
    "strided": "dotcu.kernel",
    "tensor_map": "dotcu.kernel",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from its home, once (PEP 562).

    Raises:
        EnvironmentFault: The name needs torch, and torch is not installed; has the line to type.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'dotcu' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise _without_torch(f"dotcu.{name}") from error
    globals()[name] = value
    return value


def _without_torch(what: str) -> errors.EnvironmentFault:
    return errors.EnvironmentFault(
        f"{what} needs torch, which is not installed.\n"
        "dotcu works with any build of torch 2.11 or later; which one is your choice.\n"
        "    pip install torch\n"
        "or, for a machine without a GPU, the smaller build:\n"
        "    pip install torch --index-url https://download.pytorch.org/whl/cpu"
    )


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

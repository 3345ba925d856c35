"""What a run is made on and with."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from dotcu.__about__ import __version__
from dotcu.benchmark import clocks
from dotcu.benchmark.row import Machine
from dotcu.compile import driver, toolchain
from dotcu.errors import DotcuError

PACKAGES = ("triton", "numpy", "cuda-bindings", "nvidia-ml-py")
"""Of which the versions are told, where they are installed: baselines and means hang on them."""


def machine(device: torch.device) -> Machine:
    """The machine, its GPU and the versions of what takes part."""
    versions = {
        "dotcu": __version__,
        "torch": str(torch.__version__),
        "cuda of torch": torch.version.cuda or "",
        "driver": cuda_driver(),
        "nvrtc": _nvrtc(),
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }
    if device.type != "cuda":
        return Machine(host=platform.node(), versions=versions, clocks={})
    gpu = torch.cuda.get_device_properties(device)
    return Machine(
        gpu=gpu.name,
        uuid=str(gpu.uuid),
        capability=f"{gpu.major}.{gpu.minor}",
        l2_bytes=gpu.L2_cache_size,
        memory_bytes=gpu.total_memory,
        host=platform.node(),
        versions=versions,
        clocks=clocks.highest(device),
    )


def cuda_driver() -> str:
    """The driver's version: its own where NVML tells it, else the CUDA that it brings."""
    found = driver.version()
    return clocks.driver() or (".".join(map(str, found)) if found else "")


def _nvrtc() -> str:
    try:
        return ".".join(map(str, toolchain.nvrtc().version))
    except DotcuError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

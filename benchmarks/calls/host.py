"""What the figures hold for: the machine, and the versions of everything that was timed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import dotcu
from calls.cpp import FLAGS

PACKAGES = (
    "apache-tvm-ffi",
    "cuda-bindings",
    "cuda-core",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "numpy",
    "nvidia-cuda-nvrtc",
    "triton",
)


def machine() -> dict[str, Any]:
    """The machine and the versions, for JSON."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dotcu": dotcu.__version__,
        "packages": {name: found for name in PACKAGES if (found := version(name))},
        "cpp_flags": FLAGS,
    }


def driver() -> str | None:
    """The driver's version, where nvidia-smi is there to tell."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else None


def processor() -> str:
    """The processor's model, where /proc tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def version(package: str) -> str | None:
    """A package's version, where it is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

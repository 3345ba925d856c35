"""Small projects, and what their wheels would hold, laid out as an installation does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dotcu import settings
from dotcu.shipping import project, wheel
from dotcu.shipping.hook import compiled

_number = itertools.count()

SCALE = """\
template <typename T>
__global__ void scale(const T* x, T* out, float by, long long n) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = static_cast<T>(by * static_cast<float>(x[i]));
}
"""

OPS = '''\
"""An operator."""

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("scale.cu")


@dotcu.op("{name}::scale", dtypes={dtypes})
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    """x times a number."""
    out = torch.empty_like(x)
    n = x.numel()
    kernels.scale[x.dtype](x, out, by, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@scale.reference
def _(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


@scale.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(300, device=device, dtype=dtype), 3.0)
'''

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27", "dotcu"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1"
requires-python = ">=3.10"

[tool.dotcu]
modules = ["{name}"]
architectures = {architectures}

[tool.hatch.build.hooks.dotcu]
"""


@dataclass(frozen=True)
class Made:
    """A project, under a name that no other has."""

    root: Path
    name: str

    @property
    def package(self) -> Path:
        return self.root / self.name

    def write(self, file: str, text: str) -> Path:
        path = self.package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def make(
    folder: Path,
    *,
    architectures: tuple[str, ...] = ("8.0",),
    dtypes: str = "(torch.float32,)",
    source: str = SCALE,
    ops: str = OPS,
) -> Made:
    """Write a project with one operator, `scale`."""
    made = Made(folder, f"shipped{next(_number)}")
    made.write("__init__.py", "from . import ops\nfrom .ops import scale\n")
    made.write("ops.py", ops.format(name=made.name, dtypes=dtypes))
    made.write("scale.cu", source)
    text = PYPROJECT.format(name=made.name, architectures=list(architectures))
    (folder / "pyproject.toml").write_text(text)
    return made


def lock(made: Made) -> wheel.WheelPlan:
    """Follow the operators and write the lock, as `dotcu build` does."""
    planned = wheel.prepare(project.read(made.root))
    wheel.compile_kernels(planned, lambda _: None)
    return planned


def install(made: Made, site: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Lay out what a wheel of the project holds; gives the package's folder.

    Args:
        without: Files of the project that the wheel does not hold.
    """
    files = [file for file in made.package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    held = [file for file in files if file.relative_to(made.root).as_posix() not in without]
    in_wheel = {file.resolve(): file.relative_to(made.root).as_posix() for file in held}
    for file, place in in_wheel.items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_bytes(file.read_bytes())
    for place, data in compiled(made.root, in_wheel).items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_bytes(data)
    return site / made.name


@contextmanager
def no_compiler(folder: Path) -> Iterator[None]:
    """A machine where nothing can be compiled, and nothing was."""
    with settings.override(jit="error", nvrtc=folder / "no-libnvrtc.so", cache_dir=folder / "empty"):
        yield

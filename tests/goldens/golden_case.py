"""A golden case: a kernel, a launch of it, and how its outputs are compared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from golden_compare import Comparison, Exact, Spelled
from golden_recipes import THREADS, Array, Recipe

FOLDER = Path(__file__).parent
KERNELS = FOLDER / "kernels"
RECORDED = FOLDER / "recorded"
# Unsuffixed mul and add must not be fused on one side alone.
NO_FUSING = ("-fmad=false",)
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


class In(NamedTuple):
    """An argument that the kernel reads."""

    recipe: Recipe


class InOut(NamedTuple):
    """An argument that the kernel changes; it is compared."""

    recipe: Recipe


class Scratch(NamedTuple):
    """An argument that the kernel changes, and that no one compares."""

    recipe: Recipe


class Out(NamedTuple):
    """An argument that the kernel writes in full; it is compared."""

    shape: tuple[int, ...]
    dtype: Any = np.float32


class MapOf(NamedTuple):
    """A tensor map of an argument, perhaps seen as of another element type."""

    of: str
    box: tuple[int, ...]
    swizzle: int = 0
    dtype: str = ""


Argument = In | InOut | Scratch | Out | MapOf | int | float | bytes


def _with_headers(text: str) -> list[str]:
    """A source, and the headers beside it that it includes, and those that they include."""
    texts = [text]
    for name in _INCLUDE.findall(text):
        texts += _with_headers((KERNELS / name).read_text("utf-8"))
    return texts


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel and one launch of it.

    Attributes:
        name: Of the case, its recorded file, and its kernel.
        args: By parameter.
        options: For the compiler, on the GPU and in the simulator alike.
        file: The source, without .cu; the name where it is not given.
        kernel: The kernel in it; the name where it is not given.
        archs: What the simulator compiles for; the GPU has compute capability 9.0.
        same_for_any_seed: Whether the order of threads leaves the outputs as they are, bit for bit.
        on_purpose: Words of the findings that its inputs are made for; empty: there are none.
    """

    name: str
    args: Mapping[str, Argument]
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = THREADS
    smem_bytes: int = 0
    cluster: int | tuple[int, ...] | None = None
    cooperative: bool = False
    options: tuple[str, ...] = NO_FUSING
    compare: Comparison = field(default_factory=Exact)
    file: str = ""
    kernel: str = ""
    archs: tuple[str, ...] = ("sm_90",)
    same_for_any_seed: bool = True
    on_purpose: str = ""

    @property
    def source(self) -> Path:
        return KERNELS / f"{self.file or self.name}.cu"

    @property
    def digest(self) -> str:
        """Of the source, its headers and the options: what a recording was made of."""
        texts = _with_headers(self.source.read_text("utf-8"))
        whole = "\0".join([*texts, *self.options])
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def spelled(self) -> bool:
        return isinstance(self.compare, Spelled)

    def arrays(self) -> dict[str, Array]:
        """What each array argument holds before the launch; outputs are zero."""
        made = {}
        for name, argument in self.args.items():
            if isinstance(argument, Out):
                made[name] = np.zeros(argument.shape, argument.dtype)
            elif isinstance(argument, In | InOut | Scratch):
                made[name] = np.ascontiguousarray(argument.recipe(f"{name} {self.name}"))
        return made

    @property
    def inputs(self) -> dict[str, Array]:
        return {n: a for n, a in self.arrays().items() if not isinstance(self.args[n], Out)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The arguments that are compared."""
        return tuple(n for n, a in self.args.items() if isinstance(a, Out | InOut))

    @property
    def inputs_digest(self) -> str:
        digest = hashlib.sha256()
        for name, array in self.inputs.items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

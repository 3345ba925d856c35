"""Launches of golden kernels: in the simulator, and on the GPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dotcu
from golden_case import Argument, Array, Case, MapOf, Out

_WORDS = ", ".join(f"const unsigned long long* __restrict__ {name}" for name in ("as", "bs", "cs"))
_DECLARED = f'extern "C" __global__ void {{}}({_WORDS}, unsigned long long* __restrict__ out);'
"""A kernel that `SPELLED` makes. Without a declaration dotcu would compile its file twice, to find it."""


@functools.cache
def _module(path: Path, options: tuple[str, ...]) -> dotcu.Module:
    spelled = re.findall(r"^SPELLED\((\w+)\)", path.read_text("utf-8"), re.MULTILINE)
    if not spelled:
        return dotcu.load(path, options=options)
    lines = [*map(_DECLARED.format, spelled), f'#include "{path.name}"']
    return dotcu.load_inline("\n".join(lines), include=[path.parent], options=options)


def kernel(case: Case) -> dotcu.Kernel:
    """The kernel of a case; cases of one file and one set of options share its code."""
    return _module(case.source, case.options).kernels[case.kernel or case.name]


def tensors(case: Case, device: str) -> dict[str, torch.Tensor]:
    """The array arguments; on the CPU an output counts as unwritten until the kernel writes it."""
    made = {}
    for name, array in case.arrays().items():
        tensor = torch.from_numpy(array.copy())
        unwritten = isinstance(case.args[name], Out) and device == "cpu"
        made[name] = torch.empty(tensor.shape, dtype=tensor.dtype) if unwritten else tensor.to(device)
    return made


def _passed(value: Argument, given: Mapping[str, torch.Tensor]) -> Any:
    """An argument that is no tensor, as the launch takes it."""
    if not isinstance(value, MapOf):
        return value
    tensor = given[value.of]
    if value.dtype:
        tensor = tensor.view(getattr(torch, value.dtype))
    return dotcu.tensor_map(tensor, box=value.box, swizzle=value.swizzle)


def launch(case: Case, given: Mapping[str, torch.Tensor]) -> None:
    """Launch a case on its tensors."""
    arguments: list[Any] = [given.get(name, _passed(value, given)) for name, value in case.args.items()]
    kernel(case)(
        *arguments,
        grid=case.grid,
        block=case.block,
        smem_bytes=case.smem_bytes,
        cluster=case.cluster,
        cooperative=case.cooperative,
    )


def outputs(case: Case, given: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """What is compared."""
    return {name: given[name].cpu().numpy() for name in case.outputs}


def simulated(case: Case, arch: str, seed: int | None = None) -> dict[str, Array]:
    """A case's outputs in the simulator.

    Raises:
        FindingError: The simulator found something that is not there on purpose.
    """
    with dotcu.simulate(arch=arch, seed=seed, on_finding="collect" if case.on_purpose else "raise") as run:
        given = tensors(case, "cpu")
        launch(case, given)
    assert [str(f) for f in run.findings if case.on_purpose not in f.message] == []
    return outputs(case, given)


def on_gpu(case: Case) -> dict[str, Array]:
    """A case's outputs on the GPU."""
    given = tensors(case, "cuda")
    launch(case, given)
    torch.cuda.synchronize()
    return outputs(case, given)


def bytes_of(array: Array) -> Array:
    """An array's bytes, plane by plane: the first byte of every element, then the second, ..."""
    flat = np.ascontiguousarray(array).reshape(-1)
    planes: Array = np.ascontiguousarray(flat.view(np.uint8).reshape(-1, array.itemsize).T)
    return planes

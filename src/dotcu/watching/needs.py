"""What the kernels that were compiled take of a multiprocessor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import torch

from dotcu.compile import Target
from dotcu.errors import DotcuError
from dotcu.kernel.module import Module
from dotcu.kernel.units import Unit, target_of
from dotcu.watching.events import Needs

WITHOUT_GPU = "sm_90a"
"""What kernels are compiled for where no GPU says it."""


def needs(modules: Iterable[Module], device: torch.device) -> tuple[Needs, ...]:
    """What each kernel takes of the units that were compiled; of those that cannot be assembled, nothing."""
    target = target_of(device.index or 0) if device.type == "cuda" else Target.parse(WITHOUT_GPU)
    units = [unit for module in modules for unit in module.units() if unit.codes()]
    return tuple(sorted((row for unit in units for row in _of(unit, target)), key=lambda row: row.kernel))


def _of(unit: Unit, target: Target) -> Iterator[Needs]:
    with suppress(DotcuError):
        code = unit.build(target)
        for name in unit.names:
            found = code.resources.get(code.lowered.get(name, ""))
            if found is not None:
                yield Needs(
                    kernel=name, arch=str(target), registers=found.registers, smem_bytes=found.smem_bytes,
                    stack_bytes=found.stack_bytes,
                    spill_bytes=found.spill_store_bytes + found.spill_load_bytes,
                )  # fmt: skip

"""What kernels executed, line by line: samples run in the simulator, each kernel counted for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from dotcu.compile import Target
from dotcu.errors import DotcuError
from dotcu.inspection.code.inspected import Counted
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.reached import Call, run
from dotcu.kernel import simulate
from dotcu.kernel.context import Intended, listening
from dotcu.simulator import Counters

MOST_ELEMENTS = 1 << 17
"""Of the samples that reach a kernel, the largest that has no more than these is run."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was counted, by kernel; and what could not be, and why."""

    kernels: Mapping[str, Counted]
    notes: tuple[str, ...]


def count(calls: Sequence[Call], target: Target) -> Counts:
    """Run, for each kernel that some calls launch, one of them in the simulator.

    Args:
        target: What the simulator compiles for.

    Note:
        A kernel that several units have by one name is counted together.
    """
    found: dict[str, Counted] = {}
    notes: list[str] = []
    for call, names in _chosen(calls).items():
        counters: dict[str, Counters] = {}
        try:
            _run(call, target, counters)
        except DotcuError as error:
            notes.append(f"{call.name} could not be counted in the simulator: {error}")
            continue
        for name in names:
            if name in counters:
                found[name] = _counted(call, counters[name])
            else:
                notes.append(f"{name} is launched on a GPU alone, so there are no counts of it")
    return Counts(kernels=found, notes=tuple(notes))


def _chosen(calls: Sequence[Call]) -> dict[Call, list[str]]:
    """The calls to run, and the kernels that each is run for."""
    chosen: dict[Call, list[str]] = {}
    for name in dict.fromkeys(name for call in calls for name in call.kernels):
        launching = [call for call in calls if name in call.kernels]
        fitting = [call for call in launching if call.elements <= MOST_ELEMENTS]
        call = max(fitting, key=_size) if fitting else min(launching, key=_size)
        chosen.setdefault(call, []).append(name)
    return chosen


def _size(call: Call) -> int:
    return call.elements


def _run(call: Call, target: Target, counters: dict[str, Counters]) -> None:
    """Run a call, with a set of counters for each kernel that it launches."""
    arch = str(target).replace("compute_", "sm_")
    with simulate(arch=arch, on_finding="collect", checks=()) as simulation, torch.no_grad():

        def switch(launch: Intended) -> None:
            if launch.config is not None:
                simulation.counters = counters.setdefault(launch.kernel, Counters())

        with listening(switch):
            run(call)


def _counted(call: Call, counters: Counters) -> Counted:
    lines = {Place(file, line): counts for (file, line), counts in counters.lines.items()}
    return Counted(call=call.name, total=counters, lines=lines)

"""What operators launch: their kernels by architecture, and what samples of them execute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.compile import Target
from dotcu.inspection.code.assembling import Wanted
from dotcu.inspection.code.counts import Counts, count
from dotcu.inspection.code.reached import Reached, reached
from dotcu.inspection.code.units import Failed, Shape, Unit
from dotcu.operator import Operator

Kernels = Mapping[Unit, Mapping[str, Sequence[Shape]]]


@dataclass(frozen=True, kw_only=True)
class OperatorKernels:
    """What operators have to look at.

    Attributes:
        failed: Architectures for which no body could be followed.
    """

    wanted: tuple[Wanted, ...]
    counts: Counts
    failed: tuple[Failed, ...]
    notes: tuple[str, ...]


def kernels_of(operators: Sequence[Operator], targets: Sequence[Target], counts: bool) -> OperatorKernels:
    """Follow every sample of some operators for each architecture, and count some calls for one.

    Args:
        counts: Whether to count: for the first architecture for which calls could be followed.

    Raises:
        OperatorError: The `samples` function of one failed.
    """
    followed = {target: reached(operators, target) for target in targets}
    anywhere = _together(list(followed.values()))
    counted = Counts(kernels={}, notes=())
    for target, found in followed.items():
        if counts and found.calls:
            counted = count(found.calls, target)
            break
    return OperatorKernels(
        wanted=tuple(each for target, found in followed.items() for each in _wanted(target, found, anywhere)),
        counts=counted,
        failed=() if anywhere else tuple(_failures(followed)),
        notes=tuple(dict.fromkeys(n for found in followed.values() for n in found.notes)) + counted.notes,
    )


def _wanted(target: Target, found: Reached, anywhere: Kernels) -> Iterator[Wanted]:
    """What was reached. Where a kernel does not compile, its body ends early: then what others reach."""
    for unit, shapes in (anywhere if found.refused else found.kernels).items():
        yield Wanted(unit=unit, target=target, shapes=shapes, only=tuple(shapes))


def _failures(followed: Mapping[Target, Reached]) -> Iterator[Failed]:
    for target, found in followed.items():
        for message in found.refused:
            yield Failed(arch=target, names=(), message=message)


def _together(some: Sequence[Reached]) -> Kernels:
    found: dict[Unit, dict[str, list[Shape]]] = {}
    for one in some:
        for unit, by_name in one.kernels.items():
            for name, shapes in by_name.items():
                known = found.setdefault(unit, {}).setdefault(name, [])
                known += [shape for shape in shapes if shape not in known]
    return found

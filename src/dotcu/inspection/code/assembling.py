"""Units to kernels that have been looked at: compiled and disassembled, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dotcu.compile import Target
from dotcu.errors import ToolchainError, UsageError
from dotcu.inspection.code import disassembler
from dotcu.inspection.code.alone import Part
from dotcu.inspection.code.inspected import Counted, InspectedKernel, inspected
from dotcu.inspection.code.sass import Function, without_guesses
from dotcu.inspection.code.units import Failed, KernelCode, Shape, Shapes, Unit, compiled

_MOST_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Kernels of a unit, to be looked at for one architecture.

    Attributes:
        shapes: The launches that are known of them.
        only: Their names; None for all that the compiler sees.
    """

    unit: Unit
    target: Target
    shapes: Shapes
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """What came of one `Wanted`: kernels with their machine code, failures, and notes."""

    kernels: tuple[tuple[KernelCode, Function | None], ...] = ()
    failed: tuple[Failed, ...] = ()
    notes: tuple[str, ...] = ()


def assemble(wanted: Sequence[Wanted]) -> tuple[Assembled, ...]:
    """Compile and disassemble, in the order of what is wanted.

    Raises:
        EnvironmentFault: There is no compiler, or none that may be used.
    """
    with ThreadPoolExecutor(max_workers=min(_MOST_AT_ONCE, os.cpu_count() or 1)) as pool:
        try:
            return tuple(pool.map(_assemble, wanted))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # an interrupt need not wait for what has not begun
            raise


def _assemble(wanted: Wanted) -> Assembled:
    made = compiled(wanted.unit, wanted.target, wanted.shapes, wanted.only)
    if not isinstance(made, Failed):
        return _disassembled(made)
    parts, failed = _apart(wanted, made)
    found = [_disassembled(part) for part in parts]
    return Assembled(
        kernels=tuple(each for one in found for each in one.kernels),
        failed=failed,
        notes=tuple(note for one in found for note in one.notes),
    )


def _apart(wanted: Wanted, together: Failed) -> tuple[list[tuple[KernelCode, ...]], tuple[Failed, ...]]:
    """The kernels that compile without the others, and what the compiler says of each that does not.

    Where the file fails with no kernel in it, the fault is in none of them, and is told once.
    """
    rest = compiled(Part(whole=wanted.unit, names=()), wanted.target, wanted.shapes)
    if isinstance(rest, Failed):
        return [], (together,)
    made = [
        compiled(Part(whole=wanted.unit, names=(name,)), wanted.target, wanted.shapes, (name,))
        for name in wanted.only or wanted.unit.names
    ]
    parts = [each for each in made if not isinstance(each, Failed)]
    failed = tuple(each for each in made if isinstance(each, Failed))
    return (parts if wanted.only else [*parts, rest]), failed or (() if wanted.only else (together,))


def _disassembled(made: tuple[KernelCode, ...]) -> Assembled:
    cubin = next((code.cubin for code in made), None)
    if cubin is None:
        return Assembled(kernels=tuple((code, None) for code in made))
    if not disassembler.available():
        return Assembled(kernels=tuple((code, None) for code in made), notes=(disassembler.missing(),))
    try:
        functions = disassembler.disassemble(cubin, made[0].files)
    except (UsageError, ToolchainError) as error:
        return Assembled(kernels=tuple((code, None) for code in made), notes=(str(error),))
    return Assembled(kernels=tuple((code, _of(functions, code)) for code in made))


def _of(functions: Mapping[str, Function], code: KernelCode) -> Function | None:
    found = functions.get(code.symbol)
    unknown = {line.number for line in code.ptx if line.statements and not line.chain}
    return None if found is None else without_guesses(found, unknown)


def looked_at(
    assembled: Iterable[Assembled], counted: Mapping[str, Counted], asked: Shape | None
) -> Iterator[InspectedKernel]:
    """Every kernel, those of one name together.

    Args:
        counted: What the simulator counted, by name.
        asked: The launch to tell occupancy for, in place of those that are known.
    """
    by_name: dict[str, list[InspectedKernel]] = {}
    for one in assembled:
        for code, function in one.kernels:
            made = inspected(code, function, counted.get(code.name), asked)
            by_name.setdefault(code.name, []).append(made)
    for kernels in by_name.values():
        yield from kernels

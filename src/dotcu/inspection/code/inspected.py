"""One kernel for one architecture, looked at from every side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dotcu.inspection.code import emitted, measured, remarks
from dotcu.inspection.code.correlate import Correlation, correlate
from dotcu.inspection.code.emitted import Emitted
from dotcu.inspection.code.occupancy import Held, held
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.ptx import callees
from dotcu.inspection.code.remarks import Remark
from dotcu.inspection.code.sass import Function
from dotcu.inspection.code.units import KernelCode, Shape
from dotcu.simulator import Line


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What one kernel executed in one call, in the simulator.

    Attributes:
        call: The call, in words.
        total: Over all lines and launches of the kernel.
        lines: By source line.
    """

    call: str
    total: Line
    lines: Mapping[Place, Line]


@dataclass(frozen=True, kw_only=True)
class InspectedKernel:
    """A kernel, compiled for one architecture, and what is to be said of it.

    Attributes:
        function: Its machine code; None where there is none, or no disassembler.
        held: Occupancy, for each way it is known to be launched.
        counted: What a sample executed; None where none was run.
    """

    code: KernelCode
    function: Function | None = None
    held: tuple[Held, ...] = ()
    counted: Counted | None = None

    @property
    def level(self) -> str:
        """What `emitted` was told from: "SASS", or "PTX" for want of that."""
        return "PTX" if self.function is None else "SASS"

    @cached_property
    def emitted(self) -> tuple[Emitted, ...]:
        """The instructions that stand in the code, by kind."""
        if self.function is None:
            return emitted.of_ptx(self.code.ptx, self.code.home)
        return emitted.of_sass(self.function.instructions, self.code.home, callees(self.code.ptx))

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What is worth a look: in the code first, then in the counts."""
        found = remarks.of_code(self.code, self.function)
        if self.counted is None:
            return found
        sass = self.function.instructions if self.function else ()
        return (*found, *measured.of_counts(self.counted.total, self.counted.lines, sass, self.code.home))

    @cached_property
    def correlation(self) -> Correlation:
        """Source beside PTX beside SASS, with counts."""
        sass = self.function.instructions if self.function else ()
        lines = self.counted.lines if self.counted else None
        return correlate(self.code.texts, self.code.ptx, sass, lines)


def inspected(
    code: KernelCode, function: Function | None, counted: Counted | None, asked: Shape | None
) -> InspectedKernel:
    """Look at a kernel.

    Args:
        asked: The launch to tell occupancy for, in place of those that are known.
    """
    return InspectedKernel(code=code, function=function, held=held(code, asked), counted=counted)

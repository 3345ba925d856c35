"""What an instruction tells the scheduler: cycles to stall, scoreboards to set and to wait for.

NVIDIA does not document it. Since Volta it stands in bits 105 to 121 of the 128 of an instruction.

Source: Jia, Maggioni, Staiger, Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, section 2.1. Seen to hold, in what ptxas of CUDA 13.0 emits for sm_75 to sm_121,
for the scoreboards: whoever reads what a load brings waits for the one that the load sets.
"""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_BIT = 105
_NONE = 7  # of the six scoreboards, 0 to 5
_SCOREBOARDS = 6


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control bits of an instruction. `str()` is `B0-----:R-:W1:-:S04`.

    Attributes:
        stall: Cycles until the warp's next instruction may issue.
        yields: Whether the scheduler is to prefer another warp after it.
        write: The scoreboard that is released when its result is written.
        read: The scoreboard that is released when its operands have been read.
        waits: The scoreboards that it waits for before it issues.
    """

    stall: int
    yields: bool
    write: int | None
    read: int | None
    waits: tuple[int, ...]

    def __str__(self) -> str:
        waits = "".join(str(i) if i in self.waits else "-" for i in range(_SCOREBOARDS))
        read, write = (("-" if board is None else str(board)) for board in (self.read, self.write))
        return f"B{waits}:R{read}:W{write}:{'Y' if self.yields else '-'}:S{self.stall:02d}"


def decode(encoding: int) -> Control:
    """The control bits of an instruction's 128 bits."""
    bits = encoding >> _FIRST_BIT
    write, read, mask = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        write=None if write == _NONE else write,
        read=None if read == _NONE else read,
        waits=tuple(i for i in range(_SCOREBOARDS) if mask >> i & 1),
    )

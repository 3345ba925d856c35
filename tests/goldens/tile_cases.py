"""Every golden case of a tile kernel."""

from __future__ import annotations

from tile_case import TileCase
from tile_elements import arithmetic, compare, convert, math
from tile_programs import control, kernels, memory, mma, reduce, shape

CASES: tuple[TileCase, ...] = (
    *arithmetic(),
    *compare(),
    *convert(),
    *math(),
    *reduce(),
    *shape(),
    *mma(),
    *memory(),
    *control(),
    *kernels(),
)

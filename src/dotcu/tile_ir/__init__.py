"""Tile IR, the code of CUDA Tile C++ kernels: bytecode to values, those to text, and what it promises."""

from __future__ import annotations

from dotcu.tile_ir.module import Promise, TileFunction, TileModule, TileOperation, promises, text
from dotcu.tile_ir.reader import read

__all__ = [
    "Promise",
    "TileFunction",
    "TileModule",
    "TileOperation",
    "promises",
    "read",
    "text",
]

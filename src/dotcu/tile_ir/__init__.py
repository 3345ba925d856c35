"""Tile IR, the code of CUDA Tile C++ kernels: bytecode to values, those to text, and what it promises."""

from __future__ import annotations

from dotcu.tile_ir.module import (
    Assumption,
    Promise,
    SourceLocation,
    TileFunction,
    TileModule,
    TileOperation,
    TileType,
    promises,
    text,
)
from dotcu.tile_ir.reader import read

__all__ = [
    "Assumption",
    "Promise",
    "SourceLocation",
    "TileFunction",
    "TileModule",
    "TileOperation",
    "TileType",
    "promises",
    "read",
    "text",
]

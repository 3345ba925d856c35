"""The matrix instructions by their opcodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dotcu.ptx.link import Placed
from dotcu.simulator.semantics.matrix.mma import bind_mma
from dotcu.simulator.semantics.matrix.tiles import bind_ldmatrix, bind_movmatrix, bind_stmatrix
from dotcu.simulator.semantics.matrix.wmma import bind_wmma
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

MATRIX_INSTRUCTIONS: Mapping[str, Callable[[Placed, Binding], Rendezvous]] = {
    "mma": bind_mma,
    "wmma": bind_wmma,
    "ldmatrix": bind_ldmatrix,
    "stmatrix": bind_stmatrix,
    "movmatrix": bind_movmatrix,
}

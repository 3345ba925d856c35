"""Functions that the simulator answers itself: printf, assert, and dotcu's own.

Source: CUDA Programming Guide, "Formatted Output", "Assertion"; dotcu/tensor.cuh for
__dotcu_index_error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Arguments, Symbol
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.machine.memory import LOCAL_WINDOW
from dotcu.simulator.semantics.enter import places
from dotcu.simulator.semantics.printf import DIRECTIVE, fill
from dotcu.simulator.semantics.table import NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding, Spot

Answer = Callable[[Chunk, Placed, "list[Array]"], "Array | int"]


def bind_call(placed: Placed, binding: Binding) -> Step:
    """A call of a function that only the simulator has."""
    operands = list(placed.instruction.operands)
    returns: tuple[str, ...] = ()
    if isinstance(operands[0], Arguments):
        returns = operands.pop(0).names  # type: ignore[union-attr]
    target = operands[0]
    arguments = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    if not isinstance(target, Symbol) or target.name not in BUILTINS:
        raise NotExecuted
    answer = BUILTINS[target.name]
    spots = [binding.spot(name) for name in arguments]
    sizes = [binding.linked.local[name].size for name in arguments]
    result = binding.spot(returns[0]) if returns else None

    def step(chunk: Chunk) -> None:
        values = [_argument(chunk, spot, size) for spot, size in zip(spots, sizes, strict=True)]
        value = answer(chunk, placed, values)
        if result is not None:
            _give_back(chunk, result, value)

    return step


def _argument(chunk: Chunk, spot: Spot, size: int) -> Array:
    result: Array = chunk.local.views[size].take(places(chunk, spot, chunk.numbers()) // size)
    return result


def _give_back(chunk: Chunk, spot: Spot, value: Array | int) -> None:
    index = places(chunk, spot, chunk.numbers()) // 4
    chunk.local.views[4][index] = value
    chunk.local.shadows[4][index] = 0x01010101


def _text(chunk: Chunk, address: int) -> str:
    """The C string at an address of global memory."""
    region = chunk.grid.memory.find(address)
    if region is None:
        return ""
    data = region.data[address - region.base :].tobytes()
    return data.split(b"\0")[0].decode("utf-8", "replace")


def _print(chunk: Chunk, placed: Placed, values: list[Array]) -> Array:
    """vprintf: output for each lane, with its block and thread; how many values each printed."""
    counts = []
    for position, lane in enumerate(chunk.numbers().tolist()):
        text = _text(chunk, int(values[0][position]))
        counts.append(sum(m.group() != "%%" for m in DIRECTIVE.finditer(text)))
        block, thread = chunk.shape.coordinates(lane)
        filled = format_printf(chunk, text, int(values[1][position]), lane)
        who = f"block ({block[0]},{block[1]},{block[2]}) thread ({thread[0]},{thread[1]},{thread[2]})"
        chunk.grid.run.output.append(f"{who}: {filled}")
    return np.array(counts, np.uint32)


def format_printf(chunk: Chunk, text: str, arguments: int, lane: int) -> str:
    """A printf format, filled with the values that lie in a lane's local memory."""
    local = chunk.local
    base = int(local.bases[lane]) + arguments - LOCAL_WINDOW
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        raw = local.data[base + offset : base + offset + size].tobytes()
        offset += size
        return raw

    return fill(text, take, lambda address: _text(chunk, address))


def _assert(chunk: Chunk, placed: Placed, values: list[Array]) -> int:
    """__assertfail(message, file, line, function, size): the kernel stops."""
    condition = _text(chunk, int(values[0][0]))
    chunk.grid.report(
        chunk,
        "trap",
        placed,
        chunk.numbers(),
        message=f"the assertion `{condition}` failed. Look at what made it false.",
    )
    return 0


def _index_error(chunk: Chunk, placed: Placed, values: list[Array]) -> int:
    """__dotcu_index_error(dimension, index, size, data): an index that leaves its dimension."""
    dimension, index, size, data = values
    region = chunk.grid.memory.of_data(int(data[0]))
    name = region.name if region is not None else ""
    shown = f"`{name}`" if name else "a tensor"
    chunk.grid.report(
        chunk,
        "out-of-bounds",
        placed,
        chunk.numbers(),
        address_of=name,
        message=f"index {int(index[0].view(np.int64))} leaves dimension {int(dimension[0])} of {shown}, "
        f"which has {int(size[0].view(np.int64))} elements. Guard the index by the size.",
    )
    return 0


BUILTINS: Mapping[str, Answer] = {
    "vprintf": _print,
    "__assertfail": _assert,
    "__dotcu_index_error": _index_error,
}

"""Functions that the simulator answers itself: printf, assert, malloc, and dotcu's own.

Source: CUDA Programming Guide, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation and
Operations"; dotcu/tensor.cuh for __dotcu_index_error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Arguments, Symbol
from dotcu.simulator.machine.memory import LOCAL_WINDOW, WRITTEN, Buffer, allocate
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.binding import MANY, Binding, NotExecuted, counted, require
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

Answer = Callable[[Batch, FlatInstruction, "list[Array]"], "Array | int"]


def bind_call(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """A call of a function that only the simulator has."""
    operands = list(counted(instruction.ptx.operands, 2, MANY))
    returns = operands.pop(0).names if isinstance(operands[0], Arguments) else ()  # type: ignore[union-attr]
    target = operands[0]
    given = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    if not isinstance(target, Symbol) or target.name not in BUILTINS:
        raise NotExecuted
    require(all(name in binding.linked.local for name in (*returns, *given)))
    answer = BUILTINS[target.name]
    arguments = [(binding.spot(name), binding.linked.local[name].size) for name in given]
    result = binding.spot(returns[0]) if returns else None
    width = binding.linked.local[returns[0]].size if returns else 0

    def step(batch: Batch) -> None:
        threads = batch.numbers()
        values = [
            batch.local.views[size].take(batch.byte_offsets(spot, threads) // size)
            for spot, size in arguments
        ]
        value = answer(batch, instruction, values)
        if result is not None:
            index = batch.byte_offsets(result, threads) // width
            batch.local.views[width][index] = value
            batch.local.shadows[width][index] = WRITTEN[width]

    return step


def _text(batch: Batch, address: int) -> str:
    """The C string at an address of global memory."""
    region = batch.launch.memory.find(address)
    if region is None:
        return ""
    data = region.data[address - region.base :].tobytes()
    return data.split(b"\0")[0].decode("utf-8", "replace")


def _print(batch: Batch, instruction: FlatInstruction, values: list[Array]) -> Array:
    """vprintf: output for each thread, with its block and thread; how many values each printed."""
    counts = []
    for position, thread in enumerate(batch.numbers().tolist()):
        text = _text(batch, int(values[0][position]))
        counts.append(sum(m.group() != "%%" for m in DIRECTIVE.finditer(text)))
        block, place = batch.shape.coordinates(thread)
        filled = _format_printf(batch, text, int(values[1][position]), thread)
        who = f"block ({block[0]},{block[1]},{block[2]}) thread ({place[0]},{place[1]},{place[2]})"
        batch.launch.run.output.append(f"{who}: {filled}")
    return np.array(counts, np.uint32)


def _format_printf(batch: Batch, text: str, arguments: int, thread: int) -> str:
    """A printf format, filled with the values that are in a thread's local memory."""
    local = batch.local
    base = int(local.bases[thread]) + arguments - LOCAL_WINDOW
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        raw = local.data[base + offset : base + offset + size].tobytes()
        offset += size
        return raw

    return fill(text, take, lambda address: _text(batch, address))


def _assert(batch: Batch, instruction: FlatInstruction, values: list[Array]) -> int:
    """__assertfail(message, file, line, function, size): the kernel stops."""
    condition = _text(batch, int(values[0][0]))
    message = f"the assertion `{condition}` failed. Look at what made it false."
    batch.report("trap", instruction, batch.numbers(), message)
    return 0


def _index_error(batch: Batch, instruction: FlatInstruction, values: list[Array]) -> int:
    """__dotcu_index_error(dimension, index, size, data): an index that leaves its dimension."""
    dimension, index, size, data = values
    region = batch.launch.memory.of_data(int(data[0]))
    name = region.name if region is not None else ""
    shown = f"`{name}`" if name else "a tensor"
    message = (
        f"index {int(index[0].view(np.int64))} leaves dimension {int(dimension[0])} of {shown}, "
        f"which has {int(size[0].view(np.int64))} elements. Guard the index by the size."
    )
    batch.report("out-of-bounds", instruction, batch.numbers(), message, address_of=name)
    return 0


HEAP_BYTES = 8 << 20
"""What cudaLimitMallocHeapSize is, unless the host sets it."""


def _malloc(batch: Batch, instruction: FlatInstruction, values: list[Array]) -> Array:
    """malloc(size): memory of a thread, until free(), in later launches too; null if none is left."""
    launch, given = batch.launch, []
    used = sum(buffer.size for buffer in launch.heap)
    for size in values[0].tolist():
        address = 0
        if 0 < size <= HEAP_BYTES - used:
            used, address = used + size, allocate()
            bytes_, written = np.zeros(size, np.uint8), np.zeros(size, bool)
            buffer = Buffer(name="malloc()", data=bytes_, written=written, base=address)
            launch.heap.append(buffer)
            launch.memory.insert(buffer)
        given.append(address)
    return np.array(given, np.uint64)


def _free(batch: Batch, instruction: FlatInstruction, values: list[Array]) -> int:
    """free(pointer): null is taken, and any other address has to be one that malloc() gave."""
    launch = batch.launch
    buffers = {buffer.base: buffer for buffer in launch.heap}
    for position, address in enumerate(values[0].tolist()):
        buffer = buffers.pop(address, None)
        if buffer is not None:
            launch.heap.remove(buffer)
            launch.memory.remove(buffer)
        elif address:
            message = (
                "free() of an address that malloc() did not give, or that was freed before. "
                "Free each pointer once, as malloc() gave it."
            )
            batch.report("bad-call", instruction, batch.numbers()[position : position + 1], message)
    batch.hints.clear()
    return 0


BUILTINS: Mapping[str, Answer] = {
    "vprintf": _print,
    "__assertfail": _assert,
    "malloc": _malloc,
    "free": _free,
    "__dotcu_index_error": _index_error,
}


# printf's formats, filled as the C library of the host does, which prints for the device.
#
# Source: CUDA C++ Programming Guide, "Formatted Output"; ISO C, "The fprintf function".


DIRECTIVE = re.compile(
    r"%(?:%|(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?"
    r"(?P<length>hh|h|ll|l|j|z|t)?(?P<kind>[diouxXeEfFgGaAcsp]))"
)
_SIZES = {"hh": 1, "h": 2, "": 4, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}
_NO_TEXT = "(null)"

Take = Callable[[int], bytes]


def fill(text: str, take: Take, string: Callable[[int], str]) -> str:
    """A format with its values.

    Args:
        take: Gives the bytes of the next argument, by its size.
        string: Gives the string at an address.
    """

    def replace(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        return _filled(match, take, string)

    return DIRECTIVE.sub(replace, text)


def _integer(raw: bytes, *, signed: bool) -> int:
    return int.from_bytes(raw, "little", signed=signed)


def _filled(match: re.Match[str], take: Take, string: Callable[[int], str]) -> str:
    flags, width, precision = match["flags"], match["width"] or "", match["precision"]
    if width == "*":
        number = _integer(take(4), signed=True)
        flags, width = flags + ("-" if number < 0 else ""), str(abs(number))
    if precision is None and "." in match.group():
        precision = "0"
    if precision == "*":
        number = _integer(take(4), signed=True)
        precision = str(number) if number >= 0 else None
    spec = flags + _bounded(width) + ("" if precision is None else f".{_bounded(precision)}")
    return _one(match["kind"], match["length"] or "", spec, take, string)


_MAX_CHARACTERS = 4095
"""The width that C promises to a conversion (ISO C, "Environmental limits"); more would fill memory."""


def _bounded(count: str) -> str:
    return str(min(int(count[:9]), _MAX_CHARACTERS)) if count else ""


def _one(kind: str, length: str, spec: str, take: Take, string: Callable[[int], str]) -> str:
    if kind in "eEfFgG":
        return str(f"%{spec}{kind}" % struct.unpack("<d", take(8))[0])
    if kind in "aA":
        return _padded(spec, _hexadecimal(struct.unpack("<d", take(8))[0], upper=kind == "A"))
    if kind == "s":
        address = _integer(take(8), signed=False)
        return f"%{spec}s" % (string(address) if address else _NO_TEXT)
    if kind == "p":
        address = _integer(take(8), signed=False)
        return _padded(spec, f"{address:#x}" if address else "(nil)")
    if kind == "c":
        return _padded(spec, chr(take(4)[0]))
    size = _SIZES[length]
    raw = take(max(size, 4))[:size]
    if kind == "o" and "#" in spec:
        return _padded(spec, "0" + f"{_integer(raw, signed=False):o}".lstrip("0"))
    spelled = "d" if kind in "diu" else kind
    return f"%{spec}{spelled}" % _integer(raw, signed=kind in "di")


def _padded(spec: str, text: str) -> str:
    return f"%{spec.partition('.')[0]}s" % text


def _hexadecimal(value: float, *, upper: bool) -> str:
    """A float as C writes it: without the zeros at the end."""
    text = re.sub(r"\.?0*p", "p", value.hex())
    return text.upper() if upper else text

"""Tensor maps that a kernel changes: tensormap.replace, tensormap.cp_fenceproxy, and their fences.

A map is changed through the generic proxy and read through that of tensor maps: see `sanitizers.proxies`.

Source: PTX ISA, "Data Movement and Conversion Instructions: tensormap.replace", "Parallel
Synchronization and Communication Instructions: tensormap.cp_fenceproxy, fence.proxy".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dotcu.ptx.instructions import Operand
from dotcu.simulator.machine.access import region_part
from dotcu.simulator.machine.shape import WARP
from dotcu.simulator.machine.state import Access, Batch, InstructionStep, active_threads
from dotcu.simulator.program.binding import MANY, Binding, counted, immediate, only, require
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.semantics.async_copy.mbarrier import object_access
from dotcu.simulator.semantics.load_store import load, store_elements
from dotcu.simulator.tensor_map import BYTES, FIELDS, replaced

_SPACES = ("global", "shared::cta")
_HALF = BYTES // 16


def map_access(
    instruction: FlatInstruction, operand: Operand, space: str, binding: Binding, *, action: str
) -> tuple[Access, Access]:
    """The accesses to the two halves of a map, each a multiple of 64 bytes.

    Args:
        action: "read" or "write".
    """
    half = object_access(instruction, operand, space, binding, action=action)._replace(elements=_HALF)
    return half, half._replace(number=binding.next_access(), offset=half.offset + BYTES // 2)


def read_map(batch: Batch, halves: Sequence[Access]) -> bytes:
    """The bytes of the map of the first active thread."""
    words = [int(word[0]) for half in halves for word in load(batch, half)]
    return b"".join(word.to_bytes(8, "little") for word in words)


def _write_map(batch: Batch, halves: Sequence[Access], data: bytes) -> None:
    words = np.frombuffer(data, np.uint64)
    for number, half in enumerate(halves):
        store_elements(batch, half, list(words[number * _HALF : (number + 1) * _HALF, None]))


def check_map(batch: Batch, half: Access) -> None:
    """Report the map of the active thread if this kernel changed it without the fences of its proxy."""
    address = batch.read(half.slot)[:1].astype(np.uint64) + np.uint64(half.offset & 0xFFFFFFFFFFFFFFFF)
    region = batch.launch.memory.find(int(address[0]))
    if region is not None:
        words = address + np.arange(0, BYTES, 8, dtype=np.uint64)
        with active_threads(batch, np.repeat(batch.numbers()[:1], len(words))):
            part = region_part(batch, half._replace(elements=1), region, words, None)
            for check in batch.on.tensor_map:
                check(part, int(address[0]))


def bind_tensormap(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """tensormap.replace and tensormap.cp_fenceproxy."""
    kind, *flags = counted(instruction.ptx.flags, 1, MANY)
    if kind == "replace":
        return _bind_replace(instruction, flags, binding)
    require(
        kind == "cp_fenceproxy" and flags[:4] == ["global", "shared::cta", "tensormap::generic", "release"]
    )
    to, source, size = counted(instruction.ptx.operands, 3)
    require(immediate(size) == BYTES)
    target = map_access(instruction, to, "global", binding, action="write")
    halves = map_access(instruction, source, "shared", binding, action="read")
    scope = "cta" if flags[4:5] == ["cta"] else "gpu"

    def copy(batch: Batch) -> None:
        threads = batch.numbers()
        _, first = np.unique(threads // WARP, return_index=True)
        for thread in threads[first]:
            with active_threads(batch, np.array([thread])):
                _write_map(batch, target, read_map(batch, halves))
        batch.fence_proxies("tensormap")
        batch.clocks.fence(batch.active, scope)

    return copy


def _bind_replace(instruction: FlatInstruction, flags: list[str], binding: Binding) -> InstructionStep:
    """tensormap.replace: one field of the map, of one of its dimensions where it has several."""
    mode, field, *space, size = counted(flags, 3, 4)
    address, *ordinal, given = counted(instruction.ptx.operands, 2, 3)
    require(mode == "tile" and size == "b1024" and field in FIELDS and len(space) < 2)
    require(set(space) <= set(_SPACES))
    halves = map_access(
        instruction, address, space[0].split("::")[0] if space else "generic", binding, action="read"
    )
    targets = [half._replace(number=binding.next_access(), action="write") for half in halves]
    value = binding.source(given, only(instruction.ptx.types))
    number = immediate(ordinal[0]) if ordinal else 0
    require(number < FIELDS[field] and bool(ordinal) == (FIELDS[field] > 1))

    def replace(batch: Batch) -> None:
        for thread in batch.numbers().tolist():
            with active_threads(batch, np.array([thread])):
                data = replaced(read_map(batch, halves), field, number, int(value.read(batch)[0]))
                if data is not None:
                    _write_map(batch, targets, data)
                    continue
                message = (
                    f"`{instruction.ptx.text}` changes 128 bytes that are not a tensor map, or gives a "
                    "field a value that it does not take. Copy the map that dotcu.tensor_map(t, box=...) "
                    "passes there first."
                )
                batch.report("trap", instruction, batch.numbers(), message)

    return replace


def bind_map_fence(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """fence.proxy.tensormap: a release of what was written, or an acquire of the map at an address."""
    _, kind, order, scope = counted(instruction.ptx.flags, 4)
    require(kind == "tensormap::generic")
    scope = "cta" if scope == "cta" else "gpu"
    if order == "release":

        def release(batch: Batch) -> None:
            batch.fence_proxies("tensormap")
            batch.clocks.fence(batch.active, scope)

        return release
    require(order == "acquire")
    operand, size = counted(instruction.ptx.operands, 2)
    require(immediate(size) == BYTES)
    half = object_access(instruction, operand, "generic", binding, action="read")

    def acquire(batch: Batch) -> None:
        batch.clocks.fence(batch.active, scope)
        address = np.broadcast_to(batch.read(half.slot).astype(np.uint64), batch.count())
        threads = batch.numbers()
        for each in np.unique(address):
            with active_threads(batch, threads[address == each]):
                batch.fence_proxies(f"tensormap {int(each) + half.offset}")

    return acquire

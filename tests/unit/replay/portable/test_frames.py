"""The memory of a launch, as the driver reads it."""

from __future__ import annotations

import ctypes
import struct

from hypothesis import given
from hypothesis import strategies as st

from dotcu.replay.portable.frames import Item, allocate, frame, packing
from replays import Steps, launch

SIZES = {"b": 1, "H": 2, "i": 4, "Q": 8, "d": 8}


@st.composite
def memories(draw: st.DrawFn) -> tuple[bytes, list[tuple[Item, int]]]:
    """Bytes, some of them zero, and places in them that do not overlap."""
    items, at = [], 0
    for code in draw(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=6)):
        at += draw(st.integers(0, 20))
        items.append((Item(at, code, f"v{len(items)}"), draw(st.integers(0, 127))))
        at += SIZES[code]
    size = at + draw(st.integers(0, 20))
    memory = draw(st.lists(st.sampled_from((0, 0, 0, 7)), min_size=size, max_size=size))
    return bytes(memory), draw(st.permutations(items))


@given(found=memories())
def test_packing_writes_the_items_and_nothing_else(found: tuple[bytes, list[tuple[Item, int]]]) -> None:
    memory, items = found
    want = bytearray(memory)
    for item, value in items:
        struct.pack_into("<" + item.code, want, item.offset, value)
    packed = packing(memory, [item for item, _ in items])
    numbers = {item.text: value for item, value in items}
    values = [numbers[value] if isinstance(value, str) else value for value in packed.values]
    written = bytearray(memory)
    struct.pack_into(packed.format, written, packed.start, *values)
    assert written == want


def test_each_launch_has_memory_of_its_own_and_the_template_stays() -> None:
    made = frame(launch(Steps(), parameters=bytes(range(16))), (1, 2, 3))
    before = bytes(made.memory)
    (first, *_), (second, *_) = allocate(made), allocate(made)
    first[0] = 99
    assert second[0] == 0
    assert made.memory == before


def test_parameters_begin_on_a_boundary_of_sixteen_bytes() -> None:
    steps = Steps()
    made = frame(launch(steps, parameters=bytes(20), offsets=(0, 16)), (1, 1, 1))
    _, _, pointers = allocate(made)
    assert len(pointers) == 2
    assert pointers[0] % 16 == 0
    assert made.config == 32


def test_what_the_configuration_points_to_lives_as_long_as_it() -> None:
    made = frame(launch(Steps(), cluster=(2, 3, 4), cooperative=True), (1, 1, 1))
    frames = [allocate(made) for _ in range(50)]
    for view, _, _ in frames:
        (attributes,) = struct.unpack_from("<Q", view, made.config + 40)
        assert (ctypes.c_uint32 * 5).from_address(attributes)[:] == [4, 0, 2, 3, 4]
        assert (ctypes.c_uint32 * 3).from_address(attributes + 72)[:] == [2, 0, 1]


def test_a_launch_without_parameters_has_memory_too() -> None:
    made = frame(launch(Steps(), parameters=b"", offsets=()), (5, 1, 1))
    view, _, _ = allocate(made)
    assert struct.unpack_from("<3I", view, made.config) == (5, 1, 1)

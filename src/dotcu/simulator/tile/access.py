"""Loads, stores and atomics of tiles: from views and pointers to the bytes of tensors, with the checks.

A tile of a view lies in memory in a regular pattern, which is read and written as a window, without a list of
addresses. Where that pattern leaves the tensor's memory, and for tiles of pointers, each element has its
address. Either way an access is made of places in regions; what is nowhere is reported, and left out.

Source: NVIDIA/cuda-tile, Types.td for views, Ops.td, "load_view_tko", "load_ptr_tko", "atomic_rmw_tko".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.access import FOREIGN, describe_miss, element_of
from dotcu.simulator.machine.memory import NULL_PAGE, WRITTEN, Buffer
from dotcu.simulator.program.binding import chosen
from dotcu.simulator.run import Array, shown_coordinates
from dotcu.simulator.semantics.atomic import AT_ONCE, add_in_global, adds_in_any_order
from dotcu.simulator.tile.operations import dtype_of, from_bits, is_float, rounded, to_bits
from dotcu.simulator.tile.races import MAX_FLAGS, Places, TileAccess
from dotcu.simulator.tile.state import Binder, TileDecoder, TileLaunch, TileStep
from dotcu.tile_ir.module import TileOperation, TileType

_PADDING: Mapping[str, float] = {
    "": 0.0, "zero": 0.0, "neg_zero": -0.0, "nan": np.nan, "pos_inf": np.inf, "neg_inf": -np.inf,
}  # fmt: skip
_VERBS = {"read": "reads", "write": "writes", "atomic": "changes"}
EXTENTS = "Make the view with the sizes of the tensor: dotcu.extents(t) passes them."


class TensorView(NamedTuple):
    """A tensor view at run time; a view of its tiles is the same, with the tiles in its type."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


def _access(decoder: TileDecoder, operation: TileOperation, action: str, type_: TileType) -> TileAccess:
    """Describe the access of the operation that was numbered last, to elements of a type."""
    decoder.require_whole_bytes(operation, type_)
    semantics = operation.attributes["memory_ordering_semantics"]
    wide = operation.attributes.get("memory_scope", "tl_blk") != "tl_blk"
    return TileAccess(
        number=len(decoder.operations) - 1,
        operation=operation,
        action=action,
        element=type_.element,
        bytes=type_.itemsize,
        strong=wide and semantics != "weak",
        acquire=wide and semantics in ("acquire", "acq_rel"),
        release=wide and semantics in ("release", "acq_rel"),
    )


# From views and pointers to places

Found = tuple[tuple[int, ...], list[Places]]
"""The shape of an access's tile, and where its elements are."""


def _finder(
    decoder: TileDecoder, operation: TileOperation, action: str, value: int
) -> tuple[TileAccess, Callable[[TileLaunch], Found]]:
    """Return an operation's access to elements of a value, and the function that finds them."""
    operands, types = operation.operands, decoder.function.types
    if "view" in operands:
        (view,), index = operands["view"], operands["index"]
        type_ = types[view]
        access = _access(decoder, operation, action, type_)
        locate = _gathered if type_.kind == "gather_scatter_view" else _of_view

        def find_tile(launch: TileLaunch) -> Found:
            values = launch.values
            at = [values[each] for each in index]
            return type_.shape, locate(launch, access, values[view], type_, at)

        return access, find_tile
    pointers = next(operands[name][0] for name in ("pointers", "source", "destination") if name in operands)
    mask, access = operation.one("mask"), _access(decoder, operation, action, types[value])

    def find(launch: TileLaunch) -> Found:
        addresses, chosen = np.asarray(launch.values[pointers]), None
        shape, addresses = addresses.shape, addresses.reshape(-1)
        if mask is not None:
            chosen = np.flatnonzero(np.broadcast_to(launch.values[mask], shape))
            addresses, chosen = (
                (addresses, None) if len(chosen) == addresses.size else (addresses[chosen], chosen)
            )
        return shape, _at_addresses(launch, access, addresses, shape if chosen is None else None, chosen)

    return access, find


def _of_view(
    launch: TileLaunch, access: TileAccess, view: TensorView, type_: TileType, index: Sequence[Array]
) -> list[Places]:
    """Return where a view's tile lies, as far as it is in the tensor."""
    address, counts, strides = view.base, [], []
    for at, (dimension, extent) in enumerate(zip(type_.dim_map, type_.shape, strict=True)):
        number = int(index[at])
        start = number * (type_.steps[at] if type_.steps else extent)
        counts.append(0 if number < 0 else max(0, min(extent, view.extents[dimension] - start)))
        strides.append(view.strides[dimension])
        address += start * view.strides[dimension] * access.bytes
    _check_promised(launch, access, view, type_, counts, index)
    if 0 in counts:
        return []
    within = None if tuple(counts) == type_.shape else tuple(map(slice, counts))
    reach = [(count - 1) * stride * access.bytes for count, stride in zip(counts, strides, strict=True)]
    low, high = address + sum(r for r in reach if r < 0), address + sum(r for r in reach if r > 0)
    home = launch.home(view.base)
    region = home or launch.find(low)
    outside = region is None or low < region.base or high + access.bytes > region.base + region.size
    if region is not None and not outside and not address % access.bytes:
        first = (address - region.view(access.bytes)[1]) // access.bytes
        return [Places(region, first, tuple(counts), tuple(strides), within=within)]
    addresses = np.full((), _wrapped(address), np.int64)
    for count, stride in zip(counts, strides, strict=True):
        addresses = addresses[..., None] + np.arange(count) * np.int64(_wrapped(stride * access.bytes))
    chosen = None if within is None else np.arange(type_.size).reshape(type_.shape)[within].reshape(-1)
    return _at_addresses(launch, access, addresses.reshape(-1), None, chosen, home)


def _wrapped(number: int) -> int:
    """Return a number as 64 bits with a sign hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _check_promised(
    launch: TileLaunch,
    access: TileAccess,
    view: TensorView,
    type_: TileType,
    counts: Sequence[int],
    index: Sequence[Array],
) -> None:
    """Report a tile that leaves its tensor, though the operation says that it does not."""
    inbounds = access.operation.attributes.get("inbounds", ())
    triples = zip(inbounds, counts, type_.shape, strict=False)
    at = next((at for at, (says, count, extent) in enumerate(triples) if says and count < extent), None)
    if at is None:
        return
    number = "(" + ", ".join(str(int(each)) for each in index) + ")"
    name = launch.name_at(view.base)
    message = (
        f"out-of-bounds {access} at tile {number} of {f'`{name}`' if name else 'a view'}: of its "
        f"{type_.shape[at]} elements in dimension {at}, {counts[at]} lie in the tensor. "
        f"Use {'load' if access.action == 'read' else 'store'}_masked, or launch fewer tile blocks."
    )
    missing = type_.size - int(np.prod(counts))
    launch.report("out-of-bounds", access.operation, missing, message, name)


def _gathered(
    launch: TileLaunch, access: TileAccess, view: TensorView, type_: TileType, index: Sequence[Array]
) -> list[Places]:
    """Return where the elements of a gather-scatter view's tile lie that are in its tensor.

    The index has for each dimension the first element (measured: H100, driver 580); for the sparse one all.
    """
    addresses, inside = np.full((), view.base, np.int64), np.ones((), bool)
    for at, extent in enumerate(type_.shape):
        if at == type_.sparse_dim:
            place = np.asarray(index[at]).reshape(-1).astype(np.int64)
        else:
            place = int(index[at]) + np.arange(extent)
        inside = inside[..., None] & (place >= 0) & (place < view.extents[at])
        addresses = addresses[..., None] + place * np.int64(_wrapped(view.strides[at] * access.bytes))
    chosen = np.flatnonzero(inside)
    return _at_addresses(launch, access, addresses.reshape(-1)[chosen], None, chosen, launch.home(view.base))


def _at_addresses(
    launch: TileLaunch,
    access: TileAccess,
    addresses: Array,
    shape: tuple[int, ...] | None,
    chosen: Array | None,
    home: Buffer | None = None,
) -> list[Places]:
    """Return the places of elements by their addresses; report those that are nowhere.

    Args:
        launch, access, addresses: One address for each element.
        shape: Of the places, if all elements are the tile's and lie in one region; None: a row.
        chosen: Which of the tile's elements they are; None: all.
        home: The region that they have to lie in; None: any.
    """
    if not len(addresses):
        return []
    width = access.bytes
    low, high = int(addresses.min()), int(addresses.max())
    region = home or launch.find(low)
    aligned = not int(np.bitwise_or.reduce(addresses)) % width
    if region is not None and aligned and region.base <= low and high + width <= region.base + region.size:
        indices = _indices(region, addresses, width)
        return [Places(region, 0, shape or indices.shape, (), indices.reshape(shape or -1), chosen)]
    left = np.arange(len(addresses))
    skewed = addresses % width != 0
    if skewed.any():
        _report_misaligned(launch, access, addresses[skewed])
        left = left[~skewed]
    found = []
    for region in launch.memory.regions if home is None else [home]:
        here = (addresses[left] >= region.base) & (addresses[left] + width <= region.base + region.size)
        if here.any():
            numbers = left[here]
            indices = _indices(region, addresses[numbers], width)
            within = numbers if chosen is None else chosen[numbers]
            found.append(Places(region, 0, numbers.shape, (), indices, within))
            left = left[~here]
    if len(left):
        _report_unmapped(launch, access, addresses[left], home)
    return found


def _indices(region: Buffer, addresses: Array, width: int) -> Array:
    offsets = addresses - region.view(width)[1]
    return offsets >> (width.bit_length() - 1) if width > 1 else offsets


def _report_misaligned(launch: TileLaunch, access: TileAccess, addresses: Array) -> None:
    first = int(addresses[0])
    region = launch.memory.find(first)
    name = region.name if region is not None else ""
    where = f"at byte {first - region.base} of `{name}`" if region is not None else f"at {first:#x}"
    message = (
        f"misaligned {access} {where}: the address is a multiple of {first & -first}, and an access of "
        f"{access.bytes} bytes needs a multiple of {access.bytes}. Begin at an aligned element."
    )
    launch.report("misaligned", access.operation, len(addresses), message, name)


def _report_unmapped(launch: TileLaunch, access: TileAccess, addresses: Array, home: Buffer | None) -> None:
    null = (addresses >= 0) & (addresses < NULL_PAGE)
    if null.any():
        offset = int(addresses[null][0])
        at = f"null + {offset} bytes" if offset else "a null pointer"
        message = f"{access} through {at}. Pass a tensor, or mask the access where the pointer is null."
        launch.report("null-pointer", access.operation, int(null.sum()), message)
        addresses = addresses[~null]
    if not len(addresses):
        return
    first, memory = int(addresses[0]), launch.memory
    region = home or (None if memory.is_foreign(first) else memory.nearest(first))
    if region is None:
        message = f"out-of-bounds {access} at {first:#x}, where nothing is mapped. {FOREIGN}"
    else:
        place, is_view = (first, memory.find(first)), "view" in access.operation.operands
        remedy = EXTENTS if is_view else "Mask the access by the size."
        message = describe_miss(str(access), access.bytes, access.bytes, region, place, remedy)
    launch.report("out-of-bounds", access.operation, len(addresses), message, region.name if region else "")


# The checks of places


def _checked(launch: TileLaunch, access: TileAccess, part: Places) -> bool:
    """Check places for races, unwritten and read-only memory; return whether the access may go on."""
    region, width = part.region, access.bytes
    if access.action != "read" and region.read_only and all(a.read_only for a in region.aliases):
        message = f"{access} at {_element(part, access, 0)}, which is read-only: {region.why_read_only}"
        launch.report("read-only", access.operation, part.size, message, region.name)
        return False
    shadow = region.shadow(width)
    if shadow is not None and access.action != "write":
        _check_written(launch, access, part, shadow)
    if launch.shadows:
        _check_races(launch, access, part)
    if access.action != "read":
        if shadow is not None:
            part.put(shadow, WRITTEN[width])
        if region.aliases:
            region.mark_aliases(part.flat().reshape(-1) * width + region.view(width)[1], width)
    return True


def _element(part: Places, access: TileAccess, position: int) -> str:
    """Return the words for an element of some places: `x`[17]."""
    region, width = part.region, access.bytes
    byte = region.view(width)[1] + int(part.flat().reshape(-1)[position]) * width - region.base
    return element_of(region.name, byte, region.itemsize or width)


def _check_written(launch: TileLaunch, access: TileAccess, part: Places, shadow: Array) -> None:
    state, full = part.window(shadow), WRITTEN[access.bytes]
    if int(state.min()) == full:
        return
    bad = np.flatnonzero(state.reshape(-1) != full)
    message = (
        f"read of {access.bytes} bytes at {_element(part, access, int(bad[0]))}, which nothing has written. "
        "Write it before it is read: set the initial value, or let every tile block that should store do so."
    )
    launch.report("uninitialized-read", access.operation, len(bad), message, part.region.name)


def _check_races(launch: TileLaunch, access: TileAccess, part: Places) -> None:
    shadow, order = launch.shadows.get(id(part.region)), launch.order
    if shadow is None:
        return
    for done, stamps, apart in shadow.compare(access, part):
        bad = np.flatnonzero(apart.reshape(-1))
        _report_race(launch, access, part, done, int(stamps.reshape(-1)[bad[0]]), bad)
    if (access.acquire or access.release) and part.size <= MAX_FLAGS:
        flags = (part.flat().reshape(-1) * access.bytes + part.region.view(access.bytes)[1]).tolist()
        if access.acquire:
            order.acquire(flags)
        if access.release:
            order.release(flags)


def _report_race(
    launch: TileLaunch, access: TileAccess, part: Places, done: str, stamp: int, bad: Array
) -> None:
    block = launch.coordinates(launch.order.block_of(stamp))
    line = launch.decoded.operations[launch.order.operations[stamp]].line
    where = f"at line {line.line}" if line is not None else "elsewhere"
    apart_along = [
        axis for axis, here, there in zip("xyz", launch.block, block, strict=True) if here != there
    ]
    idle = [axis for axis in apart_along if axis in launch.decoded.idle_axes()]
    remedy = "Let each tile block write elements of its own, or use atomics for both."
    if idle:
        remedy = f"The kernel does not ask for bid().{idle[0]}: launch one tile block along {idle[0]}."
    message = (
        f"race: this line {_VERBS[access.action]} {_element(part, access, int(bad[0]))}, which tile block "
        f"{shown_coordinates(block)} {_VERBS[done.split()[-1]]} {where}, and nothing orders the two. {remedy}"
    )
    launch.report("race", access.operation, len(bad), message, part.region.name)


# Loads and stores


def _load(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    """Bind a load; elements outside the tensor, or that a mask leaves out, are the padding."""
    result, types = operation.results[0], decoder.function.types
    access, find = _finder(decoder, operation, "read", result)
    is_view = "view" in operation.operands
    padding = None if is_view else operation.one("paddingValue")
    fill = _PADDING[types[operation.operands["view"][0]].padding] if is_view else 0
    held = dtype_of(access.element)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        shape, parts = find(launch)
        if len(parts) == 1 and parts[0].within is None:
            values[result] = _values(launch, access, parts[0]).reshape(shape)
            return
        loaded = np.empty(shape, held)
        loaded[...] = fill if padding is None else values[padding]
        for part in parts:
            part.fill(loaded, _values(launch, access, part))
        values[result] = loaded

    return step


def _values(launch: TileLaunch, access: TileAccess, part: Places) -> Array:
    _checked(launch, access, part)
    launch.count_bytes(access, part.size)
    bits = np.array(part.window(part.region.view(access.bytes)[0]), order="C")  # what is there now
    return from_bits(bits, access.element).reshape(part.shape)


def _store(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    """Bind a store; elements outside the tensor are left out."""
    value = operation.operands["tile" if "view" in operation.operands else "value"][0]
    access, find = _finder(decoder, operation, "write", value)

    def step(launch: TileLaunch) -> None:
        shape, parts = find(launch)
        tile = np.broadcast_to(launch.values[value], shape)
        for part in parts:
            if not _checked(launch, access, part):
                continue
            chosen = np.ascontiguousarray(part.of(tile))
            launch.count_bytes(access, chosen.size)
            bits = to_bits(chosen, access.element).reshape(part.shape)
            if part.indices is not None and "race" in launch.run.checks:
                _check_distinct(launch, access, part, bits.reshape(-1))
            part.put(part.region.view(access.bytes)[0], bits)

    return step


def _check_distinct(launch: TileLaunch, access: TileAccess, part: Places, bits: Array) -> None:
    """Report elements of one tile that are stored to one place and differ: any of them may be the last."""
    places = part.flat().reshape(-1)
    if (places[1:] > places[:-1]).all():
        return
    order = np.argsort(places, kind="stable")
    clash = (places[order[1:]] == places[order[:-1]]) & (bits[order[1:]] != bits[order[:-1]])
    if clash.any():
        shown = _element(part, access, int(order[1:][clash][0]))
        message = (
            f"race: several elements of a tile are stored to {shown}, with different values, and any of them "
            "may be the last. Let one element store there, or use an atomic."
        )
        launch.report("race", access.operation, int(clash.sum()), message, part.region.name)


# Atomics

TileUpdate = Callable[..., Array]
"""Gives the new value of an element, of the old one and the operands."""


def _as_unsigned(compute: TileUpdate) -> TileUpdate:
    return lambda a, b: compute(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")).view(a.dtype)


def _add_floats(element: str) -> TileUpdate:
    if element in ("f32", "f64"):
        return add_in_global
    return lambda a, b: rounded(a + b, element)


_UPDATES: Mapping[str, TileUpdate] = {
    **AT_ONCE,
    "umax": _as_unsigned(np.maximum),
    "umin": _as_unsigned(np.minimum),
    "xchg": lambda a, b: b,
}


def update_of(mode: str, element: str) -> TileUpdate:
    """Return the function of an atomic operation: of the value in memory and the operand."""
    return _add_floats(element) if mode in ("add", "addf") and is_float(element) else chosen(_UPDATES, mode)


def _exchange_if_equal(old: Array, expected: Array, new: Array) -> Array:
    """Return the new value where the old one is as expected, bit for bit, else the old one."""
    bits = f"u{old.itemsize}"
    return np.where(old.view(bits) == expected.view(bits), new, old)


def _atomic(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    """Bind an atomic: elements are changed one after the other; by pointers, it gives what they were."""
    operands = [each for name in ("arg", "cmp", "val", "value") for each in operation.operands.get(name, ())]
    result, mode = operation.results[0], operation.attributes.get("mode", "cas")
    is_view = "view" in operation.operands
    access, find = _finder(decoder, operation, "atomic", result)
    update = _exchange_if_equal if mode == "cas" else update_of(mode, access.element)
    is_asked = is_view or result in decoder.used  # of views the order of equal places is kept
    is_native = access.element in ("i32", "i64", "f64")
    at_once = AT_ONCE.get(mode.removesuffix("f")) if is_native and not is_asked else None
    held = dtype_of(access.element)

    def step(launch: TileLaunch) -> None:
        shape, parts = find(launch)
        tiles = [np.broadcast_to(launch.values[each], shape) for each in operands]
        before = np.zeros(shape, held)
        for part in parts:
            chosen = [np.ascontiguousarray(part.of(tile)).reshape(-1) for tile in tiles]
            part.fill(before, _change(launch, access, part, chosen, update, at_once).reshape(part.shape))
        if not is_view:
            launch.values[result] = before

    return step


def _change(
    launch: TileLaunch,
    access: TileAccess,
    part: Places,
    operands: Sequence[Array],
    update: TileUpdate,
    at_once: np.ufunc | None,
) -> Array:
    """Change the elements of a part; those that several operands reach, in their order.

    `at_once` does the same for all, where nothing asks what the elements were.
    """
    places = part.flat().reshape(-1)
    result = np.zeros(len(places), dtype_of(access.element))
    if not _checked(launch, access, part):
        return result
    launch.count_bytes(access, len(places))
    memory = part.region.view(access.bytes)[0]
    if at_once is not None:
        held = memory.view(result.dtype)
        if result.dtype.kind != "f" or adds_in_any_order(held[places], operands[0]):
            at_once.at(held, places, operands[0])
            return result
    for turn in _turns(places):
        old = from_bits(memory.take(places[turn]), access.element)
        result[turn] = old
        new = np.ascontiguousarray(update(old, *(each[turn] for each in operands)))
        memory[places[turn]] = to_bits(new, access.element)
    return result


def _turns(places: Array) -> Iterator[Array]:
    """Yield positions, each place at most once in one turn, in the order of the positions."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    fresh = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if fresh.all():
        yield np.arange(len(places))
        return
    starts = np.flatnonzero(fresh)
    rank = np.arange(len(places)) - np.repeat(starts, np.diff(np.append(starts, len(places))))
    for turn in range(int(rank.max()) + 1):
        yield np.sort(order[rank == turn])


MEMORY: Mapping[str, Binder] = {
    **dict.fromkeys(("load_view_tko", "load_ptr_tko"), _load),
    **dict.fromkeys(("store_view_tko", "store_ptr_tko"), _store),
    **dict.fromkeys(("atomic_rmw_tko", "atomic_cas_tko", "atomic_red_view_tko"), _atomic),
}
"""The operations that access memory, by name."""

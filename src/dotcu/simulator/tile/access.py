"""Loads, stores and atomics of tiles: from views and pointers to the bytes of tensors, with the checks.

A tile of a view lies in memory in a regular pattern, which is read and written as a window, without a list of
addresses. Where that pattern leaves the tensor's memory, and for tiles of pointers, each element has its
address.

Source: NVIDIA/cuda-tile, Types.td for views, Ops.td, "load_view_tko", "load_ptr_tko", "atomic_rmw_tko".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.simulator.machine.memory import NULL_PAGE, WRITTEN, Buffer
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.run import shown_coordinates
from dotcu.simulator.sanitizers.bounds import FOREIGN, describe_miss, element_of
from dotcu.simulator.semantics.arithmetic.rounding import canonical, flush
from dotcu.simulator.tile.elements import dtype_of, from_bits, is_float, rounded, to_bits
from dotcu.simulator.tile.races import MOST_FLAGS, Places
from dotcu.tile_ir.module import TileOperation, TileType

if TYPE_CHECKING:
    from dotcu.simulator.tile.launch import TileLaunch

_PADDING: Mapping[str, float] = {
    "": 0.0, "zero": 0.0, "neg_zero": -0.0, "nan": np.nan, "pos_inf": np.inf, "neg_inf": -np.inf,
}  # fmt: skip
_VERBS = {"read": "reads", "write": "writes", "atomic": "changes"}
EXTENTS = "Make the view with the sizes of the tensor: dotcu.extents(t) passes them."
_PREPOSITIONS = {"read": "of", "write": "of", "atomic": "on"}


class TensorView(NamedTuple):
    """A tensor view at run time; a view of its tiles is the same, with the tiles in its type."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


class TileAccess(NamedTuple):
    """One operation's access to memory.

    Attributes:
        number: Of the operation in its kernel.
        operation: The operation.
        action: "read", "write" or "atomic".
        element: The element type in memory.
        width: Its bytes.
        strong: It is atomic, or relaxed and stronger for other blocks: no race with others of its kind.
        acquire: What follows it sees what came before the release that it observed.
        release: What came before it is seen by those who acquire it.
    """

    number: int
    operation: TileOperation
    action: str
    element: str
    width: int
    strong: bool
    acquire: bool
    release: bool

    @classmethod
    def of(cls, number: int, operation: TileOperation, action: str, type_: TileType) -> TileAccess:
        """Describe the access of an operation.

        Args:
            number: Of the operation in its kernel.
            operation: The operation.
            action: "read", "write" or "atomic".
            type_: A view or a tile of values, of the element type in memory.
        """
        semantics = operation.attributes["memory_ordering_semantics"]
        scope = operation.attributes.get("memory_scope", "tl_blk")
        wide = scope != "tl_blk"
        return cls(
            number=number,
            operation=operation,
            action=action,
            element=type_.element,
            width=type_.itemsize,
            strong=wide and semantics != "weak",
            acquire=wide and semantics in ("acquire", "acq_rel"),
            release=wide and semantics in ("release", "acq_rel"),
        )

    def __str__(self) -> str:
        return f"{self.action} {_PREPOSITIONS[self.action]} {self.width} bytes"


# From views and addresses to parts


def tile_of(
    launch: TileLaunch, access: TileAccess, view: TensorView, type_: TileType, index: Sequence[Array]
) -> tuple[tuple[int, ...], list[Places]]:
    """Return how much of a view's tile lies in its tensor, by dimension, and where.

    Args:
        launch: The launch.
        access: The access.
        view: The view.
        type_: The view's type.
        index: Which tile.
    """
    address, counts, strides = view.base, [], []
    for at, (dimension, extent) in enumerate(zip(type_.dim_map, type_.shape, strict=True)):
        number = int(index[at])
        start = number * (type_.steps[at] if type_.steps else extent)
        count = 0 if number < 0 else max(0, min(extent, view.extents[dimension] - start))
        counts.append(count)
        strides.append(view.strides[dimension])
        address += start * view.strides[dimension] * access.width
    _check_promised(launch, access, view, type_, counts, index)
    shape = tuple(counts)
    if 0 in shape:
        return shape, []
    reach = [(count - 1) * stride * access.width for count, stride in zip(counts, strides, strict=True)]
    low, high = address + sum(r for r in reach if r < 0), address + sum(r for r in reach if r > 0)
    region = launch.home(view.base) or launch.find(low)
    outside = region is None or low < region.base or high + access.width > region.base + region.size
    if region is None or outside or address % access.width:
        addresses = np.full((), _wrapped(address), np.int64)
        for count, stride in zip(counts, strides, strict=True):
            addresses = addresses[..., None] + np.arange(count) * np.int64(_wrapped(stride * access.width))
        home = launch.home(view.base)
        return shape, list(parts_of(launch, access, addresses.reshape(-1), shape, home))
    first = (address - region.view(access.width)[1]) // access.width
    return shape, [Places(region, first, shape, tuple(strides))]


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
    outside = [
        at for at, (count, extent) in enumerate(zip(counts, type_.shape, strict=True)) if count < extent
    ]
    broken = [at for at in outside if at < len(inbounds) and inbounds[at]]
    if not broken:
        return
    assert type_.view is not None
    at = broken[0]
    number = "(" + ", ".join(str(int(each)) for each in index) + ")"
    name = launch.name_at(view.base)
    missing = int(np.prod(type_.shape)) - int(np.prod(counts))
    message = (
        f"out-of-bounds {access} at tile {number} of {f'`{name}`' if name else 'a view'}: of its "
        f"{type_.shape[at]} elements in dimension {at}, {counts[at]} lie in the tensor. "
        f"Use {'load' if access.action == 'read' else 'store'}_masked, or launch fewer tile blocks."
    )
    launch.report("out-of-bounds", access.operation, missing, message, name)


def gathered(
    launch: TileLaunch, access: TileAccess, view: TensorView, type_: TileType, index: Sequence[Array]
) -> tuple[Array, list[Places]]:
    """Return which elements of a gather-scatter view's tile lie in its tensor, and where.

    Args:
        launch: The launch.
        access: The access.
        view: The view.
        type_: The view's type.
        index: For each dimension the first element (measured: H100, driver 580); for the sparse one all.
    """
    addresses, inside = np.full((), view.base, np.int64), np.ones((), bool)
    for at, extent in enumerate(type_.shape):
        if at == type_.sparse_dim:
            place = np.asarray(index[at]).reshape(-1).astype(np.int64)
        else:
            place = int(index[at]) + np.arange(extent)
        inside = inside[..., None] & (place >= 0) & (place < view.extents[at])
        addresses = addresses[..., None] + place * np.int64(_wrapped(view.strides[at] * access.width))
    flat = np.flatnonzero(inside)
    parts = [
        part._replace(positions=flat if part.positions is None else flat[part.positions])
        for part in parts_of(
            launch, access, addresses.reshape(-1)[flat], (len(flat),), launch.home(view.base)
        )
    ]
    return inside, parts


def parts_of(
    launch: TileLaunch,
    access: TileAccess,
    addresses: Array,
    shape: tuple[int, ...],
    home: Buffer | None = None,
) -> Iterator[Places]:
    """Yield the parts of an access by the addresses of its elements; report those that are nowhere.

    Args:
        launch: The launch.
        access: The access.
        addresses: One for each element.
        shape: The shape of the whole, if all elements lie in one region.
        home: The region that they have to lie in; None: any.
    """
    if not len(addresses):
        return
    width = access.width
    low, high = int(addresses.min()), int(addresses.max())
    region = home or launch.find(low)
    aligned = not int(np.bitwise_or.reduce(addresses)) % width
    inside = region is not None and region.base <= low and high + width <= region.base + region.size
    if region is not None and aligned and inside:
        yield Places(region, 0, shape, (), _indices(region, addresses, width).reshape(shape))
        return
    left = np.arange(len(addresses))
    skewed = addresses % width != 0
    if skewed.any():
        _report_misaligned(launch, access, addresses[skewed])
        left = left[~skewed]
    for region in launch.memory.regions if home is None else [home]:
        here = (addresses[left] >= region.base) & (addresses[left] + width <= region.base + region.size)
        if here.any():
            positions = left[here]
            indices = _indices(region, addresses[positions], width)
            yield Places(region, 0, positions.shape, (), indices, positions)
            left = left[~here]
    if len(left):
        _report_unmapped(launch, access, addresses[left], home)


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
        f"{access.width} bytes needs a multiple of {access.width}. Begin at an aligned element."
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
        message = describe_miss(str(access), access.width, access.width, region, place, remedy)
    launch.report("out-of-bounds", access.operation, len(addresses), message, region.name if region else "")


# The checks of a part


def _checked(launch: TileLaunch, access: TileAccess, part: Places) -> bool:
    """Check a part for races, unwritten and read-only memory; return whether it may go on."""
    region, width = part.region, access.width
    if access.action != "read" and region.read_only and all(a.read_only for a in region.aliases):
        message = (
            f"{access} at {_element(part, access, 0)}, which is read-only: it was passed for a pointer to "
            "const. Take the parameter as a pointer to non-const."
        )
        launch.report("read-only", access.operation, int(np.prod(part.shape)), message, region.name)
        return False
    shadow = region.shadow(width)
    if shadow is not None and access.action != "write":
        _check_written(launch, access, part, shadow)
    if launch.shadows:
        _check_races(launch, access, part)
    if access.action != "read":
        _mark_written(access, part)
    return True


def _element(part: Places, access: TileAccess, position: int) -> str:
    """Return the words for an element of a part: `x`[17]."""
    region, width = part.region, access.width
    byte = region.view(width)[1] + int(part.flat().reshape(-1)[position]) * width - region.base
    return element_of(region.name, byte, region.itemsize or width)


def _check_written(launch: TileLaunch, access: TileAccess, part: Places, shadow: Array) -> None:
    state = part.window(shadow)
    full = WRITTEN[access.width]
    if int(state.min()) == full:
        return
    bad = np.flatnonzero(state.reshape(-1) != full)
    message = (
        f"read of {access.width} bytes at {_element(part, access, int(bad[0]))}, which nothing has written. "
        "Write it before it is read: set the initial value, or let every tile block that should store do so."
    )
    launch.report("uninitialized-read", access.operation, len(bad), message, part.region.name)


def _mark_written(access: TileAccess, part: Places) -> None:
    region, width = part.region, access.width
    shadow = region.shadow(width)
    if shadow is not None:
        part.put(shadow, WRITTEN[width])
    aliases = [a for a in region.aliases if a.written is not None and a.written is not region.written]
    if aliases:
        addresses = part.flat().reshape(-1) * width + region.view(width)[1]
        for alias in aliases:
            assert alias.written is not None
            for byte in range(width):
                at = addresses + byte - alias.base
                alias.written[at[(at >= 0) & (at < alias.size)]] = 1


def _check_races(launch: TileLaunch, access: TileAccess, part: Places) -> None:
    shadow, order = launch.shadows.get(id(part.region)), launch.order
    if shadow is None:
        return
    now = order.next(access.number)
    flags: list[int] = []
    if (access.acquire or access.release) and int(np.prod(part.shape)) <= MOST_FLAGS:
        flags = (part.flat().reshape(-1) * access.width + part.region.view(access.width)[1]).tolist()
    for entries in shadow.parts(part, access.width):
        for done, stamps in shadow.earlier(access.action, access.strong, entries):
            apart = order.unordered(stamps)
            if apart.any():
                _report_race(launch, access, part, (done, stamps, apart))
                break
        shadow.stamp(access.action, access.strong, entries, (now, order.since))
    if access.acquire:
        order.acquire(flags)
    if access.release:
        order.release(flags)


def _report_race(
    launch: TileLaunch, access: TileAccess, part: Places, found: tuple[str, Array, Array]
) -> None:
    done, stamps, apart = found
    bad = np.flatnonzero(apart.reshape(-1))
    stamp = int(stamps.reshape(-1)[bad[0]])
    block = launch.coordinates(launch.order.block_of(stamp))
    line = launch.decoded.operations[launch.order.operations[stamp]].line
    where = f"at line {line.line}" if line is not None else "elsewhere"
    kind = done.split()[-1]
    apart_along = [
        axis for axis, here, there in zip("xyz", launch.block, block, strict=True) if here != there
    ]
    idle = [axis for axis in apart_along if axis in launch.decoded.idle_axes()]
    remedy = "Let each tile block write elements of its own, or use atomics for both."
    if idle:
        remedy = f"The kernel does not ask for bid().{idle[0]}: launch one tile block along {idle[0]}."
    message = (
        f"race: it {_VERBS[access.action]} {_element(part, access, int(bad[0]))}, which tile block "
        f"{shown_coordinates(block)} {_VERBS[kind]} {where}, and nothing orders the two. {remedy}"
    )
    launch.report("race", access.operation, len(bad), message, part.region.name)


# Loads and stores


def load_view(
    launch: TileLaunch, access: TileAccess, view: TensorView, type_: TileType, index: Sequence[Array]
) -> Array:
    """Return a tile of a view; what lies outside its tensor is its padding.

    Args:
        launch: The launch.
        access: The access.
        view: The view.
        type_: The view's type.
        index: Which tile.
    """
    if type_.kind == "gather_scatter_view":
        _, parts = gathered(launch, access, view, type_, index)
        result = np.full(type_.size, _PADDING[type_.padding], dtype_of(access.element))
        for part in parts:
            _read(launch, access, part, result)
        return result.reshape(type_.shape)
    shape, parts = tile_of(launch, access, view, type_, index)
    if len(parts) == 1 and parts[0].positions is None and shape == type_.shape:
        return _values(launch, access, parts[0])
    result = np.full(type_.shape, _PADDING[type_.padding], dtype_of(access.element))
    inner = result[tuple(map(slice, shape))]
    for part in parts:
        if part.positions is None:
            inner[...] = _values(launch, access, part)
        else:
            flat = inner.reshape(-1)
            _read(launch, access, part, flat)
            inner[...] = flat.reshape(shape)
    return result


def _values(launch: TileLaunch, access: TileAccess, part: Places) -> Array:
    _checked(launch, access, part)
    launch.count_bytes(access, int(np.prod(part.shape)))
    bits = np.array(part.window(part.region.view(access.width)[0]), order="C")  # what is there now
    return from_bits(bits, access.element).reshape(part.shape)


def _read(launch: TileLaunch, access: TileAccess, part: Places, result: Array) -> None:
    values = _values(launch, access, part).reshape(-1)
    result[slice(None) if part.positions is None else part.positions] = values


def store_view(
    launch: TileLaunch,
    access: TileAccess,
    view: TensorView,
    type_: TileType,
    index: Sequence[Array],
    tile: Array,
) -> None:
    """Store a tile to a view; what lies outside its tensor is left out.

    Args:
        launch: The launch.
        access: The access.
        view: The view.
        type_: The view's type.
        index: Which tile.
        tile: The values.
    """
    if type_.kind == "gather_scatter_view":
        _, parts = gathered(launch, access, view, type_, index)
        values = np.asarray(tile).reshape(-1)
    else:
        shape, parts = tile_of(launch, access, view, type_, index)
        values = np.asarray(tile)[tuple(map(slice, shape))]
    for part in parts:
        _write(launch, access, part, values)


def _write(launch: TileLaunch, access: TileAccess, part: Places, values: Array) -> None:
    if not _checked(launch, access, part):
        return
    chosen = values if part.positions is None else values.reshape(-1)[part.positions]
    launch.count_bytes(access, chosen.size)
    bits = to_bits(np.ascontiguousarray(chosen), access.element).reshape(part.shape)
    if part.indices is not None and "race" in launch.run.checks:
        _check_distinct(launch, access, part, bits.reshape(-1))
    part.put(part.region.view(access.width)[0], bits)


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


def load_pointers(
    launch: TileLaunch, access: TileAccess, pointers: Array, mask: Array | None, padding: Array | None
) -> Array:
    """Return the elements that pointers point to, where the mask holds; elsewhere the padding.

    Args:
        launch: The launch.
        access: The access.
        pointers: The addresses.
        mask: Which take part; None: all.
        padding: The values of the others; None: zero.
    """
    addresses, chosen = _chosen(pointers, mask)
    held = dtype_of(access.element)
    parts = list(parts_of(launch, access, addresses, addresses.shape))
    if chosen is None and len(parts) == 1 and parts[0].positions is None:
        return _values(launch, access, parts[0]).reshape(np.shape(pointers))
    result = np.zeros(np.size(pointers), held)
    if padding is not None:
        result[...] = np.reshape(np.broadcast_to(padding, np.shape(pointers)), -1)
    for part in parts:
        _read(launch, access, _of_tile(part, chosen), result)
    return result.reshape(np.shape(pointers))


def _chosen(pointers: Array, mask: Array | None) -> tuple[Array, Array | None]:
    """Return the addresses where the mask holds, and which of the tile's elements they are; None: all."""
    addresses = np.asarray(pointers).reshape(-1)
    if mask is None:
        return addresses, None
    chosen = np.flatnonzero(np.broadcast_to(mask, np.shape(pointers)))
    if len(chosen) == len(addresses):
        return addresses, None
    return addresses[chosen], chosen


def _of_tile(part: Places, chosen: Array | None) -> Places:
    """Return a part whose positions count all of the tile's elements."""
    if chosen is None:
        return part
    return part._replace(positions=chosen if part.positions is None else chosen[part.positions])


def store_pointers(
    launch: TileLaunch, access: TileAccess, pointers: Array, mask: Array | None, values: Array
) -> None:
    """Store elements through pointers, where the mask holds.

    Args:
        launch: The launch.
        access: The access.
        pointers: The addresses.
        mask: Which take part; None: all.
        values: The values.
    """
    addresses, chosen = _chosen(pointers, mask)
    flat = np.broadcast_to(values, np.shape(pointers)).reshape(-1)
    for part in list(parts_of(launch, access, addresses, addresses.shape)):  # all that is nowhere first
        _write(launch, access, _of_tile(part, chosen), flat)


# Atomics

Update = Callable[..., Array]
"""Gives the new value of an element, of the old one and the operands."""


def _as_unsigned(compute: Update) -> Update:
    return lambda a, b: compute(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")).view(a.dtype)


def _add_floats(element: str) -> Update:
    if element == "f32":  # PTX ISA, "atom": in global memory subnormal operands and results are flushed
        return lambda a, b: flush(canonical(flush(a) + flush(b)))
    if element == "f64":
        return lambda a, b: canonical(a + b)
    return lambda a, b: rounded(a + b, element)


_UPDATES: Mapping[str, Update] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "umax": _as_unsigned(np.maximum),
    "umin": _as_unsigned(np.minimum),
    "xchg": lambda a, b: b,
}


def update_of(mode: str, element: str) -> Update:
    """Return the function of an atomic operation: of the value in memory and the operand."""
    if mode == "addf" or (mode == "add" and is_float(element)):
        return _add_floats(element)
    return _UPDATES[mode]


_AT_ONCE: Mapping[str, np.ufunc] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "addf": np.add,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def ufunc_of(mode: str, element: str) -> np.ufunc | None:
    """Return the NumPy function of an atomic operation on elements that NumPy has as they are in memory."""
    return _AT_ONCE.get(mode) if element in ("i32", "i64", "f64") else None


def exchange_if_equal(old: Array, expected: Array, new: Array) -> Array:
    """Return the new value where the old one is as expected, else the old one.

    Args:
        old: The value in memory.
        expected: The value to compare it with, by its bits.
        new: The value to store.
    """
    bits = f"u{old.itemsize}"
    return np.where(old.view(bits) == expected.view(bits), new, old)


def change_pointers(
    launch: TileLaunch,
    access: TileAccess,
    pointers: Array,
    mask: Array | None,
    operands: Sequence[Array],
    update: Update,
    at_once: np.ufunc | None,
) -> Array:
    """Change elements through pointers one after the other, and return what they were.

    Args:
        launch: The launch.
        access: The access.
        pointers: The addresses.
        mask: Which take part; None: all.
        operands: For each pointer the operands of the update.
        update: Gives the new value, of the old one and the operands.
        at_once: Does the same where nothing asks what the elements were; None if something does.
    """
    addresses, chosen = _chosen(pointers, mask)
    shape = np.shape(pointers)
    flat = [np.broadcast_to(each, shape).reshape(-1) for each in operands]
    result = np.zeros(int(np.prod(shape)), dtype_of(access.element))
    for found in list(parts_of(launch, access, addresses, addresses.shape)):
        part = _of_tile(found, chosen)
        positions = np.arange(len(result)) if part.positions is None else part.positions
        result[positions] = _change(launch, access, part, [each[positions] for each in flat], update, at_once)
    return result.reshape(shape)


def change_view(
    launch: TileLaunch,
    access: TileAccess,
    view: TensorView,
    type_: TileType,
    index: Sequence[Array],
    tile: Array,
    update: Update,
) -> None:
    """Change a tile of a view element by element; what lies outside its tensor is left out.

    Args:
        launch: The launch.
        access: The access.
        view: The view.
        type_: The view's type.
        index: Which tile.
        tile: The operands.
        update: Gives the new value, of the old one and the operand.
    """
    shape, parts = tile_of(launch, access, view, type_, index)
    values = np.ascontiguousarray(np.asarray(tile)[tuple(map(slice, shape))]).reshape(-1)
    for part in parts:
        chosen = values if part.positions is None else values[part.positions]
        _change(launch, access, part, [chosen], update)


def _change(
    launch: TileLaunch,
    access: TileAccess,
    part: Places,
    operands: Sequence[Array],
    update: Update,
    at_once: np.ufunc | None = None,
) -> Array:
    """Change the elements of a part; those that several operands reach, in their order.

    `at_once` does the same for all, where nothing asks what the elements were.
    """
    places = part.flat().reshape(-1)
    held = dtype_of(access.element)
    if not _checked(launch, access, part):
        return np.zeros(len(places), held)
    launch.count_bytes(access, len(places))
    memory = part.region.view(access.width)[0]
    result = np.zeros(len(places), held)
    if at_once is not None:
        at_once.at(memory.view(held), places, operands[0])
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

"""Global memory: windows of 64-bit addresses over bytes that have other owners.

An address is a number of the simulator's own, never a host pointer. Every window has its
own gibibytes of nothing around it (its red zones), so that an index that runs off a tensor
lands nowhere and can be named; no address is ever used twice.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotcu.simulator.machine.shape import Threads
from dotcu.simulator.run import AccessCost, Array

# A shadow element all of whose bytes are written, by width.
WRITTEN = {width: int.from_bytes(b"\x01" * width, "little") for width in (1, 2, 4, 8)}

COPIED = 2


Bytes = NDArray[np.uint8]

# Windows of the other state spaces in generic addresses; below them lies the null page.
SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 2 << 40
PARAM_WINDOW = 3 << 40
WINDOW_BYTES = 1 << 32
# Where the shared memory of a cluster's blocks lies in the shared window, by rank: a block's own address has
# its rank there, too (what NVCC emits for sm_90: base + %cluster_ctarank << 24; measured: H100).
RANK_BIT = 24
NULL_PAGE = 1 << 16
_FIRST_GLOBAL = 1 << 44
_RED_ZONE = 1 << 36
_ALIGNMENT = 256

_next_address = itertools.count()


@dataclass(eq=False)
class Buffer:
    """Bytes that a kernel may reach through a pointer, as elements of each width.

    Attributes:
        name: What findings call it: the kernel's argument.
        data: The bytes, one-dimensional and contiguous, shared with their owner.
        written: For each byte whether anything wrote it, updated by stores; None: all of it.
        read_only: A store to it is a finding, unless another buffer of the same bytes allows it.
        protected: It is read-only since the operating system ends a program that writes it.
        storage: Address and size of the allocation that the bytes are in; buffers of one
            storage get addresses that alias as the bytes do. None: the bytes themselves.
        itemsize: Bytes of one element, for messages; None: those of the access.
        constant: It is a __constant__ variable.
        shared: Several GPUs reach it, so that only what is promised to the system orders accesses.
        handed_out: It is known by its address alone, as from `data_ptr()`: an argument's name says more.
        base: The address of the first byte, once it is mapped, or given before.
        aliases: Buffers that are mapped to some of the same addresses.
    """

    name: str
    data: Bytes
    written: NDArray[Any] | None = None
    read_only: bool = False
    protected: bool = False
    storage: tuple[int, int] | None = None
    itemsize: int | None = None
    constant: bool = False
    shared: bool = False
    handed_out: bool = False
    base: int = 0
    aliases: list[Buffer] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.size = int(self.data.size)
        self.written = None if self.written is None else self.written.view(np.uint8)
        self._views: dict[int, tuple[NDArray[Any], int]] = {}
        self._shadows: dict[int, NDArray[Any]] = {}

    @property
    def why_read_only(self) -> str:
        """The reason for which a store to it is a finding, and the remedy."""
        if self.protected:
            return (
                'its memory cannot be written, as that of numpy.load(..., mmap_mode="r"). '
                'Map it with mmap_mode="c", or pass a copy: t.clone().'
            )
        return "it was passed for a pointer to const. Take the parameter as a pointer to non-const."

    def view(self, width: int) -> tuple[NDArray[Any], int]:
        """The bytes as unsigned integers of `width`, and the address of the first of them."""
        if width not in self._views:
            self._views[width] = (self._elements(self.data, width), self.base + -self.base % width)
        return self._views[width]

    def shadow(self, width: int) -> NDArray[Any] | None:
        """The written bytes as integers of `width`, in step with `view`."""
        if self.written is not None and width not in self._shadows:
            self._shadows[width] = self._elements(self.written, width)
        return self._shadows.get(width)

    def mark_aliases(self, addresses: Array, width: int) -> None:
        """Note for other buffers of the same bytes that elements are written."""
        for alias in self.aliases:
            if alias.written is not None and alias.written is not self.written:
                for byte in range(width):
                    at = addresses + byte - alias.base
                    alias.written[at[(at >= 0) & (at < alias.size)]] = 1

    def _elements(self, data: Bytes, width: int) -> NDArray[Any]:
        skew = -self.base % width
        count = max(0, (data.size - skew) // width)
        return data[skew : skew + count * width].view(f"u{width}")


@dataclass
class Memory:
    """The global memory of launches: what is mapped, and where."""

    regions: list[Buffer] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)
    _storages: list[tuple[int, int, int]] = field(default_factory=list)

    def map(self, buffer: Buffer) -> int:
        """Give a buffer an address; the same bytes, or overlapping ones, get addresses that alias.

        One that has an address keeps it.

        Note:
            Bytes that overlap without lying in one named `storage` alias from the second one on;
            a third that spans two unrelated earlier ones aliases the first of them only.
        """
        own = int(buffer.data.__array_interface__["data"][0])
        start, size = buffer.storage or (own, buffer.size)
        if not buffer.base:
            base = self._base(start, max(size, own - start + buffer.size), own)
            buffer.base = base + own - start
        for other in self.regions:
            if buffer.base < other.base + other.size and other.base < buffer.base + buffer.size:
                if other.handed_out and (other.base, other.size) == (buffer.base, buffer.size):
                    other.name = buffer.name
                other.aliases.append(buffer)
                buffer.aliases.append(other)
        self.insert(buffer)
        return buffer.base

    def insert(self, region: Buffer) -> None:
        """Add a region that has its address already, such as a module's variable."""
        at = bisect.bisect_right(self._bases, region.base)
        self._bases.insert(at, region.base)
        self.regions.insert(at, region)

    def remove(self, region: Buffer) -> None:
        """Take a region away that `insert` added."""
        at = self.regions.index(region)
        del self.regions[at], self._bases[at]

    def find(self, address: int) -> Buffer | None:
        """The region that holds an address, or None."""
        at = bisect.bisect_right(self._bases, address)
        while at > 0:
            region = self.regions[at - 1]
            if address < region.base + region.size:
                return region
            if address - region.base > _RED_ZONE:
                return None
            at -= 1
        return None

    def is_foreign(self, address: int) -> bool:
        """Return whether an address cannot be an index past a buffer: it is the host's, or far from all."""
        if any(start <= address < start + size for start, size, _ in self._storages):
            return True
        return all(_distance(region, address) > _RED_ZONE for region in self.regions)

    def nearest(self, address: int) -> Buffer | None:
        """The region that an address misses by the least, the latest of several as in `find`; or None."""
        return min(reversed(self.regions), key=lambda r: _distance(r, address), default=None)

    def of_data(self, address: int) -> Buffer | None:
        """The region that begins at an address, the latest of several, or else that holds it."""
        return next((r for r in reversed(self.regions) if r.base == address), self.find(address))

    def name(self, params: Sequence[bytes], names: Sequence[str]) -> None:
        """Name regions that have no name after the parameter which points to them, of some bytes each."""
        unnamed = {region.base: region for region in self.regions if not region.name}
        for name, raw in zip(names, params, strict=False):
            if len(raw) == 8 and int.from_bytes(raw, "little") in unnamed:
                unnamed[int.from_bytes(raw, "little")].name = name

    def _base(self, start: int, size: int, own: int) -> int:
        """Return the address of a storage, by which the bytes at `own` are aligned to 16 as they are here."""
        for known, known_size, base in self._storages if size else ():
            if start < known + known_size and known < start + size:
                return base + start - known
        base = allocate() + (own % 16 - (own - start)) % _ALIGNMENT
        self._storages.append((start, size, base))
        return base


def allocate() -> int:
    """A fresh address, aligned to 256 bytes, with red zones on both sides that exceed any allocation."""
    return _FIRST_GLOBAL + 2 * _RED_ZONE * next(_next_address)


def _distance(region: Buffer, address: int) -> int:
    if address < region.base:
        return region.base - address
    return max(0, address - (region.base + region.size) + 1)


# Shared and local memory: bytes that each block, or each thread, has for itself.


class PrivateMemory:
    """Memory that is addressed from 0 by each block (shared) or each thread (local).

    Attributes:
        size, pitch: Bytes that one owner may touch, and from one owner's to the next one's.
        bases: For each thread, where its owner's bytes begin in `data`, less the address of the first one;
            one value if all share them.
        written: One byte for each byte of data: 1 where something wrote it, `COPIED` where that is undefined.
        is_written: True once every byte was written, as of the last `look`.
    """

    def __init__(self, owners: int, threads: int, size: int) -> None:
        self.size = size
        self.pitch = pitch = max(16, -(-size // 16) * 16)
        self.data = np.zeros(owners * pitch, np.uint8)
        self.written = np.zeros(owners * pitch, np.uint8)
        self.views = {w: self.data.view(f"u{w}") for w in (1, 2, 4, 8)}
        self.shadows = {w: self.written.view(f"u{w}") for w in (1, 2, 4, 8)}
        starts = np.arange(owners if size else 1, dtype=np.uint64) * np.uint64(pitch)
        self.bases = starts if len(starts) == 1 else np.repeat(starts, threads // owners)
        self.is_written = False

    def look(self) -> None:
        """Check whether every byte is written by now; once so, reads need no check."""
        self.is_written = self.is_written or bool((self.shadows[8] == WRITTEN[8]).all())

    @classmethod
    def holding(cls, content: bytes) -> PrivateMemory:
        """Memory that all threads share, and that holds some bytes."""
        private = cls(1, 1, len(content))
        private.data[: len(content)] = np.frombuffer(content, np.uint8)
        private.written[:] = 1
        return private


class LocatedAddresses:
    """The addresses that the active threads have in a register: their range, alignment and place.

    Unrolled code reads one register at many offsets. What does not depend on the offset is computed at the
    first access and stored until the register changes.

    Attributes:
        address: The addresses, as u64; a single one if all threads have the same.
        low, high: The lowest and the highest of them.
        bits: All of them, or-ed: its trailing zeros show how they are aligned.
        costs: What accesses through them cost, by space, width, elements and offset in a sector.
    """

    def __init__(self, register: Array, active: Threads | None) -> None:
        # What is remembered by identity has to stay alive.
        self.register, self.active = register, active
        own = register if active is None or register.size == 1 else register[active]
        self.address = own if own.itemsize == 8 else own.astype(np.uint64)
        if own.size == 1:
            self.low = self.high = self.bits = int(own[0])
        else:
            self.low, self.high = int(own.min()), int(own.max())
            self.bits = int(np.bitwise_or.reduce(own))
        self.costs: dict[tuple[str, int, int, int], AccessCost] = {}
        self._indices: dict[tuple[int, int], Array] = {}
        self._owners: list[Buffer | PrivateMemory] = []
        self._range: tuple[int, int] | None = None

    def range_from(self, starts: Array) -> tuple[int, int]:
        """Return the lowest and the highest distance from where each thread's own memory starts, as u64."""
        if self._range is None:
            offsets = self.address - (starts if self.active is None else starts[self.active])
            self._range = int(offsets.min()), int(offsets.max())
        return self._range

    def elements(self, owner: Buffer | PrivateMemory, width: int, window: int = 0) -> Array:
        """Return for each thread the element of a region, or of shared or local memory over all owners.

        Args:
            owner, width: The region or memory, as whose view of that width elements are counted.
            window: The address where the space of shared or local memory begins.
        """
        key = (id(owner), width)
        if key not in self._indices:
            if isinstance(owner, Buffer):
                offset = self.address - np.uint64(owner.view(width)[1])
            else:
                bases = owner.bases
                if bases.size > 1 and self.active is not None:
                    bases = bases[self.active]
                offset = self.address + (bases - np.uint64(window))
            index = offset.view(np.int64)
            self._indices[key] = index if width == 1 else index >> (width.bit_length() - 1)
            self._owners.append(owner)
        return self._indices[key]

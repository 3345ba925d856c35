"""Global memory: windows of 64-bit addresses over bytes that somebody else owns.

An address is a number of the simulator's own, never a host pointer. Every window has its
own gibibytes of nothing around it (its red zones), so that an index that runs off a tensor
lands nowhere and can be named; no address is ever used twice.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Windows of the other state spaces in generic addresses; below them lies the null page.
SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = 2 << 40
PARAM_WINDOW = 3 << 40
WINDOW_BYTES = 1 << 32
NULL_PAGE = 1 << 16
_FIRST_GLOBAL = 1 << 44
_RED_ZONE = 1 << 36
_ALIGNMENT = 256

_next_address = itertools.count()


@dataclass(eq=False)
class Buffer:
    """Bytes that a kernel may reach through a pointer.

    Attributes:
        name: What findings call it: the kernel's argument.
        data: The bytes, one-dimensional and contiguous, shared with their owner.
        written: For each byte whether anything wrote it, updated by stores; None: all of it.
        read_only: A store to it is a finding, unless another buffer of the same bytes allows it.
        alignment_offset: Its address modulo 256; None: what the bytes' own address gives modulo 16.
        storage: Address and size of the allocation that the bytes lie in; buffers of one
            storage get addresses that alias as the bytes do. None: the bytes themselves.
        itemsize: Bytes of one element, for messages; None: those of the access.
        constant: It is a __constant__ variable.
    """

    name: str
    data: Bytes
    written: NDArray[Any] | None = None
    read_only: bool = False
    alignment_offset: int | None = None
    storage: tuple[int, int] | None = None
    itemsize: int | None = None
    constant: bool = False


class Region:
    """A mapped buffer: a range of addresses, and its bytes as elements of each width."""

    def __init__(self, base: int, buffer: Buffer) -> None:
        self.base = base
        self.size = int(buffer.data.size)
        self.buffer = buffer
        self.name = buffer.name
        self.data = buffer.data
        self.written = None if buffer.written is None else buffer.written.view(np.uint8)
        self.read_only = buffer.read_only
        self.constant = buffer.constant
        self.aliases: list[Region] = []
        self._views: dict[int, tuple[NDArray[Any], int]] = {}
        self._shadows: dict[int, NDArray[Any]] = {}

    def view(self, width: int) -> tuple[NDArray[Any], int]:
        """The bytes as unsigned integers of `width`, and the address of the first of them."""
        found = self._views.get(width)
        if found is None:
            found = self._views[width] = (self._elements(self.data, width), self._aligned(width))
        return found

    def shadow(self, width: int) -> NDArray[Any] | None:
        """The written bytes as integers of `width`, in step with `view`."""
        if self.written is None:
            return None
        found = self._shadows.get(width)
        if found is None:
            found = self._shadows[width] = self._elements(self.written, width)
        return found

    def _aligned(self, width: int) -> int:
        return self.base + -self.base % width

    def _elements(self, data: Bytes, width: int) -> NDArray[Any]:
        skew = -self.base % width
        count = max(0, (data.size - skew) // width)
        return data[skew : skew + count * width].view(f"u{width}")


@dataclass
class Memory:
    """The global memory of launches: what is mapped, and where."""

    regions: list[Region] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)
    _storages: list[tuple[int, int, int]] = field(default_factory=list)

    def map(self, buffer: Buffer) -> int:
        """Give a buffer an address; the same bytes, or overlapping ones, get addresses that alias.

        Note:
            Bytes that overlap without lying in one named `storage` alias from the second one on;
            a third that spans two unrelated earlier ones aliases the first of them only.
        """
        own = int(buffer.data.__array_interface__["data"][0])
        start, size = buffer.storage or (own, int(buffer.data.size))
        base = self._base(start, max(size, own - start + int(buffer.data.size)), buffer, own)
        region = Region(base + own - start, buffer)
        for other in self.regions:
            if _overlap(region, other):
                other.aliases.append(region)
                region.aliases.append(other)
        self.insert(region)
        return region.base

    def insert(self, region: Region) -> None:
        """Add a region that has its address already, such as a module's variable."""
        at = bisect.bisect_right(self._bases, region.base)
        self._bases.insert(at, region.base)
        self.regions.insert(at, region)

    def find(self, address: int) -> Region | None:
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
        """Whether an address is no index that runs off a buffer: the host's of one, or far from all."""
        if any(start <= address < start + size for start, size, _ in self._storages):
            return True
        return all(_distance(region, address) > _RED_ZONE for region in self.regions)

    def nearest(self, address: int) -> Region | None:
        """The region that an address misses by the least, or None if nothing is mapped."""
        return min(self.regions, key=lambda r: _distance(r, address), default=None)

    def of_data(self, address: int) -> Region | None:
        """The region that begins at, or else holds, an address."""
        exact = [r for r in self.regions if r.base == address]
        return exact[0] if exact else self.find(address)

    def _base(self, start: int, size: int, buffer: Buffer, own: int) -> int:
        if size:
            for known, known_size, base in self._storages:
                if start < known + known_size and known < start + size:
                    return base + start - known
        offset = buffer.alignment_offset
        if offset is None:
            offset = own % 16
        base = allocate(size) + (offset - (own - start)) % _ALIGNMENT
        self._storages.append((start, size, base))
        return base


def allocate(size: int) -> int:
    """A fresh address, aligned to 256 bytes, with red zones on both sides."""
    del size  # a red zone is larger than any allocation, so the count alone spaces them
    return _FIRST_GLOBAL + 2 * _RED_ZONE * next(_next_address)


def _overlap(one: Region, other: Region) -> bool:
    return one.base < other.base + other.size and other.base < one.base + one.size


def _distance(region: Region, address: int) -> int:
    if address < region.base:
        return region.base - address
    return max(0, address - (region.base + region.size) + 1)

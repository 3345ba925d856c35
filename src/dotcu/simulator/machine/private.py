"""Shared and local memory: bytes that each block, or each lane, has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dotcu.simulator.sanitizers.shadow import Shadow


class Private:
    """Memory that is addressed from 0 by each block (shared) or each lane (local).

    Attributes:
        size: Bytes that one owner may touch.
        pitch: Bytes from one owner's to the next one's.
        bases: For each lane, where its owner's bytes begin in `data`; one value if all share them.
        written: One byte for each byte of data: 1 where something wrote it.
    """

    def __init__(self, owners: int, lanes: int, size: int) -> None:
        self.size = size
        self.pitch = pitch = max(16, -(-size // 16) * 16)
        self.data = np.zeros(owners * pitch, np.uint8)
        self.written = np.zeros(owners * pitch, np.uint8)
        self.views = {w: self.data.view(f"u{w}") for w in (1, 2, 4, 8)}
        self.shadows = {w: self.written.view(f"u{w}") for w in (1, 2, 4, 8)}
        starts = np.arange(owners if size else 1, dtype=np.uint64) * np.uint64(pitch)
        self.bases = starts if len(starts) == 1 else np.repeat(starts, lanes // owners)
        self.races: Shadow | None = None
        self._complete = False

    @property
    def is_written(self) -> bool:
        """Whether every byte was written; looked up, not counted."""
        return self._complete

    def look(self) -> None:
        """Look whether all is written by now, after which nobody needs to ask again."""
        self._complete = self._complete or bool(self.written.all())

    @classmethod
    def holding(cls, content: bytes) -> Private:
        """Memory that all lanes share, and that holds some bytes."""
        private = cls(1, 1, len(content))
        private.data[: len(content)] = np.frombuffer(content, np.uint8)
        private.written[:] = 1
        return private

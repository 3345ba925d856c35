"""What a chunk remembers of its waiting: loops that spin, warps that are held back."""

from __future__ import annotations

import numpy as np

from dotcu.simulator.machine.shape import WARP, Lanes, Shape


class Spin:
    """The state of a chunk's waiting.

    Attributes:
        blocks: Basic blocks of loops that spin, with the turn in which each last ran.
        turn: Counts turns that were spent spinning.
        since: The launch's progress at which `digests` begins.
        digests: How the chunk stood each time it was parked since then.
        proven: The progress at which it was seen to stand as before; -1 if never.
        random: Chooses which warps run; None without a seed.
        awake: For each warp whether it may run.
        held: Lanes that are held back, by the basic block where they stand.
    """

    def __init__(self, shape: Shape, seed: int | None) -> None:
        self.blocks: dict[int, int] = {}
        self.turn = 0
        self.since = -1
        self.digests: set[int] = set()
        self.proven = -1
        self.random = None if seed is None else np.random.default_rng((seed, shape.first))
        self.awake = np.ones(shape.lanes // WARP, bool)
        if self.random is not None:
            self.awake = self.random.random(len(self.awake)) < 0.5
        self.held: dict[int, Lanes] = {}

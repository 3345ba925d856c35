"""What a run executed, by source line.

Cheap enough to be always on: a step adds two integers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Line:
    """What one source line executed.

    Attributes:
        lane_instructions: Instructions, counted once for each lane that ran them.
        loaded_bytes: Bytes that its loads asked for, in every state space but param.
        stored_bytes: Bytes that its stores and atomics wrote.
    """

    lane_instructions: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0


@dataclass
class Counters:
    """Sums over all launches of a run.

    Attributes:
        launches: Kernels launched.
        steps: Instructions issued, each for however many lanes stood there together.
        lane_instructions: Instructions, counted once for each lane that ran them.
        loaded_bytes: Bytes that loads asked for.
        stored_bytes: Bytes that stores and atomics wrote.
        classes: Lane instructions by opcode.
        lines: The same by source line: (file, line) to Line.
    """

    launches: int = 0
    steps: int = 0
    lane_instructions: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0
    classes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    lines: defaultdict[tuple[str, int], Line] = field(default_factory=lambda: defaultdict(Line))

    def add(
        self, opcode: str, place: tuple[str, int], lanes: int, loaded_bytes: int, stored_bytes: int
    ) -> None:
        """Count an instruction that `lanes` lanes ran, all visits together."""
        self.lane_instructions += lanes
        self.loaded_bytes += loaded_bytes
        self.stored_bytes += stored_bytes
        self.classes[opcode] += lanes
        line = self.lines[place]
        line.lane_instructions += lanes
        line.loaded_bytes += loaded_bytes
        line.stored_bytes += stored_bytes

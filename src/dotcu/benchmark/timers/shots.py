"""A shot: one call to time, with what comes before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dotcu.errors import DotcuError


class ShotFailed(DotcuError):
    """A call raised while it was timed; what it raised is the cause.

    Attributes:
        name: Whose call it was.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} raised while it was timed.\nA call that is timed must return.\n"
            "Call it once by itself on these inputs: it raises there too, or depends on calls before it."
        )
        self.name = name


def _nothing() -> None:
    """What prepares a call that needs no preparation."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One call to time, on torch's current stream.

    Attributes:
        name: Whose call it is.
        run: The call.
        prepare: Queues what comes before it, outside of the timed window.
        probe: Gets the result, with nothing but stream order between the call and it; outside of the
            timed window too. None where nobody looks.
        hold_us: For so long the stream is held before the call, so that the host can queue it whole. Too
            little lets the host's time into the device's; too much only takes longer.
    """

    name: str
    run: Callable[[], Any]
    prepare: Callable[[], None] = _nothing
    probe: Callable[[Any], None] | None = None
    hold_us: float = 0.0

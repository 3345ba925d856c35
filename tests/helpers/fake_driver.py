"""A driver that notes what it is asked, so that what comes before a GPU can be tested without one."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as bindings

CAPTURED = 77
"""The handle of a stream that is being captured."""


class FakeDriver:
    """Stands for `cuda.bindings.driver`, with two devices.

    `statuses` says what a function fails with, by its name; `streams` is torch's current stream of each
    device, by default the default one.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.statuses: dict[str, int] = {}
        self.streams = {0: 0, 1: 0}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or not name[2].isupper():
            return getattr(bindings, name)
        return lambda *args: self._call(name, *args)

    def _call(self, name: str, *args: Any) -> tuple[Any, ...]:
        if name == "cuGetErrorString":
            return 0, b"what the driver says"
        self.calls.append((name, *args))
        status = bindings.CUresult(self.statuses.get(name, 0))
        return status, getattr(self, f"_{name}", lambda *args: 0)(*args)

    def _cuStreamIsCapturing(self, stream: Any) -> Any:
        return bindings.CUstreamCaptureStatus(1 if int(stream) == CAPTURED else 0)

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        return bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL

    @property
    def called(self) -> list[str]:
        """The functions that were called, in order."""
        return [name for name, *_ in self.calls]

"""What a worker of `tune` tells the process that asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dotcu.serialize import plain
from dotcu.tuning import session
from dotcu.tuning.session import TRY_S, TuneRequest, serve


def test_the_step_of_a_candidate_lasts_until_the_next_event_so_that_a_hang_has_its_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    @contextmanager
    def step(name: str, limit_s: float) -> Iterator[None]:
        assert limit_s == TRY_S["cpu"]
        told.append(f"begin {name}")
        yield
        told.append(f"end {name}")

    def run(reply: session.OnEvent) -> None:
        for event in ({"event": "trying", "candidate": 0}, {"event": "passed", "candidate": 0}):
            reply(event)
        reply({"event": "trying", "candidate": 1})
        told.append("hangs")

    channel: Any = SimpleNamespace(step=step, reply=lambda event: told.append(event["event"]))
    subject = SimpleNamespace(device=torch.device("cpu"))
    monkeypatch.setattr(session, "_subject", lambda *words: subject)
    monkeypatch.setattr(session, "Session", lambda *given: SimpleNamespace(run=run))
    request = TuneRequest(target="ops.py", overload="a::b", device="cpu", dtype="float32", case="n=1")
    serve(plain(request), channel)
    first, second = "candidate 0", "candidate 1"
    assert told == [
        "trying", f"begin {first}", f"end {first}", "passed",
        "trying", f"begin {second}", "hangs", f"end {second}",
    ]  # fmt: skip

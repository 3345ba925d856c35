"""A driver that does nothing, for what comes before it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `FakeDriver` in place of the driver, as if torch had started CUDA."""
    import torch  # for seconds, which pytest's first process need not wait for

    from dotcu.kernel import cuda

    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    from helpers.fake_driver import FakeDriver

    fake = FakeDriver()
    monkeypatch.setattr(cuda, "_driver", lambda: fake)
    monkeypatch.setattr(cuda, "_device", lambda index: (5, 1, 200_000))
    monkeypatch.setattr(cuda, "entered", lambda index: nullcontext())
    monkeypatch.setattr(cuda, "capability", lambda index: (9, 0))
    monkeypatch.setattr(cuda, "_stream", lambda index: fake.CUstream(fake.streams[index]))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return fake

"""A lab: what the GPU can do at best, measured once, and where that fails a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from dotcu.benchmark import lab as module
from dotcu.benchmark.lab import Lab
from dotcu.benchmark.limits import kept
from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.benchmark.work import Work
from dotcu.errors import EnvironmentFault
from fake_lab import FakeLab

CEILINGS = Ceilings(
    read_gbps=4000, two_to_one_gbps=4000, copy_gbps=4000, write_gbps=4000, l2_read_gbps=8000,
    l2_copy_gbps=8000, l2_write_gbps=8000,
)  # fmt: skip

BYTES = Work(read_bytes=2_000_000, written_bytes=2_000_000)
FLOPS = replace(BYTES, flops=10**9, dtype="float16")


class RealLab(FakeLab):
    """With the limits of a real one."""

    prepare = Lab.prepare
    limit = Lab.limit


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> RealLab:
    monkeypatch.setattr(kept, "kept_or", lambda uuid, driver, measure: CEILINGS)
    monkeypatch.setattr(kept, "keep", lambda ceilings: None)
    return RealLab()


def test_limits_come_from_what_was_kept_of_this_gpu(lab: RealLab) -> None:
    limit = lab.limit(BYTES, "cold")
    assert limit is not None
    assert limit.time_us == pytest.approx(1.0)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), EnvironmentFault("too little memory is free\nmore")],
)
def test_limits_that_cannot_be_measured_are_a_note_and_not_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fails(uuid: str, driver: str, measure: Callable[[], Ceilings]) -> Ceilings:
        tried.append(uuid)
        raise error

    monkeypatch.setattr(kept, "kept_or", fails)
    lab = RealLab()
    lab.prepare()
    assert lab.limit(BYTES, "cold") is None
    assert len(tried) == 1
    assert f"no limits: {str(error).splitlines()[0]}" in lab.notes


def test_a_rate_that_cannot_be_measured_leaves_the_limits_of_other_work(
    lab: RealLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module.ceilings, "with_rates", fails)
    assert lab.limit(FLOPS, "cold") is None
    assert lab.limit(BYTES, "cold") is not None
    assert "no limit of float16 arithmetic: CUDA out of memory" in lab.notes


def test_a_rate_that_was_measured_is_kept(lab: RealLab, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Ceilings] = []
    wider = replace(CEILINGS, matrix_tflops={"float16": 1.0})
    monkeypatch.setattr(module.ceilings, "with_rates", lambda *args: wider)
    monkeypatch.setattr(kept, "keep", saved.append)
    lab.limit(FLOPS, "cold")
    assert saved == [wider]

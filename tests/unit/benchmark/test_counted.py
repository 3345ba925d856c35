from __future__ import annotations

import pytest
import torch

from dotcu.benchmark.work import counted
from dotcu.gallery.matmul.op import matmul
from dotcu.operator import Sample
from dotcu.simulator.machine.schedule import Scheduler
from helpers.trial_operators import bug_of_dotcu


def test_a_call_is_counted_with_its_launches() -> None:
    _, result, launches, counters = counted(matmul, Sample(torch.ones(16, 16), torch.ones(16, 16)))
    assert 2 * 16**3 <= counters.operations["f32"] < 1.1 * 2 * 16**3  # tiles are added up, too
    assert [launch.where for launch in launches] == ["simulator"]
    assert counters.global_sectors >= counters.ideal_sectors > 0
    assert counters.global_bytes == 3 * 16 * 16 * 4
    assert result.eq(16).all()
    assert counters.lane_instructions > 16**3


def test_a_bug_of_the_simulator_is_not_a_call_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "run", bug_of_dotcu)
    with pytest.raises(KeyError, match="planted"):
        counted(matmul, Sample(torch.ones(16, 16), torch.ones(16, 16)))

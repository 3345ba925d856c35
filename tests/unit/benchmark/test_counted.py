from __future__ import annotations

import torch

from dotcu.benchmark.work import counted
from dotcu.gallery.matmul.op import matmul
from dotcu.operator import Sample


def test_a_call_is_counted_with_its_launches() -> None:
    found = counted(matmul, Sample(torch.ones(16, 16), torch.ones(16, 16)))
    assert 2 * 16**3 <= found.counters.operations["f32"] < 1.1 * 2 * 16**3  # tiles are added up, too
    assert [launch.where for launch in found.launches] == ["simulator"]
    assert found.counters.global_sectors >= found.counters.ideal_sectors > 0
    assert found.counters.global_bytes == 3 * 16 * 16 * 4
    assert found.result.eq(16).all()
    assert found.counters.lane_instructions > 16**3

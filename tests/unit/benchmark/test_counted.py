from __future__ import annotations

import torch

from dotcu.benchmark.work import counted
from dotcu.gallery.matmul.op import matmul
from dotcu.operator import Sample


def test_a_call_is_counted_with_its_launches() -> None:
    _, result, launches, counters = counted(matmul, Sample(torch.ones(16, 16), torch.ones(16, 16)))
    assert 2 * 16**3 <= counters.operations["f32"] < 1.1 * 2 * 16**3  # tiles are added up, too
    assert [launch.where for launch in launches] == ["simulator"]
    assert counters.global_sectors >= counters.ideal_sectors > 0
    assert counters.global_bytes == 3 * 16 * 16 * 4
    assert result.eq(16).all()
    assert counters.lane_instructions > 16**3

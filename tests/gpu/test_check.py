"""A check on a GPU: what is sound holds by every check that needs one, in time."""

from __future__ import annotations

import time

import pytest
import torch

import dotcu
from dotcu import gallery
from dotcu.checking.results import Failed, Skipped
from dotcu.checking.trials import gpu
from helpers.check_reports import bare

pytestmark = pytest.mark.gpu

ON_A_GPU = ("stream", "graph")


@pytest.mark.parametrize("name", ["add", "square", "matmul"])
def test_an_operator_of_the_gallery_holds_on_streams_and_in_graphs(name: str) -> None:
    operator = getattr(gallery, name)
    only = [f"{each.qualified_name}/{kind}" for each in operator.overloads.values() for kind in ON_A_GPU]
    report = dotcu.check(operator, device="cuda", only=only)
    assert report.passed, str(report)
    looked = {r.check for r in report.results if not isinstance(r, Skipped)}
    assert looked == set(ON_A_GPU)


@pytest.mark.parametrize("name", ["add", "square", "sum"])
def test_an_operator_of_the_gallery_takes_more_elements_than_32_bits_count(name: str) -> None:
    operator = getattr(gallery, name)
    start = time.perf_counter()
    report = dotcu.check(operator, device="cuda", level="full", only=f"{operator.qualified_name}/large")
    (result,) = report.results
    assert not isinstance(result, Failed), str(report)
    if torch.cuda.mem_get_info()[0] > 60 * 2**30:
        assert not isinstance(result, Skipped), bare(result)
    assert result.seconds < 10
    assert time.perf_counter() - start < 120


def test_no_check_is_left_out_for_want_of_a_gpu() -> None:
    report = dotcu.check(gallery.square, device="cuda", level="standard")
    assert report.passed, str(report)
    whys = [result.reason for result in report.results if isinstance(result, Skipped)]
    assert gpu.NEEDS_GPU not in whys


def test_a_check_leaves_the_device_its_streams_and_torchs_random_numbers_alone() -> None:
    torch.cuda.manual_seed(7)
    torch.manual_seed(7)
    before = torch.cuda.get_rng_state(), torch.get_rng_state()
    stream = torch.cuda.current_stream()
    dotcu.check(gallery.square, device="cuda", level="quick")
    assert torch.equal(torch.cuda.get_rng_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.cuda.current_stream() == stream

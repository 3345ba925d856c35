"""Targets, and which is planned for a GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotcu.compile import Rejected, Target, plan_target
from dotcu.errors import UsageError

CUDA_13 = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
CUDA_12 = (50, 60, 70, 75, 80, 86, 89, 90)


@given(
    st.sampled_from(["sm", "compute"]), st.integers(1, 99), st.integers(0, 9), st.sampled_from(["", "a", "f"])
)
def test_a_target_reads_what_it_prints(kind: str, major: int, minor: int, suffix: str) -> None:
    target = Target(kind, major, minor, suffix)
    assert Target.parse(str(target)) == target


def test_the_parts_of_a_target() -> None:
    target = Target.parse("sm_90a")
    assert (target.major, target.minor, target.suffix, target.number) == (9, 0, "a", 90)
    assert str(target.virtual) == "compute_90a"


@pytest.mark.parametrize("text", ["sm90", "sm_9", "sm_90x", "", "sm_80 ", "gfx942", "SM_80"])
def test_text_that_is_no_target_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(UsageError, match=r"sm_90a are cubins, compute_80 is PTX"):
        Target.parse(text)


@pytest.mark.parametrize(
    ("capability", "driver", "nvrtc", "known", "planned"),
    [
        ((8, 0), (13, 0), (13, 0), CUDA_13, "sm_80"),
        ((9, 0), (13, 0), (13, 0), CUDA_13, "sm_90a"),  # a Hopper GPU gets wgmma
        ((12, 0), (13, 2), (13, 0), CUDA_13, "sm_120a"),
        ((8, 0), (13, 0), (13, 1), CUDA_13, "sm_80"),  # an older minor of the driver loads cubins
        ((9, 0), (13, 0), (12, 6), CUDA_12, "sm_90a"),  # and so does a later major
        ((8, 8), (12, 8), (12, 4), CUDA_12, "sm_86"),  # a minor between known ones
        ((12, 0), (12, 8), (12, 4), CUDA_12, "compute_90"),  # newer than the compiler: PTX
        ((10, 0), (13, 0), (12, 4), CUDA_12, "compute_90"),
    ],
)
def test_what_is_planned_for_a_gpu(
    capability: tuple[int, int],
    driver: tuple[int, int],
    nvrtc: tuple[int, int],
    known: tuple[int, ...],
    planned: str,
) -> None:
    assert str(plan_target(capability, driver, nvrtc, known)) == planned


@pytest.mark.parametrize(
    ("capability", "driver", "nvrtc", "known", "reason", "remedy"),
    [
        ((9, 0), (12, 8), (13, 0), CUDA_13, "driver is of CUDA 12.8 and the compiler of CUDA 13.0", "cu12"),
        ((7, 0), (13, 0), (13, 0), CUDA_13, "is 7.0 and the compiler of CUDA 13.0 starts at 7.5", "cu12"),
        ((12, 0), (12, 3), (12, 4), CUDA_12, "cannot read its PTX", "pip install -U"),
        ((9, 0), None, (13, 0), CUDA_13, "needs NVIDIA's driver, and none is loaded", "nvidia-smi"),
    ],
)
def test_a_pair_that_does_not_fit_is_named_with_the_line_to_type(
    capability: tuple[int, int],
    driver: tuple[int, int] | None,
    nvrtc: tuple[int, int],
    known: tuple[int, ...],
    reason: str,
    remedy: str,
) -> None:
    refused = plan_target(capability, driver, nvrtc, known)
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    assert remedy in refused.remedy
    assert str(refused) == f"{refused.reason}\n{refused.remedy}"


@given(
    st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 7), (12, 1), (13, 0)]),
    st.tuples(st.integers(11, 14), st.integers(0, 9)),
    st.tuples(st.integers(12, 13), st.integers(0, 9)),
)
def test_no_plan_asks_a_driver_for_what_it_cannot_load(
    capability: tuple[int, int], driver: tuple[int, int], nvrtc: tuple[int, int]
) -> None:
    planned = plan_target(capability, driver, nvrtc, CUDA_13)
    if isinstance(planned, Target):
        assert driver[0] >= nvrtc[0]
        assert planned.number in CUDA_13
        assert planned.number <= capability[0] * 10 + capability[1]
        if planned.kind == "compute":
            assert driver >= nvrtc
        else:
            assert planned.major == capability[0]

"""Kineto's events as activities, and sessions that do not start."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch._C._autograd import DeviceType, _KinetoEvent

from dotcu.benchmark.timers import Activity, TimerFailed, activities, tracing


@dataclass(frozen=True)
class Event:
    """Stands for torch's `_KinetoEvent`."""

    label: str
    kind: DeviceType
    start: int = 0
    duration: int = 0
    correlation: int = 0
    resource: int = 0
    device: int = 0
    annotation: bool = False

    def name(self) -> str:
        return self.label

    def device_type(self) -> DeviceType:
        return self.kind

    def start_ns(self) -> int:
        return self.start

    def duration_ns(self) -> int:
        return self.duration

    def correlation_id(self) -> int:
        return self.correlation

    def device_resource_id(self) -> int:
        return self.resource

    def device_index(self) -> int:
        return self.device

    def is_user_annotation(self) -> bool:
        return self.annotation


ASKED = [name for name in vars(Event) if not name.startswith("_") and callable(getattr(Event, name))]


@pytest.mark.parametrize("name", ASKED)
def test_torchs_events_have_what_is_asked_of_them(name: str) -> None:
    assert hasattr(_KinetoEvent, name)


def test_a_kernel_has_the_time_and_thread_of_its_launch() -> None:
    launch = Event("cudaLaunchKernel", DeviceType.CPU, start=5, duration=3, correlation=42, resource=-99)
    kernel = Event("add()", DeviceType.CUDA, start=100, duration=32, correlation=42, resource=7)
    expected = Activity(name="add()", start_ns=100, end_ns=132, stream=7, launched_ns=5, thread=-99)
    assert activities([kernel, launch]) == [expected]


def test_a_launch_by_the_driver_counts_too() -> None:
    launch = Event("cuLaunchKernelEx", DeviceType.CPU, start=5, correlation=42, resource=-99)
    kernel = Event("add()", DeviceType.CUDA, correlation=42)
    assert activities([launch, kernel])[0].launched_ns == 5


def test_a_kernel_whose_launch_was_not_recorded_has_none() -> None:
    other = Event("cudaLaunchKernel", DeviceType.CPU, start=5, correlation=41)
    (found,) = activities([other, Event("add()", DeviceType.CUDA, correlation=42)])
    assert (found.launched_ns, found.thread) == (None, None)


def test_an_operator_of_torchs_is_no_launch_although_its_number_is_the_same() -> None:
    operator = Event("aten::add", DeviceType.CPU, start=1, correlation=42)
    (found,) = activities([operator, Event("add()", DeviceType.CUDA, correlation=42)])
    assert found.launched_ns is None


def test_a_range_around_kernels_is_no_activity() -> None:
    assert activities([Event("my_range", DeviceType.CUDA, annotation=True)]) == []


def test_streams_of_two_gpus_differ() -> None:
    one, other = (Event("add()", DeviceType.CUDA, resource=7, device=index) for index in (0, 1))
    assert activities([one])[0].stream != activities([other])[0].stream
    assert [found.device for found in activities([one, other])] == [0, 1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the profiler starts where there is a GPU")
@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_profiler_that_does_not_start_is_reported() -> None:
    with pytest.raises(TimerFailed, match="torch's profiler does not start"), tracing():
        pytest.fail("it started")

"""Kineto's log stays off the terminal; everything else gets there."""

from __future__ import annotations

import os

import pytest
from torch.profiler import ProfilerActivity, profile

from dotcu.benchmark.timers import quiet

KINETO = b"USDT:2026-11-21 21:22:02 19905:19905 SyncActivityProfilerHandler.cpp:52] profiler_start\n"
ERROR = b"ERROR:2026-11-21 21:21:58 19902:19902 DeviceProperties.cpp:48] gpuGetDeviceCount failed\n"
TORCH = b"[W1121 21:21:58.123456 kineto_shim.cpp:442] profiler is not initialized\n"


@pytest.mark.parametrize("descriptor", [1, 2])
@pytest.mark.parametrize("line", [KINETO, ERROR, TORCH])
def test_its_lines_are_gone(descriptor: int, line: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        os.write(descriptor, line)
    assert capfd.readouterr() == ("", "")


def test_what_others_write_meanwhile_comes_where_it_was_to_go(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        os.write(1, b"a result\n")
        os.write(2, b"a warning\n" + KINETO + b"another, WARNING: with colons\n")
    assert capfd.readouterr() == ("a result\n", "a warning\nanother, WARNING: with colons\n")


def test_what_comes_later_goes_through(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        pass
    os.write(2, KINETO)
    assert capfd.readouterr().err == KINETO.decode()


def test_an_exception_restores_the_descriptors(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), quiet():
        raise KeyboardInterrupt
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_a_real_session_of_the_profiler_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    session = profile(activities=[ProfilerActivity.CPU], acc_events=True)
    with quiet():
        session.__enter__()
    with quiet():
        session.__exit__(None, None, None)
    assert capfd.readouterr() == ("", "")

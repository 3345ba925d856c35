"""libcuda, which is opened in one place."""

from __future__ import annotations

import ctypes

import pytest

from dotcu.compile import driver
from dotcu.errors import ToolchainError


@pytest.fixture(autouse=True)
def forgotten() -> None:
    driver.function.cache_clear()


def test_a_function_of_the_driver_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = ctypes.CDLL(None)
    monkeypatch.setattr(driver, "_library", lambda: libc)
    assert driver.function("getpid") == ctypes.cast(libc.getpid, ctypes.c_void_p).value


def test_a_function_that_a_driver_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_library", lambda: ctypes.CDLL(None))
    with pytest.raises(ToolchainError, match=r"has no cuNothing, which comes with CUDA 12\.0"):
        driver.function("cuNothing")


def test_without_a_driver_no_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_library", lambda: None)
    with pytest.raises(ToolchainError, match=r"the driver cannot be loaded: there is no libcuda\.so\.1"):
        driver.function("cuLaunchKernelEx")

"""Calls by plan without a GPU: native code that launches by a driver which notes what it is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recorded_calls import Devices, Driver, configured, configured_anew


@pytest.fixture(autouse=True)
def _configured_anew() -> Iterator[None]:
    """What is configured here is for one test alone."""
    yield
    configured_anew()


@pytest.fixture
def driver() -> Iterator[Driver]:
    """What takes the driver's place in native code."""
    driver = Driver()
    with configured(functions=driver.functions):
        yield driver


@pytest.fixture
def devices(driver: Driver) -> Iterator[Devices]:
    """What takes the place of several GPUs in native code, whose launches `driver` notes."""
    devices = Devices()
    with configured(functions=driver.functions | devices.functions, allocate=devices.allocate):
        yield devices

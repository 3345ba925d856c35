"""Calls by plan without a GPU: native code that launches by a driver which notes what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from recorded_calls import Devices, Driver  # with torch, which pytest's first process need not wait for


@pytest.fixture(autouse=True)
def _configured_anew() -> Iterator[None]:
    """What is configured here is for one test alone."""
    from recorded_calls import configured_anew

    yield
    configured_anew()


@pytest.fixture
def driver() -> Iterator[Driver]:
    """What takes the driver's place in native code."""
    from recorded_calls import Driver, configured

    driver = Driver()
    with configured(functions=driver.functions):
        yield driver


@pytest.fixture
def devices(driver: Driver) -> Iterator[Devices]:
    """What takes the place of several GPUs in native code, whose launches `driver` notes."""
    from recorded_calls import Devices, configured

    devices = Devices()
    with configured(functions=driver.functions | devices.functions, allocate=devices.allocate):
        yield devices

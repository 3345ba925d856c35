"""Both ways to call by plan, with the driver replaced: every test that takes `way` runs on each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dotcu.replay import layout, native, portable
from dotcu.replay.portable import driver as portable_driver
from replays import CPU, Driver, Way


@pytest.fixture(autouse=True)
def _configured_anew() -> Iterator[None]:
    """What is configured here is for one test alone; operators that were called before go on on the GPU."""
    yield
    native._prepared.clear()
    if torch.cuda.is_available():
        native.prepare(torch.device("cuda", 0))


def portably(driver: Driver, patch: pytest.MonkeyPatch) -> Any:
    assert portable.prepare(CPU) == ""
    launch = ctypes.cast(driver.launch_function, ctypes.c_void_p).value or 0
    patch.setitem(
        portable_driver.drivers,
        "cpu",
        portable_driver.Driver(
            allocate=layout.allocator("cpu"),
            context=driver.context_function,
            launch=ctypes.CFUNCTYPE(ctypes.c_int)(launch),
        ),
    )
    return portable


def natively(driver: Driver) -> Any:
    if native.missing():
        pytest.skip(native.missing())
    values = native._found().values | {
        "plain_keys": layout.plain_keys(CPU),
        "allocate": layout.allocator("cpu"),
        "launch": ctypes.cast(driver.launch_function, ctypes.c_void_p).value,
        "context": ctypes.cast(driver.context_function, ctypes.c_void_p).value,
    }
    native._library().configure(values)
    return native


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> dict[str, Way]:
    """Native and portable, each with a driver of its own."""
    drivers = Driver(), Driver()
    return {
        "portable": Way("portable", portably(drivers[0], monkeypatch), drivers[0]),
        "native": Way("native", natively(drivers[1]), drivers[1]),
    }


@pytest.fixture(params=["portable", "native"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    driver = Driver()
    module = portably(driver, monkeypatch) if request.param == "portable" else natively(driver)
    return Way(request.param, module, driver)

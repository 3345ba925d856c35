"""What every test shares: a cache of its own, settings out of the user's reach, a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from dotcu import settings

KEPT = {"nvrtc", "cuda_home"}  # these say which toolkit is under test


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Defaults for every setting, and an empty cache; for programs that a test starts, too."""
    cache = tmp_path_factory.mktemp("dotcu-cache")
    fields = [f for f in dataclasses.fields(settings.Settings) if f.name not in KEPT]
    with pytest.MonkeyPatch.context() as patch:
        for field in fields:
            patch.delenv(field.metadata["variable"], raising=False)
        patch.setenv("DOTCU_CACHE_DIR", str(cache))
        defaults = {field.name: field.default for field in fields}
        with settings.override(**defaults | {"cache_dir": cache}):
            yield


@pytest.fixture
def device() -> torch.device:
    """The GPU where there is one; else the CPU, where a launch runs in the simulator."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; torch sees none here"))

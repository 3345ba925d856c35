"""What a run is made on and with."""

from __future__ import annotations

import platform

import pytest
import torch

from dotcu.__about__ import __version__
from dotcu.benchmark.device import describe_machine
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault


def test_without_a_gpu_versions_are_reported_and_no_gpu() -> None:
    found = describe_machine(torch.device("cpu"))
    assert (found.gpu, found.uuid, found.clocks) == ("", "", {})
    assert found.versions["dotcu"] == __version__
    assert found.versions["torch"] == str(torch.__version__)
    assert found.versions["python"] == platform.python_version()


def test_a_toolchain_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise EnvironmentFault("NVRTC was not found")

    monkeypatch.setattr(toolchain, "nvrtc", missing)
    assert describe_machine(torch.device("cpu")).versions["nvrtc"] == ""


@pytest.mark.gpu
def test_a_gpu_is_identified_by_what_does_not_change() -> None:
    found = describe_machine(torch.device("cuda", 0))
    properties = torch.cuda.get_device_properties(0)
    assert found.gpu == properties.name
    assert found.uuid == str(properties.uuid)
    assert found.l2_bytes > 0
    assert found.versions["driver"]

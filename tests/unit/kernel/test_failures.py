"""A status of the driver becomes an error that says what to do, and whom a fault may come from."""

from __future__ import annotations

import pytest

from dotcu.errors import CaptureError, LaunchError
from dotcu.kernel import failures, recent
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.recent import Launched

CONFIG = LaunchConfig(grid=(3, 1, 1), block=(32, 1, 1))
LAUNCHED = Launched("mylib::scale", "scale", CONFIG, 0)


def failure(name: str) -> str:
    return str(failures.failure("Launching quiet on cuda:0", "cuLaunchKernelEx", name, "its text"))


@pytest.mark.parametrize("name", failures.FAULTS)
def test_a_fault_lists_the_launches_before_it_and_how_to_find_the_one(name: str) -> None:
    recent.note(LAUNCHED._replace(kernel="older"))
    recent.note(LAUNCHED)
    message = failure(name)
    first, *rest = message.splitlines()
    assert first == f"Launching quiet on cuda:0 failed: cuLaunchKernelEx gave {name} (its text)."
    listed = [line.strip() for line in rest if line.startswith("    ")]
    assert listed[:2] == [
        "scale of mylib::scale on cuda:0 with grid=(3, 1, 1), block=(32, 1, 1)",
        "older of mylib::scale on cuda:0 with grid=(3, 1, 1), block=(32, 1, 1)",
    ]
    assert "CUDA_LAUNCH_BLOCKING=1" in message
    assert message.endswith("restart it.")


def test_a_fault_of_a_launch_that_was_waited_for_is_its_own() -> None:
    recent.note(LAUNCHED._replace(kernel="innocent"))
    message = str(failures.own_fault(LAUNCHED, "CUDA_ERROR_ILLEGAL_ADDRESS", "its text"))
    assert message.startswith(
        "scale of mylib::scale on cuda:0 with grid=(3, 1, 1), block=(32, 1, 1) failed: "
        "CUDA_ERROR_ILLEGAL_ADDRESS (its text)."
    )
    assert "read or wrote outside its memory" in message
    assert "the simulator names the line" in message
    assert "innocent" not in message


def test_a_fault_without_launches_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "launches", tuple)
    assert "dotcu has launched none" in failure("CUDA_ERROR_LAUNCH_FAILED")


@pytest.mark.parametrize("name", failures.REMEDIES)
def test_what_is_no_fault_has_its_remedy_and_no_suspects(name: str) -> None:
    message = failure(name)
    assert message.splitlines()[1] == failures.REMEDIES[name]
    assert "last launches" not in message


def test_a_status_that_is_not_known_leads_to_the_doctor() -> None:
    assert failure("CUDA_ERROR_OF_TOMORROW").endswith("dotcu doctor")


def test_what_a_capture_forbids_is_an_error_of_its_own() -> None:
    error = failures.failure("Loading k", "cuLibraryLoadData", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "no")
    assert type(error) is CaptureError
    assert type(failures.failure("Loading k", "f", "CUDA_ERROR_OUT_OF_MEMORY", "no")) is LaunchError


def test_every_name_is_the_drivers() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    known = {status.name for status in driver.CUresult}
    newer = {"CUDA_ERROR_TENSOR_MEMORY_LEAK"}  # not in bindings of CUDA 12
    assert {*failures.FAULTS, *failures.REMEDIES} <= known | newer

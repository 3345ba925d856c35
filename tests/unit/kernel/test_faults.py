"""The driver's statuses as errors, and the last launches that a fault may come from."""

from __future__ import annotations

import pytest

from dotcu.errors import CaptureError, LaunchError
from dotcu.kernel import faults
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.faults import LaunchLabel, recent_launches, record_launch

CONFIG = LaunchConfig(grid=(3, 1, 1), block=(32, 1, 1))
LAUNCHED = LaunchLabel("mylib::scale", "scale", CONFIG, 0)


def failure(name: str) -> str:
    return str(faults.driver_error("Launching quiet on cuda:0", "cuLaunchKernelEx", name, "its text"))


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_lists_the_launches_before_it_and_how_to_find_the_one(name: str) -> None:
    faults.record_launch(LAUNCHED._replace(kernel="older"))
    faults.record_launch(LAUNCHED)
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
    faults.record_launch(LAUNCHED._replace(kernel="innocent"))
    message = str(faults.driver_error("", "", "CUDA_ERROR_ILLEGAL_ADDRESS", "its text", LAUNCHED))
    assert message.startswith(
        "scale of mylib::scale on cuda:0 with grid=(3, 1, 1), block=(32, 1, 1) failed: "
        "CUDA_ERROR_ILLEGAL_ADDRESS (its text)."
    )
    assert "read or wrote outside its memory" in message
    assert "the simulator names the line" in message
    assert "innocent" not in message


def test_a_fault_without_launches_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "recent_launches", tuple)
    assert "dotcu has launched none" in failure("CUDA_ERROR_LAUNCH_FAILED")


@pytest.mark.parametrize("name", faults.REMEDIES)
def test_what_is_no_fault_has_its_remedy_and_no_suspects(name: str) -> None:
    message = failure(name)
    assert message.splitlines()[1] == faults.REMEDIES[name]
    assert "last launches" not in message


def test_a_status_that_is_not_known_leads_to_the_doctor() -> None:
    assert failure("CUDA_ERROR_OF_TOMORROW").endswith("dotcu doctor")


def test_what_a_capture_forbids_is_an_error_of_its_own() -> None:
    error = faults.driver_error(
        "Loading k", "cuLibraryLoadData", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "no"
    )
    assert type(error) is CaptureError
    assert type(faults.driver_error("Loading k", "f", "CUDA_ERROR_OUT_OF_MEMORY", "no")) is LaunchError


def test_every_name_is_the_drivers() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    known = {status.name for status in driver.CUresult}
    newer = {"CUDA_ERROR_TENSOR_MEMORY_LEAK"}  # not in bindings of CUDA 12
    assert {*faults.FAULTS, *faults.REMEDIES} <= known | newer


# The last launches, newest first, by whom and how.


RECENT_CONFIG = LaunchConfig(grid=(2, 1, 1), block=(64, 1, 1), smem_bytes=256)


def test_the_newest_comes_first_and_eight_are_kept() -> None:
    for number in range(20):
        record_launch(LaunchLabel("", f"k{number}", RECENT_CONFIG, 0))
    assert [launched.kernel for launched in recent_launches()] == [f"k{n}" for n in range(19, 11, -1)]


def test_a_launch_says_its_kernel_operator_device_and_configuration() -> None:
    launched = LaunchLabel("mylib::scale.out", "scale<float>", RECENT_CONFIG, 1)
    assert (
        str(launched)
        == "scale<float> of mylib::scale.out on cuda:1 with grid=(2, 1, 1), block=(64, 1, 1), smem_bytes=256"
    )
    assert str(launched._replace(operator="")).startswith("scale<float> on cuda:1")

"""The last launches, newest first, by whom and how."""

from __future__ import annotations

from dotcu.kernel import recent
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.recent import Launched

CONFIG = LaunchConfig(grid=(2, 1, 1), block=(64, 1, 1), smem_bytes=256)


def test_the_newest_comes_first_and_eight_are_kept() -> None:
    for number in range(20):
        recent.note(Launched("", f"k{number}", CONFIG, 0))
    assert [launched.kernel for launched in recent.launches()] == [f"k{n}" for n in range(19, 11, -1)]


def test_a_launch_says_its_kernel_operator_device_and_configuration() -> None:
    launched = Launched("mylib::scale.out", "scale<float>", CONFIG, 1)
    assert (
        str(launched)
        == "scale<float> of mylib::scale.out on cuda:1 with grid=(2, 1, 1), block=(64, 1, 1), smem_bytes=256"
    )
    assert str(launched._replace(operator="")).startswith("scale<float> on cuda:1")

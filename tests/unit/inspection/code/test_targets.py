from __future__ import annotations

import pytest

from dotcu.compile import Target, driver, toolchain
from dotcu.compile.driver import Gpu
from dotcu.errors import UsageError
from dotcu.inspection.code import targets
from dotcu.inspection.code.targets import known, resolve


def test_several_architectures_are_taken_in_order_each_once() -> None:
    assert [str(t) for t in resolve(["sm_90a", "sm_80", "sm_90a", "compute_80"])] == [
        "sm_90a", "sm_80", "compute_80",
    ]  # fmt: skip


def test_without_a_gpu_it_is_sm_90(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "gpus", lambda: ())
    assert resolve(None) == (Target.parse("sm_90"),)


def test_with_a_gpu_it_is_what_a_launch_compiles_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "gpus", lambda: (Gpu(index=0, name="H200", capability=(9, 0)),))
    monkeypatch.setattr(driver, "version", lambda: (13, 0))
    assert resolve(None) == (Target.parse("sm_90a"),)


@pytest.mark.parametrize("name", ["sm_91", "sm_90f", "sm_80a", "hopper", "sm_35", "compute_91", ""])
def test_an_architecture_that_does_not_exist_is_told_those_that_do(name: str) -> None:
    with pytest.raises(UsageError, match=r"sm_80, .*sm_90, sm_90a, sm_100, sm_100a, sm_100f"):
        resolve(name)


def test_the_names_that_the_compiler_takes_are_those_that_are_listed() -> None:
    """Seen by compiling for each: NVRTC 13.0 takes an `a` from sm_90 and an `f` from sm_100 on."""
    assert known((80, 90, 100)) == ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")
    assert set(known(toolchain.supported(toolchain.nvrtc()))) >= {"sm_75", "sm_121f"}

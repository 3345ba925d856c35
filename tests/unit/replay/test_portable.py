"""The portable path where it differs from the native one."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
import threading
import time
import weakref

import pytest
import torch

from dotcu.replay import portable
from dotcu.replay.portable import calm
from dotcu.replay.portable import driver as drivers
from dotcu.replay.portable.entry import Entry
from replays import CPU, TENSOR, Caller, Steps, doubling, launch, plan, tensor_key


def test_it_needs_no_native_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dotcu._native", None)
    assert portable.prepare(CPU) == ""


def test_a_device_that_torch_cannot_allocate_on_is_named() -> None:
    assert portable.prepare(torch.device("meta")) == "torch has no _empty_strided_meta"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_what_is_missing() -> None:
    reason = portable.prepare(torch.device("cuda", 0))
    assert reason
    assert "\n" not in reason


def test_a_plan_for_a_device_that_is_not_prepared_is_not_kept() -> None:
    plans = portable.plans([TENSOR], Caller())
    elsewhere = dataclasses.replace(doubling(), device=torch.device("xpu", 0))
    assert not portable.add(plans, elsewhere, "tests::elsewhere", 0)
    assert len(plans) == 0


def test_without_a_driver_a_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    portable.prepare(CPU)
    monkeypatch.setitem(drivers.drivers, "cpu", drivers._none("cpu"))
    plans, steps = portable.plans([TENSOR], Caller()), Steps()
    launched = launch(steps)
    assert portable.add(
        plans, plan([tensor_key(torch.ones(1))], steps, launches=(launched,)), "tests::none", 0
    )
    with pytest.raises(RuntimeError, match="launch 0 of plan 0: 100"):
        portable.entry([plans], lambda x: None, autocasts=False)(torch.ones(1))


@pytest.mark.parametrize("status", [201, 400])
def test_where_the_driver_refuses_a_context_the_call_is_made_elsewhere(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """With one GPU the context is not looked at: there the driver's refusal says what the look would."""
    portable.prepare(CPU)
    monkeypatch.setattr(calm, "is_only", lambda device: True)
    refusing = dataclasses.replace(drivers.drivers["cpu"], launch=lambda *launch: status)
    monkeypatch.setitem(drivers.drivers, "cpu", refusing)
    caller, x = Caller(elsewhere_gives="moved"), torch.ones(2)
    plans = portable.plans([TENSOR], caller)
    portable.add(plans, doubling(), "tests::refused", 77)
    assert portable.entry([plans], lambda x: None, autocasts=False)(x) == "moved"
    assert caller.calls == [("elsewhere", 0, (x,))]


def test_launches_from_many_threads_keep_their_memory_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread finds in its launch what it gave: memory is handed out and taken back without a lock."""
    portable.prepare(CPU)
    seen: list[tuple[int, int]] = []

    def note(config: object, function: object, pointers: object, extra: object) -> int:
        address = pointers[2]  # type: ignore[index]
        first = ctypes.c_int64.from_address(address).value
        time.sleep(0.0001)  # the others run
        seen.append((first, ctypes.c_int64.from_address(address).value))
        return 0

    real = drivers.drivers["cpu"]
    monkeypatch.setitem(drivers.drivers, "cpu", dataclasses.replace(real, launch=note))
    plans = portable.plans([TENSOR], Caller())
    portable.add(plans, doubling(), "tests::threads", 0)
    double = portable.entry([plans], lambda x: None, autocasts=False)

    def call(n: int) -> None:
        for _ in range(50):
            double(torch.ones(n))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 400
    assert all(first == second for first, second in seen)
    assert {first for first, _ in seen} == set(range(1, 9))


def test_dropped_plans_are_freed_with_what_they_read() -> None:
    class Value:
        """Something that can be referred to weakly."""

    value = Value()
    gone = weakref.ref(value)
    plans = portable.plans([TENSOR], Caller())
    plans.clear((({"V": value}, "V", value),))
    portable.add(plans, doubling(), "tests::dropped", 0)
    plans.clear(())
    del value
    gc.collect()
    assert gone() is None


def test_an_entry_that_is_not_whole_has_no_attributes_of_anothers() -> None:
    with pytest.raises(AttributeError):
        Entry.__new__(Entry).anything  # noqa: B018

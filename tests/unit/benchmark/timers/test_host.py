"""Host time: the mean of each batch, with a wait between batches and none within."""

from __future__ import annotations

import time

from dotcu.benchmark.timers import host_times_us


def test_each_batch_gives_the_time_of_one_call() -> None:
    times = host_times_us(lambda: time.sleep(0.002), batches=3, calls=4, wait=lambda: None)
    assert len(times) == 3
    assert all(2000 <= us < 20_000 for us in times)


def test_waiting_for_the_device_is_not_counted() -> None:
    times = host_times_us(lambda: None, batches=2, calls=5, wait=lambda: time.sleep(0.05))
    assert all(us < 5_000 for us in times)


def test_the_device_is_waited_for_between_batches_and_never_within_one() -> None:
    log: list[str] = []
    host_times_us(lambda: log.append("call"), batches=2, calls=3, wait=lambda: log.append("wait"))
    assert log == ["wait", *["call"] * 3, "wait", *["call"] * 3, "wait"]


def test_what_prepares_a_batch_comes_before_it_and_is_not_counted() -> None:
    log: list[str] = []

    def prepare() -> None:
        log.append("prepare")
        time.sleep(0.05)

    times = host_times_us(
        lambda: log.append("call"), batches=2, calls=1, wait=lambda: log.append("wait"), prepare=prepare
    )
    assert log == ["prepare", "wait", "call", "prepare", "wait", "call", "wait"]
    assert all(us < 5_000 for us in times)

"""Blocks that a throttled GPU spoils, and remarks on its state."""

from __future__ import annotations

from collections.abc import Sequence

from dotcu.benchmark.device import DROPPING, REASONS, steady_samples, throttled_blocks, throttling_notes
from dotcu.benchmark.results import Block, CallTime, Clocks

CALM = Clocks(sm_mhz=1980, temperature_c=60)


def block(before: Clocks = CALM, after: Clocks | None = None, times_us: Sequence[float] = (1.0,)) -> Block:
    calls = tuple(CallTime(time_us=time) for time in times_us)
    return Block(calls=calls, before=before, after=after or before)


def reason(*names: str) -> Clocks:
    return Clocks(sm_mhz=1980, temperature_c=60, reasons=names)


def test_a_calm_gpu_drops_nothing_and_reports_nothing() -> None:
    assert throttled_blocks([block()] * 5) == {}
    assert throttling_notes([block()] * 5) == ()


def test_a_block_is_dropped_for_a_reason_at_either_end() -> None:
    blocks = [
        block(),
        block(reason("hardware slowdown"), CALM),
        block(),
        block(CALM, reason("thermal slowdown")),
    ]
    assert throttled_blocks(blocks) == {
        1: "hardware slowdown before it",
        3: "thermal slowdown after it",
    }


def test_a_power_cap_drops_nothing_and_is_reported() -> None:
    blocks = [block(reason("power cap"))] * 12 + [block()] * 28
    assert throttled_blocks(blocks) == {}
    assert throttling_notes(blocks) == ("power cap in 12 of 40 blocks",)


def test_an_idle_gpu_between_blocks_is_not_worth_a_word() -> None:
    assert throttling_notes([block(reason("idle"))] * 3) == ()


def test_what_drops_blocks_is_not_reported_twice() -> None:
    assert throttling_notes([block(reason("thermal slowdown"))] * 3) == ()


def test_a_clock_far_below_the_highest_drops_its_block() -> None:
    blocks = [
        block(),
        block(Clocks(sm_mhz=1400)),
        block(Clocks(sm_mhz=1500)),
        block(CALM, Clocks(sm_mhz=300)),
    ]
    found = throttled_blocks(blocks)
    assert set(found) == {1, 3}
    assert found[1] == "SM clock 1400 MHz before it, 1980 MHz at its highest"


def test_clocks_and_heat_that_move_are_reported() -> None:
    blocks = [block(Clocks(sm_mhz=1980, temperature_c=61)), block(Clocks(sm_mhz=1755, temperature_c=78))]
    assert throttling_notes(blocks) == ("SM clock 1755 to 1980 MHz", "temperature 61 to 78 C")
    near = [block(Clocks(sm_mhz=1980, temperature_c=61)), block(Clocks(sm_mhz=1965, temperature_c=65))]
    assert throttling_notes(near) == ()


def test_without_nvml_nothing_is_dropped_or_reported() -> None:
    blocks = [block(Clocks())] * 3
    assert throttled_blocks(blocks) == {}
    assert throttling_notes(blocks) == ()
    assert throttled_blocks([]) == {}


def test_blocks_stay_paired_where_one_contender_loses_some() -> None:
    a = [block(times_us=(1.0,)), block(reason("thermal slowdown"), times_us=(2.0,)), block(times_us=(3.0,))]
    b = [block(times_us=(4.0,)), block(times_us=(5.0,)), block(times_us=(6.0,)), block(times_us=(7.0,))]
    assert steady_samples(a, b) == ([[1.0], [3.0]], [[4.0], [6.0]])
    assert steady_samples(b) == ([[4.0], [5.0], [6.0], [7.0]],)


def test_a_block_without_samples_is_omitted() -> None:
    assert steady_samples([block(times_us=()), block()], [block(), block()]) == (
        [[1.0]],
        [[1.0]],
    )


def test_by_default_the_reasons_that_drop_are_those_of_the_table() -> None:
    found = {name: bool(throttled_blocks([block(reason(name))])) for name in REASONS}
    assert found == {name: name in DROPPING for name in REASONS}
    assert all(drops for name, drops in found.items() if "thermal" in name)
    assert not any(drops for name, drops in found.items() if "cap" in name.split())

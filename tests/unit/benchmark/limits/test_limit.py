from __future__ import annotations

import dataclasses

import pytest

from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.benchmark.limits.datasheet import named
from dotcu.benchmark.limits.limit import Limit, limit
from dotcu.benchmark.results import L2
from dotcu.benchmark.timing import _mark as mark
from dotcu.benchmark.timing import _refusal as refusal
from dotcu.benchmark.work import Work

MB = 10**6
L2_BYTES = 60 << 20
CEILINGS = Ceilings(
    read_gbps=4420,
    two_to_one_gbps=4390,
    copy_gbps=4260,
    write_gbps=4680,
    l2_read_gbps=8000,
    l2_copy_gbps=6000,
    l2_write_gbps=5000,
    matrix_tflops={"bfloat16": 794.0, "tf32": 400.0, "float64": 60.0},
    plain_tflops={"float32": 62.0, "float64": 31.0},
)
SHEET = named("H200")


def of(work: Work, l2: L2 = "cold") -> Limit:
    found = limit(work, CEILINGS, SHEET, l2=l2, l2_bytes=L2_BYTES)
    assert found is not None
    return found


def copy(megabytes: float, **more: object) -> Work:
    nbytes = int(megabytes * MB)
    return Work(read_bytes=nbytes, written_bytes=nbytes, dtype="float32", **more)  # type: ignore[arg-type]


def test_moving_bytes_is_bound_by_the_bandwidth_of_their_mix() -> None:
    add = of(Work(read_bytes=8000 * MB, written_bytes=4000 * MB, dtype="float32"))
    assert add.time_us == pytest.approx(12000 * MB / 4390e3)
    assert add.what == "memory, 2 reads to 1 write, 4.39 TB/s"


def test_arithmetic_sets_the_limit_where_it_takes_longer() -> None:
    flops = 2 * 8192**3
    product = of(Work(read_bytes=256 * MB, written_bytes=128 * MB, flops=flops, dtype="bfloat16"))
    assert product.time_us == pytest.approx(flops / 794e6)
    assert product.what == "bfloat16 arithmetic, 794 TFLOP/s"
    assert product.sheet_us == pytest.approx(flops / 989.4e6)


def test_few_operations_leave_the_limit_to_the_bytes() -> None:
    assert of(copy(1000, flops=1000)).what.startswith("memory")


def test_operations_in_a_dtype_without_a_rate_do_not_count() -> None:
    assert of(Work(read_bytes=8 * MB, written_bytes=0, flops=10**15, dtype="int64")).what.startswith("memory")


def test_work_that_is_nothing_has_no_limit() -> None:
    nothing = Work(read_bytes=0, written_bytes=0, dtype="float32")
    assert limit(nothing, CEILINGS, SHEET, l2="cold", l2_bytes=L2_BYTES) is None


def test_what_is_written_may_stay_in_l2() -> None:
    small = of(Work(read_bytes=50 * MB, written_bytes=10 * MB))
    assert small.floor_us == pytest.approx(50 * MB / 4420e3)
    assert small.floor_us < small.time_us
    large = of(copy(5000))
    assert large.floor_us / large.time_us > 0.98


def test_all_bytes_go_through_l2_even_where_none_goes_to_memory() -> None:
    assert of(Work(read_bytes=0, written_bytes=50 * MB)).floor_us == pytest.approx(50 * MB / 5000e3)


def test_warm_and_small_is_bound_by_l2() -> None:
    warm = of(copy(10), "warm")
    assert warm.time_us == pytest.approx(20 * MB / 6000e3)
    assert warm.what == "L2, 1 read to 1 write, 6.00 TB/s"
    assert warm.sheet_us is None, "no datasheet says what L2 can do"


def test_warm_and_large_is_bound_by_what_l2_does_not_hold() -> None:
    warm, cold = of(copy(5000), "warm"), of(copy(5000))
    assert warm.what.startswith("memory")
    assert cold.time_us - warm.time_us == pytest.approx(L2_BYTES / 4260e3)


def test_warm_is_never_slower_than_cold() -> None:
    for megabytes in (1, 10, 30, 60, 100, 300, 1000):
        assert of(copy(megabytes), "warm").time_us <= of(copy(megabytes)).time_us


def test_the_datasheet_bounds_what_was_read_and_what_l2_cannot_keep() -> None:
    assert of(copy(50)).sheet_us == pytest.approx(50 * MB / 4800e3)
    assert of(copy(5000)).sheet_us == pytest.approx((10000 * MB - L2_BYTES) / 4800e3)


def test_a_gpu_without_a_datasheet_has_no_such_bound() -> None:
    found = limit(copy(50), CEILINGS, None, l2="cold", l2_bytes=L2_BYTES)
    assert found is not None
    assert found.sheet_us is None


def test_bounds_stand_in_their_order() -> None:
    for megabytes in (0.01, 1, 30, 60, 100, 1000, 10000):
        for l2 in ("cold", "warm"):
            found = of(copy(megabytes, flops=10**6), l2)
            assert (found.sheet_us or 0) <= found.floor_us <= found.time_us


# What to think of a time.


def test_percent_is_the_limit_over_the_time() -> None:
    add = of(copy(1000))
    time_us = 2 * add.time_us
    assert add.percent(time_us) == pytest.approx(50)
    assert mark(time_us, add, copy(1000)) == refusal(time_us, add, copy(1000)) == ""


def test_a_percent_or_two_beyond_is_the_ceilings_own_noise() -> None:
    add = of(copy(1000))
    assert mark(add.time_us / 1.015, add, copy(1000)) == ""


def test_more_than_that_is_marked() -> None:
    work = dataclasses.replace(copy(5000), read_bytes=9000 * MB, written_bytes=1000 * MB)
    time_us = of(work).time_us / 1.04
    found = mark(time_us, of(work), work)
    assert found.startswith("104 % of the limit, more than was ever measured on this GPU")
    assert "doubt that it touches its tensors whole" in found
    assert not refusal(time_us, of(work), work)


def test_a_mark_doubts_the_work_that_was_declared() -> None:
    work = Work(read_bytes=9000 * MB, written_bytes=1000 * MB, declared=True)
    assert "doubt its `work`" in mark(of(work).time_us / 1.04, of(work), work)


def test_writes_that_stayed_in_l2_are_a_softer_mark() -> None:
    small = of(copy(50))
    time_us = small.floor_us * 1.05
    assert small.percent(time_us) > 130
    assert mark(time_us, small, copy(50)).endswith("its writes stay in L2, in part or all")
    assert not refusal(time_us, small, copy(50))


def test_float32_above_its_plain_rate_is_marked_as_tensor_cores_at_work() -> None:
    work = Work(read_bytes=MB, written_bytes=MB, flops=10**12, dtype="float32", declared=True)
    time_us = of(work).time_us / 3
    assert "tf32" in mark(time_us, of(work), work)
    assert not refusal(time_us, of(work), work)


def test_faster_than_the_datasheet_is_refused_with_its_causes() -> None:
    work = copy(5000, declared=True)
    found = refusal(100.0, of(work), work)
    assert found.startswith("100 us is less than the 2070 us that this GPU's datasheet allows for 1e+04 MB")
    assert "`work` that claims more" in found
    assert "remembered from an earlier call" in found
    assert "outside of the timed window" in found


def test_without_declared_work_the_refusal_asks_for_it() -> None:
    found = refusal(100.0, of(copy(5000)), copy(5000))
    assert "tensors that are not read or written whole" in found
    assert ".work" in found.splitlines()[-1]


def test_arithmetic_beyond_tensor_cores_is_refused() -> None:
    work = Work(read_bytes=MB, written_bytes=MB, flops=10**12, dtype="float32", declared=True)
    found = refusal(of(work).time_us / 10, of(work), work)
    assert "1000 GFLOP in float32" in found


def test_a_coarse_clock_gets_the_benefit_of_the_doubt() -> None:
    tiny = Work(read_bytes=20 * MB, written_bytes=0)
    sheet_us = of(tiny).sheet_us
    assert sheet_us is not None
    assert refusal(sheet_us - 0.3, of(tiny), tiny)
    assert not refusal(sheet_us - 0.3, of(tiny), tiny, resolution_us=0.5)


def test_a_time_of_nothing_is_refused() -> None:
    found = refusal(0.0, of(copy(1000)), copy(1000))
    assert found

"""Benchmark reports made by hand, for the tests of what is said of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.reports.comparison import Change, ChangeVerdict, RowComparison
from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.results import BenchKey, BenchRow, Block, CallTime, Clocks, Machine, Measured, Protocol
from dotcu.benchmark.statistics import Ratio, Summary
from dotcu.benchmark.work import Work

H200 = Machine(
    gpu="NVIDIA H200",
    uuid="GPU-6b1e",
    capability="9.0",
    l2_bytes=60 * 2**20,
    memory_bytes=141 * 10**9,
    host="host",
    versions={
        "dotcu": "0.1.0",
        "torch": "2.11.0+cu130",
        "cuda of torch": "13.0",
        "driver": "580.95.05",
        "nvrtc": "13.0",
        "python": "3.12.3",
        "triton": "3.6.0",
    },
    clocks={"sm": 1980, "memory": 3201},
)
COPY_OF_TWO = "memory, 2 reads to 1 write, 4.39 TB/s"


def summary(median_us: float, *, noise: float = 0.001, iqr: float = 0.004, spread: float = 0.02) -> Summary:
    """Figures around a median; each of the others is a share of it."""
    return Summary(
        median_us=median_us,
        p25_us=median_us * (1 - iqr / 2),
        p75_us=median_us * (1 + iqr / 2),
        p5_us=median_us * (1 - spread / 2),
        p95_us=median_us * (1 + spread / 2),
        low_us=median_us * (1 - noise),
        high_us=median_us * (1 + noise),
        n=200,
        blocks=20,
    )


def near(value: float, within: float = 0.002) -> Ratio:
    return Ratio(value=value, low=value - within, high=value + within)


def row(
    us: float | None = 46.0,
    *,
    op: str = "mylib::add",
    case: str = "float32-4096x4096",
    contender: str = "dotcu",
    l2: str = "cold",
    moved: int = 3 * 2**26,
    limit_us: float | None = 45.86,
    what: str = COPY_OF_TWO,
    **told: Any,
) -> BenchRow:
    """A row that was measured; without a time, one that was not."""
    time = None if us is None else summary(us)
    given: dict[str, Any] = {
        "dtype": case.partition("-")[0],
        "elements": moved // 12,
        "bytes": moved,
        "status": "measured" if us else "failed",
        "time": time,
        "host": summary(4.1, iqr=0.05) if us else None,
        "work": Work(read_bytes=moved * 2 // 3, written_bytes=moved // 3),
    }
    if limit_us is not None:
        given["limit"] = Limit(time_us=limit_us, what=what, floor_us=limit_us * 0.8, sheet_us=limit_us * 0.9)
        given["percent"] = 100 * limit_us / us if us else None
    key = BenchKey(op=op, case=case, contender=contender, l2=l2)  # type: ignore[arg-type]
    return BenchRow(key=key, **given | told)


def blocks(*states: Clocks) -> tuple[Block, ...]:
    return tuple(Block(calls=(CallTime(time_us=1.0),), before=one, after=one) for one in states)


def measured(*states: Clocks, by: str = "cupti", stopped: str = "noise") -> Measured:
    """Raw samples, of which a report shows the clocks, the timer and why they ended."""
    found = blocks(*states)
    return Measured(contender="dotcu", l2="cold", by=by, blocks=found, stopped=stopped)  # type: ignore[arg-type]


def change(verdict: ChangeVerdict, value: float = 1.0, note: str = "") -> Change:
    return Change(verdict=verdict, ratio=near(value, 0.004), confidence=0.99, note=note)


def compared(row: BenchRow, change: Change | None, note: str = "", *, lost: bool = False) -> RowComparison:
    return RowComparison(row=row, change=change, note=note, lost=lost)


def report(*rows: BenchRow, **changes: Any) -> BenchReport:
    """A report of a run on an H200, with some fields changed."""
    default: dict[str, Any] = {"machine": H200, "protocol": Protocol(), "by": "cupti"}
    return BenchReport(rows=rows, **default | changes)


def sweep(
    op: str = "mylib::add",
    *,
    exponents: Iterable[int] = range(10, 30, 2),
    contenders: Iterable[str] = ("dotcu", "eager", "compile", "max-autotune"),
    states: Iterable[str] = ("cold", "warm"),
    dtype: str = "float32",
    seed: int = 0,
) -> list[BenchRow]:
    """Rows of an operator that reads two tensors and writes one, over sizes, with plausible figures."""
    chance, rows = random.Random(seed), []
    speeds = dict(zip(contenders, (1.0, 1.04, 1.015, 1.01, 1.3), strict=False))
    for n in (2**exponent for exponent in exponents):
        moved = 12 * n
        for l2 in states:
            fits = moved < H200.l2_bytes
            bandwidth = 4.39e6 if l2 == "cold" or not fits else 9.1e6
            limit_us = moved / bandwidth
            own = 0.0
            for contender, speed in speeds.items():
                us = (1.9 * speed + limit_us * 1.004 * speed) * chance.uniform(0.995, 1.005)
                own = own or us
                what = COPY_OF_TWO if l2 == "cold" or not fits else "L2, 2 reads to 1 write, 9.10 TB/s"
                rows.append(
                    row(
                        us,
                        op=op,
                        case=f"{dtype}-{n}",
                        contender=contender,
                        l2=l2,
                        moved=moved,
                        limit_us=limit_us,
                        what=what,
                        dtype=dtype,
                        elements=n,
                        time=summary(us, noise=chance.uniform(0.0005, 0.004)),
                        ratio=None if contender == "dotcu" else near(us / own, 0.006),
                        measured=measured(
                            Clocks(
                                sm_mhz=chance.choice([1980, 1965]),
                                memory_mhz=3201,
                                temperature_c=chance.randint(38, 52),
                                power_w=chance.uniform(180, 520),
                            )
                        ),
                    )
                )
    return rows

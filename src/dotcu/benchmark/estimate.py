"""An estimate without a GPU: counts of the simulator, and the least time of a named GPU.

A bound, not a measurement: a kernel may take many times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dotcu.benchmark.limits.datasheet import Sheet, named
from dotcu.benchmark.limits.limit import tflops
from dotcu.benchmark.work import Work, counted, work_of
from dotcu.errors import CompileError, OperatorError
from dotcu.tracebacks import first_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dotcu.kernel.launch_policy import LaunchRecord
    from dotcu.operator import Overload, Sample

DEFAULT_GPU = "H200"

DTYPES: Mapping[str, str] = {
    "f64": "float64", "f32": "float32", "tf32": "tf32", "f16": "float16", "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "s8": "int8", "u8": "int8",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
}  # fmt: skip
"""The types of PTX and Tile IR as torch has them, those that datasheets have rates of."""


@dataclass(frozen=True, kw_only=True)
class EstimatedCall:
    """One call, as far as it could be simulated.

    Attributes:
        asked_bytes: That its kernels' lanes asked global memory for.
        sector_efficiency: The least sectors that hold these bytes, over those that were touched.
        operations: That its kernels did, by PTX type.
        bound_us: The least time on the GPU, by its datasheet, and `what` sets it.
        compiles: False if a kernel of it does not compile.
    """

    op: str
    case: str
    work: Work
    launches: tuple[LaunchRecord, ...] = ()
    asked_bytes: int | None = None
    sector_efficiency: float | None = None
    operations: Mapping[str, int] = field(default_factory=dict)
    bound_us: float | None = None
    what: str = ""
    notes: tuple[str, ...] = ()
    compiles: bool = True


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The datasheet of a GPU, and calls that were bounded by it: no measurements."""

    sheet: Sheet
    calls: tuple[EstimatedCall, ...]


def estimate(calls: Iterable[tuple[Overload, str, Sample]], gpu: str = DEFAULT_GPU) -> Estimate:
    """Simulate calls, each an overload, a case's name and its arguments, and bound their time on a GPU."""
    sheet = named(gpu)
    return Estimate(sheet=sheet, calls=tuple(_estimated(*call, sheet) for call in calls))


def _estimated(overload: Overload, case: str, sample: Sample, sheet: Sheet) -> EstimatedCall:
    notes, compiles = [], True
    ours, result, counters = sample, None, None
    launches: tuple[LaunchRecord, ...] = ()
    try:
        ours, result, launches, counters = counted(overload, sample)
    except OperatorError as error:
        compiles = not isinstance(error.__cause__, CompileError)
        notes.append(str(error) if compiles else first_lines(error.__cause__ or error))
    try:
        work = work_of(overload, ours, result)  # without a result, that of the arguments: not too much
    except OperatorError as error:
        notes.append(str(error).splitlines()[0])
        work = Work(read_bytes=0, written_bytes=0)
    operations = {} if counters is None else dict(counters.operations)
    bound_us, what = _bound(work, operations, sheet)
    return EstimatedCall(
        op=overload.qualified_name, case=case, work=work, launches=launches,
        asked_bytes=None if counters is None else counters.global_bytes,
        sector_efficiency=counters.sector_efficiency if counters and counters.global_sectors else None,
        operations=operations, bound_us=bound_us or None, what=what, notes=tuple(notes), compiles=compiles,
    )  # fmt: skip


def _bound(work: Work, operations: Mapping[str, int], sheet: Sheet) -> tuple[float, str]:
    """Return the least time in us for some work and the operations that were counted, and what sets it.

    The bytes of the work count: what kernels ask for again may come from a cache.
    """
    done = {DTYPES[name]: count for name, count in operations.items() if name in DTYPES and count}
    if not done and work.flops:
        done = {work.dtype: work.flops}
    bounds = [(work.bytes / sheet.memory_gbps / 1e3, f"memory, {sheet.memory_gbps / 1e3:.4g} TB/s")]
    for dtype, count in done.items():
        rate = tflops(sheet, dtype)
        if rate is not None:
            bounds.append((count / rate / 1e6, f"{dtype} arithmetic, {rate:.4g} TFLOP/s"))
    time_us, what = max(bounds)
    return time_us, what if time_us else ""

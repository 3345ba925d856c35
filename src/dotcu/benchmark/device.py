"""The device of a benchmark: its clocks, its timer, and what it can do at best.

NVML reports clocks, through `pynvml` of the package nvidia-ml-py. Where it is missing, clocks are unknown and
nothing fails: `nvml_missing()` says why.
"""

from __future__ import annotations

import functools
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from importlib import metadata
from typing import Any

import torch

from dotcu.__about__ import __version__
from dotcu.benchmark.limits import ceilings, datasheet
from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.benchmark.limits.datasheet import Sheet
from dotcu.benchmark.limits.limit import Limit, limit
from dotcu.benchmark.results import L2, Block, Clocks, Machine
from dotcu.benchmark.timers import TimedCall, Timer, choose
from dotcu.benchmark.work import Work
from dotcu.compile import driver, toolchain
from dotcu.errors import DotcuError
from dotcu.tracebacks import one_line

REASONS: Mapping[str, int] = {
    "idle": 0x1, "application clocks": 0x2, "power cap": 0x4, "hardware slowdown": 0x8, "sync boost": 0x10,
    "thermal slowdown": 0x20, "hardware thermal slowdown": 0x40, "power brake": 0x80,
    "display clocks": 0x100, "board limit": 0x200, "reliability": 0x400,
}  # fmt: skip
"""Reasons for low clocks, with their bits in NVML's mask.
Source: nvml.h, nvmlClocksEventReasons (nvmlClocksThrottleReasons, before driver 535)."""

DROPPING = frozenset({"hardware slowdown", "thermal slowdown", "hardware thermal slowdown", "power brake"})
"""Reasons under which samples are dropped. The power cap is the steady state of a GPU that is busy with
matrices: its figures are right, and others get them too."""

_LEAST_CLOCK = 0.75
"""The share of the highest SM clock seen below which a block is dropped: a GPU was slowed down, or not awake.
Source: NVBench's `--throttle-threshold`."""

_SILENT = {"idle"}  # clocks are read between blocks, where a GPU has nothing to do


def read_clocks(device: torch.device) -> Clocks:
    """Return the clocks of a GPU now, without waiting for it; empty without NVML. Takes some 5 ms."""
    handle = _handle(device)
    if handle is None:
        return Clocks()
    nvml, _ = _nvml()
    milliwatts = _ask("nvmlDeviceGetPowerUsage", handle)
    bits = _ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:
        bits = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    return Clocks(
        sm_mhz=_ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
        memory_mhz=_ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
        temperature_c=_ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if milliwatts is None else milliwatts / 1e3,
        reasons=tuple(name for name, bit in REASONS.items() if bits & bit),
    )


def highest_clocks(device: torch.device) -> Mapping[str, int]:
    """Return the highest clocks of a GPU in MHz, "sm" and "memory", as far as NVML knows them."""
    handle = _handle(device)
    if handle is None:
        return {}
    nvml, _ = _nvml()
    kinds = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    asked = {name: _ask("nvmlDeviceGetMaxClockInfo", handle, kind) for name, kind in kinds.items()}
    return {name: mhz for name, mhz in asked.items() if mhz is not None}


def nvml_missing() -> str:
    """Return why clocks are unknown, and what to do; empty where NVML works."""
    return _nvml()[1]


@functools.cache
def _nvml() -> tuple[Any, str]:
    """Return NVML, or None and why it is missing."""
    try:
        import pynvml
    except ImportError:
        return None, "pynvml is not installed: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return pynvml, ""


@functools.cache
def _handle(device: torch.device) -> Any:
    """Return NVML's handle of a torch device; None where there is none."""
    if _nvml()[0] is None or device.type != "cuda":
        return None
    uuid = torch.cuda.get_device_properties(device).uuid
    handle = _ask("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}")
    if handle is None:  # a part of a GPU has the clocks of the whole one
        part = _ask("nvmlDeviceGetHandleByUUID", f"MIG-{uuid}")
        handle = part and _ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
    return handle


def _ask(function: str, *args: Any) -> Any:
    """Call a function of NVML; return None where it fails, or is missing in an old version."""
    nvml, _ = _nvml()
    try:
        return getattr(nvml, function)(*args)
    except (nvml.NVMLError, AttributeError):
        return None


def throttled_blocks(blocks: Sequence[Block]) -> dict[int, str]:
    """Return the positions of blocks to drop, and why: for a reason at either end of it."""
    highest_mhz = max(sm_mhz(blocks), default=0)
    lost: dict[int, str] = {}
    for at, block in enumerate(blocks):
        for when, clocks in (("before", block.before), ("after", block.after)):
            reasons = [f"{reason} {when} it" for reason in clocks.reasons if reason in DROPPING]
            if clocks.sm_mhz is not None and clocks.sm_mhz < _LEAST_CLOCK * highest_mhz:
                reasons.append(f"SM clock {clocks.sm_mhz} MHz {when} it, {highest_mhz} MHz at its highest")
            if reasons:
                lost.setdefault(at, reasons[0])
    return lost


def steady_samples(*contenders: Sequence[Block]) -> tuple[list[list[float]], ...]:
    """Return the samples of each contender, by blocks that none of them drops: block i of each is paired."""
    lost = {at for blocks in contenders for at in throttled_blocks(blocks)}
    lost |= {at for blocks in contenders for at, block in enumerate(blocks) if not block.calls}
    positions = [at for at in range(min(map(len, contenders))) if at not in lost]
    return tuple([list(blocks[at].times_us) for at in positions] for blocks in contenders)


def throttling_notes(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return remarks on what limited the GPU, and on clocks and temperatures that changed."""
    ends = [clocks for block in blocks for clocks in (block.before, block.after)]
    limits = Counter(reason for b in blocks for reason in {*b.before.reasons, *b.after.reasons} - _SILENT)
    kept = [(reason, count) for reason, count in limits.most_common() if reason not in DROPPING]
    notes = [f"{reason} in {count} of {len(blocks)} blocks" for reason, count in kept]
    mhz, degrees = sm_mhz(blocks), [end.temperature_c for end in ends if end.temperature_c is not None]
    if mhz and min(mhz) < 0.97 * max(mhz):
        notes.append(f"SM clock {min(mhz)} to {max(mhz)} MHz")
    if degrees and max(degrees) - min(degrees) >= 10:
        notes.append(f"temperature {min(degrees)} to {max(degrees)} C")
    return tuple(notes)


def sm_mhz(blocks: Sequence[Block]) -> list[int]:
    """Return the SM clocks before and after each block, as far as they are known."""
    seen = (clocks.sm_mhz for block in blocks for clocks in (block.before, block.after))
    return [mhz for mhz in seen if mhz is not None]


PACKAGES = ("triton", "numpy", "cuda-bindings", "nvidia-ml-py")  # baselines and timers depend on them


def describe_machine(device: torch.device) -> Machine:
    """Return the machine, its GPU and the versions of what takes part."""
    nvml, _ = _nvml()
    by_nvml = "" if nvml is None else _ask("nvmlSystemGetDriverVersion")
    versions = {
        "dotcu": __version__,
        "torch": str(torch.__version__),
        "cuda of torch": torch.version.cuda or "",
        "driver": str(by_nvml or ".".join(map(str, driver.version() or ()))),  # else the CUDA it supports
        "nvrtc": "",
        "python": platform.python_version(),
    }
    with suppress(DotcuError):
        versions["nvrtc"] = ".".join(map(str, toolchain.nvrtc().version))
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    host = platform.node()
    if device.type != "cuda":
        return Machine(host=host, versions=versions, clocks={})
    gpu = torch.cuda.get_device_properties(device)
    return Machine(
        gpu=gpu.name, uuid=str(gpu.uuid), capability=f"{gpu.major}.{gpu.minor}", l2_bytes=gpu.L2_cache_size,
        memory_bytes=gpu.total_memory, host=host, versions=versions, clocks=highest_clocks(device),
    )  # fmt: skip


CEILING_CALLS, CEILING_HOLD_US = 15, 100.0  # whose median is a ceiling, and the time to queue one of them


class BenchDevice:
    """A GPU in a benchmark. Its ceilings are measured before the first row, and saved for later runs."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._ceilings: Ceilings | None = None
        self._missing: dict[str, str] = {}  # why rates are unknown, by dtype; by "" why all are

    @cached_property
    def machine(self) -> Machine:
        """The machine of the run."""
        return describe_machine(self.device)

    @cached_property
    def timer(self) -> Timer:
        """The timer of device time."""
        with self.current():
            return choose(self.device)

    def current(self) -> AbstractContextManager[object]:
        """Make the GPU torch's current one, until the block ends."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    @cached_property
    def sheet(self) -> Sheet | None:
        """The GPU's datasheet."""
        return datasheet.of_device(self.device, sm_mhz=self.machine.clocks.get("sm", 0))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on all rows: timers that could not be used, and what is unknown."""
        why = [f"{means} was not used: {reason}" for means, reason in self.timer.why.items()]
        sheet = "" if self.sheet else f"no datasheet of {self.machine.gpu} is known: nothing is refused"
        return tuple(filter(None, (*why, nvml_missing(), *self._missing.values(), sheet)))

    def limit(self, work: Work, l2: L2) -> Limit | None:
        """Return the least time that the GPU needs for some work; None where it is not known."""
        known = self.bandwidths()
        if known is not None and work.flops:
            try:
                known = ceilings.with_rates(known, work.dtype, self.device, self._cold_us)
            except Exception as error:  # too little memory; or the GPU is unusable, which the next call shows
                self._missing[work.dtype] = f"no limit of {work.dtype} arithmetic: {one_line(error)}"
                return None  # a limit of the bytes alone would look like the whole
            self._missing.pop(work.dtype, None)
            if known is not self._ceilings:
                self._ceilings = known
                ceilings.save(known)
        if known is None:
            return None
        return limit(work, known, self.sheet, l2=l2, l2_bytes=self.machine.l2_bytes)

    def bandwidths(self) -> Ceilings | None:
        """Return the ceilings; if measuring them fails, notes say so, and it is not tried again."""
        if self._ceilings is None and not self._missing:
            try:
                uuid, driver = self.machine.uuid, self.machine.versions["driver"]
                self._ceilings = ceilings.read_saved(uuid, driver)
                if self._ceilings is None:
                    self._ceilings = ceilings.measure_bandwidths(
                        self.device, time_cold=self._cold_us,
                        time_warm=lambda run: self._median_us(run, prepare=run), uuid=uuid, driver=driver,
                    )  # fmt: skip
                    ceilings.save(self._ceilings)
            except Exception as error:  # a run without limits is better than none
                self._missing[""] = f"no limits: {one_line(error)}"
        return self._ceilings

    def _cold_us(self, run: Callable[[], Any]) -> float:
        return self._median_us(run, prepare=self.timer.helpers.flush)

    def _median_us(self, run: Callable[[], Any], *, prepare: Callable[[], Any]) -> float:
        timed_call = TimedCall(name="ceiling", run=run, prepare=prepare, hold_us=CEILING_HOLD_US)
        return statistics.median(call.time_us for call in self.timer.time([timed_call] * CEILING_CALLS))

"""The worker of `dotcu watch`: loads a target, again and again in one process, tries it and times it."""

from __future__ import annotations

import functools
import importlib
import linecache
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

from dotcu.benchmark import bencher
from dotcu.benchmark.reports.comparison import Change, compare
from dotcu.benchmark.results import Measured, Protocol
from dotcu.benchmark.timing import TimedCase
from dotcu.checking import checker
from dotcu.checking.report import CheckReport, nothing_tried
from dotcu.checking.results import CheckResult, Trial
from dotcu.checking.running import Runner, require_usable
from dotcu.checking.target import resolve, resolve_device
from dotcu.compile import Target, plan_build
from dotcu.errors import DotcuError, EnvironmentFault, UsageError
from dotcu.kernel.compiled import target_of
from dotcu.kernel.module import Module, live_modules
from dotcu.operator import Operator, register
from dotcu.serialize import from_plain, plain
from dotcu.tracebacks import is_user_file
from dotcu.watching.watcher import WatchEvent
from dotcu.workers import Channel


def serve(request: Any, channel: Channel) -> None:
    """Try a version, and reply with events, until another one is asked for."""
    sys.dont_write_bytecode = True  # Python takes a .pyc for that of a save in the same second
    wanted = request["device"], request["seed"], request["good"]
    for event in events(_loader(request["target"]), *wanted):
        channel.reply({"number": request["number"], **event})
        if channel.superseded:
            return


def events(
    loader: Loader, device: str | None, seed: int = 0, good: Sequence[Mapping[str, Any]] = ()
) -> Iterator[WatchEvent]:
    """Yield the events of the present version of a target; `good` has the times of the last that passed."""
    yield {"event": "begun"}
    try:
        place = resolve_device(device)
    except UsageError as error:
        yield {"event": "refused", "kind": "UsageError", "message": str(error)}
        return
    try:
        yield from _tried(loader, place, seed, good)
    except EnvironmentFault as error:
        yield {"event": "refused", "kind": type(error).__name__, "message": str(error)}
    except DotcuError as error:
        yield {"event": "watched", "folders": loader.folders(error)}
        again = loader.loads > 1 and not isinstance(error.__context__, SyntaxError)
        yield {"event": "unloadable", "message": str(error), "again": again}


def _tried(
    loader: Loader, device: torch.device, seed: int, good: Sequence[Mapping[str, Any]]
) -> Iterator[WatchEvent]:
    named = loader.load()
    operators = [operator for _, operator in named]
    reproduce = checker.by_command(loader.target, named)
    planned = checker.prepare(operators, device=device, level="quick", seed=seed, reproduce=reproduce)
    overloads = [subject.name for subject in planned.subjects]
    where, trials = planned.subjects[0].where, len(planned.trials)
    yield {"event": "planned", "device": where, "overloads": overloads, "trials": trials}
    results: list[CheckResult] = []
    runner, start = Runner(), time.perf_counter()
    for trial in soonest(planned.trials):
        yield {"event": "trying", "trial": str(trial.id)}
        new = [planned.reproducible(result) for result in runner.run(trial)]
        yield {"event": "tried", "trial": str(trial.id), "results": new}
        require_usable(device)
        if not results:  # not before: the first result is waited for
            yield {"event": "watched", "folders": loader.folders()}
        results += new
    report = planned.report(results, seconds=time.perf_counter() - start, interrupted=False)
    untried = list(_not_tried(report))
    yield {"event": "checked", "passed": report.passed, "not_tried": untried, "seconds": report.seconds}
    yield {"event": "compiled", "kernels": kernel_resources(loader.modules(), device)}
    if report.passed and device.type == "cuda":
        yield {"event": "timed", "timings": list(timings(operators, device, seed, good))}
        require_usable(device)
    yield {"event": "done"}


def soonest(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials with the first call of each overload before everything else."""
    first: dict[str, Trial] = {}
    for trial in trials:
        if trial.kind == "call":
            first.setdefault(trial.overload, trial)
    return sorted(trials, key=lambda trial: trial is not first.get(trial.overload))


def _not_tried(report: CheckReport) -> Iterator[str]:
    for overload in report.overloads:
        if any(result.trial.overload == overload.name for result in report.results):
            dtypes = report.not_tried(overload.name)
            yield from (f"{overload.name}: {dtype}: {reason}" for dtype, reason in dtypes.items())
        else:
            yield f"{overload.name}: {nothing_tried(overload.name)}"


class Loader:
    """Loads a target from the files as they are: the user's own modules again, but not what is installed."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._place = target.partition(":")[0]
        self._before = frozenset(sys.modules)
        self._stale: WeakSet[Module] = WeakSet()
        self.loads = 0

    def load(self) -> list[tuple[str, Operator]]:
        """Return the operators of the target, with their Python names."""
        names = [name for name, _ in self._own()]
        for name in names:
            del sys.modules[name]
        register.withdraw_of(names)
        self._stale.update(live_modules)
        importlib.invalidate_caches()
        linecache.checkcache()
        self.loads += 1
        return resolve(self.target, verb="watch")

    def modules(self) -> list[Module]:
        """Return the kernels that were loaded for this version."""
        return [module for module in live_modules if module not in self._stale]

    def folders(self, error: BaseException | None = None) -> list[str]:
        """Return the folders of all files that were loaded, and those where a save may mend an error."""
        place = Path(self._place)
        folders = {Path(file).parent for _, file in self._own()}
        folders |= {place.parent} if place.suffix == ".py" else set()
        for module in self.modules():
            folders.update(_source_folders(module))
        while error is not None:
            folders.update(_folders_of_error(error, place.resolve().parent))
            error = error.__context__  # also where it is not shown as the cause
        return sorted({str(folder.resolve()) for folder in folders})

    def _own(self) -> Iterable[tuple[str, str]]:
        """Yield the names and files of the user's own modules that were imported for the target."""
        for name in sorted(sys.modules.keys() - self._before):
            file = getattr(sys.modules[name], "__file__", None)
            is_target = f"{name}.".startswith(f"{self._place}.")
            if file and file.endswith(".py") and (is_user_file(file) or is_target):
                yield name, file


_loader = functools.cache(Loader)


def _source_folders(module: Module) -> Iterator[Path]:
    """Yield the folders of a source and of its headers, and those that a missing header would be found in."""
    source = module.source
    files = [source.path] if source.path else []
    any_target = Target.parse("compute_80")  # which headers a source reaches depends on no target
    with suppress(DotcuError):  # such as a missing header: the check reports it
        includes = plan_build(source, options=module.options, target=any_target, names=()).includes
        files += [header.path for header in includes.headers.values() if header.path]
        around = {*source.include, *(file.parent for file in files)}
        yield from ((folder / spelled).parent for spelled in includes.missing for folder in around)
    yield from source.include
    yield from (file.parent for file in files)


def _folders_of_error(error: BaseException, folder: Path) -> Iterator[Path]:
    """Yield the folders of the user's files that an error came through, or that it could not find."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if is_user_file(frame.f_code.co_filename):
            yield Path(frame.f_code.co_filename).parent
    if isinstance(error, (OSError, SyntaxError)) and isinstance(error.filename, str):
        yield Path(error.filename).parent
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = folder.joinpath(*error.name.split("."))
        yield from (module.parent, module)


def kernel_resources(modules: Iterable[Module], device: torch.device) -> list[dict[str, Any]]:
    """Return what each compiled kernel takes, for the GPU or else sm_90a, as far as it can be assembled."""
    target = target_of(device.index or 0) if device.type == "cuda" else Target.parse("sm_90a")
    rows = []
    for unit in (unit for module in modules for unit in module.units() if unit.codes()):
        with suppress(DotcuError):
            code = unit.build(target)
            for name in unit.names:
                taken = code.resources.get(code.lowered.get(name, ""))
                if taken is not None:
                    rows.append({
                        "kernel": name, "arch": str(target), "registers": taken.registers,
                        "smem_bytes": taken.smem_bytes, "stack_bytes": taken.stack_bytes,
                        "spill_bytes": taken.spill_store_bytes + taken.spill_load_bytes,
                    })  # fmt: skip
    return sorted(rows, key=lambda row: str(row["kernel"]))


QUICK = Protocol(
    warmup_s=0.05, warmup_most_s=0.5, blocks=6, most_blocks=15, most_calls=50, block_s=0.01, noise=0.01,
    least_s=0.05, most_s=1.0,
)  # fmt: skip
"""Enough blocks that two versions can be compared, in less time than it takes to look at the page."""


def timings(
    operators: Iterable[Operator], device: torch.device, seed: int, good: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Time the first case of each operator with a cold L2, against the `good` times of the same cases."""
    protocol = replace(QUICK, seed=seed)
    plan = bencher.prepare(list(operators), against=(), l2=("cold",), device=device, protocol=protocol)
    timed = [case for case in plan.cases if isinstance(case, TimedCase)]
    firsts = {case.target.name: case for case in reversed(timed)}
    before = {(row["op"], row["case"]): row["measured"] for row in good}
    for row in (row for case in timed if firsts[case.target.name] is case for row in case.rows()):
        timing = {"op": row.key.op, "case": row.key.case, "median_us": 0.0, "measured": None, "change": None}
        if row.time is None or row.measured is None:
            yield timing | {"note": f"{row.status}: {row.reason}"}
            continue
        timing |= {"median_us": row.time.median_us, "measured": plain(row.measured), "note": ""}
        old = before.get((row.key.op, row.key.case))
        change = None if old is None else compare(from_plain(Measured, old), row.measured)
        is_known = isinstance(change, Change)
        note = f"not compared: {change}" if change and not is_known else ""
        yield timing | {"change": plain(change) if is_known else None, "note": note}

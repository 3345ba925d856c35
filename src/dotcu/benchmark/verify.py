"""Verification of contenders on the inputs that they are timed on: before they are timed, and while they are.

Before: each contender is called twice on one set of inputs, with other values in the same memory the second
time, so that a remembered result is wrong. The second time all other streams sleep, so that work on them
comes too late. The operator is called before its reference computes, and each result is overwritten once it
is copied: no memory holds the right answer for a later call.

While timed: results of a few calls, chosen at random, are copied, and verified once the timing is done.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor

from dotcu.benchmark.results import OWN, Status
from dotcu.benchmark.targets import BenchTarget, Call, Results
from dotcu.benchmark.workloads.input_values import InputValues
from dotcu.benchmark.workloads.workload import free_bytes
from dotcu.checking.memory import opaque, require_memory, same_bits, shared, snapshot, span
from dotcu.checking.trials import gpu
from dotcu.errors import BodyError
from dotcu.operator import Sample
from dotcu.tracebacks import first_lines

SLEEP_CLOCKS = 20_000_000
"""Clocks that other streams sleep: some 10 ms. Queueing a call that was made before takes less than one."""

BLOCKS = 3
"""Free blocks of memory of a result's size that are overwritten: torch's allocator may return any of them."""

POISON = 0xFF
"""A byte that makes NaN of every floating-point type."""

SPARE = 4
"""Times a result's bytes that must be free before it is copied: the timed calls need memory, too."""

COPIES = 4
"""Copies of a contender's results, the latest among them; the others are a random choice."""

LARGE = 2**24
"""Elements of results above which only two copies are made: to verify one takes a second."""

Failures = dict[str, tuple[Status, str]]
"""Contenders that may not be timed, by name: "failed" if one raised, "wrong" if its result is; and why."""


def verify(target: BenchTarget, calls: Mapping[str, Call], sample: Sample, values: InputValues) -> Failures:
    """Verify contenders before they are timed, and return those that may not be.

    Args:
        target: The target, with its oracle.
        calls: The calls of contenders by name, the operator's first.
        sample: One of the timed sets of inputs; its values change.
        values: Writes new values into it.

    Note:
        Synchronizes. Makes the first call of each contender, so torch.compile compiles here.
    """
    failures = _verify_turn(target, calls, sample, values, turn=1)
    passed = {name: call for name, call in calls.items() if name not in failures}
    return failures | _verify_turn(target, passed, sample, values, turn=2)


def _verify_turn(
    target: BenchTarget, calls: Mapping[str, Call], sample: Sample, values: InputValues, turn: int
) -> Failures:
    """Return the contenders that fail or are wrong with the values of the first or the second turn."""
    try:
        inputs = values.inputs(turn)
    except Exception as error:  # too little memory, or a kernel made the GPU unusable
        return dict.fromkeys(calls, ("failed", f"no inputs could be made: {first_lines(error)}"))
    failures: Failures = {}
    results: dict[str, Results] = {}
    for name, call in calls.items():
        try:
            values(sample, turn)
            got = _call(target, name, call, sample, inputs, others_asleep=turn > 1)
        except (Exception, SystemExit) as error:
            failures[name] = "failed", first_lines(error)
            continue
        if isinstance(got, str):
            failures[name] = "wrong", got
        else:
            results[name] = got
        del got
    if results and not target.unverified:
        again = ", called again with other values in the same memory, after it was right at first"
        wrong = f"is wrong{again if turn > 1 else ''}"
        try:
            errors = target.find_errors(inputs, results)
            failures |= {name: ("wrong", f"{wrong}: {why}") for name, why in errors.items() if why}
        except Exception as error:
            reason = f"the reference fails, so nothing can be verified: {first_lines(error)}"
            failures |= dict.fromkeys(results, ("failed", reason))
    sizes = [tensor.nbytes for own in results.values() for tensor in own]
    del inputs, results
    _overwrite_free_memory(sizes, target.device)
    return failures


def _call(
    target: BenchTarget, name: str, call: Call, sample: Sample, inputs: Sample, *, others_asleep: bool
) -> Results | str:
    """Make a call, and return copies of its results as torch's current stream sees them, or what is wrong.

    Wrong is a result that cannot be read, or a call that changes memory that is not its own. All other
    streams of a GPU may sleep meanwhile.
    """
    on_gpu = target.device.type == "cuda"
    current = torch.cuda.device(target.device) if on_gpu else nullcontext()
    with current, target.context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice of torch's compiler
        if on_gpu and others_asleep:
            torch.cuda.synchronize()
            here = torch.cuda.current_stream()
            gpu.sleep([stream for stream in gpu.side_streams() if stream != here], SLEEP_CLOCKS)
        result = call(sample)
        got = target.results(sample, result)
        error = unreadable(target, got)
        copies = () if error else tuple(map(snapshot, got))
    if on_gpu:
        torch.cuda.synchronize(target.device)  # raises the faults of the kernel
    if error := error or _misuse(target, name, got, sample, inputs):
        return error
    del result, got
    _overwrite_free_memory([copy.nbytes for copy in copies], target.device)
    return copies


def _overwrite_free_memory(sizes: Sequence[int], device: torch.device) -> None:
    """Poison the memory that torch's allocator could return for tensors of some sizes, as far as it goes."""
    blocks = []
    with suppress(RuntimeError):  # too little memory; or the GPU is unusable, which the next call shows
        for size in sizes if device.type == "cuda" else ():
            for _ in range(BLOCKS):
                blocks.append(torch.empty(size, dtype=torch.uint8, device=device).fill_(POISON))


def unreadable(target: BenchTarget, got: Sequence[Tensor]) -> str:
    """Return why results cannot be read as ordinary tensors of the device; empty where they can."""
    try:
        require_memory(got)
    except BodyError as error:
        return str(error)
    return "; ".join(opaque(got, target.device))


def _misuse(target: BenchTarget, name: str, got: Sequence[Tensor], sample: Sample, inputs: Sample) -> str:
    """Return what a call did to memory that is not its own; empty where nothing."""
    may_change = {id(tensor) for tensor in target.written(sample)}
    for i, (now, before) in enumerate(zip(sample.tensors, inputs.tensors, strict=True)):
        if id(now) not in may_change and not same_bits([now], [before]):
            return f"changes tensor {i} of its arguments, which it must not"
    if name != OWN or may_change:
        return ""
    taken = [(span(tensor), f"tensor {i} of its arguments") for i, tensor in enumerate(sample.tensors)]
    return "; ".join(shared(got, taken)) if sample.tensors else ""


class TimedResults:
    """Copies of results of timed calls, verified once the timing is done.

    Attributes:
        wrong: Errors of contenders by name, as far as they are verified: after an interrupt, too.
    """

    def __init__(self, target: BenchTarget, values: InputValues) -> None:
        self._target, self._values = target, values
        self._random = random.SystemRandom()  # no code can foresee it
        self._copies: defaultdict[str, list[tuple[int, Results]]] = defaultdict(list)  # with their turns
        self._seen: Counter[str] = Counter()
        self._verified: set[str] = set()
        self._missed: set[str] = set()
        self.wrong: dict[str, str] = {}

    def take(self, name: str, sample: Sample, result: Any) -> None:
        """Copy the result of a call, on torch's current stream; does not synchronize.

        Args:
            name, sample, result: The contender, its set of inputs, and the value that it returned.
        """
        if self._target.unverified:
            return
        try:
            got = self._target.results(sample, result)
            error = unreadable(self._target, got)
        except Exception as failure:  # of this contender alone: a timer would blame the device
            error = first_lines(failure)
        if error:
            self.wrong.setdefault(name, f"cannot be read where it is timed: {error}")
            return
        earlier = self._copies[name]
        self._seen[name] += 1
        most = COPIES if sum(tensor.numel() for tensor in got) <= LARGE else 2
        needed = SPARE * sum(tensor.nbytes for tensor in got)
        while earlier and (len(earlier) >= most or free_bytes(self._target.device) < needed):
            at = self._random.randrange(self._seen[name])  # the latest stays; each other as probably
            earlier.pop(at if at < len(earlier) - 1 else -1)
        try:
            if free_bytes(self._target.device) < needed:
                raise torch.OutOfMemoryError
            earlier.append((self._values.turns[id(sample)], tuple(map(snapshot, got))))
        except torch.OutOfMemoryError:
            self._missed.add(name)

    def verify(self) -> dict[str, str]:
        """Return the errors of contenders by name; one that is right is not in it.

        Note:
            Synchronizes, frees the copies, and begins a new choice among the results that come later.
        """
        self._seen.clear()
        for name in list(self._copies):
            for turn, results in self._copies.pop(name):
                try:
                    error = self._target.find_errors(self._values.inputs(turn), {name: results})[name]
                except torch.OutOfMemoryError:
                    self._missed.add(name)
                    continue
                except Exception as failure:
                    reason = f"could not be verified where it is timed: {first_lines(failure)}"
                    self.wrong.setdefault(name, reason)
                    continue
                self._verified.add(name)
                if error:
                    reason = f"was right at first, and is wrong where it is timed: {error}"
                    self.wrong.setdefault(name, reason)
        return self.wrong

    def mark(self, name: str) -> str:
        """Return a remark on results that could not be verified; empty where all were."""
        if name not in self._missed:
            return ""
        how = "verified only in part" if name in self._verified else "not verified"
        return f"{how} while it was timed: too little memory"

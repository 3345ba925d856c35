"""Verification of contenders on the inputs that they are timed on: before they are timed, and while they are.

Before: each contender is called twice on one set of inputs, with other values in the same memory the second
time, so that a remembered result is wrong. All other streams sleep then, so that work on them comes too late.
Results are overwritten once they are copied: no memory holds the right answer for a later call.

While timed: results of a few calls, chosen at random, are copied, and verified once the timing is done.
"""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

import torch

from dotcu.benchmark.results import Status
from dotcu.benchmark.targets import BenchTarget, Call, Results
from dotcu.benchmark.workloads import InputValues, free_bytes
from dotcu.checking.memory import NAN_BYTE, opaque, same_bits, snapshot
from dotcu.checking.trials import gpu
from dotcu.operator import Sample
from dotcu.tracebacks import first_lines

SLEEP_CLOCKS = 20_000_000  # some 10 ms; queueing a call that was made before takes less than one
SPARE = 4  # times a result's bytes that must be free before it is copied: the timed calls need memory, too

COPIES, LARGE = 4, 2**24
"""Copies of a contender's results, the latest among them; two of results with more elements than that."""

WHEN_AGAIN = ", called again with other values in the same memory, after it was right at first"

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
    failures: Failures = {}
    for turn, when in (1, ""), (2, WHEN_AGAIN):
        results: dict[str, Results] = {}
        try:
            inputs = values.inputs(turn)
        except Exception as error:  # too little memory, or a kernel made the GPU unusable
            reason = f"no inputs could be made: {first_lines(error)}"
            return {**dict.fromkeys(calls, ("failed", reason)), **failures}
        for name in [name for name in calls if name not in failures]:
            values(sample, turn)
            try:
                results[name], reason = _call(target, calls[name], sample, others_asleep=turn > 1)
            except (Exception, SystemExit) as error:
                failures[name] = "failed", first_lines(error)
                continue
            may_change = {id(tensor) for tensor in target.written(sample)}
            for i, (now, before) in enumerate(zip(sample.tensors, inputs.tensors, strict=True)):
                if id(now) not in may_change and not same_bits([now], [before]):
                    reason = f"changes tensor {i} of its arguments, which it must not"
            if reason:
                failures[name] = "wrong", reason
        results = {name: own for name, own in results.items() if name not in failures}
        if results and not target.unverified:
            try:
                errors = target.find_errors(inputs, results)
                failures |= {name: ("wrong", f"is wrong{when}: {why}") for name, why in errors.items() if why}
            except Exception as error:
                reason = f"the reference fails, so nothing can be verified: {first_lines(error)}"
                failures |= dict.fromkeys(results, ("failed", reason))
    return failures


def _call(target: BenchTarget, call: Call, sample: Sample, *, others_asleep: bool) -> tuple[Results, str]:
    """Make a call; return copies of its results as torch's current stream has them, or why they are wrong."""
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
        if wrong := "; ".join(opaque(got, target.device)):
            return (), wrong
        copies = tuple(map(snapshot, got))
        if on_gpu:
            torch.cuda.synchronize()  # raises the faults of the kernel
    del result, got
    blocks = []
    with suppress(RuntimeError):  # too little memory; or the GPU is unusable, which the next call shows
        for nbytes in [copy.nbytes for copy in copies for _ in range(3)] if on_gpu else ():
            blocks.append(torch.full((nbytes,), NAN_BYTE, dtype=torch.uint8, device=target.device))
    return copies, ""


class TimedResults:
    """Copies of results of timed calls, verified once the timing is done.

    `wrong` has the errors of contenders by name, also after an interrupt; `missed` are those of which some
    results could not be verified: too little memory.
    """

    def __init__(self, target: BenchTarget, values: InputValues) -> None:
        self._target, self._values = target, values
        self._random = random.SystemRandom()  # no code can foresee it
        self._copies: defaultdict[str, list[tuple[int, Results]]] = defaultdict(list)  # with their turns
        self.wrong: dict[str, str] = {}
        self.missed: set[str] = set()

    def take(self, name: str, sample: Sample, result: Any) -> None:
        """Copy the result of a call, on torch's current stream; does not synchronize.

        Args:
            name, sample, result: The contender, its set of inputs, and the value that it returned.
        """
        if self._target.unverified:
            return
        try:
            got = self._target.results(sample, result)
            earlier, free = self._copies[name], free_bytes(self._target.device)
            most = COPIES if sum(tensor.numel() for tensor in got) <= LARGE else 2
            if len(earlier) >= most:
                earlier.pop(self._random.randrange(most))
            if error := "; ".join(opaque(got, self._target.device)):
                self.wrong.setdefault(name, f"cannot be read where it is timed: {error}")
            elif free < SPARE * sum(tensor.nbytes for tensor in got):
                self.missed.add(name)
            else:
                earlier.append((self._values.turns[id(sample)], tuple(map(snapshot, got))))
        except torch.OutOfMemoryError:
            self.missed.add(name)
        except Exception as failure:  # of this contender alone: a timer would blame the device
            self.wrong.setdefault(name, f"cannot be read where it is timed: {first_lines(failure)}")

    def verify(self) -> dict[str, str]:
        """Return the errors of contenders by name, and free the copies; one that is right is not in it."""
        for name in list(self._copies):
            for turn, results in self._copies.pop(name):
                try:
                    error = self._target.find_errors(self._values.inputs(turn), {name: results})[name]
                except torch.OutOfMemoryError:
                    self.missed.add(name)
                    continue
                except Exception as failure:
                    error = f"could not be verified: {first_lines(failure)}"
                if error:
                    self.wrong.setdefault(
                        name, f"was right at first, and is wrong where it is timed: {error}"
                    )
        return self.wrong

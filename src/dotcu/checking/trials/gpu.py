"""Trials that need a GPU: streams, CUDA graphs, several devices, and more than 2^31 elements.

For the last, the narrowest dtype is taken, so that the call needs least memory. What is right is what the
reference gives on the GPU in that dtype, within the wide bounds of `closeness`, since other checks look at
precision: an index that overflows misses whole elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import fresh, mapped, same_bits
from dotcu.checking.numerics import CHUNK, difference, outputs
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import with_new_values
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.kernel.arguments.memory import extent
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line

NEEDS_GPU = "needs a CUDA GPU"


def plan(subject: Subject) -> Iterator[Trial]:
    """For each check a trial of a small and of a large call."""
    unsafe = "declared cudagraph_unsafe by a tag" if subject.declares(torch.Tag.cudagraph_unsafe) else ""
    alone = "needs two GPUs" if subject.on_gpu and torch.cuda.device_count() < 2 else ""
    for check, look_at, why in (
        ("stream", look_at_streams, ""),
        ("graph", look_at_graph, unsafe),
        ("devices", look_at_devices, alone),
    ):
        if not subject.on_gpu or why:
            yield skipped(subject, check, why if subject.on_gpu else NEEDS_GPU)
            continue
        for case in chosen(subject):
            yield trial(subject, check, look, case, look_at)


def look(subject: Subject, case: Case, look_at: Callable[[Subject, Case], CheckResult]) -> CheckResult:
    """Look at a call in one of these ways, if it works.

    Args:
        look_at: `look_at_streams`, for example.
    """
    with torch.cuda.device(subject.device):
        return cannot_call(subject, case) or look_at(subject, case)


def chosen(subject: Subject) -> list[Case]:
    """The smallest and the largest given case of the first dtype that has some; none may be empty."""
    for dtype in subject.overload.dtypes:
        if cases := subject.whole(dtype):
            largest = max(cases, key=lambda case: case.elements)
            return [cases[0]] if largest is cases[0] else [cases[0], largest]
    return []


def cannot_call(subject: Subject, case: Case) -> Skipped | None:
    """Return why a plain call fails, which trials of `call` report; None if it does not. Loads kernels."""
    try:
        for _ in range(2):  # the first one prepares its launches, the second one finds them
            subject.call(case.make())
        torch.cuda.synchronize(subject.device)
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return Skipped(reason=f"a plain call fails: {one_line(error)}")
    return None


# ------------------------------------------------------------------ other values, and what is right


def refill(into: Sample, values: Sample) -> None:
    """Give the tensors of a call the values of another one of the same form, on torch's current stream."""
    for target, source in zip(into.tensors, values.tensors, strict=True):
        memory(target).copy_(memory(source))


def memory(tensor: Tensor) -> Tensor:
    """A tensor's memory from its first element to its last, flat."""
    return tensor.as_strided((extent(tensor),), (1,), tensor.storage_offset())


def packed(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on a device, in memory that begins with the first element and ends with the last."""
    return memory(tensor).to(device, copy=True).as_strided(tensor.shape, tensor.stride(), 0)


def judged(subject: Subject, sample: Sample, results: tuple[Tensor, ...]) -> CheckResult:
    """Return whether results are those of an ordinary call, or at least right.

    The ordinary call is made here and now: one made before may have left its results in memory that a
    later one gets, and leaves unwritten.

    Args:
        sample: The values that the call was made with, untouched.
    """
    if subject.is_deterministic:
        ordinary = subject.call(fresh(sample))
        for device in {tensor.device for tensor in ordinary if tensor.is_cuda}:
            torch.cuda.synchronize(device)
        if same_bits(results, [tensor.clone() for tensor in ordinary]):
            return Passed()
        if subject.reference is None:
            return Failed(reason="it gives different bits than an ordinary call")
    if subject.reference is None:
        return Skipped(reason="no reference, and declared nondeterministic by a tag")
    dtype = next((t.dtype for t in sample.tensors if t.dtype in subject.overload.dtypes), torch.float32)
    try:
        expected = subject.oracle(sample, dtype)
    except Exception as error:
        return Skipped(reason=f"the reference fails: {describe(error)}")
    worst = numerics.judge(results, expected)
    return Passed(ratio=worst.ratio) if worst.passed else Failed(reason=worst.what, evidence=worst.where)


# --------- streams: an operator reads after what was queued before it, and is read by what is queued after it

A_WHILE = 50_000_000
"""Clocks that a stream sleeps: some 30 ms. A call takes its thread less than one."""

LONGER = (1, 4, 16)
"""How many times as long streams sleep, until they outlast a call: a GPU that others use is slow."""


def look_at_streams(subject: Subject, case: Case) -> CheckResult:
    """Call on either stream, once while it sleeps and once while the others do.

    All four, since one fault may show in several: the one in whose round it must show is among them.
    """
    pool = side_streams()
    outcome: CheckResult = Passed()
    reasons, evidence = [], []
    for name, stream in (("a side stream", pool[0]), ("the default stream", torch.cuda.default_stream())):
        others = [other for other in pool if other != stream]
        late = f"is not complete when {name}, the stream of the call, is"
        early = f"reads its inputs before earlier work on {name} has written them"
        for variant, (fault, asleep) in enumerate(((late, others), (early, [stream])), start=1):
            # Values of their own: memory that is left unwritten may hold what an earlier round gave.
            values = with_new_values(subject, case, variant + 2 * (stream == pool[0])) or case.make()
            for times in LONGER if asleep is others else LONGER[:1]:
                results, outlasted = _called(subject, case, values, stream, asleep, times * A_WHILE)
                if outlasted:
                    break
            outcome = judged(subject, values, results)
            if isinstance(outcome, Failed):
                reasons.append(fault)
                evidence.append(f"{fault}: {outcome.reason}. {outcome.evidence}".rstrip(". "))
    if reasons:
        return Failed(reason=reasons[0], evidence="\n".join(evidence))
    return outcome


def _called(
    subject: Subject,
    case: Case,
    values: Sample,
    stream: torch.cuda.Stream,
    asleep: Sequence[torch.cuda.Stream],
    clocks: int,
) -> tuple[tuple[Tensor, ...], bool]:
    """Write values and call on a stream, while some sleep for a number of clocks.

    Returns:
        The results as that stream sees them, and whether a stream still slept when they were there.
    """
    sample = case.make()
    torch.cuda.synchronize()
    sleep(asleep, clocks)
    with torch.cuda.stream(stream):
        refill(sample, values)
        results = tuple(tensor.clone() for tensor in subject.call(sample))
        stream.synchronize()
        seen = tuple(tensor.cpu() for tensor in results)
    outlasted = not all(sleeper.query() for sleeper in asleep)
    torch.cuda.synchronize()
    return tuple(tensor.to(subject.device) for tensor in seen), outlasted


# -------------- CUDA graphs: a call is captured, and each replay computes from the values that are there then

REPLAYS = 3


def look_at_graph(subject: Subject, case: Case) -> CheckResult:
    """Capture a call whose kernels are loaded, and replay it with new values in its inputs."""
    static, graph = case.make(), torch.cuda.CUDAGraph()
    captured = _capture(subject, static, graph)
    if isinstance(captured, Exception):
        told = f"{describe(captured)}\nIf it must be so, declare it: tags=(torch.Tag.cudagraph_unsafe,)"
        return Failed.raised("cannot be captured in a CUDA graph", captured, told)
    for number in range(1, REPLAYS + 1):
        values = with_new_values(subject, case, number) or case.make()
        refill(static, values)
        graph.replay()
        results = tuple(tensor.clone() for tensor in captured)
        torch.cuda.synchronize()
        outcome = judged(subject, values, results)
        if isinstance(outcome, Failed):
            evidence = f"{outcome.reason}\n{outcome.evidence}".rstrip()
            return Failed(reason=f"replay {number} of a CUDA graph of it is wrong", evidence=evidence)
        if isinstance(outcome, Skipped):
            return outcome
    return Passed()


def _capture(subject: Subject, static: Sample, graph: torch.cuda.CUDAGraph) -> tuple[Tensor, ...] | Exception:
    """Capture a call into a graph, which reads the memory of its inputs.

    Returns:
        The tensors that a replay writes, or what the call raised, else what the capture's end raised.
    """
    stream = torch.cuda.current_stream()
    raised: list[Exception] = []
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            try:
                results = subject.call(static)
            except Exception as error:
                raised.append(error)
                raise
    except Exception as error:
        return (raised or [error])[0]  # a capture that failed fails at its end too, with less detail
    finally:
        torch.cuda.set_stream(stream)  # where the end fails, torch leaves its own current
    return results


# ------------------------------- several GPUs: an operator works on that of its tensors, whichever is current


def look_at_devices(subject: Subject, case: Case) -> CheckResult:
    """Call with tensors of one GPU while the other one is current, both ways round."""
    own = subject.device
    other = torch.device("cuda", ((own.index or 0) + 1) % torch.cuda.device_count())
    outcome = _one_way(subject, case, other, own)
    return outcome if isinstance(outcome, Failed) else _one_way(subject, case, own, other)


def _one_way(subject: Subject, case: Case, place: torch.device, current: torch.device) -> CheckResult:
    where = f"with tensors on {place} while {current} is current"
    with torch.cuda.device(current):
        try:
            results = subject.call(case.sample.map_tensors(lambda tensor: packed(tensor, place)))
            torch.cuda.synchronize(place)
        except Exception as error:
            return Failed.raised(f"fails {where}", error)
        if torch.cuda.current_device() != current.index:
            return Failed(reason=f"leaves cuda:{torch.cuda.current_device()} current, called {where}")
    away = [tensor.device for tensor in results if tensor.device != place]
    if away:
        return Failed(reason=f"gives a result on {away[0]}, called {where}")
    outcome = judged(subject, case.make(), tuple(tensor.to(subject.device) for tensor in results))
    if isinstance(outcome, Failed):
        return Failed(reason=f"gives wrong values {where}", evidence=f"{outcome.reason}\n{outcome.evidence}")
    return outcome


# --------- streams that sleep, so that missing waits between streams show

POOL = 32
"""The number of streams that torch hands out, one after the other."""


def side_streams() -> list[torch.cuda.Stream]:
    """Every side stream of the current device that a body could get from torch."""
    streams = {stream.cuda_stream: stream for stream in (torch.cuda.Stream() for _ in range(POOL))}
    return list(streams.values())


def sleep(streams: Sequence[torch.cuda.Stream], clocks: int) -> None:
    """Delay everything that is queued on some streams from now on, by a number of GPU clocks."""
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(clocks)


# ---------------------------------------------------------------- more than 2^31 elements

ELEMENTS = 2**31 + 33
"""The elements of the largest input, or slightly more."""

SHARE, COPIES = 0.6, 3
"""The share of free memory that a call may use, and the number of times its tensors are counted."""

NARROWEST = 3
"""The number of dtypes to try: torch may have no reference for the first."""

TRIES = 4
"""The number of calls to try if an operator or its reference refuses them."""


def plan_large(subject: Subject) -> Iterator[Trial]:
    """One trial."""
    if not subject.on_gpu:
        yield skipped(subject, "large", NEEDS_GPU)
    elif subject.reference is None:
        yield skipped(subject, "large", "no reference")
    else:
        yield trial(subject, "large", look_at_large)


def look_at_large(subject: Subject) -> CheckResult:
    """Try calls that can be made so large until one can be judged.

    The first are those that add up least for an element of a result: sums of millions of products show what
    an order of additions loses. Of these, the one that needs least memory.
    """
    outcome: CheckResult = Skipped(reason="no sample has a contiguous tensor with a size that could grow")
    with torch.cuda.device(subject.device):
        grown = sorted(candidates(subject), key=lambda each: each[:2])
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        fitting = [candidate for candidate in grown if candidate[1] * COPIES < SHARE * free]
        if grown and not fitting:
            needed, has = min(each[1] for each in grown) * COPIES / SHARE / 2**30, free / 2**30
            return Skipped(reason=f"needs {needed:.0f} GiB of free memory on the GPU, which has {has:.0f}")
        for _, _, case, old, new in fitting[:TRIES]:
            try:
                outcome = _tried(subject, case, old, new)
            except torch.OutOfMemoryError as error:
                outcome = Skipped(reason=f"the GPU has too little memory: {one_line(error)}")
            torch.cuda.empty_cache()
            if not isinstance(outcome, Skipped):
                break
    return outcome


def _tried(subject: Subject, case: Case, old: int, new: int) -> CheckResult:
    """Call before the reference: no memory holds the right answer yet."""
    sample = enlarged(case.sample, old, new)
    called: tuple[Tensor, ...] | Exception
    try:
        called = subject.call(sample)
        torch.cuda.synchronize()
    except Exception as error:
        if not subject.refuses(error):
            raise
        called = error
    del sample  # inputs may have been written
    inputs = subject.inputs(enlarged(case.sample, old, new))
    assert subject.reference is not None
    try:
        with torch.no_grad():
            expected = outputs(subject.reference(*inputs.args, **inputs.kwargs))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return Skipped(reason=f"the reference does not take {new} for {old}: {describe(error)}")
    del inputs
    if isinstance(called, Exception):
        return Passed.refused(called)
    largest = max(t.numel() for t in called + expected)
    reason = difference(called, expected, max(largest, ELEMENTS))
    if reason:
        return Failed(
            reason=f"is wrong if an input has {ELEMENTS} elements or more",
            evidence=f"{reason}\n{case.name}: {case.sample} with {new} for {old}",
        )
    return Passed(note=f"{case.name} with {new} for {old}")


def candidates(subject: Subject) -> Iterator[tuple[int, int, Case, int, int]]:
    """The given cases of the narrowest dtypes in which one size can grow enough, its old and its new value.

    Yields them behind the elements that are added up for one of the largest result, as far as sizes tell, and
    the bytes of the call's tensors, its results among them.
    """
    for dtype in sorted(subject.overload.dtypes, key=lambda dtype: dtype.itemsize)[:NARROWEST]:
        for case in subject.whole(dtype):
            sizes = growing(case.sample)
            if not sizes or cannot_call(subject, case) is not None:
                continue
            with suppress(Exception):  # reported by the trials of `call`
                results = subject.call(case.make())
                tensors = {id(t): t for t in (*case.sample.tensors, *results)}.values()
                for old, new in sizes.items():
                    needed = sum(math.prod(_grow(t.shape, old, new)) * t.itemsize for t in tensors)
                    largest = max((math.prod(_grow(t.shape, old, new)) for t in results), default=1)
                    yield ELEMENTS // max(largest, 1) // 1000, needed, case, old, new


def growing(sample: Sample) -> dict[int, int]:
    """Yield the sizes of a sample's largest tensor that can grow, and to what. Equal sizes are one."""
    if not sample.tensors or not all(tensor.is_contiguous() for tensor in sample.tensors):
        return {}
    largest = max(sample.tensors, key=torch.numel)
    found = {}
    for old in set(largest.shape) - {0, 1}:
        times = list(largest.shape).count(old)
        rest = largest.numel() // old**times
        new = math.ceil((ELEMENTS / rest) ** (1 / times))
        found[old] = new + (rest * new**times < ELEMENTS)
    return found


def _grow(shape: torch.Size, old: int, new: int) -> list[int]:
    return [new if size == old else size for size in shape]


def enlarged(sample: Sample, old: int, new: int) -> Sample:
    """The call, its tensors filled with elements of the given ones, in no order: the same at each call.

    What repeats is rounded the same way each time, so that a sum of it in float32 drifts off.

    Args:
        new: The size that is to stand for the old one.
    """
    return mapped(sample, lambda tensor: _drawn(tensor, _grow(tensor.shape, old, new)))


def _drawn(tensor: Tensor, shape: list[int]) -> Tensor:
    large = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    source, generator = _bytes_of(tensor.detach()), torch.Generator(tensor.device).manual_seed(len(shape))
    for part in _bytes_of(large).split(CHUNK):
        at = torch.randint(len(source), (len(part),), device=tensor.device, generator=generator)
        part.copy_(source[at])
    return large


def _bytes_of(tensor: Tensor) -> Tensor:
    """A row of bytes for each element, which torch takes by index of every dtype. A view where it can be."""
    return tensor.reshape(-1, 1).view(torch.uint8)

"""Trials that need a GPU: streams, CUDA graphs, several devices; and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import fresh, same_bits
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
    faults = []
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
                faults.append(f"{fault}: {outcome.reason}. {outcome.evidence}".rstrip(". "))
    if faults:
        return Failed(reason=faults[0].partition(":")[0], evidence="\n".join(faults))
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

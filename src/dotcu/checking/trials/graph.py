"""CUDA graphs: a call is captured, and each replay computes from the values that are there then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from dotcu.checking.blame import located
from dotcu.checking.cases.case import Case
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped, Verdict
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import NEEDS_GPU, cannot_call, chosen, judged, other_values, refill
from dotcu.operator import Sample

REPLAYS = 3


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for a small and for a large call."""
    if not subject.on_gpu:
        yield skipped(subject, "graph", NEEDS_GPU)
    elif subject.declares(torch.Tag.cudagraph_unsafe):
        yield skipped(subject, "graph", "declared cudagraph_unsafe by a tag")
    else:
        for case in chosen(subject):
            run = partial(look, subject, case)
            yield Trial(overload=subject.name, kind="graph", case=case.name, checks=("graph",), run=run)


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Capture a call whose kernels are loaded, and replay it with new values in its inputs."""
    with torch.cuda.device(subject.device):
        failed = cannot_call(subject, case)
        yield "graph", failed or _captured_and_replayed(subject, case)


def _captured_and_replayed(subject: Subject, case: Case) -> Outcome:
    static, graph = case.make(), torch.cuda.CUDAGraph()
    captured = capture(subject, static, graph)
    if isinstance(captured, Exception):
        evidence = f"{located(captured)}\nWhere that must be, declare it: tags=(torch.Tag.cudagraph_unsafe,)"
        return FellShort(reason="cannot be captured in a CUDA graph", evidence=evidence)
    for turn in range(1, REPLAYS + 1):
        values = other_values(subject, case, turn)
        refill(static, values)
        graph.replay()
        results = tuple(tensor.clone() for tensor in captured)
        torch.cuda.synchronize()
        outcome = judged(subject, values, results)
        if isinstance(outcome, FellShort):
            evidence = f"{outcome.reason}\n{outcome.evidence}".rstrip()
            return FellShort(reason=f"replay {turn} of a CUDA graph of it is wrong", evidence=evidence)
        if isinstance(outcome, Skipped):
            return outcome
    return Held()


def capture(subject: Subject, static: Sample, graph: torch.cuda.CUDAGraph) -> tuple[Tensor, ...] | Exception:
    """Capture a call: the tensors that a replay writes, or what the call raised, else the capture's end."""
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
        return (raised or [error])[0]  # a capture that was spoilt fails at its end too, and tells less
    finally:
        torch.cuda.set_stream(stream)  # where the end fails, torch leaves its own current
    return results

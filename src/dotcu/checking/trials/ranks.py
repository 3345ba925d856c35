"""`ranks`: the calls of a group's ranks give what their reference gives, also a second time.

Such an operator names its group by an argument `group_name`, as torch's collectives do, and its size, if it
asks for that, by `group_size`. All other checks call it as the only rank of a group. Here ranks run in the
simulator, and on GPUs in a process each; every rank has other values.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import fresh
from dotcu.checking.numerics import outputs
from dotcu.checking.results import CheckResult, Failed, Passed, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.target import TrialRequest, request_for, resolve
from dotcu.checking.trials.sharding import dtype_of, unlike_outputs
from dotcu.kernel import simulate_ranks
from dotcu.operator import Sample
from dotcu.serialize import from_plain
from dotcu.workers import Channel, Worker, WorkerCrash, run_pool

_stores: Any = torch.distributed  # its types name no store

CHECK = "ranks"

SIZE = "group_size"

RANKS = (2, 3)
"""In the simulator."""

WAIT_S = 60.0
"""The most seconds that ranks on GPUs take for an operator's samples."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each sample of a dtype and number of ranks; on GPUs one for all samples."""
    if not subject.communicates:
        return
    cases = subject.given(dtype_of(subject))
    if subject.reference is None or not cases:
        yield skipped(subject, CHECK, "no reference" if cases else "no samples")
    elif not subject.on_gpu:
        for case in cases:
            yield trial(subject, CHECK, look, case)
    elif torch.cuda.device_count() < 2:
        yield skipped(subject, CHECK, "this machine has one GPU; --device simulator has any number of ranks")
    else:
        yield trial(subject, CHECK, look_on_gpus, None, torch.cuda.device_count())


def look(subject: Subject, case: Case) -> CheckResult:
    """Call as several ranks in the simulator."""
    for ranks in RANKS:

        def call(rank: int, ranks: int = ranks) -> str:
            return different(subject, of_rank(subject, case.make(), rank, ranks))

        try:
            with subject.place():
                wrong = simulate_ranks(ranks, call)
        except Exception as error:
            if subject.refuses(error):
                return Passed.refused(error)
            raise
        for rank, each in enumerate(wrong):
            if each:
                return Failed(reason=f"rank {rank} of {ranks}: {each}")
    return Passed()


def of_rank(subject: Subject, sample: Sample, rank: int, ranks: int) -> Sample:
    """Return a sample with a rank's values, in the memory that it has.

    Args:
        subject: What is called.
        sample: In memory of its own.
        rank: Whose values.
        ranks: The size of the group.
    """

    def own(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and torch._debug_has_internal_overlap(tensor) == 0:
            tensor.copy_(tensor.flatten().roll(rank).view(tensor.shape))
        return tensor

    named = zip(subject.overload.signature.arguments, sample.args, strict=False)
    given = {**sample.kwargs, **({SIZE: ranks} if SIZE in sample.kwargs else {})}
    return Sample(*(ranks if name == SIZE else value for name, value in named), **given).map_tensors(own)


def different(
    subject: Subject, sample: Sample, place: Callable[[Sample], Sample] = fresh, graph: bool = False
) -> str:
    """Say in what a rank's calls differ from their reference; empty if they do not.

    Args:
        subject: What is called.
        sample: This rank's arguments.
        place: Copies them to where the operator takes them.
        graph: Replay a CUDA graph of a call, too.
    """
    assert subject.reference is not None
    with torch.no_grad():
        inputs = fresh(sample)
        expected = outputs(subject.reference(*inputs.args, **inputs.kwargs))
    for turn in ("first", "second"):
        wrong = unlike_outputs(subject.call(place(sample)), expected)
        if wrong:
            return f"the {turn} call: {wrong}"
    return _replayed(subject, place(sample), expected) if graph else ""


def _replayed(subject: Subject, sample: Sample, expected: tuple[Tensor, ...]) -> str:
    if subject.overload.signature.mutates:  # the second replay would start from the first one's results
        return ""
    subject.call(sample)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = subject.call(sample)
    for _ in range(2):
        for result in results:
            result.zero_()
        graph.replay()
    wrong = unlike_outputs(results, expected)
    return f"the second replay of a CUDA graph: {wrong}" if wrong else ""


# ---------------------------------------------------------------- on GPUs, a process for each rank


def look_on_gpus(subject: Subject, ranks: int) -> CheckResult:
    """Call as a rank on each GPU."""
    request = request_for(subject)
    if request is None:
        return Passed(note="defined in no file that another process could import")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        requests = [[replace(request, device=f"cuda:{n}"), n, ranks, store] for n in range(ranks)]
        told = replies("dotcu.checking.trials.ranks:serve", requests, WAIT_S)
        try:
            with contextlib.closing(told):
                for rank, reply in told:
                    if reply["wrong"]:
                        return Failed(reason=f"rank {rank} of {ranks}, {reply['case']}: {reply['wrong']}")
        except WorkerCrash as crash:
            return Failed(reason=crash.reason, evidence=crash.evidence)
    return Passed()


def replies(entry: str, requests: Sequence[Any], timeout_s: float) -> Generator[tuple[int, Any], None, None]:
    """Have a process for each rank work, and yield the rank and what it replies, as it comes.

    Args:
        entry: As `Worker` takes it.
        requests: One for each rank.
        timeout_s: The most seconds until the next reply of each.

    Raises:
        WorkerCrash: A rank ended, the first one that did: the others may wait for it; names it.
    """

    def ask(worker: Worker, rank: int) -> Iterator[tuple[int, Any]]:
        try:
            worker.send(requests[rank])
            while (reply := worker.receive(timeout_s)) is not None:
                yield rank, reply
        except WorkerCrash as crash:
            reason = f"rank {rank} of {len(requests)}: {crash.reason}"
            raise WorkerCrash(reason, crash.evidence) from crash

    yield from run_pool([Worker(entry) for _ in requests], range(len(requests)), ask)


def serve(request: Any, channel: Channel) -> None:
    """Call as one rank, with all samples of an overload. Replies `{"case": name, "wrong": text}` for each.

    Args:
        request: The overload and its device, the rank, the number of ranks, and a file where they meet.
        channel: The way back.
    """
    trial, rank, ranks, store = request
    wanted = from_plain(TrialRequest, trial)
    device = torch.device(wanted.device)
    torch.cuda.set_device(device)
    join(rank, ranks, store)
    overloads = {
        overload.qualified_name: overload
        for _, operator in resolve(wanted.target)
        for overload in operator.overloads.values()
    }
    subject = Subject(overload=overloads[wanted.overload], device=device, seed=wanted.seed)
    for case in subject.given(dtype_of(subject)):
        try:
            sample = of_rank(subject, case.make(), rank, ranks)
            wrong = different(subject, sample, symmetric, graph=True)
        except Exception as error:
            if not subject.refuses(error):
                raise
            wrong = ""
        channel.reply({"case": case.name, "wrong": wrong})
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Join a group of one for a block, and leave it; in a process that has a group, that one stays."""
    if torch.distributed.is_initialized():
        yield
        return
    join(0, 1, "")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def join(rank: int, ranks: int, store: str) -> None:
    """Join a process group for tensors on CPU and GPU.

    Args:
        rank: Of this process.
        ranks: The size of the group.
        store: A file where the ranks meet; empty for a group of one.
    """
    where = _stores.FileStore(store, ranks) if store else _stores.HashStore()
    nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()  # which needs a GPU to start
    backends = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    limit = timedelta(seconds=WAIT_S)
    torch.distributed.init_process_group(backends, store=where, rank=rank, world_size=ranks, timeout=limit)


def symmetric(sample: Sample) -> Sample:
    """Return a sample whose tensors are in memory that all ranks reach, if they are contiguous."""
    from torch.distributed import _symmetric_memory

    def own(tensor: Tensor) -> Tensor:
        if not tensor.is_contiguous() or not tensor.numel():
            return tensor
        return _symmetric_memory.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    return fresh(sample).map_tensors(own)

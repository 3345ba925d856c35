"""`dotcu bench --ranks N`: operators over several GPUs, beside others and beside a copy over the link.

Each rank is a process. Results are compared with the reference first. Then the calls of each contender are
timed in CUDA graphs, which take turns and which all ranks start together.

Bus bandwidth is the bytes that must leave a GPU over the time: of a sum 2 (ranks - 1) / ranks of the tensor,
of a part of a sum, or of tensors put together, (ranks - 1) / ranks of the whole.
Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from torch import Tensor

from dotcu import report_base, serialize
from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import callable_of
from dotcu.benchmark.workloads.shapes import choose_dtypes, shape_rows
from dotcu.benchmark.workloads.workload import Workload, workloads
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.checking.trials import ranks as trials
from dotcu.errors import EnvironmentFault, OperatorError, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import one_line
from dotcu.workers import Channel, Worker, WorkerCrash

VERSION = 1
"""The version of the JSON form; docs/reference/reports.md has its keys."""

CALLS, REPLAYS = 20, 20
"""Calls in a CUDA graph, and how often each is replayed."""

LINK_BYTES = 2**28
"""Of the copy that is the limit."""

WAIT_S = 120.0
"""The most seconds for the rows of a case."""


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """A contender on one case.

    Attributes:
        us: The median time of a call; None if it was not measured, and `note` says why.
        bus_bytes: That must leave a GPU.
    """

    operator: str
    case: str
    contender: str
    us: float | None = None
    bus_bytes: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RankBenchReport(report_base.Report):
    """Times over several GPUs. `str()` of it is a table.

    Attributes:
        link_gb_s: A copy to the next GPU, by all at once.
    """

    gpu: str
    ranks: int
    link_gb_s: float
    rows: tuple[RankRow, ...]

    @property
    def passed(self) -> bool:
        """True if every operator gave what its reference gives."""
        return all(row.us is not None for row in self.rows if row.contender == OWN)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {"version": VERSION, "passed": self.passed, **serialize.plain(self)}

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for title in ("operator", "case", "contender", "µs", "bus GB/s", "of the link"):
            table.add_column(title, justify="right" if title in ("µs", "bus GB/s", "of the link") else "left")
        for row in self.rows:
            names = row.operator, row.case, row.contender
            if row.us is None:
                table.add_row(*names, "-", "-", row.note)
                continue
            speed = row.bus_bytes / row.us / 1e3
            table.add_row(*names, f"{row.us:.2f}", f"{speed:.1f}", f"{100 * speed / self.link_gb_s:.0f} %")
        head = f"{self.ranks} x {self.gpu}; a copy to the next GPU by all at once: {self.link_gb_s:.0f} GB/s"
        return Group(head, table)


@dataclass(frozen=True, kw_only=True)
class RankBenchRequest:
    """The timing that a process does as one rank."""

    target: str
    rank: int
    ranks: int
    store: str
    shapes: str = ""
    dtypes: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


def bench_ranks(
    target: str, ranks: int, *, shapes: str = "", dtypes: Sequence[str] = (), against: Sequence[str] = ()
) -> RankBenchReport:
    """Time a target's operators that take a `group_name`, on the first GPUs of this machine.

    Args:
        target: As `dotcu bench` takes it.
        ranks: How many GPUs.
        shapes: As `--shapes` takes them, in place of the samples' own.
        dtypes: Out of the operator's; all by default.
        against: Functions that take the operator's arguments: "ops.py:fn".

    Raises:
        EnvironmentFault: There are fewer GPUs.
        UsageError: No operator of the target takes a `group_name`.
        OperatorError: A process ended.
    """
    if ranks < 2 or ranks > torch.cuda.device_count():
        raise EnvironmentFault(
            f"--ranks {ranks} needs two GPUs or more, and this machine has {torch.cuda.device_count()}.\n"
            f"Its values are checked without GPUs: dotcu check {target} --device simulator"
        )
    rows: list[RankRow] = []
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        crew = [Worker("dotcu.benchmark.ranks:serve") for _ in range(ranks)]
        for rank, worker in enumerate(crew):
            stack.callback(worker.close)
            worker.send(
                RankBenchRequest(
                    target=target, rank=rank, ranks=ranks, store=str(Path(folder, "store")),
                    shapes=shapes, dtypes=tuple(dtypes), against=tuple(against),
                )
            )  # fmt: skip
        for worker in crew:
            try:
                while (reply := worker.receive(WAIT_S)) is not None:
                    facts |= reply.get("facts", {})
                    rows += [serialize.from_plain(RankRow, row) for row in reply.get("rows", ())]
            except WorkerCrash as crash:
                raise OperatorError(f"a rank of {target} ended: {crash.reason}\n{crash.evidence}") from crash
    return RankBenchReport(ranks=ranks, rows=tuple(rows), **facts)


# ---------------------------------------------------------------- in the process of a rank


def serve(request: Any, channel: Channel) -> None:
    """Time everything as one rank. Rank 0 replies `{"facts": ...}`, then `{"rows": ...}` for each case."""
    wanted = serialize.from_plain(RankBenchRequest, request)
    device = torch.device("cuda", wanted.rank)
    torch.cuda.set_device(device)
    trials.join(wanted.rank, wanted.ranks, wanted.store)
    facts = {"gpu": torch.cuda.get_device_name(device), "link_gb_s": LINK_BYTES / _link_us(wanted) / 1e3}
    replies = channel.reply if wanted.rank == 0 else lambda reply: None
    replies({"facts": facts})
    for subject in _subjects(wanted, device):
        rows = shape_rows(wanted.shapes) if wanted.shapes else ()
        dtypes = choose_dtypes(subject.overload, wanted.dtypes)
        for case in workloads(subject, shapes=rows, dtypes=dtypes):
            if isinstance(case, Workload):
                replies({"rows": list(_rows(subject, case, wanted))})
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


def _subjects(wanted: RankBenchRequest, device: torch.device) -> list[Subject]:
    overloads = [each for _, op in resolve(wanted.target, verb="bench") for each in op.overloads.values()]
    found = [Subject(overload=o, device=device) for o in overloads if trials.GROUP in o.signature.arguments]
    if not found:
        raise UsageError(
            f"no operator of {wanted.target} takes a {trials.GROUP}, so --ranks has nothing to time.\n"
            f"Type: dotcu bench {wanted.target}"
        )
    return found


def _rows(subject: Subject, case: Workload, wanted: RankBenchRequest) -> Iterator[RankRow]:
    sample = trials.of_rank(subject, case.make(0), wanted.rank, wanted.ranks)
    row = functools.partial(RankRow, operator=subject.name, case=case.name)
    wrong = trials.different(subject, sample, trials.symmetric, graph=True)
    if wrong:
        yield row(contender=OWN, note=f"wrong: {wrong}")
        return
    given = trials.symmetric(sample)
    moved = bus_bytes(given.tensors[0], subject.call(given)[0], wanted.ranks)
    calls: dict[str, Callable[[], object]] = {OWN: functools.partial(_call, subject.overload, given)}
    for name, function in _others(subject, wanted).items():
        own = trials.symmetric(sample)
        calls[name] = functools.partial(_call, function, own)
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    for name, call in calls.items():
        try:
            graphs[name] = _graph(call)
        except Exception as error:
            yield row(contender=name, note=f"not captured: {one_line(error)}")
    for name, us in _times_us(graphs).items():
        yield row(contender=name, us=us, bus_bytes=moved)


def _call(function: Callable[..., Any], sample: Sample) -> object:
    return function(*sample.args, **sample.kwargs)


def _others(subject: Subject, wanted: RankBenchRequest) -> dict[str, Callable[..., Any]]:
    others = {each.rpartition(":")[2]: callable_of(each) for each in wanted.against}
    return {"reference": subject.reference, **others} if subject.reference is not None else others


def bus_bytes(x: Tensor, result: Tensor, ranks: int) -> float:
    """Return the bytes that must leave a GPU, by the sizes of the first argument and the first result.

    Args:
        x: On each rank.
        result: On each rank.
        ranks: How many there are.
    """
    whole = max(x.nbytes, result.nbytes) * (ranks - 1) / ranks
    return whole if x.numel() != result.numel() else 2 * whole


def _graph(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    with torch.no_grad():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
    return graph


def _times_us(graphs: Mapping[str, torch.cuda.CUDAGraph]) -> dict[str, float]:
    """Return the median microseconds of a call; the graphs take turns."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(REPLAYS):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.distributed.barrier()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3 / CALLS)
    return {name: statistics.median(each) for name, each in times.items()}


def _link_us(wanted: RankBenchRequest) -> float:
    from torch.distributed import _symmetric_memory

    device = torch.device("cuda", wanted.rank)
    x = _symmetric_memory.empty(LINK_BYTES, dtype=torch.uint8, device=device)
    handle: Any = _symmetric_memory.rendezvous(x, torch.distributed.group.WORLD)  # type: ignore[arg-type]
    there = handle.get_buffer((wanted.rank + 1) % wanted.ranks, x.shape, x.dtype)
    own = torch.zeros_like(x)
    return _times_us({"copy": _graph(lambda: there.copy_(own))})["copy"]

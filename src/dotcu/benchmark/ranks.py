"""`dotcu bench --ranks N`: operators over several GPUs, beside others and beside a copy over the link.

Each rank is a process. Results are compared with the reference first. Then all ranks start CUDA graphs of
each contender's calls together, alternating.

Bus bandwidth is the bytes that must leave a GPU over the time: of a sum 2 (ranks - 1) / ranks of the tensor,
of a part of a sum, or of tensors put together, (ranks - 1) / ranks of the whole.
Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

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
from dotcu.benchmark.workloads import Workload, choose_dtypes, shape_rows, workloads
from dotcu.checking.subject import GROUP, Subject
from dotcu.checking.target import resolve
from dotcu.checking.trials import ranks as trials
from dotcu.errors import EnvironmentFault, OperatorError, UsageError, quoted
from dotcu.operator import Sample
from dotcu.tracebacks import one_line
from dotcu.workers import Channel, WorkerCrash

VERSION = 1  # of the JSON form; docs/reference/reports.md has its keys
CALLS, REPLAYS = 20, 20  # in a CUDA graph, and how often each is replayed
LINK_BYTES = 2**28  # of the copy that is the limit
WAIT_S = 120.0  # for the rows of a case


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """A contender on one case: the median time of a call, or why there is none, and what must leave a GPU."""

    operator: str
    case: str
    contender: str
    us: float | None = None
    bus_bytes: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RankBenchReport(report_base.Report):
    """Times over several GPUs, beside a copy to the next GPU by all at once. `str()` of it is a table."""

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


def bench_ranks(
    target: str, ranks: int, *, shapes: str = "", dtypes: Sequence[str] = (), against: Sequence[str] = ()
) -> RankBenchReport:
    """Time a target's operators that take a `group_name`, on the first GPUs of this machine.

    Args:
        target, ranks: As `dotcu bench` takes it, and how many GPUs.
        shapes, dtypes: As `--shapes` and `--dtypes` take them.
        against: Functions that take the operator's arguments: "ops.py:fn".

    Raises:
        EnvironmentFault: There are fewer GPUs.
        UsageError: No operator of the target takes a `group_name`.
        OperatorError: A process ended.
    """
    if ranks > torch.cuda.device_count():
        raise EnvironmentFault(
            f"--ranks {ranks} needs {ranks} GPUs, and this machine has {torch.cuda.device_count()}.\n"
            f"Its values are checked without GPUs: dotcu check {quoted(target)} --device simulator"
        )
    rows: list[RankRow] = []
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        given = {"target": target, "shapes": shapes, "dtypes": dtypes, "against": against}
        group = {"ranks": ranks, "store": str(Path(folder, "store"))}
        requests = [{**given, **group, "rank": rank} for rank in range(ranks)]
        try:
            for _, reply in trials.replies("dotcu.benchmark.ranks:serve", requests, WAIT_S):
                facts |= reply.get("facts", {})
                rows += [serialize.from_plain(RankRow, row) for row in reply.get("rows", ())]
        except WorkerCrash as crash:
            raise OperatorError(f"a rank of {target} ended: {crash.reason}\n{crash.evidence}") from crash
    return RankBenchReport(ranks=ranks, rows=tuple(rows), **facts)


# ---------------------------------------------------------------- in the process of a rank


def serve(request: Any, channel: Channel) -> None:
    """Time everything as one rank. Rank 0 replies `{"facts": ...}`, then `{"rows": ...}` for each case."""
    rank, ranks = request["rank"], request["ranks"]
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    trials.join(rank, ranks, request["store"])
    link_gb_s = LINK_BYTES / _link_us(rank, ranks) / 1e3
    replies = channel.reply if rank == 0 else lambda reply: None
    replies({"facts": {"gpu": torch.cuda.get_device_name(device), "link_gb_s": link_gb_s}})
    for subject in _subjects(request["target"], device):
        shapes = shape_rows(request["shapes"]) if request["shapes"] else ()
        dtypes = choose_dtypes(subject.overload, request["dtypes"])
        others = {each.rpartition(":")[2]: callable_of(each) for each in request["against"]}
        if subject.reference is not None:
            others = {"reference": subject.reference, **others}
        for case in workloads(subject, shapes=shapes, dtypes=dtypes):
            if isinstance(case, Workload):
                sample = trials.of_rank(subject, case.make(0), rank, ranks)
                replies({"rows": list(_rows(subject, case.name, sample, others, ranks))})
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


def _subjects(target: str, device: torch.device) -> list[Subject]:
    overloads = [each for _, op in resolve(target, verb="bench") for each in op.overloads.values()]
    found = [Subject(overload=o, device=device) for o in overloads if GROUP in o.signature.arguments]
    if not found:
        raise UsageError(
            f"no operator of {target} takes a {GROUP}, so --ranks has nothing to time.\n"
            f"Type: dotcu bench {quoted(target)}"
        )
    return found


def _rows(
    subject: Subject, case: str, sample: Sample, others: Mapping[str, Callable[..., Any]], ranks: int
) -> Iterator[RankRow]:
    row = functools.partial(RankRow, operator=subject.name, case=case)
    wrong = trials.different(subject, sample, trials.symmetric, graph=True)
    if wrong:
        yield row(contender=OWN, note=f"wrong: {wrong}")
        return
    given = trials.symmetric(sample)
    moved = bus_bytes(given.tensors[0], subject.call(given)[0], ranks)
    calls: dict[str, Callable[[], object]] = {OWN: functools.partial(_call, subject.overload, given)}
    for name, function in others.items():
        calls[name] = functools.partial(_call, function, trials.symmetric(sample))
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


def bus_bytes(x: Tensor, result: Tensor, ranks: int) -> float:
    """Return the bytes that must leave a GPU.

    Args:
        x, result, ranks: The first argument and the first result on each rank; and how many there are.
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


def _link_us(rank: int, ranks: int) -> float:
    from torch.distributed import _symmetric_memory

    x = _symmetric_memory.empty(LINK_BYTES, dtype=torch.uint8, device=torch.device("cuda", rank))
    handle: Any = _symmetric_memory.rendezvous(x, torch.distributed.group.WORLD)  # type: ignore[arg-type]
    there = handle.get_buffer((rank + 1) % ranks, x.shape, x.dtype)
    own = torch.zeros_like(x)
    return _times_us({"copy": _graph(lambda: there.copy_(own))})["copy"]

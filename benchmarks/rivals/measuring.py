"""A case, measured: all contenders alternately, cold L2, as a plain value for JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor

import dotcu
from dotcu.benchmark.results import BenchRow, Protocol
from rivals.cases import Case

EAGER, COMPILED = "torch eager", "torch.compile"
NAMES = {"eager": EAGER, "compile": COMPILED}
"""What tables call the baselines of `dotcu bench`."""

PROTOCOL = Protocol(warmup_most_s=0.6, blocks=6, most_blocks=16, most_s=2.5)
QUICK = Protocol(warmup_most_s=0.15, blocks=4, most_blocks=8, most_s=0.6, noise=0.01, sets=2)
"""For the grid: sixty cases."""


def measure(case: Case) -> dict[str, Any]:
    """The figures of every contender on one case."""
    rows = _backward(case) if case.backward else _forward(case)
    limits = [row.limit.time_us for row in rows if row.limit is not None]
    return {
        "op": case.op,
        "case": case.name,
        "goal": case.percent,
        "ahead": list(case.ahead),
        "least": case.least,
        "limit_us": round(limits[0], 2) if limits else None,
        "rows": [_figures(row) for row in rows],
    }


def _forward(case: Case) -> list[BenchRow]:
    sample = case.make()
    given: dict[str, Any] = {"samples": [sample], "dtypes": [case.dtype], "l2": "cold"}
    given["protocol"] = _protocol(case)
    against = () if case.plain else ("eager", "compile", *case.peers.values())
    own, *others = dotcu.bench(case.operator, against=against, **given).rows
    if case.plain:
        calls = {name: partial(function, *sample.args) for name, function in _contenders(case).items()}
        others = _beside(case, partial(case.operator, *sample.args), calls)[1:]
    return [own, *others]


def _backward(case: Case) -> list[BenchRow]:
    inputs = [t.requires_grad_(t.is_floating_point()) for t in case.make().args]
    with torch._functorch.config.patch(donated_buffer=False):  # or nothing is differentiated twice
        calls = {name: _gradients(function, inputs) for name, function in _contenders(case).items()}
        return _beside(case, _gradients(case.operator, inputs), calls)


def _protocol(case: Case) -> Protocol:
    return PROTOCOL if case.least == 1 else QUICK


def _contenders(case: Case) -> dict[str, Callable[..., Any]]:
    plain = case.plain or case.operator.reference_function
    return {EAGER: plain, COMPILED: torch.compile(plain, dynamic=False), **case.peers}


def _beside(case: Case, own: Callable[[], Any], calls: dict[str, Callable[[], Any]]) -> list[BenchRow]:
    """Rows of calls that are not compared with each other, since each keeps and gives what it likes."""
    others = [_named(name, call) for name, call in calls.items()]
    given: dict[str, Any] = {"against": others, "l2": "cold", "protocol": _protocol(case)}
    report = dotcu.bench(_named(case.op, own), name=case.op, bytes=case.moved, **given)
    return list(report.rows)


def _gradients(function: Callable[..., Any], inputs: list[Tensor]) -> Callable[[], Any]:
    """What differentiates a call once more."""
    result = function(*inputs)
    out = result if isinstance(result, Tensor) else result[0]
    grad = torch.randn_like(out)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    return lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True)


def _named(name: str, call: Callable[[], Any]) -> Callable[[], Any]:
    def named() -> Any:
        return call()

    named.__name__ = name
    return named


def _figures(row: BenchRow) -> dict[str, Any]:
    """What is kept of a row."""
    figures: dict[str, Any] = {
        "contender": NAMES.get(row.key.contender, row.key.contender), "status": row.status
    }  # fmt: skip
    if row.time is None:
        return figures | {"reason": row.reason}
    figures |= {"us": round(row.time.median_us, 3), "noise": round(row.time.noise, 4)}
    if row.percent is not None:
        figures["percent"] = round(row.percent, 1)
    if row.ratio is not None:
        figures["ratio"] = [round(value, 4) for value in (row.ratio.value, row.ratio.low, row.ratio.high)]
    return figures | ({"marks": list(row.marks)} if row.marks else {})

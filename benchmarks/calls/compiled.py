"""The operators inside functions that torch.compile has compiled, and what a compiled one costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from torch._inductor import config as inductor

from calls import cpp, ours
from calls.stats import Goal, Times, Verdict, differences, spread
from calls.timing import first_line
from calls.work import Call, Contender, Inputs, summed

LONG = 11


def repeated(op: Any, count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A function that calls an operator `count` times, each time on what it gave before."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        for _ in range(count):
            a = op(a, b)
        return a

    # Dynamo keeps what it compiled by the code object; functions that share one would be tried in turn.
    function.__code__ = function.__code__.replace(co_name=f"repeated_{count}")
    return function


def compiled(operator: Callable[[], Any], count: int, inputs: Inputs) -> Call:
    """A call of the compiled function."""
    inductor.compile_threads = 1  # a pool of compiling processes would run beside what is timed
    function = torch.compile(repeated(operator(), count), fullgraph=True, dynamic=False)
    a, b = inputs.a, inputs.b
    return lambda: function(a, b)


WAYS: dict[str, Callable[[], Any]] = {
    "C++": lambda: cpp.operator("add"),
    "dotcu, torch.ops": lambda: ours.packet("add"),
    "dotcu, direct": lambda: ours.direct("add"),
}


def name_of(way: str, count: int) -> str:
    return f"torch.compile of {count} x {way}"


CONTENDERS = tuple(
    Contender(
        name=name_of(way, count),
        make=partial(compiled, operator, count),
        want=partial(summed, count),
        base=name_of("C++", count),
        launches=count,
    )
    for count in (1, LONG)
    for way, operator in WAYS.items()
)


def one_more(times: Times, way: str) -> list[float]:
    """What one more operator in a compiled function costs.

    What entering a compiled function costs (guards, inductor's wrapper) is in both functions, so it cancels.
    """
    return [difference / (LONG - 1) for difference in differences(times, name_of(way, LONG), name_of(way, 1))]


def costs_no_more(way: str) -> Goal:
    """A goal: one more operator in a compiled function, over one more C++ operator there.

    Inductor calls either through torch.ops, and checks sizes and strides of what it gives: that is in both.
    """

    def figure(times: Times) -> list[float]:
        return [a / b for a, b in zip(one_more(times, way), one_more(times, "C++"), strict=True)]

    return Goal(
        name=f"torch.compile, one more {way}: at most 1 times one more C++",
        at_most=1.0,
        unit="times",
        needs=tuple(name_of(each, count) for each in (way, "C++") for count in (1, LONG)),
        figure=figure,
    )


def graph_breaks(way: str, inputs: Inputs) -> Verdict:
    """Whether Dynamo's own account of a function that calls the operator has no graph break.

    Makes Dynamo forget what it compiled.
    """
    try:
        explained = torch._dynamo.explain(repeated(WAYS[way](), 1))(inputs.a, inputs.b)
        figure = spread([explained.graph_break_count])
        reason = "; ".join(str(found.reason).splitlines()[0] for found in explained.break_reasons)
    except Exception as error:  # as in timing.prepare
        figure, reason = None, first_line(error)
    return Verdict(
        goal=f"torch.compile of {way}: no graph break",
        at_most=0.0,
        unit="graph breaks",
        figure=figure,
        held=figure is not None and figure.median == 0,
        reason=reason,
    )

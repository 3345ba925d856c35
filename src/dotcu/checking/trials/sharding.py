"""`sharding`: the parts of a call, computed rank by rank and put together, are what the whole call gives.

No process group is needed: tensors are split as DTensor splits them, and each rank's call is made here. On
CPU tensors it is the reference that computes, after the body has looked at the shapes; the body itself is
judged by the other checks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import fresh
from dotcu.checking.numerics import describe, real, values_at
from dotcu.checking.results import CheckResult, Failed, Passed, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.operator import Sample
from dotcu.operator.sharding import MeshPlacement, ShardingRule, members
from dotcu.tracebacks import one_line

CHECK = "sharding"

RANKS = (1, 2, 3)
"""Even and uneven parts."""

MARGIN = 32
"""The allowed difference in units in the last place of an element and of the largest one."""

MAX_SHARE = 0.05
"""The allowed difference at most, as a share of the two. Of a byte it is a unit of the element."""

REDUCE: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum,
    "avg": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
}


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each sample of the first dtype that is not a narrow one."""
    if subject.overload.declared_sharding is None:
        yield skipped(subject, CHECK, "no sharding is declared")
        return
    if subject.declares(torch.Tag.nondeterministic_seeded):
        yield skipped(subject, CHECK, "declared random")
        return
    cases = subject.given(dtype_of(subject))
    if not cases:
        yield skipped(subject, CHECK, "no samples")
    smallest = subject.smallest(dtype_of(subject))
    for case in cases:
        yield trial(subject, CHECK, look, case, case is smallest)


def dtype_of(subject: Subject) -> torch.dtype:
    """Return the dtype in which parts are compared: the most exact one."""
    dtypes = subject.overload.dtypes
    return next((dtype for dtype in (torch.float64, torch.float32) if dtype in dtypes), dtypes[0])


def look(subject: Subject, case: Case, meshes: bool) -> CheckResult:
    """Try each declared rule over some numbers of ranks, and with an empty part.

    Args:
        meshes: Whether each two rules are tried on a mesh of 2 x 2.
    """
    sample = case.make()
    rules = subject.overload.sharding_rules(sample.args, sample.kwargs)
    with subject.seeded(case.name):
        for rule in rules:
            wrong = broken(subject, sample, rule)
            if wrong:
                return Failed(reason=f"sharded by {str(rule)!r}, {wrong}")
        whole = subject.call(fresh(sample)) if meshes else ()
        for first, second in itertools.product(rules, repeat=2) if meshes else ():
            wrong = difference(subject, sample, whole, [(first, 2), (second, 2)])
            if wrong:
                pair = f"{str(first)!r} and {str(second)!r}"
                return Failed(reason=f"sharded by {pair} on a mesh of 2 x 2, {wrong}")
    return Passed(note="" if rules else "no rule is for this call: every tensor is whole")


def broken(subject: Subject, sample: Sample, rule: ShardingRule) -> str:
    """Say how a rule fails: over some ranks, or where one has nothing; empty if it holds.

    Args:
        subject: What is called.
        sample: The whole call.
        rule: How it is split.
    """
    whole = subject.call(fresh(sample))
    for ranks in RANKS:
        wrong = difference(subject, sample, whole, [(rule, ranks)])
        if wrong:
            return f"over {ranks} ranks {wrong}"
    sizes = _sizes(subject, sample, rule)
    if rule.even or len(set(sizes)) != 1 or sizes[0] == 0:
        return ""
    one = split(subject, sample, rule, sizes[0], first=1)[0]
    try:
        of_one = subject.call(fresh(one))
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return f"over {sizes[0]} ranks {_failing(error)}"
    wrong = difference(subject, one, of_one, [(rule, 2)])
    return f"over 2 ranks of which one has nothing {wrong}" if wrong else ""


def _failing(error: Exception) -> str:
    return f"a rank's call fails: {type(error).__name__}: {one_line(error)}"


def _sizes(subject: Subject, sample: Sample, rule: ShardingRule) -> list[int]:
    """Return the size of each dimension that a rule splits."""
    values = named(subject, sample)
    return [
        tensor.shape[place]
        for name, place in rule.arguments.items()
        if isinstance(place, int)
        for tensor in members(values.get(name))
    ]


def named(subject: Subject, sample: Sample) -> dict[str, Any]:
    """Return a call's arguments by name."""
    return {**dict(zip(subject.overload.signature.arguments, sample.args, strict=False)), **sample.kwargs}


def difference(
    subject: Subject, sample: Sample, whole: Sequence[Tensor], along: Sequence[tuple[ShardingRule, int]]
) -> str:
    """Say how the parts of a call differ from the whole call; empty if they do not, or are no parts of it.

    Args:
        whole: What the whole call gives.
        along: A rule and a number of ranks, for each dimension of a mesh.
    """
    if not divides(subject, sample, along):
        return ""
    try:
        joined = _joined(subject, sample, along)
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return _failing(error)
    if isinstance(joined, str):
        return joined
    return unlike_outputs(joined, whole)


def divides(subject: Subject, sample: Sample, along: Sequence[tuple[ShardingRule, int]]) -> bool:
    """Return whether the parts are of equal sizes, where a rule needs that.

    Args:
        subject: What is called.
        sample: The whole call.
        along: A rule and a number of ranks, for each dimension of a mesh.
    """
    if not any(rule.even for rule, _ in along):
        return True
    counts: dict[tuple[str, MeshPlacement], int] = {}
    for rule, ranks in along:
        for name, place in rule.arguments.items():
            counts[name, place] = counts.get((name, place), 1) * ranks
    values = named(subject, sample)
    return all(
        tensor.shape[place] % count == 0
        for (name, place), count in counts.items()
        if isinstance(place, int)
        for tensor in members(values.get(name))
    )


def _joined(
    subject: Subject, sample: Sample, along: Sequence[tuple[ShardingRule, int]]
) -> tuple[Tensor, ...] | str:
    """Return what the ranks of a mesh give, put together; or what ranks that must agree differ in."""
    if not along:
        return subject.call(fresh(sample))
    (rule, ranks), *inner = along
    results = []
    for part in split(subject, sample, rule, ranks):
        result = _joined(subject, part, inner)
        if isinstance(result, str):
            return result
        results.append(result)
    return join(results, _places(subject, rule))


def _places(subject: Subject, rule: ShardingRule) -> tuple[MeshPlacement, ...]:
    """Return the places of what `Subject.call` gives: results, or what the call wrote."""
    signature = subject.overload.signature
    if not signature.mutates or subject.overload.functional is not None:
        return rule.results
    return (*rule.results, *(rule.place(name) for name in signature.mutates if name not in signature.outs))


def split(
    subject: Subject, sample: Sample, rule: ShardingRule, ranks: int, *, first: int | None = None
) -> list[Sample]:
    """Return the arguments of each rank.

    Args:
        subject: What is called.
        sample: The whole call.
        rule: How it is split.
        ranks: Over how many.
        first: Give those of so many ranks alone.
    """
    signature = subject.overload.signature
    outs = dict(zip(signature.outs, rule.results[signature.returns :], strict=False))

    def of_rank(name: str, value: Any, rank: int) -> Any:
        place = outs[name] if name in outs else rule.place(name)
        return tree_map_only(Tensor, lambda tensor: part(tensor, place, ranks, rank), value)

    positional = signature.arguments[: len(sample.args)]
    return [
        Sample(
            *(of_rank(name, value, rank) for name, value in zip(positional, sample.args, strict=True)),
            **{name: of_rank(name, value, rank) for name, value in sample.kwargs.items()},
        )
        for rank in range(ranks if first is None else first)
    ]


def part(tensor: Tensor, place: MeshPlacement, ranks: int, rank: int) -> Tensor:
    """Return a tensor's part on a rank, as DTensor has it: the last ones may have fewer elements, or none.

    A tensor that is yet to be reduced has parts that are not in proportion to each other.

    Args:
        tensor: The whole.
        place: Where it is.
        ranks: How many there are.
        rank: Whose part.
    """
    if place is None or (ranks == 1 and isinstance(place, str)):
        return tensor
    if isinstance(place, int):
        size = tensor.shape[place]
        step = max(1, -(-size // ranks))
        start, end = min(rank * step, size), min((rank + 1) * step, size)
        return tensor.narrow(place, start, end - start).contiguous()
    if place in ("max", "min"):
        return tensor if rank == 0 else tensor - 1 if place == "max" else tensor + 1
    other = tensor.flatten().flip(0).view(tensor.shape)
    value = tensor - other if rank == 0 else other if rank == 1 else torch.zeros_like(tensor)
    return value * ranks if place == "avg" else value


def join(results: Sequence[Sequence[Tensor]], places: Sequence[MeshPlacement]) -> tuple[Tensor, ...] | str:
    """Return the whole of each output, from each rank's; or what ranks that must agree differ in.

    Args:
        places: Where each output is.
    """
    if any(len(result) != len(places) for result in results):
        return f"a rank gives {len(results[0])} outputs, the rule has places for {len(places)}"
    joined = []
    for i, place in enumerate(places):
        parts = [result[i] for result in results]
        along = place if isinstance(place, int) else None
        shapes = {tuple(size for dim, size in enumerate(each.shape) if dim != along) for each in parts}
        if len(shapes) > 1 and place is not None:
            return f"output {i} has parts that do not fit: {', '.join(map(describe, parts))}"
        if isinstance(place, int):
            joined.append(torch.cat(parts, place))
        elif isinstance(place, str):
            wide = parts[0].dtype if not parts[0].is_floating_point() else torch.float64
            joined.append(REDUCE[place](torch.stack(parts).to(wide), dim=0).to(parts[0].dtype))
        else:
            other = next((rank for rank, each in enumerate(parts) if unlike(each, parts[0])), 0)
            if other:
                return f"output {i} on rank {other} {unlike(parts[other], parts[0])} on rank 0"
            joined.append(parts[0])
    return tuple(joined)


def unlike_outputs(got: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    """Say in what one of an operator's outputs differs; empty if none does."""
    wrong = (unlike(own, want) for own, want in zip(got, expected, strict=True))
    return next((f"output {i} {words}" for i, words in enumerate(wrong) if words), "")


def unlike(got: Tensor, want: Tensor) -> str:
    """Say in what a tensor differs from another by more than rounding."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {describe(got)} in place of {describe(want)}"
    if not got.numel():
        return ""
    a, b = real(got).double(), real(want).double()
    floating = want.is_floating_point() or want.is_complex()
    eps = torch.finfo(want.dtype).eps if floating else 0.0
    size = torch.nan_to_num(b, 0.0, 0.0, 0.0).abs()
    near = eps * size if want.itemsize == 1 else min(MARGIN * eps, MAX_SHARE) * (size + size.max())
    bad = ~((a - b).abs() <= near) & ~(a.isnan() & b.isnan()) & (a != b)
    return f"has{values_at(int(bad.flatten().int().argmax()), got=a, whole=b)}" if bool(bad.any()) else ""

"""`dotcu check --shardings`: find the shardings of operators by trying them on their samples."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from torch import Tensor

from dotcu import report_base
from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import fresh
from dotcu.checking.subject import GROUP, Subject
from dotcu.checking.trials.fresh_values import moved
from dotcu.checking.trials.sharding import (
    RANKS,
    REDUCE,
    broken,
    divides,
    dtype_of,
    join,
    named,
    split,
    unlike,
)
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.files import read_text
from dotcu.operator import Overload, Sample
from dotcu.operator.sharding import ELEMENTWISE, REPLICATED, MeshPlacement, ShardingRule, members, rules
from dotcu.serialize import plain
from dotcu.tracebacks import one_line

VERSION = 1
"""The version of the JSON form; docs/reference/reports.md has its keys."""

FEW_TENSORS = 4
"""With more tensors, parts of sums among the arguments are not tried: there would be too many calls."""

MAX_SAMPLES = 10
"""The samples of an overload that are tried: the smallest ones."""

MAX_CALLS = 400
"""The placements of one sample that are tried at most."""


@dataclass(frozen=True, kw_only=True)
class FoundSharding(report_base.Report):
    """The shardings of one overload.

    Attributes:
        overload: The qualified name: `mylib::scale_add`.
        holds: The shortest declaration of what holds on every sample that it can split: words, or rules.
        sometimes: Other rules that hold on some, with the numbers of samples: other arguments decide.
        declared: The declared one as text; empty if there is none.
        broken: What of it does not hold, and how that shows.
        reason: Why nothing was tried; empty if it was.
    """

    overload: str
    holds: tuple[str, ...] = ()
    sometimes: Mapping[str, tuple[int, int]]
    declared: str = ""
    broken: tuple[str, ...] = ()
    reason: str = ""

    @property
    def suggestion(self) -> str:
        """Return what to declare, in words."""
        name = self.overload.partition("::")[2]
        if self.sometimes:
            return f"nothing; the arguments decide, so write a function: @{name}.sharding"
        return f"nothing; add sharding={as_source(self.holds or (REPLICATED,))}, or use --write"

    def __rich__(self) -> RenderableType:
        lines = [Text(self.overload, style="bold")]
        if self.reason:
            return Group(*lines, Text(f"  not tried: {self.reason}"))
        for rule in self.holds:
            reduces = any(word in rule.partition("->")[2] for word in REDUCE)
            lines.append(Text(f"  holds        {rule}{'   (to be reduced)' if reduces else ''}"))
        for rule, (right, tried) in self.sometimes.items():
            lines.append(Text(f"  holds on {right} of {tried} samples  {rule}"))
        lines += [Text(f"  WRONG        {each}", style="red") for each in self.broken]
        told = self.declared or self.suggestion
        return Group(*lines, Text(f"  declared     {told}"))


@dataclass(frozen=True, kw_only=True)
class ShardingReport(report_base.Report):
    """The rules that `dotcu check --shardings` found."""

    overloads: tuple[FoundSharding, ...]

    @property
    def passed(self) -> bool:
        """True if every declared rule holds."""
        return not any(found.broken for found in self.overloads)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        found: dict[str, Any] = plain(
            {"version": VERSION, "passed": self.passed, "overloads": self.overloads}
        )
        return found

    def __rich__(self) -> RenderableType:
        return Group(*self.overloads)


def infer(subjects: Sequence[Subject]) -> Iterator[FoundSharding]:
    """Yield the shardings of each overload; one that writes `out` has those of its twin."""
    for subject in subjects:
        if subject.overload.functional is None:
            yield _infer(subject)


def _infer(subject: Subject) -> FoundSharding:
    declared = subject.overload.declared_sharding
    known = "" if declared is None else "by a function" if callable(declared) else as_source(declared)
    cases = subject.whole(dtype_of(subject))[:MAX_SAMPLES]
    if subject.communicates or not cases:  # alone it does nothing of what it is for
        reason = f"it communicates over its {GROUP}" if subject.communicates else "no sample with elements"
        return FoundSharding(overload=subject.name, sometimes={}, declared=known, reason=reason)
    right: dict[str, int] = {}
    wrong: dict[str, int] = {}
    of_case: list[dict[str, ShardingRule]] = []
    failed: dict[str, None] = {}
    for case in cases:
        with subject.seeded(case.name):
            found = {str(rule): rule for rule in _holding(subject, case)}
            failed |= dict.fromkeys(_declared_wrong(subject, case))
        of_case.append(found)
    every = {text: rule for found in of_case for text, rule in found.items()}
    for text, rule in every.items():
        for case, found in zip(cases, of_case, strict=True):
            if text in found:
                right[text] = right.get(text, 0) + 1
            elif _splits(subject, case.sample, rule) and not _covered(rule, found):
                wrong[text] = wrong.get(text, 0) + 1
    holds, covered = _shortest(subject, cases, of_case, [r for text, r in every.items() if text not in wrong])
    sometimes = {text: (right[text], right[text] + wrong[text]) for text in wrong if text not in covered}
    return FoundSharding(
        overload=subject.name, holds=holds, sometimes=sometimes, declared=known, broken=tuple(failed)
    )


def _covered(rule: ShardingRule, found: Mapping[str, ShardingRule]) -> bool:
    """Return whether another rule says what a rule says, of equal parts alone or of more arguments."""
    return any(
        rule.results == other.results and rule.arguments.items() <= other.arguments.items()
        for other in found.values()
    )


def _splits(subject: Subject, sample: Sample, rule: ShardingRule) -> bool:
    """Return whether a rule can split a call: each tensor that it names is there, and long enough."""
    values = named(subject, sample)
    for name, place in rule.arguments.items():
        tensors = members(values.get(name))
        if not tensors:
            return False
        if isinstance(place, int) and any(place >= t.ndim or t.shape[place] < 2 for t in tensors):
            return False
    present = {name for name in subject.overload.signature.tensors if members(values.get(name))}
    return bool(present)


def _declared_wrong(subject: Subject, case: Case) -> Iterator[str]:
    sample = case.make()
    try:
        declared = subject.overload.sharding_rules(sample.args, sample.kwargs)
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:  # whatever a user's function raises
        yield f"the function raises {type(error).__name__}: {one_line(error)} ({case.name})"
        return
    for rule in declared:
        wrong = broken(subject, sample, rule)
        if wrong:
            yield f"{rule}: {wrong} ({case.name})"


# ---------------------------------------------------------------- trying placements on one sample


def _holding(subject: Subject, case: Case) -> Iterator[ShardingRule]:
    """Yield the rules that hold on a sample, and on other values: `even` ones where it needs equal parts."""
    sample = case.make()
    whole = subject.call(fresh(sample))
    tried = itertools.islice(_candidates(subject, sample), MAX_CALLS)
    for arguments in tried:
        for results in _results(subject, sample, whole, arguments):
            rule = ShardingRule(arguments=arguments, results=results)
            for each in (rule, replace(rule, even=True)):
                dividing = any(divides(subject, sample, [(each, ranks)]) for ranks in RANKS[1:])
                if dividing and not any(broken(subject, one, each) for one in (sample, moved(case, 1))):
                    yield each
                    break


def _candidates(subject: Subject, sample: Sample) -> Iterator[Mapping[str, MeshPlacement]]:
    """Yield placements of the arguments: dimensions of one size together, and those of one position."""
    values = named(subject, sample)
    outs = subject.overload.signature.outs
    tensors = {n: members(values.get(n)) for n in subject.overload.signature.tensors if n not in outs}
    tensors = {name: group for name, group in tensors.items() if group}
    seen: set[str] = set()
    for places in itertools.chain(_by_size(tensors), _by_position(tensors)):
        kept = {name: place for name, place in places.items() if place is not None}
        if kept and str(kept) not in seen:
            seen.add(str(kept))
            yield kept


def _by_position(tensors: Mapping[str, Sequence[Tensor]]) -> Iterator[Mapping[str, MeshPlacement]]:
    rank = max((group[0].ndim for group in tensors.values()), default=0)
    for dim in range(rank):
        for least in range(rank + 1):
            named = {n: dim for n, group in tensors.items() if group[0].ndim > max(dim, least - 1)}
            if all(tensors[name][0].shape[dim] > 1 for name in named):
                yield named


def _by_size(tensors: Mapping[str, Sequence[Tensor]]) -> Iterator[Mapping[str, MeshPlacement]]:
    sizes = sorted({size for group in tensors.values() for size in group[0].shape if size > 1})
    reduced: list[MeshPlacement] = ["sum"] if len(tensors) <= FEW_TENSORS else []
    for size in sizes:
        options = [
            [None, *(dim for dim, own in enumerate(group[0].shape) if own == size), *reduced]
            for group in tensors.values()
        ]
        for places in itertools.product(*options):
            if any(isinstance(place, int) for place in places):
                yield dict(zip(tensors, places, strict=True))


def _results(
    subject: Subject, sample: Sample, whole: Sequence[Tensor], arguments: Mapping[str, MeshPlacement]
) -> Iterator[tuple[MeshPlacement, ...]]:
    """Yield the places of results that make two ranks' outputs the whole ones; none if there are no such."""
    returned = subject.overload.signature.returns
    rule = ShardingRule(arguments=arguments, results=(None,) * returned)
    try:
        parts = [subject.call(fresh(each)) for each in split(subject, sample, rule, 2)]
    except (UsageError, EnvironmentFault):
        raise
    except Exception:  # a rank's call may fail in any way: then the placement is none
        return
    places = []
    for i in range(returned):
        fitting = (p for p in _places(whole[i]) if _makes([[part[i]] for part in parts], p, whole[i]))
        place = next(fitting, _NONE)
        if place is _NONE:
            return
        places.append(place)
    yield tuple(places)


_NONE: Any = object()


def _places(tensor: Tensor) -> Iterator[MeshPlacement]:
    yield None
    yield from range(tensor.ndim)
    yield from REDUCE


def _makes(parts: Sequence[Sequence[Tensor]], place: MeshPlacement, whole: Tensor) -> bool:
    if isinstance(place, str) and any(part[0].shape != whole.shape for part in parts):
        return False
    try:
        joined = join(parts, [place])
    except RuntimeError:  # parts that do not fit together
        return False
    return not isinstance(joined, str) and not unlike(joined[0], whole)


# ---------------------------------------------------------------- the shortest declaration


def _shortest(
    subject: Subject,
    cases: Sequence[Case],
    found: Sequence[Mapping[str, ShardingRule]],
    holding: Sequence[ShardingRule],
) -> tuple[tuple[str, ...], set[str]]:
    """Return words that stand for what holds, and the rules that they mean on the samples.

    Args:
        found: What holds on each sample.
        holding: What holds wherever it can be.
    """
    of_rows = dict.fromkeys(_by_rows(rule) for of_case in found for rule in of_case.values())
    widest = sorted(holding, key=lambda rule: -len(rule.arguments))
    chosen: list[str] = []
    covered: set[str] = set()
    for text in (ELEMENTWISE, *of_rows, *map(str, widest)):
        made: dict[str, ShardingRule] = {}
        for case, of_case in zip(cases, found, strict=True):
            sample = case.sample
            own = rules(text, subject.overload.signature, sample.args, sample.kwargs)
            here = [_present(subject, sample, rule) for rule in own]
            here = [rule for rule in here if _splits(subject, sample, rule)]
            if any(str(rule) not in of_case for rule in here):
                break
            made |= {str(rule): rule for rule in here}
        else:
            several = text not in of_rows or len(made) > 1
            if several and not made.keys() <= covered:
                chosen.append(text)
                covered |= made.keys()
    return tuple(chosen), covered


def _present(subject: Subject, sample: Sample, rule: ShardingRule) -> ShardingRule:
    """Return a rule for the arguments that a call has."""
    values = named(subject, sample)
    return replace(
        rule, arguments={n: place for n, place in rule.arguments.items() if members(values.get(n))}
    )


def _by_rows(rule: ShardingRule) -> str:
    """Return a rule with `rows` for each of its dimensions."""

    def rows(place: MeshPlacement) -> MeshPlacement:
        return "rows" if isinstance(place, int) else place

    arguments = {name: rows(place) for name, place in rule.arguments.items()}
    return str(replace(rule, arguments=arguments, results=tuple(map(rows, rule.results))))


def as_source(declaration: str | Sequence[str]) -> str:
    """Return a declaration as Python has it."""
    texts = (declaration,) if isinstance(declaration, str) else tuple(declaration)
    quoted = [f'"{text}"' for text in texts]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"


# ---------------------------------------------------------------- writing it into the source


def write(overload: Overload, declaration: Sequence[str]) -> Path:
    """Put a declaration into the source: into `@dotcu.op(...)`, or after the function of an overload.

    Raises:
        UsageError: A library computes the operator, so there is no function; or its file was changed.
    """
    line = f"{overload.__name__}.sharding({as_source(declaration)})"
    if overload.body is None:
        raise UsageError(
            f"{overload.qualified_name} is a library's: there is no function to write at.\nType: {line}"
        )
    body = inspect.unwrap(overload.body)
    path = Path(body.__code__.co_filename)
    text = read_text(path)
    node = next(
        (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and _starts(n, body)), None
    )
    if node is None:
        raise UsageError(
            f"{path} has changed since {body.__name__} was defined in it.\nRun the command again."
        )
    call = node.decorator_list[0]
    lines = text.splitlines(keepends=True)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "op":
        assert call.end_lineno is not None
        assert call.end_col_offset is not None
        before = lines[call.end_lineno - 1]
        at = len(before.encode()[: call.end_col_offset - 1].decode())
        comma = "" if before[:at].rstrip().endswith((",", "(")) else ", "
        lines[call.end_lineno - 1] = f"{before[:at]}{comma}sharding={as_source(declaration)}{before[at:]}"
    else:
        assert node.end_lineno is not None
        lines.insert(node.end_lineno, f"\n\n{node.name}.sharding({as_source(declaration)})\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _starts(node: ast.FunctionDef, body: Any) -> bool:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return bool(node.name == body.__name__ and first == body.__code__.co_firstlineno)

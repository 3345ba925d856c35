"""Splits of an operator's tensors over ranks: words for it, and the rules that they mean.

A rule says for one dimension of a mesh where each argument and each result is: `x:0 residual:0 -> 0, 0`.
A place is a dimension to split along, counted from 0; `rows`, every dimension but the last; a reduction
that the parts still need (`sum`, `avg`, `max`, `min`); or `*`, the whole tensor on every rank, as is each
argument that a rule does not name. A rule that begins with `even` is for parts of equal sizes alone. That
every tensor is whole is always a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from dotcu.errors import UsageError
from dotcu.operator.schema import Signature

MeshPlacement = int | str | None
"""Where a tensor is: split along a dimension, to be reduced, or whole."""

Sharding = str | Sequence[str] | Callable[..., str | Sequence[str]]
"""A declaration: a rule in words, several, or a function of the operator's arguments that returns them."""

ELEMENTWISE, REPLICATED = "elementwise", "replicated"

REDUCTIONS = ("sum", "avg", "max", "min")

_ROWS = "rows"
_EVEN = "even"
_WHOLE = "*"


@dataclass(frozen=True, kw_only=True)
class ShardingRule:
    """The place of each tensor, along one dimension of a mesh.

    Attributes:
        arguments: The places of those that are not whole everywhere.
        results: The place of each result, then of each `out`.
        even: Whether it holds for parts of equal sizes alone.
    """

    arguments: Mapping[str, MeshPlacement]
    results: tuple[MeshPlacement, ...]
    even: bool = False

    def place(self, name: str) -> MeshPlacement:
        """Return where an argument is."""
        return self.arguments.get(name)

    @property
    def replicates(self) -> bool:
        """True if every tensor is whole on every rank."""
        return all(place is None for place in (*self.arguments.values(), *self.results))

    def __str__(self) -> str:
        words = [f"{name}:{place}" for name, place in self.arguments.items() if place is not None]
        results = ", ".join(_WHOLE if place is None else str(place) for place in self.results)
        return " ".join([*([_EVEN] if self.even else []), *words, "->", results]).rstrip()


CallRules = Callable[[tuple[Any, ...], dict[str, Any]], list[ShardingRule]]
"""Returns the rules of a call, besides that every tensor is whole."""


@dataclass(frozen=True)
class TensorShape:
    """A tensor as a function of shardings sees it, by its shape: of a DTensor no more is known there."""

    shape: Sequence[int]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a function of shardings asks a tensor for {name}.\n"
            "Of a tensor it may ask shape and ndim: of a DTensor nothing else is known there.\n"
            "For the number of elements, type: x.shape.numel()"
        )


def tensors_of(signature: Signature) -> tuple[str, ...]:
    """Return the names of the arguments that are tensors or lists of them, without `out` and its like."""
    return tuple(name for name in signature.tensors if name not in signature.outs)


def results_of(signature: Signature) -> int:
    """Return the number of results: those that a call returns, and each `out`."""
    return signature.returns + len(signature.outs)


def parse(text: str, signature: Signature) -> ShardingRule:
    """Read a rule in words.

    Raises:
        UsageError: It names no tensor of the operator, has another number of results, or another form.
    """
    left, arrow, right = text.partition("->")
    even = left.split()[:1] == [_EVEN]
    words = [word.partition(":") for word in left.split()[even:]]
    results = [word.strip() for word in right.split(",")] if right.strip() else []
    tensors = tensors_of(signature)
    if not arrow or not all(separator for _, separator, _ in words):
        raise _wrong(text, signature, "it has another form")
    for name, _, _ in words:
        if name not in tensors:
            known = "is no tensor" if name in signature.arguments else "is no argument"
            raise _wrong(text, signature, f"{name} {known}; tensors are {', '.join(tensors)}")
    if len(results) != results_of(signature):
        raise _wrong(text, signature, f"it has {len(results)} places for {results_of(signature)} results")
    places = {name: _place(place, text, signature) for name, _, place in words}
    of_results = tuple(_place(place, text, signature) for place in results)
    return ShardingRule(arguments=places, results=of_results, even=even)


def _place(word: str, text: str, signature: Signature) -> MeshPlacement:
    if word == _WHOLE:
        return None
    if word in (*REDUCTIONS, _ROWS):
        return word
    if not re.fullmatch(r"\d+", word, re.ASCII):
        raise _wrong(text, signature, f"{word!r} is no place")
    return int(word)


def _wrong(text: str, signature: Signature, why: str) -> UsageError:
    name = (tensors_of(signature) or ("x",))[0]
    results = ", ".join(["0"] * results_of(signature))
    return UsageError(
        f"{signature.qualified_name} cannot be sharded by {text!r}: {why}.\n"
        f"A place is a dimension counted from 0, {_ROWS}, {', '.join(REDUCTIONS)}, or {_WHOLE} for a whole "
        f"tensor.\nType: sharding={f'{name}:0 -> {results}'.rstrip()!r}, or {ELEMENTWISE!r}"
    )


def validate(declared: Sharding, signature: Signature) -> None:
    """Read a declaration in words, which is then known to be well formed.

    Raises:
        UsageError: It is not; or it is neither words nor a function.
    """
    if callable(declared):
        return
    for text in _texts(declared, signature):
        if text not in (ELEMENTWISE, REPLICATED):
            parse(text, signature)


def _texts(words: Any, signature: Signature) -> tuple[str, ...]:
    texts = (words,) if isinstance(words, str) else words
    if not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise _wrong(str(words), signature, "a rule is text")
    return tuple(texts)


def rules(
    declared: Sharding, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[ShardingRule]:
    """Return the rules of a declaration for one call, without those that a tensor has too few dimensions for.

    Of a tensor among the arguments, only `shape` and `ndim` are asked.

    Raises:
        UsageError: A function returned something else than rules.
    """
    values = {**dict(zip(signature.arguments, args, strict=False)), **kwargs}
    if callable(declared):
        inputs = {name: _shapes(value) for name, value in kwargs.items() if name not in signature.outs}
        declared = declared(*map(_shapes, args), **inputs)
    found: dict[str, ShardingRule] = {}
    for text in _texts(declared, signature):
        if text == ELEMENTWISE:
            made = _elementwise(signature, values)
        elif text == REPLICATED:
            made = iter(())
        else:
            made = _by_rows(parse(text, signature), values)
        found.update((str(rule), rule) for rule in made if _fits(rule, values) and not rule.replicates)
    return list(found.values())


def _shapes(value: Any) -> Any:
    """Return an argument with the shape of each tensor in its place."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_shapes, value))
    return TensorShape(value.shape) if members(value) else value


def _elementwise(signature: Signature, values: Mapping[str, Any]) -> Iterator[ShardingRule]:
    """Yield a rule for each dimension of the result; tensors are aligned at their last one."""
    named = {name: members(values.get(name)) for name in tensors_of(signature)}
    rank = max((len(tensor.shape) for group in named.values() for tensor in group), default=0)
    for dim in range(rank):

        def along(shape: Sequence[int], dim: int = dim) -> MeshPlacement:
            own = dim - rank + len(shape)
            return own if own >= 0 and shape[own] != 1 else None

        places = {name: [along(t.shape) for t in group] for name, group in named.items() if group}
        if all(len(set(each)) == 1 for each in places.values()):
            alike = {name: each[0] for name, each in places.items()}
            yield ShardingRule(arguments=alike, results=(dim,) * results_of(signature))


def _by_rows(rule: ShardingRule, values: Mapping[str, Any]) -> Iterator[ShardingRule]:
    """Yield a rule for each dimension that `rows` stands for: all but the last of its tensor of the most."""
    named = [name for name, place in rule.arguments.items() if place == _ROWS]
    if not named:
        yield rule
        return
    ranks = [tensor.ndim for name in named for tensor in members(values.get(name))]
    for dim in range(max(ranks, default=0) - 1):
        arguments = {name: dim if place == _ROWS else place for name, place in rule.arguments.items()}
        results = tuple(dim if place == _ROWS else place for place in rule.results)
        yield replace(rule, arguments=arguments, results=results)


def _fits(rule: ShardingRule, values: Mapping[str, Any]) -> bool:
    return all(
        not isinstance(place, int) or place < tensor.ndim
        for name, place in rule.arguments.items()
        for tensor in members(values.get(name))
    )


def members(value: Any) -> tuple[Any, ...]:
    """Return the tensors of an argument: itself, those of a list, none of a number or None."""
    if isinstance(value, (list, tuple)):
        return tuple(tensor for item in value for tensor in members(item))
    return (value,) if hasattr(value, "shape") and hasattr(value, "ndim") else ()

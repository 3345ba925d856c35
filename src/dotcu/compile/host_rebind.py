"""What leaving a declaration out could change without a word: that a name of device code means another.

A host function's head can stay, as a declaration without a body: overloads, types and layouts are
then what they are for nvcc, and the compiler refuses a call at the function's own line. Where the
head has in it what only a host knows, a name that device code could mean is told as an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from dotcu.compile.host_code import WORD, in_code
from dotcu.compile.host_items import Cut, Item

MARK = "__device__ "
_OUT_OF_REACH = re.compile(r"\b(?:torch|at|c10)::\w*Tensor\b|\bstd::\w*stream\s*&")
"""Of a head: a parameter, or a result, that no value of device code can become."""


# Functions of the compiler and of its headers that a host function of the same name may overload.
_MATHS = """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
            fabs fdim floor fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 modf nearbyint
            pow remainder rint round rsqrt sin sinh sqrt tan tanh tgamma trunc"""
_COMPILERS = re.compile(
    rf"({'|'.join(_MATHS.split())})[fl]?|min|max|swap|move|forward|clamp|lerp|isnan|isinf|isfinite|signbit|l?labs"
    r"|printf|clock(64)?|malloc|free|memcpy|memset|abort|exit|trap|atomic\w+|make_\w+|(tex|surf)[123A-Z]\w+|__\w+"
    r"|u(min|max)|ll(min|max)|fdivide|saturate|sinpi|cospi|norm\w*|rnorm\w*|rcbrt|h2?(add|sub|mul|div"
    r"|fma|sqrt|rsqrt|rcp|exp|log|sin|cos|tanh|neg|ceil|floor|trunc|rint)\w*"
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is known where the choice is made which declarations stay.

    Attributes:
        kept: Declarations that stay, with their code.
        whole: Words of texts that stay as they are.
        is_known: Whether a device compiler knows a name by itself, or by what stays.
        expanded: The words that macros bring along.
    """

    kept: Sequence[tuple[Item, str]]
    whole: frozenset[str]
    is_known: Callable[[str], bool]
    expanded: Callable[[frozenset[str]], frozenset[str]]

    def called(self) -> frozenset[str]:
        """The words that device code uses, without those that it only declares."""
        found = set(self.whole)
        for item, text in self.kept:
            words = Counter(WORD.findall(text))
            words[item.name] -= 1
            found |= {word for word, count in words.items() if count > 0}
        return self.expanded(frozenset(found))

    def can_stay(self, cut: Cut, bare: str) -> bool:
        """Whether the head of a host function has nothing in it that a device compiler lacks."""
        return all(map(self.is_known, cut.needs)) and not in_code(bare[cut.start : cut.body])


def before(cut: Cut) -> str:
    """What is written where a head stays: a call of an inline function without a body is refused."""
    return MARK if cut.is_inline or cut.is_virtual else f"{MARK}inline "


class Rebinding:
    """Which heads stay, and which declarations cannot be left out without a risk."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.called = scene.called()
        outside = [name for item, _ in scene.kept for name in item.names]
        self.outside = frozenset(outside) | scene.whole
        self.inside = self.outside | {name for item, _ in scene.kept for name in item.members}
        is_opened = any(item.what == "a using of a namespace" for item, _ in scene.kept)
        # what is only asked of, or found through a namespace, is seen by no name that is declared here
        self.is_probed = is_opened or bool(self.called & {"decltype", "requires"})

    def heads(self, item: Item, bare: str, *, is_kept: bool) -> Iterator[Cut]:
        """The functions of a declaration whose heads stay."""
        if is_kept:
            yield from (cut for cut in item.cuts if self.scene.can_stay(cut, bare))
        elif item.head is not None and self.is_overload(item, bare) and self.scene.can_stay(item.head, bare):
            yield item.head

    def is_operator_of_kept(self, head: Cut, bare: str) -> bool:
        """Whether an operator may be for a type that device code has."""
        return any(map(self.scene.is_known, head.needs)) or "template" in bare[head.start : head.body]

    def is_overload(self, item: Item, bare: str) -> bool:
        """Whether device code uses a name that is a host function's and another's too."""
        if item.head is None or not item.head.is_own:
            return False
        if item.name.startswith("operator"):
            return self.is_operator_of_kept(item.head, bare)  # it is called without its name
        is_anothers = item.name in self.outside or bool(_COMPILERS.fullmatch(item.name))
        return item.name in self.called and (is_anothers or self.is_probed)

    def problems(
        self, item: Item, heads: Collection[Cut], bare: str, *, is_kept: bool
    ) -> Iterator[tuple[int, str]]:
        """Where leaving out a declaration, or a part of it, could give device code another meaning."""
        if is_kept:
            for cut in item.cuts:
                if cut not in heads and self.is_missed(item, cut, bare):
                    yield cut.start, f"host code in a type of device code: {item.name}"
        elif item.head not in heads:
            for name in self.hidden(item, bare):
                yield item.start, f"host code with a name that device code uses: {name}"

    def is_missed(self, item: Item, cut: Cut, bare: str) -> bool:
        is_out_of_reach = bool(_OUT_OF_REACH.search(bare, cut.start, cut.body))
        if is_out_of_reach and not cut.is_virtual and not cut.is_constructor:
            return False
        if cut.is_special:
            return not item.name or item.name in self.called
        return cut.name in self.called and (self.is_probed or cut.name in self.inside)

    def hidden(self, item: Item, bare: str) -> Iterator[str]:
        """The names of a declaration that device code uses and that something else has, too."""
        if item.head is not None:
            is_out_of_reach = _OUT_OF_REACH.search(bare, item.head.start, item.head.body)
            if not is_out_of_reach and self.is_overload(item, bare):
                yield item.name
            return
        for name in sorted(item.names & self.called):
            if name in self.scene.whole or self.is_declared(name, item):
                yield name

    def is_declared(self, name: str, item: Item) -> bool:
        """Whether something that stays has a name; a type's declaration without members does not count."""
        return any(
            name in each.names and not (each.is_forward and item.what == each.what)
            for each, _ in self.scene.kept
        )

"""The declarations of a text, each told device code, host code, or what both may have, by a parser.

A text is cut into statements where its brackets say so, and tree-sitter's grammar of C++ confirms
each: a statement that does not parse as one declaration is unclear, unless an annotation in its
head tells what it is. Bodies of functions are not looked into: heads decide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dotcu.compile.host_code import DEVICE_WORDS, HOST_MACROS, WORD, Macros, expanded
from dotcu.compile.lexing import blanks, code, without_comments, without_directives

if TYPE_CHECKING:
    from tree_sitter import Language, Node

Verdict = Literal["device", "host", "shared", "unclear"]

# Annotations, which C++'s grammar does not know: blanked before the parser looks, with their brackets.
PLAIN = DEVICE_WORDS | {
    "__host__", "__forceinline__", "__noinline__", "__inline__", "__inline", "__restrict__", "__restrict",
    "__grid_constant__", "__extension__", "TORCH_API", "TORCH_CUDA_CU_API", "C10_API", "C10_EXPORT",
}  # fmt: skip
BRACKETED = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__align__", "__attribute__",
    "__declspec", "alignas",
})  # fmt: skip
_SPECIFIERS = PLAIN | BRACKETED | {"inline", "static", "constexpr", "extern", "const", "volatile", "unsigned"}

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|[^\s]")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_OPENS = {closing: opening for opening, closing in _OPENING.items()}
_TRY = re.compile(r"\btry\b")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


NO_DECLARATION = "a statement that is no declaration by itself"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A function that only a host has, and what can stay of it: its head, as a declaration.

    Attributes:
        mark: Where annotations belong in it: behind `template <...>` and `extern "C"`.
        body: Where its body begins, or what a constructor has in front; its end where it has none.
        needs: Names that have to be known where the head stays: types, and what default arguments name.
        is_special: Whether a type is another type without it: a constructor, an operator, a virtual one.
        is_constructor: Whether it is one.
        is_virtual: Whether it is virtual; a table of functions has it.
        is_inline: Whether it says so itself.
        is_own: Whether it declares its name, where it does not say again what a scope declares.
    """

    start: int
    end: int
    mark: int
    body: int
    name: str
    needs: frozenset[str]
    is_special: bool = False
    is_constructor: bool = False
    is_virtual: bool = False
    is_inline: bool = False
    is_own: bool = True


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a statement is.

    Attributes:
        verdict: "shared" is what host and device may both have: a type, a constant, a constexpr function.
        what: Its kind, in words for a message.
        name: What it declares; "" where that has no name.
        names: All names that it declares, those of its enumerators among them.
        members: Names that are declared inside of a type.
        is_forward: Whether it is a type without its members.
        types: Names of types and namespaces that it mentions.
        cuts: Parts of it that only a host has: member functions without `__device__`.
        head: The same of a function at namespace scope.
        marks: Where `__device__` belongs, since NVRTC takes no constexpr function without.
    """

    verdict: Verdict
    what: str
    name: str = ""
    names: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    is_forward: bool = False
    types: frozenset[str] = frozenset()
    cuts: tuple[Cut, ...] = ()
    head: Cut | None = None
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Item(Told):
    """A declaration at namespace scope.

    Attributes:
        start, end: Where it stands.
    """

    start: int
    end: int


def items(text: str, macros: Macros) -> tuple[Item, ...]:
    """The declarations of a text in which each `#if` has one branch left, in order.

    Args:
        macros: Those of the text and of what it includes.
    """
    return tuple(_Reader(text, macros).items())


@functools.cache
def _language() -> Language:
    """The grammar, imported where it is first needed: a file without host code does without."""
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Language(tree_sitter_cuda.language())


def parse(text: str) -> Node:
    """The tree of a text of ASCII, so that bytes count as characters."""
    import tree_sitter

    return tree_sitter.Parser(_language()).parse(text.encode("ascii")).root_node


class _Reader:
    """Cuts a text into statements and tells each.

    `bare` has neither comments, literals nor directives; `shown`, for the parser, has its literals
    and lacks annotations. Both have every character where the text has it.
    """

    def __init__(self, text: str, macros: Macros) -> None:
        self.macros = macros
        self.bare = code(text)
        self.shown = _NOT_ASCII.sub("_", without_directives(without_comments(text)))
        self.tokens = [(m[0], m.start(), m.end()) for m in _TOKEN.finditer(self.bare)]
        self.pairs = self._pairs()
        self.hidden: dict[int, int] = {}
        self._hide_annotations()
        self.covered = {i for first, last in self.hidden.items() for i in range(first, last + 1)}

    def at(self, index: int) -> str:
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def close(self, index: int) -> int:
        """The index of the bracket that closes the one at `index`; the end where there is none."""
        return self.angle(index) if self.at(index) == "<" else self.pairs.get(index, len(self.tokens))

    def angle(self, index: int) -> int:
        """The end of what `template <` begins."""
        depth = 0
        while index < len(self.tokens):
            token = self.at(index)
            depth += (token == "<") - (token == ">")
            if depth == 0:
                break
            index = self.close(index) + 1 if token in _OPENING else index + 1
        return index

    def _pairs(self) -> dict[int, int]:
        """Where each bracket is closed; a brace counts for more than the others inside of it."""
        found: dict[int, int] = {}
        waiting: list[int] = []
        for index, (token, _, _) in enumerate(self.tokens):
            if token in _OPENING:
                waiting.append(index)
            elif token in _OPENING.values():
                inner = [i for i in waiting if self.at(i) in (_OPENS[token], "{")]
                if inner and self.at(inner[-1]) == _OPENS[token]:
                    del waiting[waiting.index(inner[-1]) :]
                    found[inner[-1]] = index
        return found

    def _hide_annotations(self) -> None:
        """Blank annotations in `shown`, and note the tokens, so that a walk passes over them."""
        shown = list(self.shown)
        index = 0
        while index < len(self.tokens):
            word, last = self.at(index), index
            if self._is_bracketed(word) and self.at(index + 1) == "(":
                last = min(self.close(index + 1), len(self.tokens) - 1)
            if last > index or word in PLAIN or self._is_specifier(word):
                start, end = self.tokens[index][1], self.tokens[last][2]
                shown[start:end] = blanks(self.shown[start:end])
                self.hidden[index] = last
            index = last + 1
        self.shown = "".join(shown)

    def _is_bracketed(self, word: str) -> bool:
        return word in BRACKETED or (self._is_specifier(word) and self.macros[word].called)

    def _is_specifier(self, word: str) -> bool:
        """Whether a macro stands for annotations alone, `#define HD __host__ __device__`, or for nothing."""
        macro = self.macros.get(word)
        if macro is None or not all(_is_annotation(value, self.macros) for value in macro.values):
            return False
        return not macro.called or any(macro.values)

    def head(self, start: int, end: int) -> frozenset[str]:
        """The words of a stretch, and those that its macros bring."""
        return expanded(frozenset(WORD.findall(self.bare[start:end])), self.macros)

    def items(self) -> Iterator[Item]:
        index = 0
        while index < len(self.tokens):
            index, item = self.statement(index)
            if item is not None:
                yield item

    def statement(self, begin: int) -> tuple[int, Item | None]:
        """One statement: the index after it, and what it is; None where it has no text of its own."""
        first = self.skip(begin)
        if self.at(first) == ";":
            return first + 1, None
        if self.at(first) == "}":
            return first + 1, self.item(begin, first, "device", "a bracket")
        if self._is_call(first):
            return self.call(begin, first)
        end, body = self.extent(first)
        if body is not None and self.opens_scope(first, body):
            return body + 1, self.item(begin, body, "device", "the head of a scope")
        last = min(end, len(self.tokens) - 1)
        if end > last or self.is_after_unknown(first):
            return end + 1, self.item(begin, last, "unclear", NO_DECLARATION)
        return end + 1, self.told(begin, first, last, body)

    def is_after_unknown(self, first: int) -> bool:
        """Whether a statement begins with the call of a macro that nothing here defines."""
        if self.at(first) in self.macros or not WORD.fullmatch(self.at(first)) or self.at(first + 1) != "(":
            return False
        after = self.at(self.close(first + 1) + 1)
        return bool(WORD.fullmatch(after)) and after not in ("const", "noexcept", "try")

    def skip(self, index: int) -> int:
        while index in self.hidden:
            index = self.hidden[index] + 1
        return index

    def extent(self, index: int) -> tuple[int, int | None]:
        """The last token of a statement, and the brace that opens its body or scope, if it has one."""
        has_call = has_value = in_list = False
        first = index
        while index < len(self.tokens):
            token = self.at(index)
            if index in self.hidden:
                index = self.hidden[index]
            elif token == ";":
                return index, None
            elif token == "{":
                if in_list and WORD.fullmatch(self.at(index - 1)):  # `: member{1}`
                    index = self.close(index)
                elif (has_call and not has_value) or self.opens_scope(first, index):
                    return self.handlers(self.close(index)), index
                else:
                    index = self.close(index)
            elif token in "([" or (token == "<" and self.at(index - 1) == "template"):
                has_call = has_call or token == "("
                index = self.close(index)
            elif token == "=":
                has_value = has_value or "operator" not in (self.at(index - 1), self.at(index - 2))
            elif token == ":":
                in_list = has_call
            index += 1
        return index, None

    def handlers(self, close: int) -> int:
        """Where a body ends: behind the last `catch (...) {}` that follows it."""
        while self.at(close + 1) == "catch" and self.at(close + 2) == "(":
            close = self.close(self.close(close + 2) + 1)
        return close

    def opens_scope(self, first: int, brace: int) -> bool:
        words = [self.at(i) for i in range(first, brace) if i not in self.covered]
        return "namespace" in words[:2] or (words == ["extern"] and '"' in self.text(first, brace))

    def text(self, first: int, last: int) -> str:
        return self.shown[self.tokens[first][1] : self.tokens[last][2]]

    def item(self, begin: int, last: int, verdict: Verdict, what: str, **more: object) -> Item:
        last = min(last, len(self.tokens) - 1)
        made = Item(start=self.tokens[begin][1], end=self.tokens[last][2], verdict=verdict, what=what)
        return replace(made, **more)  # type: ignore[arg-type]

    def _is_call(self, first: int) -> bool:
        """Whether a statement is the call of a macro that makes declarations."""
        word = self.at(first)
        if word in self.macros:
            macro = self.macros[word]
            makes = any(set(value) & set("{};") for value in macro.values)
            return makes and (not macro.called or self.at(first + 1) == "(")
        return bool(HOST_MACROS.fullmatch(word)) and self.at(first + 1) == "("

    def call(self, begin: int, first: int) -> tuple[int, Item]:
        """A macro's call: told by what the macro is made of."""
        word = self.at(first)
        last = self.close(first + 1) if self.at(first + 1) == "(" else first
        if self.at(last + 1) == "{":
            last = self.close(last + 1)
        elif self.at(last + 1) == ";":
            last += 1
        verdict: Verdict = "host" if word not in self.macros else self.made(word)
        return last + 1, self.item(begin, last, verdict, f"what the macro {word} makes")

    def made(self, word: str) -> Verdict:
        """What the declarations are that a macro makes; unclear where they are of both kinds."""
        others = {name: macro for name, macro in self.macros.items() if name != word}
        verdicts = {
            item.verdict
            for value in self.macros[word].values
            for item in items(value.replace("#", " "), others)
            if item.what not in ("a bracket", "the head of a scope")
        }
        if "unclear" in verdicts or verdicts >= {"device", "host"}:
            return "unclear"
        return "host" if verdicts == {"host"} else "device"

    def told(self, begin: int, first: int, last: int, body: int | None) -> Item:
        """What a statement is, confirmed by the parser."""
        from dotcu.compile.host_kinds import tell  # it needs what is above

        start, end = self.tokens[first][1], self.tokens[last][2]
        text = self.shown[start:end]
        head_end = end
        if body is not None:
            head_end = self.tokens[body][1]
            inside = self.tokens[body][2] - start
            text = _TRY.sub("   ", text[:inside]) + blanks(text[inside:-1]) + text[-1:]
        head = self.head(self.tokens[begin][1], head_end)
        found = tell(text, head, lambda a, b: self.head(start + a, start + b))
        if found.verdict == "unclear" and self.at(first) in self.macros:
            word = self.at(first)
            return self.item(begin, last, self.made(word), f"what the macro {word} makes")
        placed = replace(
            found,
            cuts=tuple(self.moved(cut, start) for cut in found.cuts),
            head=self.moved(found.head, start) if found.head is not None else None,
            marks=tuple(self.before(start + a) for a in found.marks),
        )
        return Item(start=self.tokens[begin][1], end=self.tokens[last][2], **vars(placed))

    def moved(self, cut: Cut, by: int) -> Cut:
        """A part of a statement, by its place in the text."""
        begin, mark = self.before(by + cut.start), self.before(by + cut.mark)
        return replace(cut, start=begin, end=by + cut.end, mark=mark, body=by + cut.body)

    def before(self, position: int) -> int:
        """Where the annotations begin that stand before a position."""
        for first, last in reversed(self.hidden.items()):
            start, end = self.tokens[first][1], self.tokens[last][2]
            if end <= position and not self.bare[end:position].strip():
                position = start
        return position


def _is_annotation(value: str, macros: Macros) -> bool:
    """Whether a macro's value has annotations alone: no type, no name, no number outside of brackets."""
    outside = re.sub(r"\((?:[^()]|\([^()]*\))*\)", " ", value)
    words = outside.replace('"C"', " ").split()
    return all(
        word in _SPECIFIERS or (word in macros and _is_annotation_macro(word, macros)) for word in words
    )


def _is_annotation_macro(word: str, macros: Macros) -> bool:
    others = {name: macro for name, macro in macros.items() if name != word}
    return all(_is_annotation(value, others) for value in macros[word].values)

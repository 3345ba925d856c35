"""Just enough of C++'s lexical rules: comments, literals, directives, and code that is not compiled.

Everything here keeps positions: removed text becomes blanks, newlines stay.

A scan of a text in which both branches of an `#if` stand sees two opening brackets where the
compiler sees one. So it goes over `variants()`, each with one branch of every `#if`, which together
show every branch.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

_COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
_LITERAL = (
    r'\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f_])'(?:\\.|[^'\\\n])*'"
)
_COMMENT_OR_LITERAL = re.compile(f"(?P<comment>{_COMMENT})|{_LITERAL}", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|if|elif|else|endif)\b((?:\\\r?\n|[^\n])*)")
_LOGICAL_LINE = re.compile(r"(?:\\\r?\n|[^\n])*\n|(?:\\\r?\n|[^\n])+\Z")
_DEFINED = re.compile(r"(!?)\s*defined\s*(?:\(\s*(\w+)\s*\)|(\w+))\s*")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|\.\.\.|[^\s]")
_OPENS = {")": "(", "]": "[", "}": "{"}
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def blanks(text: str) -> str:
    """Return as many blanks as a text has characters; its newlines stay."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


@functools.lru_cache(maxsize=256)
def without_comments(text: str) -> str:
    """Return the text with comments blanked; literals stay, but for the inside of those over several lines.

    What looks like a directive in a comment or a literal does not count as one.
    """
    return _COMMENT_OR_LITERAL.sub(_without_lines, text)


def _without_lines(match: re.Match[str]) -> str:
    if match["comment"]:
        return blanks(match[0])
    text, mark = match[0], match["mark"]
    if "\n" not in text:
        return text
    begin = text.index('"' if mark is None else "(") + 1
    end = len(text) - (1 if mark is None else len(mark) + 2)
    return text[:begin] + blanks(text[begin:end]) + text[end:]


def code_only(text: str) -> str:
    """Return the text with comments, literals and directives blanked: what a scan for names may look at."""
    bare = _COMMENT_OR_LITERAL.sub(lambda match: blanks(match[0]), text)
    return _DIRECTIVE.sub(lambda match: blanks(match[0]), bare)


def directives(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the preprocessor's lines stand, continuations included."""
    bare = _COMMENT_OR_LITERAL.sub(lambda match: blanks(match[0]), text)
    return tuple(match.span() for match in _DIRECTIVE.finditer(bare))


def without_directives(text: str) -> str:
    """Return the text with the preprocessor's lines blanked; literals stay."""
    pieces, done = [], 0
    for start, end in directives(text):
        pieces += [text[done:start], blanks(text[start:end])]
        done = end
    return "".join([*pieces, text[done:]])


def macro_names(text: str) -> frozenset[str]:
    """Return the names that a text defines as macros."""
    return frozenset(_MACRO.findall(without_comments(text)))


NVRTC_MACROS = frozenset({"__CUDACC_RTC__", "__CUDACC__", "__CUDA__", "__cplusplus", "__NVCC__"})
"""Macros that are defined whenever NVRTC compiles. Source: NVRTC documentation, "Predefined Macros"."""


_Branch = tuple[int, int, "bool | None", bool]
"""The present branch of an open `#if`: the number of the `#if` in its text, and that of the branch; if the
compiler sees it, None where that cannot be decided; and if an earlier one, or this one, was surely taken."""


def active_code(text: str, defined: Container[str] = NVRTC_MACROS, *, undefined: Container[str] = ()) -> str:
    """Blank the branches of `#if` that NVRTC certainly does not see.

    Only conditions that ask for one macro are decided: `#ifdef X`, `#ifndef X`, `#if defined(X)`,
    `#if !defined(X)`, `#if 0` and `#if 1`. Where a condition cannot be decided every branch stays.
    """
    return "".join(line for line, _ in _branching(text, defined, undefined))


def variants(text: str, defined: Container[str] = NVRTC_MACROS) -> Iterator[str]:
    """Yield the text with one branch of each `#if` and the others blanked, until each was seen once.

    Branches that NVRTC certainly does not see are in none. Neighbouring `#if`s advance together,
    so that `#else` matches `#else`.
    """
    lines = list(_branching(text, defined, ()))
    unseen = list({tuple(path.items()): path for line, path in lines if line.strip()}.values())
    first: dict[int, int] = {}  # by `#if`, the first branch that has text
    for path in unseen:
        first = {**path, **first}
    while unseen:
        chosen: dict[int, int] = {}  # of branches not seen yet, as many as fit together; else the first
        for path in unseen:
            if _fits(path, chosen):
                chosen.update(path)
        chosen = {**first, **chosen}
        yield "".join(line if _fits(path, chosen) else blanks(line) for line, path in lines)
        unseen = [path for path in unseen if not _fits(path, chosen)]


def _fits(path: Mapping[int, int], chosen: Mapping[int, int]) -> bool:
    return all(chosen[chain] == branch for chain, branch in path.items() if chain in chosen)


def _branching(
    text: str, defined: Container[str], undefined: Container[str]
) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield each logical line with the branch of each `#if` that it is in; blanked if surely not seen.

    An `#if` or `#else` is outside its own.
    """
    path: list[_Branch] = []
    for number, match in enumerate(_LOGICAL_LINE.finditer(without_comments(text))):
        line = text[match.start() : match.end()]
        condition = _CONDITION.match(match[0])
        if condition is None:
            is_seen = all(taken is not False for _, _, taken, _ in path)
            yield line if is_seen else blanks(line), {chain: branch for chain, branch, _, _ in path}
            continue
        yield line, {}
        directive, decided = condition[1], _decide(condition[1], condition[2], defined, undefined)
        if directive.startswith("if"):
            path.append((number, 0, decided, decided is True))
        elif path:
            chain, branch, taken, done = path.pop()
            if directive == "else":
                decided = True if taken is False and not done else None
            if directive != "endif":
                taken = False if done else decided
                path.append((chain, branch + 1, taken, done or taken is True))


def _decide(directive: str, rest: str, defined: Container[str], undefined: Container[str]) -> bool | None:
    rest = rest.strip()
    if directive in ("ifdef", "ifndef"):
        name, negated = (rest.split()[0] if rest else ""), directive == "ifndef"
    elif rest in ("0", "1"):
        return rest == "1"
    else:
        match = _DEFINED.fullmatch(rest)
        if match is None:
            return None
        name, negated = match[2] or match[3], bool(match[1])
    if name in defined:
        return not negated
    return negated if name in undefined else None


class CodeTokens:
    """The tokens of a text that holds no comments, literals or directives, and its brackets.

    Attributes:
        tokens: Each with its start and end in the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(match[0], match.start(), match.end()) for match in _TOKEN.finditer(text)]
        self._pairs = self._paired()

    def leave_out(self, hidden: Container[int]) -> None:
        """Go on without some tokens, by their index."""
        self.tokens = [token for index, token in enumerate(self.tokens) if index not in hidden]
        self._pairs = self._paired()

    def at(self, index: int) -> str:
        """Return a token; "" before the first and behind the last."""
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def close(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`; the end if there is none."""
        if self.at(index) != "<":
            return self._pairs.get(index, len(self.tokens))
        depth = 0
        while index < len(self.tokens):
            token = self.at(index)
            depth += (token == "<") - (token == ">")
            if depth == 0:
                break
            index = self.close(index) + 1 if token in "([{" else index + 1
        return index

    def _paired(self) -> dict[int, int]:
        """Return where each bracket is closed; a brace counts for more than the others inside of it."""
        closed: dict[int, int] = {}
        waiting: list[int] = []
        for index, (token, _, _) in enumerate(self.tokens):
            if token in "([{":
                waiting.append(index)
            elif token in _OPENS:
                inner = [i for i in waiting if self.at(i) in (_OPENS[token], "{")]
                if inner and self.at(inner[-1]) == _OPENS[token]:
                    del waiting[waiting.index(inner[-1]) :]
                    closed[inner[-1]] = index
        return closed


_NAME = r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)"
_INCLUDE = re.compile(rf"(?m)^[ \t]*#[ \t]*include\b[ \t]*(?:{_NAME}|(?P<macro>[A-Za-z_]\w*))")
_STANDARD_HEADER = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]+(CUDA_STD_HEADER[ \t]*\([ \t]*(\w+)[ \t]*\))")
"""CUTLASS's macro for a header of the standard library, by what it is under NVRTC."""
_HAS_INCLUDE = re.compile(rf"__has_include[ \t]*\([ \t]*{_NAME}[ \t]*\)")
_HEADER_MACRO = re.compile(rf"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+{_NAME}[ \t]*\r?$")

# Macros that Thrust puts its header names together with, and what NVRTC makes of them.
# Source: thrust/detail/config/{device,host}_system.h of CCCL 2 and 3.
THRUST_ROOTS = {
    "__THRUST_DEVICE_SYSTEM_ROOT": "thrust/system/cuda",
    "__THRUST_HOST_SYSTEM_ROOT": "thrust/system/cpp",
}


@dataclass(frozen=True)
class Include:
    """A header's name in a text.

    Attributes:
        spelled: The name between quotes or angles.
        start, end: Its position, delimiters included; that of a macro which stands for it.
        needed: False for `__has_include` and for a macro's value, which only may be included.
    """

    spelled: str
    quoted: bool
    start: int
    end: int
    needed: bool


@functools.lru_cache(maxsize=1024)
def scan_includes(text: str, *, exact: bool = True) -> tuple[Include, ...]:
    """Return every header that a text names, whatever `#if` it is in; exactly, without those in comments.

    The toolkit's headers do without: they are large, and a name too many does no harm there.
    """
    bare = without_comments(text) if exact else text
    directives = list(_INCLUDE.finditer(bare))
    includes = [_include(match, needed=True) for match in directives if match["macro"] is None]
    includes += [
        Include(
            spelled=f"cuda/std/{match[2]}", quoted=False, start=match.start(1), end=match.end(1), needed=True
        )
        for match in _STANDARD_HEADER.finditer(bare)
    ]
    includes += _by_macro(bare, [match for match in directives if match["macro"] is not None])
    if "__has_include" in bare:
        includes += [_include(match, needed=False) for match in _HAS_INCLUDE.finditer(bare)]
    return tuple(sorted(includes, key=lambda include: include.start))


def _by_macro(text: str, directives: list[re.Match[str]]) -> list[Include]:
    """Return what `#include MACRO` names: at the directive if the text has one value, else at each value."""
    if not directives:
        return []
    values: dict[str, list[re.Match[str]]] = {}
    for value in _HEADER_MACRO.finditer(text):
        values.setdefault(value["macro"], []).append(value)
    includes = []
    for directive in directives:
        named = values.get(directive["macro"], [])
        if len(named) == 1:
            start, end = directive.span("macro")
            includes.append(dataclasses.replace(_include(named[0], needed=True), start=start, end=end))
        else:
            includes += [_include(value, needed=False) for value in named]
    return list(dict.fromkeys(includes))


def _include(match: re.Match[str], *, needed: bool) -> Include:
    group = "quoted" if match["quoted"] is not None else "angled"
    spelled = match[group].strip()
    root, slash, rest = spelled.partition("/")
    return Include(
        spelled=THRUST_ROOTS.get(root, root) + slash + rest,
        quoted=group == "quoted",
        start=match.start(group) - 1,
        end=match.end(group) + 1,
        needed=needed,
    )


def rewrite_includes(text: str, leads: Mapping[Include, str | None]) -> str:
    """Replace each name, in order, by the virtual one that it leads to; with None it stays as it is."""
    pieces: list[str] = []
    position = 0
    for include, virtual in leads.items():
        if virtual is not None:
            pieces += [text[position : include.start], f'"{virtual}"']
            position = include.end
    return "".join([*pieces, text[position:]])

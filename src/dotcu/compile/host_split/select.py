"""The device part of a file with host code, with lines and columns kept.

The texts of a source and of the user's headers go in together, since a type of one may be what
a kernel of another needs. Removed code becomes blanks.

    device code     kept: its head has __global__, __device__, __constant__
    shared          a type, a constant, a constexpr function, an alias: kept where device code names
                    it, or where it is made of nothing but what a device compiler knows
    host code       removed: all other functions and variables, main, calls of binding macros,
                    what mentions PyTorch or the host's library, its #include lines
    unclear         kept, and the lines are reported if the compiler refuses them

Removing a declaration could silently change what a name in device code means. So the head of a host function
stays where needed, as a declaration without a body: overloads, types and layouts are then what they are for
nvcc, and the compiler refuses a call at the function's own line. Where the head has in it what only a host
knows, or a removed name is declared in another scope too, a declaration that nothing can use takes its place.

What is kept without an annotation is a `Piece`: where the compiler refuses one, the selection is made again
without it.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dotcu.compile.diagnostics import headers_of
from dotcu.compile.host_split.detect import (
    CODE,
    HOST_NAMESPACES,
    OF_TORCH,
    STAND_INS,
    TORCH_HEADER,
    WORD,
    HostLine,
    Macros,
    is_host_include,
    macros_of,
    sign_of,
    stand_ins,
    with_macro_words,
)
from dotcu.compile.host_split.parse import Classified, ParsedDeclaration, parse_declarations
from dotcu.compile.source.lexer import code_only, directives, scan_includes, variants, without_comments
from dotcu.compile.source.source import printable

_NAMESPACE = re.compile(r"\bnamespace\s+(\w+)\s*(?:::|\{)")
_DEFINED_NAME = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")
_LIBRARY = re.compile(r"(cub|thrust)/")
_LATE_INCLUDE = re.compile(
    r"#include <(cuda_\w+\.h|left_out/torch)>"
)  # of a header that a template argument needs

_KNOWN = re.compile(
    r"u?int(_fast|_least)?\d*_t|s?size_t|ptrdiff_t|u?intptr_t|u(int|short|char|long)|dim3"
    r"|u?(char|short|int|long|longlong|float|double)[1-4](_16a|_32a)?"
    r"|(__)?(half2?|nv_bfloat16\w*|nv_fp\w+)|cuda(Stream|Event|Error)_t|cuda|cub|nvcuda|wmma|dotcu"
    r"|cooperative_groups|cg"
)
"""Types and namespaces that a device compiler knows by itself or by its own headers."""

_DEVICE = "__device__ "
_MATHS = """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
            fabs fdim floor fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 modf nearbyint
            pow remainder rint round rsqrt sin sinh sqrt tan tanh tgamma trunc"""
_COMPILERS = re.compile(
    rf"({'|'.join(_MATHS.split())})[fl]?|min|max|swap|move|forward|clamp|lerp|isnan|isinf|isfinite|signbit|l?labs"
    r"|printf|clock(64)?|malloc|free|memcpy|memset|abort|exit|trap|atomic\w+|make_\w+|(tex|surf)[123A-Z]\w+|__\w+"
    r"|u(min|max)|ll(min|max)|fdivide|saturate|sinpi|cospi|norm\w*|rnorm\w*|rcbrt|h2?(add|sub|mul|div"
    r"|fma|sqrt|rsqrt|rcp|exp|log|sin|cos|tanh|neg|ceil|floor|trunc|rint)\w*"
)
"""Functions of the compiler and of its headers that a host function of the same name may overload."""

_STANDARD = {"<cassert>", "<cfloat>", "<climits>", "<cmath>", "<cstddef>", "<cstdint>", "<limits>",
             "<type_traits>", "<utility>"}  # fmt: skip
"""Headers of the standard library that a host's header includes."""

_TENSOR = re.compile(r"\b(?:torch|at)::Tensor\b(?=\s+\w+\s*[;,=])")

_MEMBER = "a member function without __device__"

Problem = tuple[int, int, str]
"""Where code begins and ends that is not clearly host code or device code, and why."""


@dataclass(frozen=True, kw_only=True)
class RemovedDeclaration:
    """A declaration that the compiler does not get.

    Attributes:
        file: The index of the text that it is in.
    """

    name: str
    file: int
    line: int
    what: str

    @property
    def remedy(self) -> str:
        """The change that makes device code of it."""
        if "function" in self.what:
            return "__host__ __device__"
        return "const, or __device__" if "variable" in self.what else "nothing of the host's library in it"


Refusal = tuple[int, int, str]
"""What the compiler refused: the index of its text, its position there, and in which form it was: "whole",
the "head" of a function, one that is "inline", or a "stand-in" for one."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Code that is kept as long as the compiler takes it: the lines that it is on, of the text in `key`."""

    key: Refusal
    first: int
    last: int
    is_assert: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceParts:
    """The device part of some texts.

    Attributes:
        texts: The compiled part of each; the text itself where nothing is removed.
        removed: The named declarations that are not in them.
        unclear: Lines that are neither clearly host code nor clearly device code, with the index of their
            text.
        pieces: What can be left out, too, the innermost first.
        looked: The indices of the texts that may have host code.
    """

    texts: tuple[str, ...]
    removed: tuple[RemovedDeclaration, ...] = ()
    unclear: tuple[tuple[int, HostLine], ...] = ()
    pieces: tuple[Piece, ...] = ()
    looked: frozenset[int] = frozenset()

    def to_note(self, texts: tuple[str, ...]) -> dict[str, Any]:
        """Return it as JSON has it, without the texts that are as they were."""
        changed = {str(i): text for i, text in enumerate(self.texts) if text != texts[i]}
        return {**dataclasses.asdict(self), "texts": changed, "looked": sorted(self.looked)}

    @staticmethod
    def from_note(note: Mapping[str, Any], texts: tuple[str, ...]) -> DeviceParts:
        """Return what `to_note` wrote down for the same texts."""
        changed = note["texts"]
        return DeviceParts(
            texts=tuple(changed.get(str(i), text) for i, text in enumerate(texts)),
            removed=tuple(RemovedDeclaration(**row) for row in note["removed"]),
            unclear=tuple((file, HostLine(**line)) for file, line in note["unclear"]),
            pieces=tuple(Piece(**{**row, "key": tuple(row["key"])}) for row in note["pieces"]),
            looked=frozenset(note["looked"]),
        )


class _ParsedFile:
    """A text with the declarations of each of its variants, and what becomes of it.

    Attributes:
        kept: 1 for each character that stays.
        added: By position, what is written before a character that stays, or in place of another.
    """

    def __init__(self, index: int, text: str, defined: frozenset[str], macros: Macros) -> None:
        self.index, self.text = index, text
        same: Classified = {}  # most statements are in several variants
        self.variants = [(each, parse_declarations(each, macros, same)) for each in variants(text, defined)]
        self.declarations = list(dict.fromkeys(each for _, parsed in self.variants for each in parsed))
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self.kept = bytearray()
        self.added: dict[int, str] = {}

    def line(self, position: int) -> int:
        return bisect.bisect_left(self._ends, position) + 1

    def lines(self, problems: Iterable[Problem]) -> Iterator[tuple[int, HostLine]]:
        """Yield the first problem of each line, with the index of the text."""
        lines = printable(self.text).split("\n")
        first: dict[int, tuple[int, str]] = {}
        for start, end, what in problems:
            first.setdefault(self.line(start), (self.line(end - 1), what))
        for line, (last, what) in sorted(first.items()):
            yield self.index, HostLine(line, lines[line - 1].rstrip("\r"), what, last)

    def device_text(self, selection: _Selection) -> str:
        """Return the text with nothing but its device part in it; the text itself where that is all."""
        kept = selection.kept
        host_includes = {
            include.start for include in scan_includes(self.text)
            if include.needed
            and (
                is_host_include(include.spelled, include.quoted, stand_ins())
                # these take a second to compile, and may be there for what launches
                or (_LIBRARY.match(include.spelled) and include.spelled.split("/")[0] not in selection.used)
            )
        }  # fmt: skip
        if not host_includes and all(
            each in kept and not each.methods and not each.marks for each in self.declarations
        ):
            return self.text
        self.kept, self.added = bytearray(len(self.text)), {}
        done: set[ParsedDeclaration] = set()  # what is in several variants is the same in each
        for variant, in_variant in self.variants:
            for each in in_variant:
                if each not in done:
                    self._keep_declaration(variant, each, selection)
            done.update(in_variant)
        gone = [each for each in self.declarations if each not in kept]
        self._keep_directives(host_includes, gone, selection.used)
        self._drop_empty_conditions()
        return self._rendered()

    def _keep(self, variant: str, start: int, end: int) -> None:
        if variant[start:end] == self.text[start:end]:
            self.kept[start:end] = b"\1" * (end - start)
            return
        for position in range(start, end):
            if variant[position] == self.text[position]:
                self.kept[position] = 1

    def _keep_declaration(self, variant: str, declaration: ParsedDeclaration, selection: _Selection) -> None:
        if declaration in selection.kept:
            tensors = dict(_tensor_members(declaration))
            gone = [(method.start, method.end) for method in declaration.methods]
            begin = declaration.start
            for start, end in sorted([*gone, *tensors.items(), (declaration.end, declaration.end)]):
                self._keep(variant, begin, max(begin, start))
                begin = max(begin, end)
            self.added |= dict.fromkeys(tensors, "__dotcu_tensor")
            self.added |= dict.fromkeys(declaration.marks, _DEVICE)
        for one in selection.stand_ins.keys() & {declaration, *declaration.methods}:
            self.added[one.start] = selection.stand_ins[one]
        for head in selection.heads.intersection((declaration, *declaration.methods)):
            body = head.start + len(head.head)
            self._keep(variant, head.start, body)
            # a call of an inline function without a body is refused
            is_plain = head.is_inline or selection.is_called(head)
            self.added[head.mark] = _DEVICE if is_plain else f"{_DEVICE}inline "
            if self.text[body - 1] != ";":
                self.added[body] = ";"

    def _keep_directives(
        self, host_includes: set[int], gone: Sequence[ParsedDeclaration], used: frozenset[str]
    ) -> None:
        """Keep the preprocessor's lines, except for what is inside host code, and the host's `#include`s."""
        bare = without_comments(self.text)
        of_torch = any(TORCH_HEADER.match(include.spelled) for include in scan_includes(self.text))
        instead = _include_instead(used, of_torch)
        for start, end in directives(self.text):
            line = bare[start:end]
            macro = _DEFINED_NAME.match(line)
            is_inside = any(each.start <= start and end <= each.end for each in gone)
            is_seen = any(variant[start:end] == self.text[start:end] for variant, _ in self.variants)
            is_needed = is_seen and (not is_inside or bool(macro and macro[1] in used))
            if is_needed and not host_includes.isdisjoint(range(start, end)):
                name = "cub/cub.cuh" if "cub/" in line and "cub" in used else instead
                self.added |= {start: f"#include <{name}>"} if name else {}
            elif is_needed or _CONDITION.match(line):
                for position in range(start, end):
                    self.kept[position] |= bare[position] != " " or self.text[position] == " "

    def _drop_empty_conditions(self) -> None:
        """Remove each `#if` in whose branches nothing stays, the innermost first."""
        chains: list[list[tuple[int, int]]] = []
        for start, end in directives(self.text):
            condition = _CONDITION.match(self.text[start:end])
            if condition is None:
                continue
            if condition[1].startswith("if"):
                chains.append([])
            if chains:
                chains[-1].append((start, end))
            if condition[1] == "endif" and chains:
                chain = chains.pop()
                between = (
                    i for (_, after), (before, _) in itertools.pairwise(chain) for i in range(after, before)
                )
                if not any((self.kept[i] and not self.text[i].isspace()) or i in self.added for i in between):
                    for first, last in chain:
                        self.kept[first:last] = bytes(last - first)

    def _rendered(self) -> str:
        """Return what stays; an addition takes the place of blanks behind it, so that columns stay."""
        lines, begin = [], 0
        for line in self.text.split("\n"):
            end = begin + len(line)
            count = self.kept.count(1, begin, end)
            if count in (0, len(line)) and self.added.keys().isdisjoint(range(begin, end)):
                lines.append(line if count else "")
                begin = end + 1
                continue
            last = max((i for i in range(begin, end) if self.kept[i] or i in self.added), default=begin - 1)
            shown, debt = "", 0
            for position in range(begin, last + 1):
                more, character = self.added.get(position, ""), self.text[position]
                if self.kept[position] or (character == "\t" and not more):
                    more += character
                elif not more and debt == 0:
                    more = " "
                shown += more
                debt += len(more) - 1
            lines.append(shown.rstrip(" ") if last < end - 1 else shown)
            begin = end + 1
        # no blank lines behind the last that has code; a header may be included there
        last = max(
            (i for i, line in enumerate(lines) if line.strip() and not _LATE_INCLUDE.match(line)), default=-1
        )
        return "\n".join([*lines[: last + 1], *(line for line in lines[last + 1 :] if line.strip())]) + "\n"


@functools.lru_cache(maxsize=8)
def _macros(texts: tuple[str, ...], of_torch: bool) -> Macros:
    return macros_of((*texts, (STAND_INS / "left_out/torch").read_text()) if of_torch else texts)


@functools.lru_cache(maxsize=512)
def _parsed_file(index: int, texts: tuple[str, ...], defined: frozenset[str], of_torch: bool) -> _ParsedFile:
    return _ParsedFile(index, texts[index], defined, _macros(texts, of_torch))


@functools.lru_cache(maxsize=64)
def device_parts(
    texts: tuple[str, ...],
    defined: frozenset[str],
    looked: frozenset[int],
    refused: frozenset[Refusal] = frozenset(),
) -> DeviceParts:
    """Remove from some texts, which are compiled together, what only a host compiler can take.

    Args:
        texts: Those of a source and of the user's headers that it reaches.
        defined: Macros known to be defined.
        looked: The indices of those that may have host code; the others stay as they are.
        refused: Pieces that the compiler did not take.
    """
    of_torch = any(TORCH_HEADER.match(include.spelled) for text in texts for include in scan_includes(text))
    macros = _macros(texts, of_torch)
    files = [_parsed_file(index, texts, defined, of_torch) for index in sorted(looked)]
    aliases = frozenset(
        each.name for file in files for each in file.declarations
        if each.verdict == "shared" and each.name and OF_TORCH.search(_without_tensors(each))
    )  # fmt: skip
    own = frozenset(name for text in texts for name in _NAMESPACE.findall(code_only(text)))
    whole = [code_only(text) for index, text in enumerate(texts) if index not in looked]
    selection = _Selection(files, whole, macros, refused, own)
    removed = []
    for file in files:
        for each in file.declarations:
            gone = [(method.name, method.what, method.mark) for method in each.methods]
            if each not in selection.kept:
                gone = [(name, each.what, each.start) for name in sorted(each.names)] + gone
            for name, what, position in gone:
                line = file.line(position)
                removed.append(RemovedDeclaration(name=name, file=file.index, line=line, what=what))
    device_texts = {file.index: file.device_text(selection) for file in files}
    return DeviceParts(
        texts=tuple(device_texts.get(index, text) for index, text in enumerate(texts)),
        removed=tuple(dict.fromkeys(removed)),
        unclear=tuple(line for file in files for line in file.lines(_unclear(file, aliases, own))),
        pieces=tuple(piece for file in files for piece in selection.pieces(file)),
        looked=looked,
    )


def _unclear(file: _ParsedFile, aliases: frozenset[str], own: frozenset[str]) -> Iterator[Problem]:
    """Yield statements that cannot be classified, and device code that takes PyTorch's types."""
    ends: dict[int, str] = {}
    for each in file.declarations:
        if each.verdict == "unclear":
            yield each.start, each.end, f"host code or device code? {each.what}"
        elif each.verdict == "device":
            names = "|".join([OF_TORCH.pattern, *(rf"\b{name}\b" for name in sorted(each.types & aliases))])
            for match in re.finditer(names, each.text):
                if match[0].partition("::")[0] not in own:
                    start, end = (each.start + position for position in match.span())
                    yield start, end, f"device code with PyTorch's type {match[0]}"
        if {ends.setdefault(each.end, each.verdict), each.verdict} == {"device", "host"}:
            yield each.start, each.end, "device code in one branch of an #if, host code in another"


def _tensor_members(declaration: ParsedDeclaration) -> list[tuple[int, int]]:
    """Return where a type names PyTorch's tensors as the types of its members.

    Device code may name such a type for its constants: it gets members of the same size in their place.
    """
    text, start = declaration.text, declaration.start
    matches = _TENSOR.finditer(text, text.index("{")) if declaration.what == "a type" and "{" in text else ()
    return [(start + match.start(), start + match.end()) for match in matches]


def _without_tensors(declaration: ParsedDeclaration) -> str:
    text, start = declaration.text, declaration.start
    for begin, end in reversed(_tensor_members(declaration)):
        text = text[: begin - start] + text[end - start :]
    return text


class _Selection:
    """The declarations that stay, and the host functions whose heads stay.

    Attributes:
        kept: Device code, and what it needs of what host and device may both have.
        used: The words of what stays.
        heads: Host functions that stay as a declaration without a body.
        stand_ins: By removed declaration, a declaration in its place that nothing can use.
    """

    def __init__(
        self,
        files: Sequence[_ParsedFile],
        whole: Sequence[str],
        macros: Macros,
        refused: frozenset[Refusal],
        own: frozenset[str],
    ) -> None:
        """Choose of all files' declarations.

        `whole` is the code of the texts that stay as they are, `own` the namespaces that the texts declare.
        """
        self._macros = macros
        self._whole = self._words(whole)
        self._refused = {
            form: {
                each for file in files for one in file.declarations for each in (one, *one.methods)
                if (file.index, each.start, form) in refused
            }
            for form in ("whole", "head", "inline", "stand-in")
        }  # fmt: skip
        self._hosts = HOST_NAMESPACES - own
        declarations = [each for file in files for each in file.declarations]
        self.kept, self.used = self._choose(declarations)
        names = [name for each in self.kept for name in each.names]
        self._outside = frozenset(names) | self._whole
        self._inside = self._outside | {name for each in self.kept for name in each.members}
        called = set(self._whole)  # the words that device code uses, without those that it only declares
        for each in self.kept:
            words = Counter(WORD.findall(each.text))
            words[each.name] -= 1
            called |= {word for word, count in words.items() if count > 0}
        self._called = with_macro_words(frozenset(called), macros)
        is_opened = any(each.what == "a using of a namespace" for each in self.kept)
        # what is only probed for, or found through a namespace, is seen by no name that is declared here
        self._is_probed = is_opened or bool(self._called & {"decltype", "requires"})
        self.heads: set[ParsedDeclaration] = set()
        self.stand_ins: dict[ParsedDeclaration, str] = {}
        for each in declarations:
            self._keep_heads(each)
        self._fixed = self._with_other_declarations()

    def _with_other_declarations(self) -> frozenset[ParsedDeclaration]:
        """Return what device code needs of a name that others of what is kept declare, too."""
        needed = self._whole | self._words(each.text for each in self.kept if each.verdict == "device")
        left = [each for each in self.kept if each.verdict == "shared"]
        while more := [each for each in left if each.name in needed]:
            left = [each for each in left if each not in more]
            needed |= self._words(each.text for each in more)
        places = Counter(name for name, _ in {(e.name, e.text) for e in self.kept if not e.is_forward})
        return frozenset(each for each in self.kept if each.name in needed and places[each.name] > 1)

    def pieces(self, file: _ParsedFile) -> Iterator[Piece]:
        """Yield what is kept of a file without an annotation."""
        for each in file.declarations:
            for one in (*each.methods, each):
                forms = {"head": one in self.heads, "stand-in": one in self.stand_ins}
                is_free = one in self.kept and one not in self._fixed
                forms["whole"] = is_free and (one.verdict == "shared" or one.is_guessed)
                for form in (form for form, is_it in forms.items() if is_it):
                    first, last = file.line(one.start), file.line(one.end - 1)
                    is_assert = one.what == "a static_assert"
                    yield Piece(
                        key=(file.index, one.start, form), first=first, last=last, is_assert=is_assert
                    )

    def _words(self, texts: Iterable[str]) -> frozenset[str]:
        words = frozenset(word for text in texts for word in WORD.findall(text))
        return with_macro_words(words, self._macros)

    def _choose(
        self, declarations: Sequence[ParsedDeclaration]
    ) -> tuple[frozenset[ParsedDeclaration], frozenset[str]]:
        refused = self._refused["whole"]
        kept = {each for each in declarations if each.verdict in ("device", "unclear")} - refused
        used = self._whole | self._words(each.text for each in kept)
        shared = [each for each in declarations if each.verdict == "shared"]
        able = [
            each for each in shared
            if not (each in refused or sign_of(CODE, _without_tensors(each)) or self._is_hosts(each))
        ]  # fmt: skip
        gone = {each.name for each in declarations if each.verdict == "host"}
        gone |= {each.name for each in set(shared) - set(able)}
        while True:
            left = [each for each in able if each not in kept]
            more = [each for each in left if each.name in used]
            if not more:
                known = {each.name for each in kept} | self._whole
                more = [each for each in left if self._is_plain(each, known, gone)]
            if not more:
                return frozenset(kept), used
            kept |= set(more)
            used |= self._words(each.text for each in more)

    def _is_hosts(self, declaration: ParsedDeclaration) -> bool:
        """Return whether a declaration names what only a host's header has."""
        named = declaration.types & self._hosts
        has_torch = named <= {"torch", "at", "c10"} and declaration.what != "a using of a namespace"
        return bool(OF_TORCH.search(_without_tensors(declaration)) if has_torch else named)

    def _is_plain(self, declaration: ParsedDeclaration, known: set[str], gone: set[str]) -> bool:
        """Return whether nothing is in a declaration that a device compiler may lack."""
        if declaration.what == "a constexpr function" or (declaration.what == "a using" and declaration.name):
            return False  # none is missed that device code does not name
        known = {*known, *declaration.members, declaration.name, ""}
        is_std = declaration.what == "a using of a namespace" and declaration.types == {"std"}
        special = [name for method in declaration.methods if method.is_special for name in method.needs]
        names = (*declaration.types, *special)
        if not is_std and not all(_KNOWN.fullmatch(name) or name in known for name in names):
            return False
        return not (self._words([declaration.text]) - {declaration.name}) & (gone - known)

    def _is_known(self, name: str) -> bool:
        """Return whether a device compiler knows a name by itself, or by what stays."""
        return name in self._inside or name in self._macros or bool(_KNOWN.fullmatch(name))

    def _keep_heads(self, declaration: ParsedDeclaration) -> None:
        """Keep the heads of a declaration's host functions, and put stand-ins for what would be missed."""
        name, instead = declaration.name, ""
        if declaration in self.kept:
            for method in declaration.methods:
                if not self._keep_head(method) and method.is_implicit:
                    result = "" if method.name == name else "virtual void "
                    self._stand_in(method, f"{_DEVICE}{result}{method.name}(struct host_only&);")
        elif not declaration.head:
            # a name stays declared by another declaration, but not by a forward one of a removed type
            others = [each for each in self.kept if not (each.is_forward and declaration.what == each.what)]
            stays = self._whole.union(*(each.names for each in others))
            missed = sorted(declaration.names & self._called & stays)
            instead = " ".join(f"struct {one};" for one in missed)
        elif self._is_overload(declaration):
            self._keep_head(declaration)
        if instead:
            self._stand_in(declaration, instead)

    def _stand_in(self, declaration: ParsedDeclaration, text: str) -> None:
        if declaration not in self._refused["stand-in"]:
            self.stand_ins[declaration] = text

    def _keep_head(self, function: ParsedDeclaration) -> bool:
        """Keep a head if nothing is in it that a device compiler lacks."""
        is_taken = function not in self._refused["head"] and not sign_of(CODE, function.head)
        if not is_taken or not all(map(self._is_known, function.needs - {"std"})):
            return False  # of std, the compiler refuses what it lacks
        self.heads.add(function)
        return True

    def is_called(self, function: ParsedDeclaration) -> bool:
        """Return whether a call of a head was refused: the linker decides if a kernel reaches that call.

        For nvcc, too, a function with `__host__ __device__` may call one of the host if no kernel calls it.
        Only a member is sure to be no function that the compiler has itself, such as max.
        """
        return function in self._refused["inline"] and function.what == _MEMBER

    def _is_overload(self, function: ParsedDeclaration) -> bool:
        """Return whether device code uses a name that is a host function's and another's too."""
        name = function.name
        if not function.is_own:
            return False
        if name.startswith("operator"):  # it is called without its name, for a type that device code has
            return any(map(self._is_known, function.needs)) or "template" in function.head
        is_anothers = name in self._outside or bool(_COMPILERS.fullmatch(name))
        return name in self._called and (is_anothers or self._is_probed)


def _include_instead(used: frozenset[str], of_torch: bool) -> str:
    """Return the header to include in place of a host header, for the names that it declares; "" for none.

    Args:
        used: The words of device code.
        of_torch: It is a header of PyTorch.
    """
    needed = headers_of(used)
    if of_torch and "<torch/extension.h>" in needed:
        return "left_out/torch"
    if "<cufft.h>" in needed:
        return "left_out/cufft"
    if "<cuda_bf16.h>" in needed:
        return "left_out/bfloat16"
    if "<cuda_fp16.h>" in needed:
        return "left_out/half"
    return "left_out/std" if needed & _STANDARD or "std" in used else ""

"""A `.cu` as people have it: what of it a device compiler can take, with lines and columns kept.

The texts of a source and of the user's headers go in together, since a type of one may be what
a kernel of another needs. What is left out becomes blanks.

    device code     kept: its head has __global__, __device__, __constant__
    shared          a type, a constant, a constexpr function, an alias: kept where device code names
                    it, or where it is made of nothing but what a device compiler knows
    host code       left out: all other functions and variables, main, calls of binding macros,
                    what mentions PyTorch or the host's library, its #include lines
    unclear         no text is changed, and the lines are told if the compiler refuses them
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dotcu.compile.headers import OWN, scan
from dotcu.compile.host_code import (
    HOST_NAMESPACES,
    WORD,
    HostLine,
    Macros,
    expanded,
    in_code,
    is_left_out,
    macros_of,
)
from dotcu.compile.host_items import Cut, Item, items
from dotcu.compile.host_rebind import MARK, Rebinding, Scene, before
from dotcu.compile.host_text import CONDITION, REPLACED, drop_empty, rendered
from dotcu.compile.lexing import blanks, code, directives, variants, without_comments
from dotcu.compile.source import printable
from dotcu.compile.undefined import comes_with

_TORCH = re.compile(r"\b(?:(?:torch|at|c10)::\w+|PackedTensorAccessor\w*)")
_DEFINED_NAME = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)")

# Types and namespaces that a device compiler knows by itself or by its own headers.
KNOWN = re.compile(
    r"u?int(_fast|_least)?\d*_t|s?size_t|ptrdiff_t|u?intptr_t|u(int|short|char|long)|dim3"
    r"|u?(char|short|int|long|longlong|float|double)[1-4](_16a|_32a)?"
    r"|(__)?(half2?|nv_bfloat16\w*|nv_fp\w+)|cuda(Stream|Event|Error)_t|cuda|cub|nvcuda|wmma|dotcu"
    r"|cooperative_groups|cg"
)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A declaration that the compiler does not get.

    Attributes:
        file: Which of the texts it is in.
    """

    name: str
    file: int
    line: int
    what: str

    @property
    def remedy(self) -> str:
        """What makes device code of it."""
        if "function" in self.what:
            return "__host__ __device__"
        return "const, or __device__" if "variable" in self.what else "nothing of the host's library in it"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The device part of some texts.

    Attributes:
        texts: What is compiled of each; the text itself where nothing is left out.
        left_out: The named declarations that are not in them.
        unclear: Lines that can be told neither host code nor device code, by text. Where there is
            one, `texts` are as they came.
    """

    texts: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    unclear: tuple[tuple[int, HostLine], ...]


@dataclass
class _File:
    """A text, and the declarations of each of its variants."""

    index: int
    text: str
    variants: list[tuple[str, str, tuple[Item, ...]]]

    def line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


@functools.lru_cache(maxsize=64)
def device_parts(texts: tuple[str, ...], defined: frozenset[str], looked: frozenset[int]) -> Parts:
    """Leave out of some texts, which are compiled together, what only a host compiler can take.

    Args:
        defined: Macros known to be defined.
        looked: Which of them may have a host part; the others stay as they are.
    """
    macros = macros_of(texts)
    files = [_read(index, texts[index], defined, macros) for index in sorted(looked)]
    aliases = frozenset(_tensor_types(files))
    unclear = tuple(line for file in files for line in _unclear(file, aliases))
    if unclear:
        return Parts(texts=texts, left_out=(), unclear=unclear)
    whole = [code(text) for index, text in enumerate(texts) if index not in looked]
    choice = _Choice(files, whole, macros)
    kept, used = choice.kept()
    heads, unclear = _settled(files, choice, kept)
    if unclear:
        return Parts(texts=texts, left_out=(), unclear=unclear)
    written = {file.index: _written(file, kept, heads, used) for file in files}
    return Parts(
        texts=tuple(written.get(index, text) for index, text in enumerate(texts)),
        left_out=tuple(dict.fromkeys(_left_out(files, kept))),
        unclear=(),
    )


def _read(index: int, text: str, defined: frozenset[str], macros: Macros) -> _File:
    found = [(variant, code(variant), items(variant, macros)) for variant in variants(text, defined)]
    return _File(index, text, found)


def _tensor_types(files: Sequence[_File]) -> Iterator[str]:
    """The user's names for PyTorch's types."""
    for file in files:
        for _, bare, found in file.variants:
            for item in found:
                if item.verdict == "shared" and item.name and _TORCH.search(bare, item.start, item.end):
                    yield item.name


def _unclear(file: _File, aliases: frozenset[str]) -> Iterator[tuple[int, HostLine]]:
    """What cannot be told, and device code that takes what only PyTorch's headers have."""
    return _shown(file, _problems(file, aliases))


def _shown(file: _File, problems: Iterable[tuple[int, str]]) -> Iterator[tuple[int, HostLine]]:
    lines = printable(file.text).split("\n")
    told: dict[int, str] = {}
    for position, what in problems:
        told.setdefault(file.line(position), what)
    for line, what in sorted(told.items()):
        yield file.index, HostLine(line, lines[line - 1].rstrip("\r"), what)


def _problems(file: _File, aliases: frozenset[str]) -> Iterator[tuple[int, str]]:
    ends: dict[int, str] = {}
    for _, bare, found in file.variants:
        for item in found:
            if item.verdict == "unclear":
                yield item.start, f"host code or device code? {item.what}"
            elif item.verdict == "device":
                yield from _tensors(bare, item, aliases)
            if {ends.setdefault(item.end, item.verdict), item.verdict} == {"device", "host"}:
                yield item.start, "device code in one branch of an #if, host code in another"


def _tensors(bare: str, item: Item, aliases: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Where device code takes a type of PyTorch, by its own name or by one of the user's."""
    for match in _TORCH.finditer(bare, item.start, item.end):
        yield match.start(), f"device code with PyTorch's type {match[0]}"
    for name in sorted(item.types & aliases):
        for match in re.compile(rf"\b{name}\b").finditer(bare, item.start, item.end):
            yield match.start(), f"device code with PyTorch's type {name}"


class _Choice:
    """Which declarations stay: what device code needs of what host and device may both have."""

    def __init__(self, files: Sequence[_File], whole: Sequence[str], macros: Macros) -> None:
        self.macros = macros
        self.whole = self.words(whole)
        self.all = [
            (item, _own(bare, item)) for file in files for _, bare, found in file.variants for item in found
        ]
        host = [item.name for item, _ in self.all if item.verdict == "host"]
        self.shared = [(item, text) for item, text in self.all if item.verdict == "shared"]
        self.gone = {item.name for item, text in self.shared if _is_hosts(item, text)} | set(host)

    def kept(self) -> tuple[frozenset[int], frozenset[str]]:
        """The declarations that stay, by identity, and the words in them."""
        kept = {id(item) for item, _ in self.all if item.verdict == "device"}
        used = self.whole | self.words([text for item, text in self.all if item.verdict == "device"])
        able = [(item, text) for item, text in self.shared if not _is_hosts(item, text)]
        while True:
            more = [each for each in able if id(each[0]) not in kept and each[0].name in used]
            more = more or [each for each in able if id(each[0]) not in kept and self.is_plain(*each, kept)]
            if not more:
                return frozenset(kept), frozenset(used)
            kept |= {id(item) for item, _ in more}
            used |= self.words([text for _, text in more])

    def words(self, texts: Sequence[str]) -> frozenset[str]:
        return expanded(frozenset(word for text in texts for word in WORD.findall(text)), self.macros)

    def is_plain(self, item: Item, text: str, kept: set[int]) -> bool:
        """Whether nothing is in a declaration that a device compiler may lack."""
        if item.what == "a constexpr function" or (item.what == "a using" and item.name):
            return False  # nobody misses one that device code does not name
        known = {each.name for each, _ in self.all if id(each) in kept} | {item.name, ""}
        is_std = item.what == "a using of a namespace" and item.types == {"std"}
        known |= self.whole
        known |= item.members
        special = [name for cut in item.cuts if cut.is_special for name in cut.needs]
        fits = is_std or all(KNOWN.fullmatch(name) or name in known for name in (*item.types, *special))
        words = self.words([text]) - {item.name}
        return fits and not words & (self.gone - known)

    def scene(self, kept: frozenset[int]) -> Scene:
        """What is known once the choice is made."""
        stays = [(item, text) for item, text in self.all if id(item) in kept]
        known = {name for item, _ in stays for name in item.names | item.members} | self.whole
        return Scene(
            kept=stays, whole=self.whole, expanded=lambda words: expanded(words, self.macros),
            is_known=lambda name: name in known or name in self.macros or bool(KNOWN.fullmatch(name)),
        )  # fmt: skip


def _settled(
    files: Sequence[_File], choice: _Choice, kept: frozenset[int]
) -> tuple[frozenset[int], tuple[tuple[int, HostLine], ...]]:
    """Host functions whose heads stay, and the lines that cannot be left out without a risk."""
    rebinding = Rebinding(choice.scene(kept))
    heads: set[int] = set()
    lines: list[tuple[int, HostLine]] = []
    for file in files:
        problems: list[tuple[int, str]] = []
        for _, bare, found in file.variants:
            for item in found:
                is_kept = id(item) in kept
                stay = tuple(rebinding.heads(item, bare, is_kept=is_kept))
                heads |= {id(cut) for cut in stay}
                problems += rebinding.problems(item, stay, bare, is_kept=is_kept)
        lines += _shown(file, problems)
    return frozenset(heads), tuple(lines)


def _own(bare: str, item: Item) -> str:
    """A declaration's code, without the parts that only a host has."""
    text = bare
    for cut in item.cuts:
        text = text[: cut.start] + blanks(text[cut.start : cut.end]) + text[cut.end :]
    return text[item.start : item.end]


def _is_hosts(item: Item, text: str) -> bool:
    return bool(in_code(text)) or bool(item.types & HOST_NAMESPACES)


def _left_out(files: Sequence[_File], kept: frozenset[int]) -> Iterator[LeftOut]:
    for file in files:
        for _, _, found in file.variants:
            for item in found:
                if item.name and id(item) not in kept:
                    yield LeftOut(name=item.name, file=file.index, line=file.line(item.start), what=item.what)
                for cut in item.cuts:
                    what = "a member function without __device__"
                    yield LeftOut(name=cut.name, file=file.index, line=file.line(cut.mark), what=what)


def _written(file: _File, kept: frozenset[int], heads: frozenset[int], used: frozenset[str]) -> str:
    """A text with nothing but its device part in it; the text itself where that is all."""
    found = [(variant, item) for variant, _, some in file.variants for item in some]
    gone = [item for _, item in found if id(item) not in kept]
    if not gone and not any(item.cuts or item.marks for _, item in found) and not _host_includes(file.text):
        return file.text
    stays = bytearray(len(file.text))
    for variant, item in found:
        if id(item) in kept:
            _mark(stays, file.text, variant, (item.start, item.end), item.cuts)
    added = dict.fromkeys((mark for _, item in found if id(item) in kept for mark in item.marks), MARK)
    for variant, item in found:
        for cut in _heads(item, heads):
            _mark(stays, file.text, variant, (cut.start, cut.body), ())
            added[cut.mark] = before(cut)
            if file.text[cut.body - 1] != ";":
                added[cut.body] = ";"
                stays[cut.body] = REPLACED
    instead = _instead(used)
    for start in _keep_directives(stays, file, [(item.start, item.end) for item in gone], used):
        if instead:
            added[start] = f"#include <{instead}>"
            stays[start] = REPLACED
    drop_empty(stays, file.text)
    return rendered(file.text, stays, added)


def _heads(item: Item, heads: frozenset[int]) -> Iterator[Cut]:
    """The functions of a declaration that stay without their bodies."""
    cuts = item.cuts if item.head is None else (item.head,)
    return (cut for cut in cuts if id(cut) in heads)


def _mark(stays: bytearray, text: str, variant: str, span: tuple[int, int], cuts: Sequence[Cut]) -> None:
    """Let a declaration stay, where this variant has it, but for its parts that only a host has."""
    cut = {position for each in cuts for position in range(each.start, each.end)}
    for position in range(*span):
        if variant[position] == text[position] and position not in cut:
            stays[position] = 1


def _host_includes(text: str) -> tuple[tuple[int, int], ...]:
    """Where the `#include`s stand that are for the host alone."""
    return tuple(
        (include.start, include.end)
        for include in scan(text)
        if include.needed and is_left_out(include.spelled, include.quoted, _stand_ins())
    )


@functools.cache
def _stand_ins() -> frozenset[str]:
    """The headers of the standard library that dotcu has for device code."""
    return frozenset(path.name for path in OWN[0].folder.iterdir())


def _keep_directives(
    stays: bytearray, file: _File, gone: Sequence[tuple[int, int]], used: frozenset[str]
) -> Iterator[int]:
    """Let the preprocessor's lines stay, but for what is inside host code; gives the host's `#include`s."""
    bare, hosts = without_comments(file.text), _host_includes(file.text)
    for start, end in directives(file.text):
        line = bare[start:end]
        name = _DEFINED_NAME.match(line)
        is_inside = any(a <= start and end <= b for a, b in gone) and not (name and name[1] in used)
        is_seen = any(variant[start:end] == file.text[start:end] for variant, _, _ in file.variants)
        is_hosts = any(start <= a and b <= end for a, b in hosts)
        stands = is_seen and not is_inside
        if stands and is_hosts:
            yield start
        elif stands or CONDITION.match(line):
            for position in range(start, end):
                stays[position] |= bare[position] != " " or file.text[position] == " "


# Headers of the standard library, by what device code takes of them: a host's header brings them along.
_STANDARD = {"<cassert>", "<cfloat>", "<climits>", "<cmath>", "<cstddef>", "<cstdint>", "<limits>",
             "<type_traits>", "<utility>"}  # fmt: skip


def _instead(used: frozenset[str]) -> str:
    """What is included in a host header's place, for the names that it brings along; "" for nothing."""
    needed = comes_with(used)
    if "<cuda_bf16.h>" in needed:
        return "left_out/bfloat16"
    if "<cuda_fp16.h>" in needed:
        return "left_out/half"
    return "left_out/std" if needed & _STANDARD or "std" in used else ""

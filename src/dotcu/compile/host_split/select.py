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

What is kept without an annotation is a piece: where the compiler refuses one, the selection is made again
without it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dotcu.compile.host_split.detect import (
    CODE,
    HOST_NAMESPACES,
    OF_TORCH,
    STAND_INS,
    TORCH_HEADER,
    WORD,
    DeviceParts,
    HostLine,
    Macros,
    Refusal,
    Texts,
    is_host_include,
    macros_of,
    may_define,
    sign_of,
    stand_ins,
    with_macro_words,
)
from dotcu.compile.host_split.parse import MEMBER, Classified, ParsedDeclaration, parse_declarations
from dotcu.compile.source.lexer import code_only, directives, scan_includes, variants, without_comments
from dotcu.compile.source.source import printable
from dotcu.files import read_text

_NAMESPACE = re.compile(r"\bnamespace\s+(\w+)\s*(?:::|\{)")
_DEFINED_NAME = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")
_LIBRARY = re.compile(r"(cub|thrust)/")
_LATE_INCLUDE = re.compile(r"#include <(cuda_\w+\.h|left_out/(torch|float8))>")
"""Matches the `#include` of a header that a template argument needs, behind the text."""

_KNOWN = re.compile(
    r"u?int(_fast|_least)?\d*_t|s?size_t|ptrdiff_t|u?intptr_t|u(int|short|char|long)|dim3"
    r"|u?(char|short|int|long|longlong|float|double)[1-4](_16a|_32a)?"
    r"|(__)?(half2?|nv_bfloat16\w*|nv_fp\w+)|cuda(Stream|Event|Error)_t|cuda|cub|nvcuda|wmma|dotcu"
    r"|cooperative_groups|cg"
)
"""Types and namespaces that a device compiler knows by itself or by its own headers."""

_SUFFIX = re.compile(r"""(?:(?<![\w.])\.?\d[\w.']*?|["'])(_[A-Za-z]\w*)""")
"""Matches a literal with a suffix of the user's, `2_KiB`, which calls `operator""_KiB`."""

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

_INSTEAD = {
    "<cufft.h>": "left_out/cufft",
    "<cuda_bf16.h>": "left_out/bfloat16",
    "<cuda_fp16.h>": "left_out/half",
}
"""By the header that declares names of device code, what stands for a host's header with them."""

_CHECK = re.compile(r"\bTORCH_(?:CHECK|INTERNAL_ASSERT)\b")
_HEAD = "head"


# By header, the names that it declares, as a pattern.
# Source: the headers of CUDA 13.0 and dotcu/include/nvrtc.
HEADERS_OF_NAMES = {
    "<cstdint>": r"u?int(_fast|_least)?(8|16|32|64)_t|u?int(ptr|max)_t|U?INT(8|16|32|64)_(MAX|MIN|C)",
    "<cstddef>": r"size_t|ptrdiff_t|nullptr_t",
    "<sys/types.h>": r"ssize_t|u_?(char|short|int|long)|u_int(8|16|32|64)_t",
    "<cfloat>": r"FLT_\w+|DBL_\w+",
    "<climits>": r"(U?(INT|LONG|LLONG|CHAR|SHRT)|SCHAR)_(MAX|MIN)|CHAR_BIT",
    "<cmath>": r"M_PI\w*|M_E|M_SQRT\w+|M_LN\w+|INFINITY|NAN|HUGE_VALF?",
    "<limits>": r"numeric_limits",
    "<type_traits>": (
        r"is_same(_v)?|enable_if(_t)?|conditional(_t)?|is_integral(_v)?|is_floating_point(_v)?"
        r"|remove_(cv|reference|const)\w*|decay(_t)?|integral_constant|true_type|false_type"
    ),
    "<utility>": r"move|forward|pair",
    "<cuda/std/utility>, and is cuda::std::swap": r"swap",
    "<cassert>": r"assert",
    "<cuda_fp16.h>": (
        r"__half2?(_raw)?|half2?|__(float2half|half2float|float22half|hadd|hmul|hfma|low2|high2)\w*"
    ),
    "<cuda_bf16.h>": r"__nv_bfloat16\w*|nv_bfloat16\w*|__(float2bfloat16|bfloat162float|float22bfloat16)\w*",
    "<cuda_fp8.h>": r"__nv_fp8\w*|__nv_cvt_\w*fp8\w*",
    "<cuda_fp6.h>": r"__nv_fp6\w*",
    "<cuda_fp4.h>": r"__nv_fp4\w*",
    "<cuComplex.h>": r"cu(Float|Double)?Complex\w*|make_cu\w*Complex",
    "<cufft.h>": r"cufft(Double)?(Real|Complex)",
    "<cooperative_groups.h>": r"cooperative_groups|cg",
    "<mma.h>": r"wmma|nvcuda",
    "<cuda_pipeline.h>": r"__pipeline_\w+",
    "<cuda.h>": r"CUtensorMap\w*",
    "<cuda_runtime.h>": r"cuda(GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)",
    "<cub/cub.cuh>": r"cub",
    "<c10/util/Float8_e4m3fn.h>": r"Float8_\w+",
    "<torch/extension.h>": (
        r"c10|torch|at|ceil_div|gpuAtomic\w+|fastAtomicAdd|C10_\w+|CUDA_KERNEL_(LOOP|ASSERT)\w*|WARP_(SHFL\w*|BALLOT|SYNC)"
        r"|ScalarType|TORCH_(CHECK|INTERNAL_ASSERT)\w*|doLdg|Half|BFloat16|acc_type|opmath_type|ATenCeilDiv|\w*TensorAccessor\w*|TensorInfo|RestrictPtrTraits"
        r"|PhiloxCudaState|CustomClassHolder"
    ),
}
_HEADERS = {header: re.compile(pattern) for header, pattern in HEADERS_OF_NAMES.items()}


def headers_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the known headers that declare some names, in the order of the table."""
    names = tuple(names)
    return tuple(header for header, pattern in _HEADERS.items() if any(map(pattern.fullmatch, names)))


@functools.lru_cache(maxsize=8)
def _macros(texts: Texts, of_torch: bool) -> Macros:
    known = tuple(text for _, text in texts)
    return macros_of((*known, read_text(STAND_INS / "left_out/torch")) if of_torch else known)


@functools.lru_cache(maxsize=512)
def _parsed_file(name: str, texts: Texts, defined: frozenset[str], of_torch: bool) -> _ParsedFile:
    return _ParsedFile(name, dict(texts)[name], defined, _macros(texts, of_torch))


@functools.lru_cache(maxsize=64)
def device_parts(
    texts: Texts,
    defined: frozenset[str],
    looked: frozenset[str],
    refused: frozenset[Refusal] = frozenset(),
    wanted: frozenset[str] = frozenset(),
) -> DeviceParts:
    """Remove from some texts, which are compiled together, what only a host compiler can take.

    Args:
        looked: The files that may have host code; the others stay as they are.
        refused: Pieces that the compiler did not take.
        wanted: Names of types and constants that stay although no device code names them.
    """
    of_torch = any(
        TORCH_HEADER.match(include.spelled) for _, text in texts for include in scan_includes(text)
    )
    files = [_parsed_file(name, texts, defined, of_torch) for name, _ in texts if name in looked]
    own = frozenset(name for _, text in texts for name in _NAMESPACE.findall(code_only(text)))
    whole = [code_only(text) for name, text in texts if name not in looked]
    named = {include for _, text in texts for include in scan_includes(text)}
    unread = (one for one in named if not any(name.endswith(f"/{one.spelled}") for name, _ in texts))
    is_complete = not any(may_define(one.spelled, one.quoted) for one in unread)
    selection = _Selection(files, whole, _macros(texts, of_torch), refused, own, wanted, is_complete)
    aliases = frozenset(
        each.name for file in files for each in file.declarations
        if each.verdict == "shared" and each.name and OF_TORCH.search(each.text)
    )  # fmt: skip
    return DeviceParts(
        texts={file.name: text for file in files if (text := file.device_text(selection)) != file.text},
        removed=tuple(dict.fromkeys(one for file in files for one in file.removed(selection))),
        unclear=tuple(line for file in files for line in file.unclear(aliases, own)),
        pieces=tuple(piece for file in files for piece in selection.pieces(file)),
        looked=looked,
    )


class _ParsedFile:
    """A text with the declarations of each of its variants, and what becomes of it.

    Attributes:
        kept: 1 for each character that stays.
        added: By position, what is written before a character that stays, or in place of another.
    """

    def __init__(self, name: str, text: str, defined: frozenset[str], macros: Macros) -> None:
        self.name, self.text = name, text
        same: Classified = {}  # most statements are in several variants
        self.variants = [(each, parse_declarations(each, macros, same)) for each in variants(text, defined)]
        self.declarations = list(dict.fromkeys(each for _, parsed in self.variants for each in parsed))
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self.kept = bytearray()
        self.added: dict[int, str] = {}

    def line(self, position: int) -> int:
        return bisect.bisect_left(self._ends, position) + 1

    def removed(self, selection: _Selection) -> Iterator[HostLine]:
        """Yield the named declarations that are left out."""
        for each in self.declarations:
            gone = [] if each in selection.kept else [(name, each, each.start) for name in sorted(each.names)]
            gone += [(method.name, method, method.mark) for method in each.methods]
            for name, one, position in gone:
                yield HostLine(self.line(position), "", one.what, name=name, file=self.name)

    def unclear(self, aliases: frozenset[str], own: frozenset[str]) -> Iterator[HostLine]:
        """Yield lines that cannot be classified, or are device code that takes PyTorch's types.

        Args:
            aliases: Other names of these types.
            own: Namespaces that are the user's.
        """
        lines, ends = printable(self.text).split("\n"), dict[int, str]()
        found: dict[int, HostLine] = {}

        def add(start: int, end: int, what: str) -> None:
            line = self.line(start)
            text, last = lines[line - 1].rstrip("\r"), self.line(end - 1)
            found.setdefault(line, HostLine(line, text, what, last, file=self.name))

        for each in self.declarations:
            if each.verdict == "unclear":
                add(each.start, each.end, f"host code or device code? {each.what}")
            elif each.verdict == "device":
                names = "|".join(
                    [OF_TORCH.pattern, *(rf"\b{name}\b" for name in sorted(each.types & aliases))]
                )
                for match in re.finditer(names, each.text):
                    if match[0].partition("::")[0] not in own:
                        start, end = (each.start + position for position in match.span())
                        add(start, end, f"device code with PyTorch's type {match[0]}")
            if {ends.setdefault(each.end, each.verdict), each.verdict} == {"device", "host"}:
                add(each.start, each.end, "device code in one branch of an #if, host code in another")
        yield from (found[line] for line in sorted(found))

    def device_text(self, selection: _Selection) -> str:
        """Return the text with nothing but its device part in it."""
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
            each in kept and not (each.methods or each.marks or each.of_both or each.made)
            for each in self.declarations
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
        if declaration in selection.kept and declaration.made:
            self.added[declaration.start] = declaration.made
        elif declaration in selection.kept:
            begin = declaration.start
            for method in declaration.methods:
                self._keep(variant, begin, max(begin, method.start))
                begin = max(begin, method.end)
            if declaration.of_both is not None:
                start, end = declaration.of_both
                self._keep(variant, begin, start)
                self.added[start], begin = _DEVICE, end
            self._keep(variant, begin, declaration.end)
            self.added |= dict.fromkeys(declaration.marks, _DEVICE)
        for one in (declaration, *declaration.methods):
            form = selection.instead.get(one)
            if form == _HEAD:
                body = one.start + len(one.head)
                self._keep(variant, one.start, body)
                # a call of an inline function without a body is refused
                is_plain = one.is_inline or selection.is_called(one)
                self.added[one.mark] = _DEVICE if is_plain else f"{_DEVICE}inline "
                if self.text[body - 1] != ";":
                    self.added[body] = ";"
            elif form:
                self.added[one.start] = form

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
            shown = ""
            for position in range(begin, last + 1):
                more, character = self.added.get(position, ""), self.text[position]
                if self.kept[position] or (character == "\t" and not more):
                    more += character
                shown = shown + more if more else shown.ljust(position + 1 - begin)
            lines.append(shown.rstrip(" ") if last < end - 1 else shown)
            begin = end + 1
        # no blank lines behind the last that has code; a header may be included there
        last = max(
            (i for i, line in enumerate(lines) if line.strip() and not _LATE_INCLUDE.match(line)), default=-1
        )
        return "\n".join([*lines[: last + 1], *(line for line in lines[last + 1 :] if line.strip())]) + "\n"


class _Selection:
    """The declarations that stay, and the host functions whose heads stay.

    Attributes:
        kept: Device code, and the declarations that it needs and that host and device may share.
        used: The words of what stays.
        instead: Of what goes, `_HEAD` where the head of a function stays, or a declaration in its place that
            nothing can use.
    """

    def __init__(
        self,
        files: Sequence[_ParsedFile],
        whole: Sequence[str],
        macros: Macros,
        refused: frozenset[Refusal],
        own: frozenset[str],
        wanted: frozenset[str],
        is_complete: bool,
    ) -> None:
        """Choose of all files' declarations.

        `whole` is the code of the texts that stay as they are, `own` the namespaces that the texts declare.
        `is_complete` tells that no header which may define macros is unread.
        """
        self._is_complete = is_complete
        self._macros = macros
        self._whole = self._words(whole)
        self._own, self._hosts = own, HOST_NAMESPACES - own
        forms: dict[tuple[str, int], list[str]] = {}
        for name, start, form in refused:
            forms.setdefault((name, start), []).append(form)
        declarations = [each for file in files for each in file.declarations]
        self._refused = {
            (each, form)
            for file in files if forms
            for one in file.declarations
            for each in (one, *one.methods)
            for form in forms.get((file.name, each.start), ())
        }  # fmt: skip
        self.kept, self.used = self._choose(declarations, wanted)
        names = [name for each in self.kept for name in each.names]
        self._outside = frozenset(names) | self._whole
        self._inside = self._outside | {name for each in self.kept for name in each.members}
        called = set(self._whole)  # the words that device code uses, without those that it only declares
        self._declared: dict[str, set[str]] = {}  # by name, the kinds of what declares it in full
        for each in self.kept:
            words = Counter(WORD.findall(each.text))
            words[each.name] -= 1
            called |= {word for word, count in words.items() if count > 0}
            for name in each.names:
                self._declared.setdefault(name, set()).add(each.what if each.is_forward else "")
        self._called = with_macro_words(frozenset(called), macros)
        is_opened = any(each.what == "a using of a namespace" for each in self.kept)
        # what is only probed for, or found through a namespace, is seen by no name that is declared here
        self._is_probed = is_opened or bool(self._called & {"decltype", "requires"})
        self.instead: dict[ParsedDeclaration, str] = {}
        for each in declarations:
            self._replace(each)
        self._fixed = self._with_other_declarations()

    def _with_other_declarations(self) -> frozenset[ParsedDeclaration]:
        """Return the kept declarations that device code needs and whose names have several."""
        needed = self._whole | self._words(each.text for each in self.kept if each.verdict == "device")
        left = [each for each in self.kept if each.verdict == "shared"]
        while more := [each for each in left if each.name in needed]:
            left = [each for each in left if each not in more]
            needed |= self._words(each.text for each in more)
        places = Counter(name for name, _ in {(e.name, e.text) for e in self.kept if not e.is_forward})
        return frozenset(each for each in self.kept if each.name in needed and places[each.name] > 1)

    def pieces(self, file: _ParsedFile) -> Iterator[tuple[Refusal, int, int]]:
        """Yield what is kept of a file without an annotation."""
        for each in file.declarations:
            for one in (*each.methods, each):
                instead = self.instead.get(one)
                forms = [] if instead is None else [_HEAD if instead == _HEAD else "stand-in"]
                is_free = one in self.kept and one not in self._fixed
                is_guessed = one.is_guessed and not (one.verdict == "unclear" and self._is_complete)
                if is_free and (one.verdict == "shared" or is_guessed or one.annotated):
                    forms.append(_form(one))
                for first, last in _lines_of_host(file, one):
                    for form in forms:
                        yield (file.name, one.start, form), first, last

    def _words(self, texts: Iterable[str]) -> frozenset[str]:
        texts = tuple(texts)
        words = frozenset(word for text in texts for word in WORD.findall(text))
        suffixes = frozenset(f'operator""{suffix}' for text in texts for suffix in _SUFFIX.findall(text))
        return with_macro_words(words, self._macros) | suffixes

    def _choose(
        self, declarations: Sequence[ParsedDeclaration], wanted: frozenset[str]
    ) -> tuple[frozenset[ParsedDeclaration], frozenset[str]]:
        left = [each for each in declarations if (each, _form(each)) not in self._refused]
        refused = "|".join(re.escape(e.name) for e, form in self._refused if form == "whole" and e.annotated)
        member = re.compile(rf"\b(?:{refused})\s*(?:<[^;{{}}]*>\s*)?::\s*~?\w+\s*\(") if refused else None
        kept = {
            each for each in left
            if each.verdict in ("device", "unclear")
            and not (member and each.what == "a function" and member.search(each.text.partition("{")[0]))
        }  # fmt: skip
        used = self._whole | wanted | self._words(each.text for each in kept)
        able = [
            each for each in left
            if each.verdict == "shared" and not self._is_hosts(each)
            and not sign_of(CODE, _CHECK.sub(" ", each.text))  # which a constexpr function may have
        ]  # fmt: skip
        shared = {each for each in declarations if each.verdict == "shared"}
        gone = {each.name for each in declarations if each.verdict == "host"}
        gone |= {each.name for each in shared - set(able)}
        while True:
            left = [each for each in able if each not in kept]
            more = [each for each in left if each.name in used or each.name.replace(" ", "") in used]
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
        return bool(OF_TORCH.search(declaration.text) if has_torch else named)

    def _is_plain(self, declaration: ParsedDeclaration, known: set[str], gone: set[str]) -> bool:
        """Return whether nothing is in a declaration that a device compiler may lack."""
        if declaration.what == "a constexpr function" or (declaration.what == "a using" and declaration.name):
            return False  # none is missed that device code does not name
        known = {*known, *declaration.members, declaration.name, ""}
        if declaration.what == "a using of a namespace":
            known |= self._own
        is_std = declaration.what == "a using of a namespace" and declaration.types == {"std"}
        special = [name for method in declaration.methods if method.is_special for name in method.needs]
        names = (*declaration.types, *special)
        if not is_std and not all(_KNOWN.fullmatch(name) or name in known for name in names):
            return False
        return not (self._words([declaration.text]) - {declaration.name}) & (gone - known)

    def _is_known(self, name: str) -> bool:
        """Return whether a device compiler knows a name by itself, or by what stays."""
        return name in self._inside or name in self._macros or bool(_KNOWN.fullmatch(name))

    def _replace(self, declaration: ParsedDeclaration) -> None:
        """Keep the heads of a declaration's host functions, and put stand-ins for what would be missed."""
        name = declaration.name
        if declaration in self.kept:
            for method in declaration.methods:
                if not self._keep_head(method) and method.is_implicit:
                    result = "" if method.name == name else "virtual void "
                    self._stand_in(method, f"{_DEVICE}{result}{method.name}(struct host_only&);")
        elif declaration.head:
            if self._is_overload(declaration):
                self._keep_head(declaration)
        else:
            # a name stays declared by another declaration, but not by a forward one of a removed type
            named = sorted(declaration.names & self._called)
            kinds = {one: self._declared.get(one, set()) - {declaration.what} for one in named}
            missed = [one for one in named if kinds[one] or one in self._whole]
            if missed:
                self._stand_in(declaration, " ".join(f"struct {one};" for one in missed))

    def _stand_in(self, declaration: ParsedDeclaration, text: str) -> None:
        if (declaration, "stand-in") not in self._refused:
            self.instead[declaration] = text

    def _keep_head(self, function: ParsedDeclaration) -> bool:
        """Keep a head if nothing is in it that a device compiler lacks."""
        is_taken = (function, _HEAD) not in self._refused and not sign_of(CODE, function.head)
        if not is_taken or not all(map(self._is_known, function.needs - {"std"})):
            return False  # of std, the compiler refuses what it lacks
        self.instead[function] = _HEAD
        return True

    def is_called(self, function: ParsedDeclaration) -> bool:
        """Return whether a call of a head was refused: the linker decides if a kernel reaches that call.

        For nvcc, too, a function with `__host__ __device__` may call one of the host if no kernel calls it.
        Only a member is sure to be no function that the compiler has itself, such as max.
        """
        return (function, "inline") in self._refused and function.what == MEMBER

    def _is_overload(self, function: ParsedDeclaration) -> bool:
        """Return whether device code uses a name that is a host function's and another's too."""
        name = function.name
        if not function.is_own:
            return False
        if name.startswith("operator"):  # it is called without its name, for a type that device code has
            return any(map(self._is_known, function.needs)) or "template" in function.head
        is_anothers = name in self._outside or bool(_COMPILERS.fullmatch(name))
        return name in self._called and (is_anothers or self._is_probed)


def _lines_of_host(file: _ParsedFile, declaration: ParsedDeclaration) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of what is refused with a declaration.

    An error in a member function with an annotation is the device's, if a line is its own.
    """
    first, end = file.line(declaration.start), file.line(declaration.end - 1)
    for start, behind in declaration.annotated if first < end else ():
        if first < file.line(start):
            yield first, file.line(start) - 1
        first = file.line(behind - 1) + 1
    if first <= end:
        yield first, end


def _form(declaration: ParsedDeclaration) -> str:
    """Return the form in which the compiler may refuse a declaration that stays."""
    return "assert" if declaration.what == "a static_assert" else "whole"


def _include_instead(used: frozenset[str], of_torch: bool) -> str:
    """Return the header to include in place of a host header, for the names that it declares; "" for none."""
    needed = set(headers_of(used))
    if of_torch and "<c10/util/Float8_e4m3fn.h>" in needed:
        return "left_out/float8"
    if of_torch and "<torch/extension.h>" in needed:
        return "left_out/torch"
    for header, instead in _INSTEAD.items():
        if header in needed:
            return instead
    return "left_out/std" if needed & _STANDARD or "std" in used else ""

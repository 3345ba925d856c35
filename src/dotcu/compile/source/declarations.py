"""The kernels and variables that a text declares, found without a compiler.

A scan of tokens: it knows scopes, templates, attributes and default arguments, and takes no part
in what macros make. What it misses the compiler may still find by name.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from dotcu.compile.source.lexer import (
    NVRTC_MACROS,
    CodeTokens,
    blanks,
    code_only,
    macro_names,
    variants,
    without_comments,
)
from dotcu.compile.source.source import Source


@dataclass(frozen=True)
class Declaration:
    """A kernel as its text declares it.

    Attributes:
        name: Qualified, `ns::k`.
        template_parameters: Their text, `typename T`, `int N = 4`; empty if it is not a template.
        parameter_names: "" for a parameter without one.
        line: Of the name, counted from 1.
        is_tile: It is a tile kernel: `__tile_global__`.
        parameter_types: Their text; empty where only the compiler has seen the kernel.
    """

    name: str
    template_parameters: tuple[str, ...]
    parameter_names: tuple[str, ...]
    line: int
    is_tile: bool = False
    parameter_types: tuple[str, ...] = field(default=(), compare=False, repr=False)


_ScannedKernel = tuple[int, Declaration, tuple[tuple[str, ...], ...], bool]
"""Where a kernel's name stands, its declaration, its parameters' types, and if it has a body here."""

KERNEL_WORDS = frozenset({"__global__", "__tile_global__"})
_TILE_WORDS = ("__tile_global__", "__tile__")
_BRACKETS = ("(", "[", "{", "<")
_CALL_ATTRIBUTES = {
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__attribute__",
    "__declspec", "alignas", "decltype", "__align__", "noexcept",
}  # fmt: skip
_TYPE_WORDS = {
    "void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const",
    "volatile", "auto", "wchar_t", "char16_t", "char32_t", "__restrict__", "__restrict", "restrict",
    "__grid_constant__", "struct", "class", "enum", "typename",
}  # fmt: skip
_BEHIND_PARAMETERS = {
    "noexcept", "const", "volatile", "requires", "throw", "override", "final", "__attribute__",
}  # fmt: skip
_VARIABLE = {"__constant__", "__device__", "__managed__"}
_SCOPES = {"namespace", "struct", "class", "union", "enum"}
_NOT_FUNCTIONS = {"typedef", "using", "static_assert", "template", "alignas"}
_NOT_IN_A_NAME = {"inline", "class", "struct", "final", "[", "]"}


def kernels(
    text: str, defined: Collection[str] = NVRTC_MACROS, macros: Container[str] = ()
) -> tuple[Declaration, ...]:
    """Return every kernel that a text declares, in order; overloads stand one by one.

    Args:
        defined: Macros that are known to be defined, for `#ifdef`.
        macros: Macros of other texts: a macro instead of a name is not a name.
    """
    if not any(
        word in text for word in KERNEL_WORDS
    ):  # most of a library's headers: the tokens of all would take minutes
        return ()
    own = macro_names(text)
    by_start: dict[int, _ScannedKernel] = {}  # of all variants of the text, each place once
    for scanner in _scanners(text, frozenset(defined)):
        for kernel in scanner.kernels():
            by_start.setdefault(kernel[0], kernel)
    declared: dict[tuple[object, ...], tuple[Declaration, bool]] = {}
    for _, (_, declaration, types, is_defined) in sorted(by_start.items()):
        key = (declaration.name, len(declaration.template_parameters), types)
        plain = declaration.name.rsplit("::")[-1]
        is_macro = plain in own or plain in macros
        if not is_macro and (key not in declared or (is_defined and not declared[key][1])):
            declared[key] = declaration, is_defined
    return tuple(declaration for declaration, _ in declared.values())


def overload(declaration: Declaration) -> Declaration:
    """Return a kernel that shares its name with another by the name expression that is its own.

    It is a cast to the kernel's type, `(void(*)(float *))k`; in a template's, its parameters are still to be
    put in.
    """
    types = ", ".join(declaration.parameter_types)
    return replace(declaration, name=f"(void(*)({types})){declaration.name}")


def split_overload(name: str) -> tuple[str, str]:
    """Return the types of the parameters in the name of an overload, and the name behind; else "" and it."""
    if not name.startswith(_CAST):
        return "", name
    depths = itertools.accumulate((each == "(") - (each == ")") for each in name)
    end = next(index for index, depth in enumerate(depths) if depth == 0)
    return name[len(_CAST) : end - 1], name[end + 1 :]


_CAST = "(void(*)("


def base_name(name: str) -> str:
    """Return `ns::k` for `ns::k<float>`, `table` for `&table`, and `k` for `(void(*)(float *))k`."""
    name = split_overload(name)[1]
    return name.lstrip("&").split("<")[0].strip().removeprefix("::")


def has_unannotated_function(text: str, defined: Collection[str], annotations: Container[str]) -> bool:
    """Return whether the head of a function or member function holds none of some annotations."""
    for scanner in _scanners(text, frozenset(defined)):
        for begin, end, _ in scanner.statements():
            head = [scanner.at(i) for i in range(begin, end)]
            is_declared = head[-1] == ";" and head[0] not in _NOT_FUNCTIONS and head[1] != "("
            is_function = (head[-1] == "{" or is_declared) and "(" in head and "=" not in head
            if is_function and not any(word in annotations for word in head):
                return True
    return False


def variables(
    text: str, defined: Collection[str] = NVRTC_MACROS, *, writable: bool = False
) -> tuple[str, ...]:
    """Return the qualified names of the `__constant__` and `__device__` variables at namespace scope.

    Args:
        text: The text.
        defined: Macros that are known to be defined, for `#ifdef`.
        writable: Leave out those that no kernel may write: `__constant__` and const ones.
    """
    if not any(word in text for word in _VARIABLE):
        return ()
    names_by_start: dict[int, list[str]] = {}
    for scanner in _scanners(text, frozenset(defined)):
        for start, names in scanner.variables(writable=writable):
            names_by_start.setdefault(start, names)
    return tuple(dict.fromkeys(name for start in sorted(names_by_start) for name in names_by_start[start]))


_TILE_CODE = re.compile(
    r'\b__tile(?:_global)?__\b|^[ \t]*#[ \t]*include[ \t]*[<"]cuda_tile\.h[>"]', re.MULTILINE
)


def has_tile_code(texts: Iterable[str]) -> bool:
    """Return whether one of some texts is written in CUDA Tile C++: with a tile function, or its header."""
    return any(
        ("__tile_" in text or "cuda_tile.h" in text) and _TILE_CODE.search(without_comments(text)) is not None
        for text in texts
    )


def device_arrays(text: str, defined: Collection[str] = NVRTC_MACROS) -> frozenset[str]:
    """Return the plain names of the `__constant__` and `__device__` arrays at namespace scope."""
    if not any(word in text for word in _VARIABLE):
        return frozenset()
    return frozenset(name for scanner in _scanners(text, frozenset(defined)) for name in scanner.arrays())


def offset_in_tile_code(
    text: str, names: Collection[str], defined: Collection[str] = NVRTC_MACROS
) -> tuple[str, int] | None:
    """Return the first of some arrays that a tile function adds to, or takes an address in; with its line."""
    found = (use for scanner in _scanners(text, frozenset(defined)) for use in scanner.offset_uses(names))
    return next(found, None)


@functools.lru_cache(maxsize=16)
def _scanners(text: str, defined: frozenset[str]) -> tuple[_Scanner, ...]:
    """Return one scanner for each variant of a text; a module asks for kernels and variables in turn."""
    return tuple(_Scanner(code_only(visible)) for visible in variants(text, defined))


class _Scanner(CodeTokens):
    """Walks over the declarations of a text that holds no comments, literals or directives."""

    def span(self, start: int, end: int) -> str:
        """Return the text of some tokens, blanks made one."""
        if end <= start:
            return ""
        return " ".join(self.text[self.tokens[start][1] : self.tokens[end - 1][2]].split())

    def past(self, index: int) -> int:
        """Return the bracket that closes the one at `index`; `index` itself where nothing closes it.

        So one bracket that macros balance hides nothing but its own statement.
        """
        closing = self.close(index)
        return closing if closing < len(self.tokens) else index

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the comma-separated parts between two tokens; angle brackets count as brackets."""
        parts, begin, index = [], start, start
        while index < end:
            if self.at(index) in _BRACKETS:
                closing = self.close(index)
                index = closing if closing < end else index
            elif self.at(index) == ",":
                parts.append((begin, index))
                begin = index + 1
            index += 1
        return [*parts, (begin, end)] if end > start else []

    def statements(self) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Declarations at namespace or class scope: first token, end, enclosing names."""
        stack: list[str] = []
        index = begin = 0
        while index < len(self.tokens):
            token = self.at(index)
            if token == "{":
                scope = self.scope(begin, index)
                if scope is None:
                    yield begin, index + 1, tuple(filter(None, stack))
                    index = self.past(index)
                else:
                    stack.append(scope)
            elif token == "}" and stack:
                stack.pop()
            if token in "{};" and token:
                if token == ";" and index > begin:
                    yield begin, index + 1, tuple(filter(None, stack))
                begin = index + 1
            elif token in ("(", "["):
                index = self.close(index)
            index += 1

    def scope(self, begin: int, brace: int) -> str | None:
        """Return the name of the scope that a brace opens ("" for one without), None if it opens a body."""
        words = [self.at(i) for i in range(begin, brace)]
        if "namespace" in words:  # a macro that ends in no semicolon may be before it
            words = words[words.index("namespace") :]
        if not words or words == ["extern"]:
            return "" if words else None
        while words[:2] == ["template", "<"]:  # of which there may be several in front
            depths = itertools.accumulate((word == "<") - (word == ">") for word in words[1:])
            words = words[next((i for i, depth in enumerate(depths, 2) if depth == 0), len(words)) :]
        if "(" in words or "=" in words:
            return None
        start = next((i for i, word in enumerate(words) if word in _SCOPES), None)
        if start is None:
            return None
        name = itertools.takewhile(lambda word: word != ":", words[start + 1 :])  # before a base class clause
        return "".join(word for word in name if word not in _NOT_IN_A_NAME)

    def kernels(self) -> Iterator[_ScannedKernel]:
        for begin, end, scope in self.statements():
            if self.is_kernel(begin, end):
                yield from self.kernel(begin, end, scope)

    def is_kernel(self, begin: int, end: int) -> bool:
        return any(self.at(i) in KERNEL_WORDS for i in range(begin, end))

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Yield the unqualified name of each kernel, "" for instantiations, and its place."""
        for begin, end, _ in self.statements():
            if self.is_kernel(begin, end):
                last = self.past(end - 1) if self.at(end - 1) == "{" else end - 1
                yield self.function_name(begin, end), self.tokens[begin][1], self.tokens[last][2]

    def function_name(self, begin: int, end: int) -> str:
        """Return the name before a function's parameters, without template arguments; "" for none."""
        template, index = self.template(self.after_calls(begin))
        if template is None and self.at(index + 1) != "<":
            return ""  # an instantiation
        opening = self.parameter_list(index, end)
        last, depth = (end if opening is None else opening) - 1, 0
        while last > 0 and (depth or self.at(last) == ">"):
            depth += (self.at(last) == ">") - (self.at(last) == "<")
            last -= 1
        return self.at(last)

    def after_calls(self, index: int) -> int:
        """Return the first token of a statement behind calls of macros that end in no semicolon."""
        while self.at(index).isidentifier() and self.at(index) not in _CALL_ATTRIBUTES:
            after = self.close(index + 1) + 1
            if self.at(index + 1) != "(" or not self.at(after).isidentifier():
                break
            index = after
        return index

    def kernel(self, begin: int, end: int, scope: tuple[str, ...]) -> Iterator[_ScannedKernel]:
        template, index = self.template(self.after_calls(begin))
        opening = self.parameter_list(index, end) if template is not None else None
        if template is None or opening is None or self.at(opening - 1) == ">":
            return
        if self.at(self.close(opening) + 1) == "(":  # `__global__ void MACRO(a)(parameters)`
            return
        first = opening - 1
        while self.at(first - 1) == "::":
            first -= 2
        parts = self.split(opening + 1, self.close(opening))
        if [self.span(*part) for part in parts] == ["void"]:
            parts = []
        names = tuple(self.parameter_name(*part) for part in parts)
        types = tuple(self.types(part, name) for part, name in zip(parts, names, strict=True))
        name, start = "".join(self.at(i) for i in range(first, opening)), self.tokens[first][1]
        line = self.text.count("\n", 0, start) + 1
        is_tile = "__tile_global__" in (self.at(i) for i in range(begin, opening))
        spelled = tuple(" ".join(one for one in each if one != "__grid_constant__") for each in types)
        declaration = Declaration("::".join((*scope, name)), template, names, line, is_tile, spelled)
        yield start, declaration, types, self.at(end - 1) == "{"

    def template(self, index: int) -> tuple[tuple[str, ...] | None, int]:
        """Template parameters and the token after them; None for an instantiation or specialization."""
        if self.at(index) == "extern":
            index += 1
        if self.at(index) != "template":
            return (), index
        if self.at(index + 1) != "<" or self.at(index + 2) == ">":
            return None, index
        closing = self.close(index + 1)
        parts = self.split(index + 2, closing)
        return tuple(self.span(*part) for part in parts), closing + 1

    def parameter_list(self, index: int, end: int) -> int | None:
        """Return the bracket that opens a function's parameters; None if there is none."""
        while index < end:
            token = self.at(index)
            if token in _CALL_ATTRIBUTES and self.at(index + 1) == "(":
                index = self.close(index + 1)
            elif token == "[":
                index = self.close(index)
            elif token == "(":
                if not (self.at(index - 1).isidentifier() or self.at(index - 1) == ">"):
                    return None
                if not self.is_attribute(index, end):
                    return index
                index = self.close(index)
            index += 1
        return None

    def is_attribute(self, opening: int, end: int) -> bool:
        """Return whether a bracket is a macro's before a kernel's name: `BOUNDS(256) __global__ void k(`."""
        after = self.close(opening) + 1
        is_word = self.at(after).isidentifier() and self.at(after) not in _BEHIND_PARAMETERS
        return is_word and any(self.at(i) == "(" for i in range(after + 1, end))

    def parameter_name(self, start: int, end: int) -> str:
        end = self.before_default(start, end)
        while end > start and self.at(end - 1) == "]":
            end = next(i for i in range(end - 1, start - 1, -1) if self.at(i) == "[")
        inner = next((i for i in range(start, end - 1) if self.at(i) == "(" and self.at(i + 1) in "*&"), None)
        if inner is not None:
            end = self.close(inner)
        last, before = self.at(end - 1), self.at(end - 2) if end - 2 >= start else ""
        named = last.isidentifier() and last not in _TYPE_WORDS and before != "::"
        has_type = any(
            self.at(i)
            not in ("const", "volatile", "struct", "class", "typename", "enum", "__grid_constant__")
            for i in range(start, end - 1)
        )
        return last if named and has_type else ""

    def before_default(self, start: int, end: int) -> int:
        index = start
        while index < end and self.at(index) != "=":
            index = self.close(index) + 1 if self.at(index) in _BRACKETS else index + 1
        return min(index, end)

    def types(self, part: tuple[int, int], name: str) -> tuple[str, ...]:
        start, end = part[0], self.before_default(*part)
        return tuple(self.at(i) for i in range(start, end) if self.at(i) != name)

    def variables(self, *, writable: bool) -> Iterator[tuple[int, list[str]]]:
        """Yield where statements that declare variables begin, and the names."""
        for begin, end, scope in self.statements():
            words = {self.at(i) for i in range(begin, end)}
            fixed = words & {"__constant__", "constexpr"} or ("const" in words and "*" not in words)
            if writable and fixed:
                continue
            if words & _VARIABLE:
                names = ["::".join((*scope, name)) for name in self.declarators(begin, end)]
                yield self.tokens[begin][1], names

    def arrays(self) -> Iterator[str]:
        """Yield the names of the device's variables that are declared with an extent."""
        for begin, end, _ in self.statements():
            if any(self.at(i) in _VARIABLE for i in range(begin, end)):
                names = self.declarators(begin, end)
                yield from (
                    self.at(i) for i in range(begin, end) if self.at(i) in names and self.at(i + 1) == "["
                )

    def offset_uses(self, names: Collection[str]) -> Iterator[tuple[str, int]]:
        """Yield names beside a sign in tile functions that declare no such name, and their lines."""
        for begin, end, _ in self.statements():
            if self.at(end - 1) != "{" or not any(self.at(i) in _TILE_WORDS for i in range(begin, end)):
                continue
            uses = [i for i in range(begin, self.past(end - 1)) if self.at(i) in names]
            own = {self.at(i) for i in uses if self.is_own(i)}
            for i in uses:
                if self.at(i) not in own and {self.at(i - 1), self.at(i + 1)} & {"+", "-", "&"}:
                    yield self.at(i), self.text.count("\n", 0, self.tokens[i][1]) + 1

    def is_own(self, index: int) -> bool:
        """Return whether a name in a function may be declared there, or a member's: it is after a type."""
        before = self.at(index - 1)
        if before in ("*", "&"):
            return self.at(index - 2).isidentifier()
        return before in (".", "->", ">") or (before.isidentifier() and before != "return")

    def declarators(self, begin: int, end: int) -> list[str]:
        """Return the names that a statement declares as variables; none for a function or a template."""
        template, index = self.template(begin)
        if template is None or template:
            return []
        first, *others = self.split(index, end) or [(index, end)]
        name = self.variable(*first)
        if name is None:
            return []
        more = [next((self.at(i) for i in range(*part) if self.at(i).isidentifier()), "") for part in others]
        return [name, *filter(None, more)]

    def variable(self, index: int, end: int) -> str | None:
        """Return the identifier before `=`, `[`, `{`, `;` or the end; None for a function or an operator."""
        name = None
        while index < end:
            token = self.at(index)
            if token in _CALL_ATTRIBUTES and self.at(index + 1) == "(":
                index = self.close(index + 1)
            elif token == "<" or (token == "[" and self.at(index + 1) == "["):  # [[an attribute]]
                index = self.close(index)
            elif token in ("=", "[", "{", ";"):
                return name
            elif token in ("(", "operator"):
                return None
            elif token.isidentifier():
                name = token
            index += 1
        return name


def only_kernels(source: Source, defined: frozenset[str], names: Collection[str]) -> Source:
    """Return a source whose other kernels are blanked, so that every line keeps its number.

    Kernels of headers stay, and those that a macro makes.

    Args:
        names: Name expressions of the kernels that stay: `scale<float>`, `ns::plain`.
    """
    kept = {base_name(name).rsplit("::")[-1] for name in names}
    text = source.text
    for name, start, end in {span for scanner in _scanners(text, defined) for span in scanner.spans()}:
        if name not in kept:
            text = text[:start] + blanks(text[start:end]) + text[end:]
    return replace(source, text=text)

"""The kernels and variables that a text declares, found without a compiler.

A scan of tokens: it knows scopes, templates, attributes and default arguments, and takes no part
in what macros make. What it misses the compiler may still find by name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace

from dotcu.compile.options import CompileOptions
from dotcu.compile.source.lexer import NVRTC_MACROS, blanks, code_only, macro_names, variants
from dotcu.compile.source.source import Source


@dataclass(frozen=True)
class Declaration:
    """A kernel as its text declares it.

    Attributes:
        name: Qualified, `ns::k`.
        template_parameters: Their text, `typename T`, `int N = 4`; empty if it is not a template.
        parameter_names: "" for a parameter without one.
        line: Of the name, counted from 1.
    """

    name: str
    template_parameters: tuple[str, ...]
    parameter_names: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class _FoundKernel:
    """A declaration, with the parameter types that distinguish an overload from a redeclaration."""

    start: int
    declaration: Declaration
    types: tuple[tuple[str, ...], ...]
    defined: bool


_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|\.\.\.|[^\s]")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CALL_ATTRIBUTES = {
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__attribute__",
    "__declspec", "alignas", "decltype", "__align__", "noexcept",
}  # fmt: skip
_TYPE_WORDS = {
    "void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const",
    "volatile", "auto", "wchar_t", "char16_t", "char32_t", "__restrict__", "__restrict", "restrict",
    "__grid_constant__", "struct", "class", "enum", "typename",
}  # fmt: skip
_VARIABLE = {"__constant__", "__device__", "__managed__"}
_SCOPES = {"namespace", "struct", "class", "union", "enum"}
_NOT_IN_A_NAME = {"inline", "class", "struct", "final", "[", "]"}


def kernels(
    text: str, defined: Collection[str] = NVRTC_MACROS, macros: Container[str] = ()
) -> tuple[Declaration, ...]:
    """Return every `__global__` function that a text declares, in order; overloads stand one by one.

    Args:
        defined: Macros that are known to be defined, for `#ifdef`.
        macros: Macros of other texts: a macro instead of a name is not a name.
    """
    in_order = _in_order(text, defined)
    own = macro_names(text) if in_order else frozenset()
    found: dict[tuple[object, ...], _FoundKernel] = {}
    for kernel in in_order:
        name = kernel.declaration.name
        key = (name, len(kernel.declaration.template_parameters), kernel.types)
        is_macro = name.rsplit("::")[-1] in own or name.rsplit("::")[-1] in macros
        if not is_macro and (key not in found or (kernel.defined and not found[key].defined)):
            found[key] = kernel
    return tuple(kernel.declaration for kernel in found.values())


def _in_order(text: str, defined: Collection[str]) -> list[_FoundKernel]:
    """Return the kernels of all variants of a text, each place once."""
    if "__global__" not in text:  # most of a library's headers: the tokens of all would take minutes
        return []
    found: dict[int, _FoundKernel] = {}
    for scanner in _scanners(text, frozenset(defined)):
        for kernel in scanner.kernels():
            found.setdefault(kernel.start, kernel)
    return [found[start] for start in sorted(found)]


def kernel_spans(text: str, defined: Collection[str] = NVRTC_MACROS) -> tuple[tuple[str, int, int], ...]:
    """Return name, start and end of each `__global__` function of a text; the name is unqualified.

    Declarations, overloads and specializations stand one by one, explicit instantiations without a name.
    """
    found = {span: None for scanner in _scanners(text, frozenset(defined)) for span in scanner.spans()}
    return tuple(found)


def base_name(name: str) -> str:
    """Return `ns::k` for `ns::k<float>`, `table` for `&table`."""
    return name.lstrip("&").split("<")[0].strip().removeprefix("::")


def has_unannotated_function(text: str, defined: Collection[str], annotations: Container[str]) -> bool:
    """Return whether the head of a function or member function holds none of some annotations.

    Args:
        text: The text.
        defined: Macros known to be defined.
        annotations: The words to look for.
    """
    return any(
        scanner.is_unannotated(begin, end, annotations)
        for scanner in _scanners(text, frozenset(defined))
        for begin, end, _ in scanner.statements()
    )


def variables(text: str, defined: Collection[str] = NVRTC_MACROS) -> tuple[str, ...]:
    """Qualified names of the `__constant__` and `__device__` variables at namespace scope."""
    return _variables(text, defined, writable=False)


def shared_variables(text: str, defined: Collection[str] = NVRTC_MACROS) -> tuple[str, ...]:
    """Return the variables of a text that kernels may write: not `__constant__`, not const."""
    return _variables(text, defined, writable=True)


def _variables(text: str, defined: Collection[str], *, writable: bool) -> tuple[str, ...]:
    if not any(word in text for word in _VARIABLE):
        return ()
    found: dict[int, list[str]] = {}
    for scanner in _scanners(text, frozenset(defined)):
        for start, names in scanner.variables(writable=writable):
            found.setdefault(start, names)
    return tuple(dict.fromkeys(name for start in sorted(found) for name in found[start]))


@functools.lru_cache(maxsize=16)
def _scanners(text: str, defined: frozenset[str]) -> tuple[_Scanner, ...]:
    """Return one scanner for each variant of a text; a module asks for kernels and variables in turn."""
    return tuple(_Scanner(code_only(visible)) for visible in variants(text, defined))


class _Scanner:
    """Walks over the tokens of a text that holds no comments, literals or directives."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_TOKEN.finditer(text))

    def at(self, index: int) -> str:
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def span(self, start: int, end: int) -> str:
        """Return the text of some tokens, blanks made one."""
        if end <= start:
            return ""
        return " ".join(self.text[self.tokens[start].start() : self.tokens[end - 1].end()].split())

    def close(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`."""
        opening, closing = self.at(index), _CLOSING[self.at(index)]
        index += 1
        while index < len(self.tokens) and self.at(index) != closing:
            nested = self.at(index)
            skips = nested in "([{" or (nested == "<" and opening == "<")
            index = self.close(index) + 1 if skips else index + 1
        return index

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
            if self.at(index) in _CLOSING:
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
        words = _without_template_parameters(words)
        if "(" in words or "=" in words:
            return None
        start = next((i for i, word in enumerate(words) if word in _SCOPES), None)
        if start is None:
            return None
        names = [word for word in _until_colon(words[start + 1 :]) if word not in _NOT_IN_A_NAME]
        return "".join(names)

    def is_unannotated(self, begin: int, end: int, annotations: Container[str]) -> bool:
        words = [self.at(i) for i in range(begin, end)]
        is_function = words[-1] == "{" and "(" in words and "=" not in words
        return is_function and not any(word in annotations for word in words)

    def kernels(self) -> Iterator[_FoundKernel]:
        for begin, end, scope in self.statements():
            words = [self.at(i) for i in range(begin, end)]
            if "__global__" in words:
                kernel = self.kernel(begin, end, scope)
                if kernel is not None:
                    yield kernel

    def spans(self) -> Iterator[tuple[str, int, int]]:
        for begin, end, _ in self.statements():
            if "__global__" in (self.at(i) for i in range(begin, end)):
                last = self.past(end - 1) if self.at(end - 1) == "{" else end - 1
                yield self.function_name(begin, end), self.tokens[begin].start(), self.tokens[last].end()

    def function_name(self, begin: int, end: int) -> str:
        """Return the name before a function's parameters, without template arguments; "" for none."""
        first = begin + (self.at(begin) == "extern")
        if self.at(first) == "template" and self.at(first + 1) != "<":
            return ""
        index, depth = begin, 0
        while index < end and self.at(index) != "(":
            has_brackets = self.at(index) in _CALL_ATTRIBUTES and self.at(index + 1) == "("
            is_closed = has_brackets or self.at(index) in "[<"
            index = self.close(index + has_brackets) + 1 if is_closed else index + 1
        index -= 1
        while index > 0 and (depth or self.at(index) == ">"):
            depth += (self.at(index) == ">") - (self.at(index) == "<")
            index -= 1
        return self.at(index)

    def kernel(self, begin: int, end: int, scope: tuple[str, ...]) -> _FoundKernel | None:
        template, index = self.template(begin)
        if template is None:
            return None
        parameters = self.parameter_list(index, end)
        if parameters is None:
            return None
        name_end = parameters
        name_start = name_end - 1
        while self.at(name_start - 1) == "::":
            name_start -= 2
        closing = self.close(parameters)
        if self.at(closing + 1) == "(":  # `__global__ void MACRO(a)(parameters)`: a macro makes the name
            return None
        parts = self.split(parameters + 1, closing)
        if [self.span(*part) for part in parts] == ["void"]:
            parts = []
        names = tuple(self.parameter_name(*part) for part in parts)
        declaration = Declaration(
            "::".join((*scope, "".join(self.at(i) for i in range(name_start, name_end)))),
            template, names, self.text.count("\n", 0, self.tokens[name_start].start()) + 1,
        )  # fmt: skip
        types = tuple(self.types(part, name) for part, name in zip(parts, names, strict=True))
        return _FoundKernel(self.tokens[name_start].start(), declaration, types, self.at(end - 1) == "{")

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
                return index if self.at(index - 1).isidentifier() else None
            index += 1
        return None

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
            index = self.close(index) + 1 if self.at(index) in _CLOSING else index + 1
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
                yield self.tokens[begin].start(), names

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
        """Return the identifier before `=`, `[`, `{`, `;` or the end; None for a function."""
        name = None
        while index < end:
            token = self.at(index)
            if token in _CALL_ATTRIBUTES and self.at(index + 1) == "(":
                index = self.close(index + 1)
            elif token == "<" or (token == "[" and self.at(index + 1) == "["):  # [[an attribute]]
                index = self.close(index)
            elif token in ("=", "[", "{", ";"):
                return name
            elif token == "(":
                return None
            elif token.isidentifier():
                name = token
            index += 1
        return name


def _without_template_parameters(words: Sequence[str]) -> list[str]:
    """Return the words behind `template <...>`, of which there may be several in front."""
    while list(words[:2]) == ["template", "<"]:
        depth = end = 0
        for end, word in enumerate(words):
            depth += (word == "<") - (word == ">")
            if depth == 0 and end > 0:
                break
        words = words[end + 1 :]
    return list(words)


def _until_colon(words: Sequence[str]) -> list[str]:
    """Return the words before a base class clause."""
    return list(words[: words.index(":")] if ":" in words else words)


def only_kernels(source: Source, options: CompileOptions, names: Collection[str]) -> Source:
    """Return a source whose other kernels are blanked, so that every line keeps its number.

    Kernels of headers stay, and those that a macro makes.

    Args:
        names: Name expressions of the kernels that stay: `scale<float>`, `ns::plain`.
    """
    kept = {base_name(name).rsplit("::")[-1] for name in names}
    text = source.text
    for name, start, end in kernel_spans(text, options.defined):
        if name not in kept:
            text = text[:start] + blanks(text[start:end]) + text[end:]
    return replace(source, text=text)

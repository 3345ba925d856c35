"""The declarations of a file, each classified as device code, host code, or what both may have.

A text is cut into statements where its brackets say so, and tree-sitter's grammar of C++ confirms each: a
statement that does not parse as one declaration is unclear, unless an annotation in its head says what it
is. Bodies of functions are not looked into: heads decide.

    function             by its annotation: NVRTC takes none without
    variable             by its annotation; a constant may be shared
    type, alias, enum    shared: device code may need it; member functions are classified one by one
    using, namespace     shared, unless it is of a host's namespace
    static_assert        shared: it costs nothing and may guard device code
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dotcu.compile.host_split.detect import DEVICE_WORDS, HOST_MACROS, WORD, Macros, with_macro_words
from dotcu.compile.source.lexer import blanks, code_only, without_comments, without_directives

if TYPE_CHECKING:
    from tree_sitter import Language, Node

Verdict = Literal["device", "host", "shared", "unclear"]

NO_DECLARATION = "a statement that is not a declaration by itself"

# Annotations, which C++'s grammar does not know: blanked before the parser looks, with their brackets.
_PLAIN = DEVICE_WORDS | {
    "__host__", "__forceinline__", "__noinline__", "__inline__", "__inline", "__restrict__", "__restrict",
    "__grid_constant__", "__extension__", "TORCH_API", "TORCH_CUDA_CU_API", "C10_API", "C10_EXPORT",
}  # fmt: skip
_BRACKETED = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__align__", "__attribute__",
    "__declspec", "alignas",
})  # fmt: skip
_SPECIFIERS = (
    _PLAIN | _BRACKETED | {"inline", "static", "constexpr", "extern", "const", "volatile", "unsigned"}
)
_CONSTEXPR = frozenset({"constexpr", "consteval"})

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|[^\s]")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_OPENS = {closing: opening for opening, closing in _OPENING.items()}
_TRY = re.compile(r"\btry\b")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@dataclass(frozen=True, kw_only=True, eq=False)
class HostFunction:
    """A function that only a host has, and its head, which can stay as a declaration.

    Attributes:
        start, end: Where it stands.
        mark: Where annotations belong in it: behind `template <...>` and `extern "C"`.
        body: Where its body begins, or what a constructor has in front; its end if it has none.
        head: The code before the body.
        needs: Names that have to be known where the head stays: types, and what default arguments name.
        is_special: A type is another type without it: a constructor, an operator, a virtual function.
        is_constructor, is_virtual, is_inline: Properties of its head.
        is_own: It declares its name, and does not repeat a declaration of another scope.
    """

    start: int
    end: int
    mark: int
    body: int
    name: str
    needs: frozenset[str]
    head: str = ""
    is_special: bool = False
    is_constructor: bool = False
    is_virtual: bool = False
    is_inline: bool = False
    is_own: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class ParsedDeclaration:
    """A statement at namespace scope.

    Attributes:
        verdict: "shared" is what host and device may both have: a type, a constant, a constexpr function.
        what: Its kind, in words for a message.
        start, end: Where it stands.
        text: Its code, without the parts that only a host has.
        name: The name that it declares; "" if it has none.
        names: All names that it declares, those of its enumerators among them.
        members: Names that are declared inside of a type.
        is_forward: It is a type without its members.
        types: Names of types and namespaces that it mentions.
        methods: Member functions without `__device__`.
        function: The function at namespace scope that it is, where that is the host's.
        marks: Where `__device__` belongs, since NVRTC takes no constexpr function without.
    """

    verdict: Verdict
    what: str
    start: int = 0
    end: int = 0
    text: str = ""
    name: str = ""
    names: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    is_forward: bool = False
    types: frozenset[str] = frozenset()
    methods: tuple[HostFunction, ...] = ()
    function: HostFunction | None = None
    marks: tuple[int, ...] = ()


def parse_declarations(text: str, macros: Macros) -> tuple[ParsedDeclaration, ...]:
    """Return the declarations of a text in which each `#if` has one branch left, in order.

    Args:
        text: The text.
        macros: Those of the text and of what it includes.
    """
    return tuple(_StatementReader(text, macros).declarations())


class _StatementReader:
    """Cuts a text into statements and classifies each.

    `bare` has neither comments, literals nor directives; `shown`, for the parser, has its literals
    and lacks annotations. Both have every character where the text has it.
    """

    def __init__(self, text: str, macros: Macros) -> None:
        self.macros = macros
        self.bare = code_only(text)
        self.shown = _NOT_ASCII.sub("_", without_directives(without_comments(text)))
        self.tokens = [(m[0], m.start(), m.end()) for m in _TOKEN.finditer(self.bare)]
        self.pairs = self._pairs()
        self.hidden: dict[int, int] = {}
        self._hide_annotations()
        self.covered = {i for first, last in self.hidden.items() for i in range(first, last + 1)}

    def at(self, index: int) -> str:
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def close(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`; the end if there is none."""
        if self.at(index) != "<":
            return self.pairs.get(index, len(self.tokens))
        depth = 0  # of what `template <` begins
        while index < len(self.tokens):
            token = self.at(index)
            depth += (token == "<") - (token == ">")
            if depth == 0:
                break
            index = self.close(index) + 1 if token in _OPENING else index + 1
        return index

    def _pairs(self) -> dict[int, int]:
        """Return where each bracket is closed; a brace counts for more than the others inside of it."""
        found: dict[int, int] = {}
        waiting: list[int] = []
        for index, (token, _, _) in enumerate(self.tokens):
            if token in _OPENING:
                waiting.append(index)
            elif token in _OPENS:
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
            is_specifier = self._is_specifier(word)
            is_bracketed = word in _BRACKETED or (is_specifier and self.macros[word].called)
            if is_bracketed and self.at(index + 1) == "(":
                last = min(self.close(index + 1), len(self.tokens) - 1)
            if last > index or word in _PLAIN or is_specifier:
                start, end = self.tokens[index][1], self.tokens[last][2]
                shown[start:end] = blanks(self.shown[start:end])
                self.hidden[index] = last
            index = last + 1
        self.shown = "".join(shown)

    def _is_specifier(self, word: str) -> bool:
        """Return whether a macro is annotations only, `#define HD __host__ __device__`, or nothing."""
        macro = self.macros.get(word)
        if macro is None or not all(_is_annotation(value, self.macros) for value in macro.values):
            return False
        return not macro.called or any(macro.values)

    def words(self, start: int, end: int) -> frozenset[str]:
        """Return the words of a stretch, and those that its macros expand to."""
        return with_macro_words(frozenset(WORD.findall(self.bare[start:end])), self.macros)

    def declarations(self) -> Iterator[ParsedDeclaration]:
        index = 0
        while index < len(self.tokens):
            index, found = self.statement(index)
            if found is not None:
                yield found

    def statement(self, begin: int) -> tuple[int, ParsedDeclaration | None]:
        """Return the index after a statement, and what it is; None if it has no text of its own."""
        first = begin
        while first in self.hidden:
            first = self.hidden[first] + 1
        if self.at(first) == ";":
            return first + 1, None
        if self.at(first) == "}":
            return first + 1, self.declaration(begin, first, "device", "a bracket")
        if self._is_macro_call(first):
            return self.macro_call(begin, first)
        end, body = self.extent(first)
        if body is not None and self.opens_scope(first, body):
            return body + 1, self.declaration(begin, body, "device", "the head of a scope")
        last = min(end, len(self.tokens) - 1)
        if end > last or self._is_after_unknown(first):
            return end + 1, self.declaration(begin, last, "unclear", NO_DECLARATION)
        return end + 1, self.classified(begin, first, last, body)

    def _is_after_unknown(self, first: int) -> bool:
        """Return whether a statement begins with the call of a macro that nothing here defines."""
        if self.at(first) in self.macros or not WORD.fullmatch(self.at(first)) or self.at(first + 1) != "(":
            return False
        after = self.at(self.close(first + 1) + 1)
        return bool(WORD.fullmatch(after)) and after not in ("const", "noexcept", "try")

    def extent(self, first: int) -> tuple[int, int | None]:
        """Return the last token of a statement, and the brace that opens its body or scope, if any."""
        has_call = has_value = in_list = False
        index = first
        while index < len(self.tokens):
            token = self.at(index)
            if index in self.hidden:
                index = self.hidden[index]
            elif token == ";":
                return index, None
            elif token == "{":
                is_member_value = in_list and WORD.fullmatch(self.at(index - 1))  # `: member{1}`
                if not is_member_value and ((has_call and not has_value) or self.opens_scope(first, index)):
                    return self._after_handlers(self.close(index)), index
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

    def _after_handlers(self, close: int) -> int:
        """Return where a body ends: behind the last `catch (...) {}` that follows it."""
        while self.at(close + 1) == "catch" and self.at(close + 2) == "(":
            close = self.close(self.close(close + 2) + 1)
        return close

    def opens_scope(self, first: int, brace: int) -> bool:
        words = [self.at(i) for i in range(first, brace) if i not in self.covered]
        head = self.shown[self.tokens[first][1] : self.tokens[brace][2]]
        return "namespace" in words[:2] or (words == ["extern"] and '"' in head)

    def declaration(self, begin: int, last: int, verdict: Verdict, what: str) -> ParsedDeclaration:
        start, end = self.tokens[begin][1], self.tokens[min(last, len(self.tokens) - 1)][2]
        return ParsedDeclaration(verdict=verdict, what=what, start=start, end=end, text=self.bare[start:end])

    def _is_macro_call(self, first: int) -> bool:
        """Return whether a statement is the call of a macro that makes declarations."""
        word = self.at(first)
        if word in self.macros:
            macro = self.macros[word]
            makes = any(set(value) & set("{};") for value in macro.values)
            return makes and (not macro.called or self.at(first + 1) == "(")
        return bool(HOST_MACROS.fullmatch(word)) and self.at(first + 1) == "("

    def macro_call(self, begin: int, first: int) -> tuple[int, ParsedDeclaration]:
        """Return the index after a macro's call, which is classified by what the macro is made of."""
        word = self.at(first)
        last = self.close(first + 1) if self.at(first + 1) == "(" else first
        if self.at(last + 1) == "{":
            last = self.close(last + 1)
        elif self.at(last + 1) == ";":
            last += 1
        verdict = self.macro_verdict(word) if word in self.macros else "host"
        return last + 1, self.declaration(begin, last, verdict, f"what the macro {word} makes")

    def macro_verdict(self, word: str) -> Verdict:
        """Return the kind of the declarations that a macro makes; unclear where they are of both kinds."""
        others = {name: macro for name, macro in self.macros.items() if name != word}
        verdicts = {
            found.verdict
            for value in self.macros[word].values
            for found in parse_declarations(value.replace("#", " "), others)
            if found.what not in ("a bracket", "the head of a scope")
        }
        if "unclear" in verdicts or verdicts >= {"device", "host"}:
            return "unclear"
        return "host" if verdicts == {"host"} else "device"

    def classified(self, begin: int, first: int, last: int, body: int | None) -> ParsedDeclaration:
        """Classify a statement by the parser's tree.

        Args:
            begin: Its first token.
            first: The first one behind annotations.
            last: Its last one.
            body: The brace that opens its body, if it has one.
        """
        start, end = self.tokens[first][1], self.tokens[last][2]
        text, head_end = self.shown[start:end], end
        if body is not None:
            head_end = self.tokens[body][1]
            inside = self.tokens[body][2] - start
            text = _TRY.sub("   ", text[:inside]) + blanks(text[inside:-1]) + text[-1:]
        words = self.words(self.tokens[begin][1], head_end)
        found = _classify(text, words, lambda a, b: self.words(start + a, start + b))
        if found.verdict == "unclear" and self.at(first) in self.macros:
            word = self.at(first)
            return self.declaration(begin, last, self.macro_verdict(word), f"what the macro {word} makes")
        methods = tuple(self.moved(method, start) for method in found.methods)
        code, whole = self.bare, self.tokens[begin][1]
        for method in methods:
            code = code[: method.start] + blanks(code[method.start : method.end]) + code[method.end :]
        return replace(
            found, start=whole, end=end, text=code[whole:end], methods=methods,
            function=self.moved(found.function, start) if found.function is not None else None,
            marks=tuple(self.before(start + mark) for mark in found.marks),
        )  # fmt: skip

    def moved(self, function: HostFunction, by: int) -> HostFunction:
        """Return a function of a statement with its positions in the text."""
        start, body = self.before(by + function.start), by + function.body
        return replace(
            function, start=start, end=by + function.end, mark=self.before(by + function.mark), body=body,
            head=self.bare[start:body],
        )  # fmt: skip

    def before(self, position: int) -> int:
        """Return where the annotations begin that are before a position."""
        for first, last in reversed(self.hidden.items()):
            start, end = self.tokens[first][1], self.tokens[last][2]
            if end <= position and not self.bare[end:position].strip():
                position = start
        return position


def _is_annotation(value: str, macros: Macros) -> bool:
    """Return whether a macro's value has only annotations: no type, name or number outside of brackets."""
    outside = re.sub(r"\((?:[^()]|\([^()]*\))*\)", " ", value)
    for word in outside.replace('"C"', " ").split():
        others = {name: macro for name, macro in macros.items() if name != word}
        is_annotation = word in macros and all(_is_annotation(each, others) for each in macros[word].values)
        if word not in _SPECIFIERS and not is_annotation:
            return False
    return True


@functools.cache
def _language() -> Language:
    """Return the grammar, imported where it is first needed: a file without host code does without."""
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Language(tree_sitter_cuda.language())


WordsBetween = Callable[[int, int], frozenset[str]]
"""Returns the words of a stretch of the statement, annotations and what macros stand for among them."""

_TYPES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_KINDS = {
    "function_definition": "function", "template_instantiation": "function", "declaration": "variable",
    **dict.fromkeys((*_TYPES, "type_definition", "alias_declaration", "concept_definition"), "type"),
    "using_declaration": "using", "namespace_alias_definition": "using",
    "static_assert_declaration": "static_assert",
}  # fmt: skip
_WRAPPERS = ("template_declaration", "linkage_specification", "declaration_list", "friend_declaration")
_BODIES = ("field_initializer_list", "compound_statement", "try_statement")
_NAMES = ("type_identifier", "identifier", "field_identifier", "operator_name", "destructor_name",
          "namespace_identifier")  # fmt: skip


def _classify(text: str, words: frozenset[str], words_between: WordsBetween) -> ParsedDeclaration:
    """Classify a statement.

    Args:
        text: The statement without comments, annotations and the inside of a function's body.
        words: Those of its head, annotations among them.
        words_between: The same of any stretch of it.
    """
    import tree_sitter

    unparsed = ParsedDeclaration(verdict="unclear", what=NO_DECLARATION)
    if words & DEVICE_WORDS:
        unparsed = ParsedDeclaration(verdict="device", what="an annotated declaration")
    root = tree_sitter.Parser(_language()).parse(text.encode("ascii")).root_node
    children = [child for child in root.children if child.type != ";"]
    if len(children) != 1 or children[0].type == "ERROR":
        return unparsed
    node = _inner(children[0])
    kind = _KINDS.get(node.type, "")
    if _declares_function(node):
        kind = "function"
    if kind != "type" and _is_broken(children[0]):
        return unparsed
    common: dict[str, Any] = {"name": _name(node), "names": _declared(node), "types": _types(node)}
    if kind == "function":
        return _function(node, words, common)
    if kind == "variable":
        return _variable(node, words, common)
    if kind == "using":
        return _using(node, common)
    if kind == "type":
        return _type(node, words, words_between, common)
    if kind == "static_assert":
        return ParsedDeclaration(verdict="shared", what="a static_assert", **common)
    return ParsedDeclaration(verdict="unclear", what=NO_DECLARATION)


def _function(node: Node, words: frozenset[str], common: dict[str, Any]) -> ParsedDeclaration:
    if words & DEVICE_WORDS:
        return ParsedDeclaration(verdict="device", what="a function", **common)
    if _is_untyped(node) and not words & {"operator", "main"}:
        return ParsedDeclaration(verdict="unclear", what=NO_DECLARATION, names=common["names"])
    if words & _CONSTEXPR and "__host__" not in words:
        marks = (node.start_byte,)
        return ParsedDeclaration(verdict="shared", what="a constexpr function", marks=marks, **common)
    function = None
    if node.type != "template_instantiation":
        whole = node
        while whole.parent is not None and whole.parent.parent is not None:
            whole = whole.parent
        function = _host_function(whole, node, words, "")
    return ParsedDeclaration(
        verdict="host", what="a function without __device__", function=function, **common
    )


def _is_untyped(node: Node) -> bool:
    """Return whether a definition may be the call of a macro, `TEST(a, b) { ... }`."""
    if node.type != "function_definition" or node.child_by_field_name("type") is not None:
        return False
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return name is None or name.type == "identifier"


def _variable(node: Node, words: frozenset[str], common: dict[str, Any]) -> ParsedDeclaration:
    if words & DEVICE_WORDS:
        return ParsedDeclaration(verdict="device", what="a variable", **common)
    if words & _CONSTEXPR or _is_constant(node):
        return ParsedDeclaration(verdict="shared", what="a constant", **common)
    return ParsedDeclaration(verdict="host", what="a variable without __device__ or const", **common)


def _is_constant(node: Node) -> bool:
    """Return whether the variables themselves are const, of `const char* p` not `p`, and need no call."""
    if not _has_const(node):
        return False
    for declarator in node.children_by_field_name("declarator"):
        while declarator.type in ("init_declarator", "array_declarator"):
            inner = declarator.child_by_field_name("declarator")
            if inner is None:
                return False
            declarator = inner
        is_pointer = declarator.type == "pointer_declarator"
        if not (_has_const(declarator) if is_pointer else declarator.type in _VARIABLE_NAMES):
            return False
    # a device compiler computes no value by a call before the start
    return not any(
        each.type == "lambda_expression"
        or (
            each.type == "call_expression"
            and _text(each.children[0]).split("::")[0] not in ("sizeof", "dim3")
        )
        for each in _walk(node)
    )


_VARIABLE_NAMES = ("identifier", "qualified_identifier")


def _has_const(node: Node) -> bool:
    return any(child.type == "type_qualifier" and _text(child) == "const" for child in node.children)


def _type(
    node: Node, words: frozenset[str], words_between: WordsBetween, common: dict[str, Any]
) -> ParsedDeclaration:
    methods, marks = [], set()
    for member, owner in _member_functions(node):
        body = next((part for part in _walk(member) if part.type == "compound_statement"), None)
        end = body.start_byte if body is not None else member.end_byte
        own = words_between(member.start_byte, end)
        before = member.prev_sibling
        if before is not None:  # annotations, which the parser does not see
            own |= words_between(before.end_byte, member.start_byte)
        is_defaulted = any(
            each.type in ("default_method_clause", "delete_method_clause") for each in _walk(member)
        )
        if own & DEVICE_WORDS or (is_defaulted and "virtual" not in own):
            continue
        if is_defaulted or (own & _CONSTEXPR and "__host__" not in own):
            marks.add(_inner(member).start_byte)
        else:
            methods.append(_host_function(member, _inner(member), own, owner))
    removed = [(method.start, method.end) for method in methods]
    return ParsedDeclaration(
        verdict="device" if words & DEVICE_WORDS else "shared", what="a type", members=_inside(node),
        is_forward=node.child_by_field_name("body") is None, methods=tuple(methods),
        marks=tuple(sorted(marks)), **{**common, "types": _types(node, removed)},
    )  # fmt: skip


def _using(node: Node, common: dict[str, Any]) -> ParsedDeclaration:
    """Classify a `using` or an alias of a namespace; a `using namespace` has no name."""
    identifiers = [_text(each) for each in _walk(node) if each.type in _NAMES]
    is_alias = node.type == "namespace_alias_definition"
    is_namespace = not is_alias and any(child.type == "namespace" for child in node.children)
    name = identifiers[0] if is_alias else "" if is_namespace else identifiers[-1]
    return ParsedDeclaration(
        verdict="shared", what="a using of a namespace" if is_namespace else "a using", name=name,
        names=common["names"], types=frozenset(identifiers) - {name},
    )  # fmt: skip


def _host_function(whole: Node, node: Node, words: frozenset[str], owner: str) -> HostFunction:
    """Describe a function for the host.

    Args:
        whole: With the `template <...>` in front.
        node: Without.
        words: Those of its head.
        owner: The type that it is a member of.
    """
    body = next((part for part in node.children if part.type in _BODIES), None)
    end = body.start_byte if body is not None else whole.end_byte
    heads = [each for each in _walk(node) if each.start_byte < end]
    defaults = [each.child_by_field_name("default_value") for each in heads if each.end_byte <= end]
    named = {
        _text(each)
        for default in defaults if default is not None
        for each in _walk(default) if each.type in _NAMES
    }  # fmt: skip
    name = _name(node)
    is_operator = any(each.type in ("operator_name", "operator_cast", "destructor_name") for each in heads)
    is_constructor = bool(owner) and name == owner
    is_virtual = bool(words & {"virtual", "override", "final"})
    is_own = not any(
        each.type == "function_declarator"
        and (each.child_by_field_name("declarator") or each).type == "qualified_identifier"
        for each in _walk(node, past="compound_statement")
    )
    return HostFunction(
        start=whole.start_byte, end=whole.end_byte, mark=node.start_byte, body=end, name=name,
        needs=(_types(whole, [(end, whole.end_byte)]) | named) - {owner, name} - _parameters(whole),
        is_special=is_operator or is_virtual or is_constructor, is_constructor=is_constructor,
        is_virtual=is_virtual, is_inline="inline" in words, is_own=is_own,
    )  # fmt: skip


def _inner(node: Node) -> Node:
    """Return the declaration inside of `template <...>`, `extern "C"` and `friend`."""
    while node.type in _WRAPPERS:
        inside = [child for child in node.named_children if child.type in _KINDS or child.type in _WRAPPERS]
        if not inside:
            break
        node = inside[-1]
    return node


def _is_broken(node: Node) -> bool:
    """Return whether the parser stumbled outside of a function's body and of a variable's value."""
    if not node.has_error or node.type == "compound_statement":
        return False
    if node.type == "init_declarator":
        declarator = node.child_by_field_name("declarator")
        return declarator is None or _is_broken(declarator)
    return node.is_error or node.is_missing or any(map(_is_broken, node.children))


def _declares_function(node: Node) -> bool:
    """Return whether a declaration is a function's, not a variable's that points to one."""
    if node.type not in ("declaration", "field_declaration"):
        return False
    for declarator in node.children_by_field_name("declarator"):
        inner: Node | None = declarator
        while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
            last = inner.named_children[-1] if inner.named_children else None
            inner = inner.child_by_field_name("declarator") or last
        name = inner.child_by_field_name("declarator") if inner is not None else None
        is_function = inner is not None and inner.type == "function_declarator"
        if is_function and name is not None and name.type != "parenthesized_declarator":
            return True
    return False


def _declared(node: Node) -> frozenset[str]:
    """Return all names that a declaration declares in the scope that it is in."""
    names = {_name(node), *(_name(each) for each in node.children_by_field_name("declarator"))}
    is_scoped = any(child.type in ("class", "struct") for child in node.children)
    if node.type == "enum_specifier" and not is_scoped:
        names |= {_name(each) for each in _walk(node) if each.type == "enumerator"}
    return frozenset(names - {""})


def _inside(node: Node) -> frozenset[str]:
    """Return the names that a type's own declarations declare inside of it."""
    kinds = ("field_declaration", "enumerator", "alias_declaration", "type_definition", *_TYPES,
             "function_definition", "declaration")  # fmt: skip
    inner = (each for each in _walk(node, past="compound_statement") if each.type in kinds and each != node)
    return frozenset(name for each in inner for name in _declared(each))


def _member_functions(node: Node) -> Iterator[tuple[Node, str]]:
    """Yield the member functions of a type and of the types in it, templates as a whole, and their types."""
    for each in _walk(node, past="compound_statement"):
        for member in each.children if each.type == "field_declaration_list" else ():
            inner = _inner(member)
            if inner.type == "function_definition" or _declares_function(inner):
                yield member, _name(each.parent) if each.parent is not None else ""


def _walk(node: Node, *, past: str = "") -> Iterator[Node]:
    """Yield a node and all below it, in order, except for what is below nodes of one kind."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each.type != past:
            waiting.extend(reversed(each.children))


def _types(node: Node, removed: list[tuple[int, int]] | None = None) -> frozenset[str]:
    """Return the types and namespaces that a node mentions, without its own template parameters."""
    names = {
        _text(each)
        for each in _walk(node)
        if each.type in ("type_identifier", "namespace_identifier")
        and not any(start <= each.start_byte < end for start, end in removed or ())
        and not _is_scoped(each)
    }
    return frozenset(names - _parameters(node))


def _is_scoped(name: Node) -> bool:
    """Return whether a name is looked up in a scope: `b` of `a::b`."""
    inner, outer = name, name.parent
    if outer is not None and outer.type == "template_type":
        inner, outer = outer, outer.parent
    if outer is None or outer.type != "qualified_identifier":
        return False
    return outer.child_by_field_name("name") == inner


def _parameters(node: Node) -> set[str]:
    """Return the template parameters that a node stands under, or has in it."""
    lists = [each for each in _walk(node) if each.type == "template_parameter_list"]
    above = node.parent
    while above is not None:
        lists += [each for each in above.children if each.type == "template_parameter_list"]
        above = above.parent
    return {_text(each) for one in lists for each in _walk(one) if each.type in _NAMES}


def _name(node: Node) -> str:
    """Return the name that a node declares, without its scopes; the first of several."""
    inner: Node | None = node.child_by_field_name("name") or node.child_by_field_name("declarator")
    while inner is not None and inner.type not in _NAMES:
        following = inner.child_by_field_name("name") or inner.child_by_field_name("declarator")
        if following is None and inner.type in ("reference_declarator", "parenthesized_declarator"):
            following = inner.named_children[-1] if inner.named_children else None
        inner = following
    return _text(inner) if inner is not None else ""


def _text(node: Node) -> str:
    return node.text.decode() if node.text is not None else ""

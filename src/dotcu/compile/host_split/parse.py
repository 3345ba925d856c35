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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dotcu.compile.host_split.detect import (
    CODE,
    DEVICE_WORDS,
    HOST_MACROS,
    WORD,
    Macros,
    expansions,
    with_macro_words,
)
from dotcu.compile.source.lexer import CodeTokens, code_only, without_comments, without_directives

if TYPE_CHECKING:
    from tree_sitter import Language, Node

DeviceSide = Literal["device", "host", "shared", "unclear"]

# Annotations, which C++'s grammar does not know: blanked before the parser looks, with their brackets.
_PLAIN = DEVICE_WORDS | {
    "__host__", "__forceinline__", "__noinline__", "__inline__", "__inline", "__restrict__", "__restrict",
    "__grid_constant__", "__extension__", "TORCH_API", "TORCH_CUDA_CU_API", "C10_API", "C10_EXPORT",
    "CUDART_CB", "CUDA_CB", "CUDARTAPI", "CUDAAPI",
}  # fmt: skip
_BRACKETED = frozenset({
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__align__", "__attribute__",
    "__builtin_align__", "__declspec", "alignas",
})  # fmt: skip
_SPECIFIERS = (
    _PLAIN | _BRACKETED | {"inline", "static", "constexpr", "extern", "const", "volatile", "unsigned"}
)
_TYPE_WORDS = frozenset({"struct", "class", "union", "enum", "typedef", "using", "static_assert", "concept"})
_CONSTEXPR = frozenset({"constexpr", "consteval"})
_VIRTUAL = frozenset({"virtual", "override", "final"})

_HOSTS_CALL = re.compile(rf"\s*{HOST_MACROS.pattern}\s*\(")
_HOSTS_TYPE = re.compile(CODE["the host's standard library"])
_INNERMOST_BRACKETS = re.compile(r"\([^()]*\)")
_UNKNOWN_OPERATOR = re.compile(r"(\boperator\s*)(?:<<=|>>=|<=>)")  # the grammar has none of these
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

# Nodes of the grammar.
_TYPES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_KINDS = {
    "function_definition": "function", "template_instantiation": "function", "declaration": "variable",
    **dict.fromkeys((*_TYPES, "type_definition", "alias_declaration", "concept_definition"), "type"),
    "using_declaration": "using", "namespace_alias_definition": "using",
    "static_assert_declaration": "static_assert",
}  # fmt: skip
_INSIDE = ("field_declaration", "enumerator", "alias_declaration", "type_definition", *_TYPES,
           "function_definition", "declaration")  # fmt: skip
_WRAPPERS = ("template_declaration", "linkage_specification", "declaration_list", "friend_declaration")
_BODIES = ("field_initializer_list", "compound_statement", "try_statement")
_NAMES = ("type_identifier", "identifier", "field_identifier", "operator_name", "destructor_name",
          "namespace_identifier")  # fmt: skip
_OPERATORS = ("operator_name", "operator_cast", "destructor_name")
_POINTERS = ("pointer_declarator", "reference_declarator", "parenthesized_declarator")
_CHOSEN = ("default_method_clause", "delete_method_clause")

MEMBER = "a member function without __device__"


def _device_part(text: str, parsed: Sequence[ParsedDeclaration]) -> str:
    """Return the declarations of a text that are no host code; "" where one is unclear, or of both kinds."""
    kept = [each for each in parsed if each.verdict != "host"]
    if any(each.verdict == "unclear" or each.methods or each.marks or each.of_both for each in kept):
        return ""
    return " ".join(text[each.start : each.end] for each in kept)


@dataclass(frozen=True, kw_only=True, eq=False)
class ParsedDeclaration:
    """A statement at namespace scope, or a member function without `__device__`.

    Attributes:
        verdict: "shared" is what host and device may both have: a type, a constant, a constexpr function.
        what: Its kind, in words for a message.
        start, end: Where it stands.
        text: Its code, without the parts that only a host has.
        name, names: The name that it declares, if it has one, and all, those of its enumerators among them.
        members: Names that are declared inside of a type.
        is_forward: It is a type without its members.
        types: Names of types and namespaces that it mentions.
        methods: Member functions without `__device__`.
        marks: Where `__device__` belongs, since NVRTC takes no constexpr function without.
        head: The code of a host function before its body, which can stay as a declaration; else "".
        mark: Where annotations belong in a head: behind `template <...>` and `extern "C"`.
        needs: Names that have to be known where a head stays: types, and what default arguments name.
        is_special: A type is another type without this function: an operator, or an implicit one.
        is_implicit: It is called without its name: a constructor or a virtual function.
        is_inline: Its head says inline or virtual.
        is_own: It declares its name, and does not repeat a declaration of another scope.
        of_both: Where the annotations of a variable stand that have `__host__` in them, which NVRTC takes of
            functions alone.
        annotated: Where member functions with an annotation stand.
        made: The device part of a macro's expansion, which takes the place of its call.
        is_guessed: The parser did not understand it, and it stays unless the compiler refuses it. If it is
            unclear, it is the call of a macro that no text defines.
    """

    verdict: DeviceSide
    what: str
    start: int
    end: int
    text: str
    name: str = ""
    names: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    is_forward: bool = False
    types: frozenset[str] = frozenset()
    methods: tuple[ParsedDeclaration, ...] = ()
    marks: tuple[int, ...] = ()
    head: str = ""
    mark: int = 0
    needs: frozenset[str] = frozenset()
    is_special: bool = False
    is_implicit: bool = False
    is_inline: bool = False
    is_own: bool = False
    annotated: tuple[tuple[int, int], ...] = ()
    of_both: tuple[int, int] | None = None
    made: str = ""
    is_guessed: bool = False


Classified = dict[tuple[int, int, str, bytes], "ParsedDeclaration"]
"""By where it begins and ends, its code, and what the parser is shown of it: what a statement declares."""


def parse_declarations(
    text: str, macros: Macros, classified: Classified | None = None
) -> tuple[ParsedDeclaration, ...]:
    """Return the declarations of a text in which each `#if` has one branch left, in order.

    Args:
        classified: Statements of the same file with other branches left; those of this text are added.
    """
    return tuple(_StatementReader(text, macros, {} if classified is None else classified).declarations())


class _StatementReader(CodeTokens):
    """Cuts a text into statements and classifies each.

    `text` has neither comments, literals nor directives; `shown`, for the parser, has its literals
    and lacks annotations. Both have every character where the source has it.
    """

    def __init__(self, text: str, macros: Macros, known: Classified) -> None:
        super().__init__(code_only(text))
        self.source = text
        self.macros, self._known = macros, known
        shown = _NOT_ASCII.sub("_", without_directives(without_comments(text)))
        self.shown = bytearray(_UNKNOWN_OPERATOR.sub(r"\1+= ", shown), "ascii")
        self._annotated: dict[int, int] = {}  # what stands behind an annotation, to where that begins
        self._hide_annotations()

    def _hide_annotations(self) -> None:
        takes_brackets = dict.fromkeys(_PLAIN, False) | dict.fromkeys(_BRACKETED, True)
        for word in self.macros.keys() & {word for word, _, _ in self.tokens}:
            macro = self.macros[word]
            if (not macro.called or any(macro.values)) and _is_annotation(word, self.macros):
                takes_brackets[word] = macro.called or takes_brackets.get(word, False)
        hidden: set[int] = set()
        for index, (word, start, _) in enumerate(self.tokens):
            if index in hidden or word not in takes_brackets:
                continue
            last = index
            if takes_brackets[word] and self.at(index + 1) == "(":
                last = min(self.close(index + 1), len(self.tokens) - 1)
            elif word in _BRACKETED and word not in self.macros:
                continue
            self._blank(start, self.tokens[last][2])
            if last + 1 < len(self.tokens):
                self._annotated[self.tokens[last + 1][1]] = start
            hidden.update(range(index, last + 1))
        self.leave_out(hidden)

    def _blank(self, start: int, end: int) -> None:
        self.shown[start:end] = b" " * (end - start)

    def words(self, start: int, end: int) -> frozenset[str]:
        """Return the words of a stretch, and those that its macros expand to."""
        return with_macro_words(frozenset(WORD.findall(self.text[start:end])), self.macros)

    def declarations(self) -> Iterator[ParsedDeclaration]:
        first = 0
        while first < len(self.tokens):
            word, last = self.at(first), first
            if word == "}":
                yield self.declaration(first, first, "device", "a bracket")
            elif self._is_macro_call(first):
                last = self.close(first + 1) if self.at(first + 1) == "(" else first
                last = self.close(last + 1) if self.at(last + 1) == "{" else last + (self.at(last + 1) == ";")
                yield self._made(first, last)
            elif self._is_after_unknown(first):
                last = self.close(first + 1)
                yield self.declaration(first, last, is_guessed=True)
            elif word != ";":
                last, body = self.extent(first)
                if body is not None and self.opens_scope(first, body):
                    last = body
                    yield self.declaration(first, body, "device", "the head of a scope")
                elif last == len(self.tokens):
                    yield self.declaration(first, last)
                else:
                    start, end = self.before(self.tokens[first][1]), self.tokens[last][2]
                    key = start, end, self.text[start:end], bytes(self.shown[start:end])
                    if key not in self._known:
                        self._known[key] = self.classified(first, last, body)
                    yield self._known[key]
            first = last + 1

    def declaration(
        self,
        first: int,
        last: int,
        verdict: DeviceSide = "unclear",
        what: str = "a statement that is not a declaration by itself",
        **more: Any,
    ) -> ParsedDeclaration:
        """Return the declaration of some tokens and the annotations before them."""
        start = self.before(self.tokens[first][1])
        end = self.tokens[min(last, len(self.tokens) - 1)][2]
        text = self.text[start:end]
        for method in more.get("methods", ()):
            begin, behind = method.start - start, method.end - start
            text = text[:begin] + " " * (behind - begin) + text[behind:]
        return ParsedDeclaration(verdict=verdict, what=what, start=start, end=end, text=text, **more)

    def before(self, position: int) -> int:
        """Return where the annotations begin that are before a position."""
        while position in self._annotated:
            position = self._annotated[position]
        return position

    def _is_after_unknown(self, first: int) -> bool:
        """Return whether a statement begins with the call of a macro that nothing here defines."""
        if self.at(first) in self.macros or not WORD.fullmatch(self.at(first)) or self.at(first + 1) != "(":
            return False
        last = self.close(first + 1)
        after = self.at(last + 1)
        is_ended = last < len(self.tokens) and after in ("", "}")
        return is_ended or (bool(WORD.fullmatch(after)) and after not in ("const", "noexcept", "try"))

    def extent(self, first: int) -> tuple[int, int | None]:
        """Return the last token of a statement, and the brace that opens its body or scope, if any."""
        has_call = has_value = in_list = is_type = in_bases = False
        index = first
        while index < len(self.tokens):
            token, before = self.at(index), self.at(index - 1)
            if token == ";":
                return index, None
            if token == "{":
                is_member_value = in_list and WORD.fullmatch(before)  # `: member{1}`
                if not is_member_value and ((has_call and not has_value) or self.opens_scope(first, index)):
                    close = self.close(index)
                    while self.at(close + 1) == "catch" and self.at(close + 2) == "(":
                        close = self.close(self.close(close + 2) + 1)
                    return close, index
            is_type = is_type or token in ("struct", "class", "union")
            # of a type's arguments, `<R (*)(A...)>`, a bracket is no call
            if token in "([{" or (token == "<" and (is_type or before == "template")):
                has_call = has_call or (token == "(" and not in_bases)
                index = self.close(index)
            elif token == "=":
                has_value = has_value or "operator" not in [self.at(index - i) for i in (1, 2, 3)]
            elif token == ":":
                in_list, in_bases = has_call, is_type and not has_call
            index += 1
        return len(self.tokens), None

    def opens_scope(self, first: int, brace: int) -> bool:
        words = [self.at(i) for i in range(first, min(brace, first + 2))]
        return "namespace" in words or words == ["extern"]

    def _is_macro_call(self, first: int) -> bool:
        """Return whether a statement is the call of a macro that makes declarations."""
        word, is_called = self.at(first), self.at(first + 1) == "("
        if word not in self.macros:
            return is_called and bool(HOST_MACROS.fullmatch(word))
        if self.macros[word].called and not is_called:
            return False
        return any(set(made) & set("{};") or _HOSTS_CALL.match(made) for made in self._expansions(first))

    def _expansions(self, first: int) -> tuple[str, ...]:
        """Return what the call of a macro becomes, by each of its definitions."""
        last = self.close(first + 1) if self.at(first + 1) == "(" else first
        end = self.tokens[min(last, len(self.tokens) - 1)][2]
        return expansions(without_comments(self.source[self.tokens[first][1] : end]), self.macros)

    def _made(self, first: int, last: int) -> ParsedDeclaration:
        """Return what the call of a macro makes; without an annotation in it the compiler decides.

        It is unclear if it makes both host and device code, but not if types stand beside host code, such as
        one whose constructor registers a function.
        """
        word, verdicts, made = self.at(first), {"host"}, ""
        if word in self.macros:
            others = {name: macro for name, macro in self.macros.items() if name != word}
            texts = self._expansions(first)
            parsed = [parse_declarations(text, others) for text in texts]
            scopes = ("a bracket", "the head of a scope")
            verdicts = {each.verdict for made in parsed for each in made if each.what not in scopes}
            made = _device_part(texts[0], parsed[0]) if len(texts) == 1 else ""
        if made and verdicts >= {"device", "host"}:
            one = self.declaration(first, last, "device", f"what the macro {word} makes", made=made)
            return replace(one, text=code_only(made))
        is_mixed = "unclear" in verdicts or verdicts >= {"device", "host"}
        words = self.words(self.tokens[first][1], self.tokens[min(last, len(self.tokens) - 1)][2])
        is_guessed = not words & DEVICE_WORDS
        verdict: DeviceSide = "unclear" if is_mixed else "host" if "host" in verdicts else "device"
        if (is_mixed and is_guessed) or (not is_mixed and verdicts >= {"host", "shared"}):
            return self.declaration(
                first, last, "device", f"what the macro {word} makes", is_guessed=is_guessed
            )
        return self.declaration(first, last, verdict, f"what the macro {word} makes")

    def classified(self, first: int, last: int, body: int | None) -> ParsedDeclaration:
        """Classify a statement by the parser's tree; `body` is the brace that opens its body, if any."""
        import tree_sitter

        word, start, end = self.at(first), self.tokens[first][1], self.tokens[last][2]
        head_end = end
        if body is not None:
            head_end = self.tokens[body][1]
            for token, begins, ends in self.tokens[first:body]:
                if token == "try":
                    self._blank(begins, ends)
            self._blank(head_end + 1, end - 1)
        words = self.words(self.before(start), head_end)
        stretch = tree_sitter.Range((0, start), (0, end), start, end)
        parser = tree_sitter.Parser(_language(), included_ranges=[stretch])
        children = [child for child in parser.parse(self.shown).root_node.children if child.type != ";"]
        fields = self._classify(children[0], words) if len(children) == 1 else {}
        if not fields and words & DEVICE_WORDS:
            fields = {"verdict": "device", "what": "an annotated declaration"}
        if not fields and word in self.macros:
            return self._made(first, last)
        return self.declaration(first, last, **(fields or self._by_tokens(first, last, body)))

    def _by_tokens(self, first: int, last: int, body: int | None) -> dict[str, Any]:
        """Return the fields of a statement without annotations that the parser does not understand."""
        end = last if body is None else body
        while self.at(first) == "template" and self.at(first + 1) == "<":
            first = self.close(first + 1) + 1
        head = [self.at(i) for i in range(first, end)]
        if head[:1] == ["template"] or head[:2] == ["extern", "template"]:
            return {"verdict": "host", "what": "an explicit instantiation"}
        is_defaulted = head[-2:] == ["=", "default"]  # outside of its class; the parser sees an assignment
        if is_defaulted or (body is not None and "constexpr" not in head):
            return {"verdict": "host", "what": "a function without __device__"}
        if head and (head[0] in _TYPE_WORDS or "constexpr" in head or "const" in head):
            return {"verdict": "device", "what": "a declaration", "is_guessed": True}
        return {"is_guessed": bool(head) and bool(WORD.fullmatch(head[0])) and head[1:2] == ["("]}

    def _classify(self, whole: Node, words: frozenset[str]) -> dict[str, Any]:
        """Return the fields of a declaration by its node and the words of its head; none where unclear."""
        node = _inner(whole)
        kind = "function" if _declares_function(node) else _KINDS.get(node.type, "")
        if whole.type == "ERROR" or not kind or (kind != "type" and _is_broken(whole)):
            return {}
        fields: dict[str, Any] = {"name": _name(node), "names": _declared(node), "types": _types(node)}
        if kind == "type":
            return fields | self._type(node, words)
        if kind == "using":
            return fields | _using(node)
        if kind == "static_assert":
            return fields | {"verdict": "shared", "what": "a static_assert"}
        is_for_both = kind == "function" and "__host__" in words
        head = self.text[whole.start_byte : _body_of(whole)] if is_for_both else ""
        if words & DEVICE_WORDS and not _HOSTS_TYPE.search(head):
            start = _inner(whole).start_byte
            both = kind == "variable" and "__host__" in self.words(self.before(start), start)
            of_both = (self.before(start), start) if both else None
            return fields | {"verdict": "device", "what": f"a {kind}", "of_both": of_both}
        if kind == "function":
            more = self._function(whole, words)
            return fields | more if more else {}
        if words & _CONSTEXPR or _is_constant(node):
            return fields | {"verdict": "shared", "what": "a constant"}
        return fields | {"verdict": "host", "what": "a variable without __device__ or const"}

    def _function(self, whole: Node, words: frozenset[str]) -> dict[str, Any]:
        node = _inner(whole)
        if _is_untyped(node) and not words & {"operator", "main"}:
            return {}
        if words & _CONSTEXPR and "__host__" not in words:
            marks = (self.before(node.start_byte),)
            return {"verdict": "shared", "what": "a constexpr function", "marks": marks}
        head = {} if node.type == "template_instantiation" else self._head(whole, words, "")
        return {"verdict": "host", "what": "a function without __device__", **head}

    def _type(self, node: Node, words: frozenset[str]) -> dict[str, Any]:
        methods, marks, annotated = [], set(), []
        for member, owner in _member_functions(node):
            body = next((part for part in _walk(member) if part.type == "compound_statement"), None)
            end = body.start_byte if body is not None else member.end_byte
            # the parser takes a macro before a member for an error, and not as a part of it
            begin = max(self.text.rfind(mark, node.start_byte, member.start_byte) for mark in "{;}") + 1
            start = self.before(member.start_byte)
            own = self.words(min(begin, start), end)
            is_defaulted = any(each.type in _CHOSEN for each in _walk(member))
            if own & DEVICE_WORDS:
                annotated.append((start, member.end_byte))
            if own & DEVICE_WORDS or (is_defaulted and "virtual" not in own):
                continue
            is_constexpr = own & _CONSTEXPR and not _HOSTS_TYPE.search(self.text[start : member.end_byte])
            if is_defaulted or (is_constexpr and "__host__" not in own):
                marks.add(self.before(_inner(member).start_byte))
                continue
            text, name = self.text[start : member.end_byte], _name(_inner(member))
            fields = self._head(member, own, owner)
            methods.append(
                ParsedDeclaration(
                    verdict="host",
                    what=MEMBER,
                    start=start,
                    end=member.end_byte,
                    text=text,
                    name=name,
                    **fields,
                )
            )
        removed = [(method.start, method.end) for method in methods]
        return {
            "verdict": "device" if words & DEVICE_WORDS else "shared", "what": "a type",
            "members": frozenset(
                name for each in _walk(node, past="compound_statement")
                if each.type in _INSIDE and each != node for name in _declared(each)
            ),
            "is_forward": node.child_by_field_name("body") is None,
            "annotated": tuple(annotated),
            "methods": tuple(methods), "marks": tuple(sorted(marks)), "types": _types(node, removed),
        }  # fmt: skip

    def _head(self, whole: Node, words: frozenset[str], owner: str) -> dict[str, Any]:
        """Return the fields of a host function's head; `owner` is the type that it is a member of."""
        node, body = _inner(whole), _body_of(whole)
        name = _name(node)
        inside = [each for each in _walk(node) if each.start_byte < body]
        defaults = [each.child_by_field_name("default_value") for each in inside if each.end_byte <= body]
        named = {_text(each) for one in defaults if one for each in _walk(one) if each.type in _NAMES}
        is_virtual = not words.isdisjoint(_VIRTUAL)
        is_implicit = is_virtual or (bool(owner) and name == owner)
        declarators = [
            each.child_by_field_name("declarator")
            for each in _walk(node, past="compound_statement") if each.type == "function_declarator"
        ]  # fmt: skip
        return {
            "head": self.text[self.before(whole.start_byte) : body], "mark": self.before(node.start_byte),
            "needs": (_types(whole, [(body, whole.end_byte)]) | named) - {owner, name} - _parameters(whole),
            "is_special": is_implicit or any(each.type in _OPERATORS for each in inside),
            "is_implicit": is_implicit, "is_inline": is_virtual or "inline" in words,
            "is_own": not any(each and each.type == "qualified_identifier" for each in declarators),
        }  # fmt: skip


def _is_annotation(word: str, macros: Macros, within: frozenset[str] = frozenset()) -> bool:
    """Return whether a word is an annotation, or a macro of such: `#define HD __host__ __device__`.

    Args:
        within: The macros that the word comes from, which are not expanded again.
    """
    if word in _SPECIFIERS or word not in macros or word in within:
        return word in _SPECIFIERS
    for value in macros[word].values:
        outside, changes = value.replace('"C"', " "), 1
        while changes:
            outside, changes = _INNERMOST_BRACKETS.subn(" ", outside)
        words = outside.split()
        is_expression = bool(value) and not words  # `(check(x, __LINE__))`
        if is_expression or not all(_is_annotation(each, macros, within | {word}) for each in words):
            return False
    return True


@functools.cache
def _language() -> Language:
    """Return the grammar, imported where it is first needed: a file without host code does without."""
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Language(tree_sitter_cuda.language())


def _body_of(function: Node) -> int:
    """Return where the body of a function begins, or the function ends."""
    bodies = (part.start_byte for part in _inner(function).children if part.type in _BODIES)
    return next(bodies, function.end_byte)


def _is_untyped(node: Node) -> bool:
    """Return whether a definition may be the call of a macro, `TEST(a, b) { ... }`."""
    if node.type != "function_definition" or node.child_by_field_name("type") is not None:
        return False
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return name is None or name.type == "identifier"


def _is_constant(node: Node) -> bool:
    """Return whether the variables themselves are const, of `const char* p` not `p`, and need no call."""
    if not _has_const(node):
        return False
    for each in node.children_by_field_name("declarator"):
        declarator = _innermost(each, ("init_declarator", "array_declarator"))
        is_name = declarator is not None and declarator.type in ("identifier", "qualified_identifier")
        is_pointer = declarator is not None and declarator.type == "pointer_declarator"
        if not (is_name or (is_pointer and _has_const(declarator))):
            return False
    # a device compiler computes no value by a call before the start
    calls = [each for each in _walk(node) if each.type in ("lambda_expression", "call_expression")]
    return all(_text(each.children[0]).split("::")[0] in ("sizeof", "dim3") for each in calls)


def _has_const(node: Node | None) -> bool:
    return node is not None and any(
        child.type == "type_qualifier" and _text(child) == "const" for child in node.children
    )


def _using(node: Node) -> dict[str, Any]:
    """Return the fields of a `using` or an alias of a namespace; a `using namespace` has no name."""
    identifiers = [_text(each) for each in _walk(node) if each.type in _NAMES]
    is_alias = node.type == "namespace_alias_definition"
    is_namespace = not is_alias and any(child.type == "namespace" for child in node.children)
    name = identifiers[0] if is_alias else "" if is_namespace else identifiers[-1]
    what = "a using of a namespace" if is_namespace else "a using"
    return {"verdict": "shared", "what": what, "name": name, "types": frozenset(identifiers) - {name}}


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
    for each in node.children_by_field_name("declarator"):
        declarator = _innermost(each, _POINTERS[:2])
        if declarator is not None and declarator.type == "function_declarator":
            name = declarator.child_by_field_name("declarator")
            if name is not None and name.type != "parenthesized_declarator":
                return True
    return False


def _innermost(node: Node | None, around: tuple[str, ...]) -> Node | None:
    """Return the declarator inside of others of some kinds."""
    while node is not None and node.type in around:
        node = _declared_in(node)
    return node


def _declared_in(node: Node) -> Node | None:
    """Return the name or declarator in a declarator; the grammar names it not in each."""
    inside = node.child_by_field_name("name") or node.child_by_field_name("declarator")
    if inside is None and node.type in _POINTERS and node.named_children:
        return node.named_children[-1]
    return inside


def _name(node: Node) -> str:
    """Return the name that a node declares, without its scopes; the first of several."""
    inside = _declared_in(node)
    while inside is not None and inside.type not in _NAMES:
        inside = _declared_in(inside)
    return _text(inside) if inside is not None else ""


def _declared(node: Node) -> frozenset[str]:
    """Return all names that a declaration declares in the scope that it is in."""
    names = {_name(node), *(_name(each) for each in node.children_by_field_name("declarator"))}
    is_scoped = any(child.type in ("class", "struct") for child in node.children)
    if node.type == "enum_specifier" and not is_scoped:
        names |= {_name(each) for each in _walk(node) if each.type == "enumerator"}
    return frozenset(names - {""})


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


def _parameters(node: Node) -> frozenset[str]:
    """Return all template parameters of the statement that a node is in."""
    while node.parent is not None:
        node = node.parent
    return _parameters_below(node)


@functools.lru_cache(maxsize=1)  # a class asks for each of its methods
def _parameters_below(root: Node) -> frozenset[str]:
    lists = (each for each in _walk(root) if each.type == "template_parameter_list")
    return frozenset(_text(each) for one in lists for each in _walk(one) if each.type in _NAMES)


def _text(node: Node) -> str:
    return node.text.decode() if node.text is not None else ""

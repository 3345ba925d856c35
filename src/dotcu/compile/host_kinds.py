"""What each kind of declaration is to a device compiler: a table by the kinds of the parser's tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dotcu.compile.host_code import DEVICE_WORDS
from dotcu.compile.host_items import NO_DECLARATION, Cut, Told, Verdict, parse

if TYPE_CHECKING:
    from tree_sitter import Node

Head = Callable[[int, int], frozenset[str]]
"""The words of a stretch of the statement, annotations and what macros stand for among them."""


CONSTEXPR = frozenset({"constexpr", "consteval"})
UNCLEAR = Told(verdict="unclear", what=NO_DECLARATION)
TYPES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")

# Kinds of declarations, what they are called in a message, and why they are told as they are.
KINDS: dict[str, tuple[str, str]] = {
    "function_definition": ("function", "by its annotation: NVRTC takes none without"),
    "declaration": ("variable", "by its annotation; a constant may be shared; a function, as above"),
    "template_instantiation": ("function", "by its annotation"),
    **dict.fromkeys(TYPES, ("type", "device code may need it; its member functions are told one by one")),
    "type_definition": ("type", "device code may need it"),
    "alias_declaration": ("type", "device code may need it"),
    "using_declaration": ("name", "device code may need it, unless it is of a host's namespace"),
    "namespace_alias_definition": ("name", "device code may need it, unless it is of a host's namespace"),
    "static_assert_declaration": ("static_assert", "it costs nothing and may guard device code"),
    "concept_definition": ("type", "device code may need it"),
}
WRAPPERS = ("template_declaration", "linkage_specification", "declaration_list", "friend_declaration")
_BODIES = ("field_initializer_list", "compound_statement", "try_statement")
_NAMES = ("type_identifier", "identifier", "field_identifier", "operator_name", "destructor_name",
          "namespace_identifier")  # fmt: skip


def tell(text: str, words: frozenset[str], head: Head) -> Told:
    """Tell what a statement is.

    Args:
        text: The statement without comments, annotations and the inside of a function's body.
        words: Those of its head, annotations among them.
        head: The same of any stretch of it.
    """
    node = _only(parse(text))
    if node is None:
        return Told(verdict="device", what="an annotated declaration") if words & DEVICE_WORDS else UNCLEAR
    outer, node = node, _inner(node)
    kind = KINDS.get(node.type, ("", ""))[0]
    if node.type == "declaration" and _function(node) is not None:
        kind = "function"
    if _is_broken(outer) and kind != "type":
        return Told(verdict="device", what="an annotated declaration") if words & DEVICE_WORDS else UNCLEAR
    told = {
        "function": _function_told, "variable": _variable_told, "type": _type_told, "name": _using_told,
    }.get(kind)  # fmt: skip
    if told is not None:
        return replace(told(node, words, head), names=_declared(node))
    if kind:
        return Told(
            verdict="shared", what=f"a {kind}", name=_name(node), names=_declared(node), types=_types(node)
        )
    return UNCLEAR


def _only(root: Node) -> Node | None:
    """The one declaration that a text is; None where it is none, or several."""
    children = [child for child in root.children if child.type != ";"]
    return children[0] if len(children) == 1 and children[0].type != "ERROR" else None


def _inner(node: Node) -> Node:
    while node.type in WRAPPERS:
        inside = [child for child in node.named_children if child.type in KINDS or child.type in WRAPPERS]
        if not inside:
            break
        node = inside[-1]
    return node


def _is_broken(node: Node) -> bool:
    """Whether the parser stumbled outside of a function's body and of a variable's value."""
    if not node.has_error or node.type == "compound_statement":
        return False
    if node.type == "init_declarator":
        declarator = node.child_by_field_name("declarator")
        return declarator is None or _is_broken(declarator)
    return node.is_error or node.is_missing or any(map(_is_broken, node.children))


def _function(node: Node) -> Node | None:
    """The part of a declaration that makes it a function's, not a variable's that points to one."""
    for declarator in node.children_by_field_name("declarator"):
        inner: Node | None = declarator
        while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
            inner = inner.child_by_field_name("declarator") or (
                inner.named_children[-1] if inner.named_children else None
            )
        if inner is None or inner.type != "function_declarator":
            continue
        name = inner.child_by_field_name("declarator")
        if name is not None and name.type != "parenthesized_declarator":
            return inner
    return None


def _function_told(node: Node, words: frozenset[str], head: Head) -> Told:
    name, what = _name(node), "a function without __device__"
    if words & DEVICE_WORDS:
        return Told(verdict="device", what="a function", name=name, types=_types(node))
    if _is_untyped(node) and not words & {"operator", "main"}:
        return UNCLEAR
    if words & CONSTEXPR and "__host__" not in words:
        return Told(
            verdict="shared",
            what="a constexpr function",
            name=name,
            types=_types(node),
            marks=(node.start_byte,),
        )
    cut = _cut(_outermost(node), node, words, "") if node.type != "template_instantiation" else None
    return Told(verdict="host", what=what, name=name, types=_types(node), head=cut)


def _is_untyped(node: Node) -> bool:
    """Whether a definition may be the call of a macro, `TEST(a, b) { ... }`."""
    if node.type != "function_definition" or node.child_by_field_name("type") is not None:
        return False
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return name is None or name.type == "identifier"


def _variable_told(node: Node, words: frozenset[str], head: Head) -> Told:
    name, types = _name(node), _types(node)
    if words & DEVICE_WORDS:
        return Told(verdict="device", what="a variable", name=name, types=types)
    if words & CONSTEXPR or _is_constant(node):
        return Told(verdict="shared", what="a constant", name=name, types=types)
    return Told(verdict="host", what="a variable without __device__ or const", name=name, types=types)


def _is_constant(node: Node) -> bool:
    """Whether what a declaration declares is itself const: of `const char* p`, `p` is not."""
    qualifiers = [child for child in node.children if child.type == "type_qualifier"]
    if not any(_text(child) == "const" for child in qualifiers):
        return False
    declarators = node.children_by_field_name("declarator")
    return all(_is_fixed(declarator) for declarator in declarators) and not _calls(node)


def _is_fixed(declarator: Node) -> bool:
    while declarator.type in ("init_declarator", "array_declarator"):
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            return False
        declarator = inner
    if declarator.type == "pointer_declarator":
        return any(
            child.type == "type_qualifier" and _text(child) == "const" for child in declarator.children
        )
    return declarator.type in ("identifier", "qualified_identifier")


def _calls(node: Node) -> bool:
    """Whether a value is computed by a call, which a device compiler does not do before the start."""
    return any(
        each.type == "lambda_expression"
        or (
            each.type == "call_expression"
            and _text(each.children[0]).split("::")[0] not in ("sizeof", "dim3")
        )
        for each in _all(node)
    )


def _type_told(node: Node, words: frozenset[str], head: Head) -> Told:
    cuts, marks = [], []
    for member, owner in _members(node):
        start, end = member.start_byte, member.end_byte
        body = next((part for part in _all(member) if part.type == "compound_statement"), None)
        own = head(start, body.start_byte if body is not None else end) | _before(member, head)
        is_defaulted = _is_defaulted(member)
        if own & DEVICE_WORDS or (is_defaulted and "virtual" not in own):
            continue
        if is_defaulted or (own & CONSTEXPR and "__host__" not in own):
            marks.append(_inner(member).start_byte)
        else:
            cuts.append(_cut(member, _inner(member), own, owner))
    outside = sorted(set(marks))
    verdict: Verdict = "device" if words & DEVICE_WORDS else "shared"
    return Told(
        verdict=verdict, what="a type", name=_name(node),
        types=_types(node, [(cut.start, cut.end) for cut in cuts]),
        members=_inside(node), is_forward=node.child_by_field_name("body") is None,
        cuts=tuple(cuts), marks=tuple(outside),
    )  # fmt: skip


def _using_told(node: Node, words: frozenset[str], head: Head) -> Told:
    """A `using` or an alias of a namespace: that of a namespace as a whole has no name."""
    identifiers = [_text(each) for each in _all(node) if each.type in _NAMES]
    whole = any(child.type == "namespace" for child in node.children)
    is_alias = node.type == "namespace_alias_definition"
    name = identifiers[0] if is_alias else "" if whole else identifiers[-1]
    types = frozenset(identifiers) - {name}
    return Told(
        verdict="shared", what="a using of a namespace" if whole and not is_alias else "a using",
        name=name, types=types,
    )  # fmt: skip


def _before(member: Node, head: Head) -> frozenset[str]:
    """The annotations between the member before and this one, which the parser does not see."""
    before = member.prev_sibling
    return head(before.end_byte, member.start_byte) if before is not None else frozenset()


def _is_defaulted(member: Node) -> bool:
    return any(each.type in ("default_method_clause", "delete_method_clause") for each in _all(member))


def _cut(whole: Node, node: Node, words: frozenset[str], owner: str) -> Cut:
    """A function for the host.

    Args:
        whole: With the `template <...>` in front.
        node: Without.
        owner: The type that it is a member of.
    """
    body = next((part for part in node.children if part.type in _BODIES), None)
    end = body.start_byte if body is not None else whole.end_byte
    defaults = [each.child_by_field_name("default_value") for each in _all(node) if each.end_byte <= end]
    named = {
        _text(each)
        for default in defaults if default is not None
        for each in _all(default) if each.type in _NAMES
    }  # fmt: skip
    name = _name(node)
    is_operator = any(each.type in ("operator_name", "operator_cast", "destructor_name")
                      for each in _all(node) if each.start_byte < end)  # fmt: skip
    is_constructor = bool(owner) and name == owner
    is_virtual = bool(words & {"virtual", "override", "final"})
    return Cut(
        start=whole.start_byte, end=whole.end_byte, mark=node.start_byte, body=end, name=name,
        needs=(_types(whole, [(end, whole.end_byte)]) | named) - {owner, name} - _parameters(whole),
        is_special=is_operator or is_virtual or is_constructor, is_constructor=is_constructor,
        is_virtual=is_virtual, is_inline="inline" in words, is_own=not _is_qualified(node),
    )  # fmt: skip


def _outermost(node: Node) -> Node:
    """The whole declaration that a node is a part of."""
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
    return node


def _is_qualified(node: Node) -> bool:
    """Whether a function's name has its scope with it, `A::f`."""
    return any(each.type == "function_declarator" and
               (each.child_by_field_name("declarator") or each).type == "qualified_identifier"
               for each in _all(node, past="compound_statement"))  # fmt: skip


def _declared(node: Node) -> frozenset[str]:
    """All names that a declaration declares in the scope that it stands in."""
    names = {_name(each) for each in node.children_by_field_name("declarator")}
    is_scoped = any(child.type in ("class", "struct") for child in node.children)
    if node.type == "enum_specifier" and not is_scoped:
        names |= {_name(each) for each in _all(node) if each.type == "enumerator"}
    return frozenset({_name(node), *names} - {""})


def _inside(node: Node) -> frozenset[str]:
    """The names that a type's own declarations declare inside of it."""
    kinds = ("field_declaration", "enumerator", "alias_declaration", "type_definition", *TYPES,
             "function_definition", "declaration")  # fmt: skip
    inner = (each for each in _all(node, past="compound_statement") if each.type in kinds and each != node)
    return frozenset(name for each in inner for name in _declared(each))


def _members(node: Node) -> Iterator[tuple[Node, str]]:
    """The member functions of a type and of the types in it, templates as a whole, and whose they are."""
    for each in _all(node, past="compound_statement"):
        if each.type != "field_declaration_list":
            continue
        for member in each.children:
            inner = _inner(member)
            if inner.type == "function_definition" or _declares_function(inner):
                yield member, _name(each.parent) if each.parent is not None else ""


def _declares_function(node: Node) -> bool:
    if node.type not in ("declaration", "field_declaration"):
        return False
    return _function(node) is not None


def _all(node: Node, *, past: str = "") -> Iterator[Node]:
    """A node and all below it, in order, but for what is below nodes of one kind."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if each.type != past:
            waiting.extend(reversed(each.children))


def _types(node: Node, cuts: list[tuple[int, int]] | None = None) -> frozenset[str]:
    """Names of types and namespaces that a node mentions, without those of its own template parameters."""
    names = set()
    for each in _all(node):
        is_cut = any(start <= each.start_byte < end for start, end in cuts or ())
        if each.type in ("type_identifier", "namespace_identifier") and not is_cut and not _is_inner(each):
            names.add(_text(each))
    return frozenset(names - _parameters(node))


def _is_inner(name: Node) -> bool:
    """Whether a name is looked up in a scope: `b` of `a::b`."""
    inner, outer = name, name.parent
    if outer is not None and outer.type == "template_type":
        inner, outer = outer, outer.parent
    if outer is None or outer.type != "qualified_identifier":
        return False
    return outer.child_by_field_name("name") == inner


def _parameters(node: Node) -> set[str]:
    """The template parameters that a node stands under, or has in it."""
    lists = [each for each in _all(node) if each.type == "template_parameter_list"]
    above = node.parent
    while above is not None:
        lists += [each for each in above.children if each.type == "template_parameter_list"]
        above = above.parent
    return {_text(each) for one in lists for each in _all(one) if each.type in _NAMES}


def _name(node: Node) -> str:
    """What a node declares, without its scopes; the first of several."""
    inner: Node | None = node.child_by_field_name("name")
    if inner is None:
        inner = node.child_by_field_name("declarator")
    while inner is not None and inner.type not in _NAMES:
        following = inner.child_by_field_name("name") or inner.child_by_field_name("declarator")
        if following is None and inner.type in ("reference_declarator", "parenthesized_declarator"):
            following = inner.named_children[-1] if inner.named_children else None
        inner = following
    return _text(inner) if inner is not None else ""


def _text(node: Node) -> str:
    return node.text.decode() if node.text is not None else ""

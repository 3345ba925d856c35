"""The top level of a PTX file: headers of functions, module variables, file names.

Bodies are only located: a file may hold many kernels of which one is launched. Each is read when it is
first asked for.

Source: PTX ISA, "Directives" (chapter 11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dotcu.errors import SimulationError
from dotcu.ptx.instructions import Body, Header, Variable
from dotcu.ptx.tokens import Tokens, braces, malformed, tokenize

_LINKAGE = {".extern", ".visible", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param", ".managed"}


@dataclass(frozen=True, kw_only=True)
class Param:
    """A kernel's parameter as PTX declares it; a struct is an array of b8."""

    name: str
    size: int
    align: int
    ptx_type: str


@dataclass(frozen=True, kw_only=True)
class EntryHeader:
    """A kernel's parameters and limits.

    Attributes:
        params: In order.
        max_threads: .maxntid in x, y, z; empty if none is given.
        required_threads: .reqntid in x, y, z; empty if none is given.
        cluster: .reqnctapercluster in x, y, z; empty if none is given.
    """

    name: str
    params: tuple[Param, ...]
    max_threads: tuple[int, ...]
    required_threads: tuple[int, ...]
    cluster: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The top level of a file.

    Attributes:
        headers: Functions by name; an extern one has a header and no body.
        bodies: Where the body of each function stands in the text.
    """

    text: str
    version: str
    target: str
    headers: Mapping[str, Header]
    bodies: Mapping[str, tuple[int, int]]
    variables: Mapping[str, Variable]
    files: Mapping[int, str]
    _bodies: dict[str, Body] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def entries(self) -> Mapping[str, EntryHeader]:
        """The kernels that have a body, by name."""
        return {
            name: EntryHeader(
                name=name,
                params=tuple(map(_param, header.params)),
                max_threads=header.max_threads,
                required_threads=header.required_threads,
                cluster=header.cluster,
            )
            for name, header in self.headers.items()
            if header.is_entry and name in self.bodies
        }

    @cached_property
    def module_variables(self) -> dict[str, Variable]:
        """The variables that a loaded module holds, by name: all but those in shared memory."""
        return {name: v for name, v in self.variables.items() if v.space != "shared"}

    def body(self, name: str) -> Body:
        """Parse the body of a function, or give it as it was parsed before."""
        from dotcu.ptx.parser import parse_body

        found = self._bodies.get(name)
        if found is None:
            header = self.headers[name]
            params = (*header.params, *header.returns)
            found = self._bodies[name] = parse_body(self.text, self.bodies[name], params)
        return found

    def static_smem_bytes(self, name: str) -> int:
        """The shared memory that the body of a function declares."""
        end = 0
        for variable in self.body(name).variables.values():
            if variable.space == "shared" and not variable.extern:
                end = -(-end // variable.align) * variable.align + variable.size
        return end


@dataclass
class _Draft:
    version: str = ""
    target: str = ""
    headers: dict[str, Header] = field(default_factory=dict)
    bodies: dict[str, tuple[int, int]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)


def outline(text: str) -> Outline:
    """Read the top level of a PTX file.

    Raises:
        SimulationError: The text is not PTX, or not well formed.
    """
    draft = _Draft()
    position = 0
    words: list[str] = []
    places: list[int] = []

    def read(start: int, end: int) -> None:
        more, spots = tokenize(text, start, end)
        words.extend(more)
        places.extend(spots)

    for opened, closed in braces(text):
        read(position, opened)
        if words and words[-1] == "=":  # an initialiser: not a body, but part of a directive
            read(opened, closed + 1)
        else:
            _statements(Tokens(text, words, places), draft, (opened + 1, closed))
            words, places = [], []
        position = closed + 1
    read(position, len(text))
    _statements(Tokens(text, words, places), draft, None)
    if not draft.version:
        raise malformed(text, 0, "no .version directive")
    return Outline(text=text, **vars(draft))


def _statements(tokens: Tokens, draft: _Draft, body: tuple[int, int] | None) -> None:
    while tokens.more():
        word = tokens.take()
        directive = _DIRECTIVES.get(word)
        if directive is not None:
            directive(tokens, draft)
        else:
            _declaration(word, tokens, draft, body)


def _version(tokens: Tokens, draft: _Draft) -> None:
    draft.version = tokens.take()


def _target(tokens: Tokens, draft: _Draft) -> None:
    draft.target = tokens.take()
    _skip_list(tokens)


def _file(tokens: Tokens, draft: _Draft) -> None:
    number = tokens.integer()
    draft.files[number] = tokens.take().strip('"')
    _skip_list(tokens)


def _skip_list(tokens: Tokens) -> None:
    while tokens.skip(","):
        tokens.take()


_DIRECTIVES: Mapping[str, Callable[[Tokens, _Draft], object]] = {
    ".version": _version,
    ".target": _target,
    ".address_size": lambda tokens, draft: tokens.take(),
    ".file": _file,
    ".section": lambda tokens, draft: tokens.drain(),
    ".alias": lambda tokens, draft: tokens.until(";"),
    ".pragma": lambda tokens, draft: tokens.until(";"),
    ";": lambda tokens, draft: None,
}


def _declaration(word: str, tokens: Tokens, draft: _Draft, body: tuple[int, int] | None) -> None:
    linkage = ""
    while word in _LINKAGE:
        linkage, word = word, tokens.take()
    if word in (".entry", ".func"):
        header = _header(word == ".entry", tokens)
        draft.headers[header.name] = header
        if not tokens.more() and body is not None:
            draft.bodies[header.name] = body
        return
    if word not in _SPACES:
        raise tokens.error(f"the unknown directive {word!r}")
    for variable in tokens.variables(word[1:], extern=linkage == ".extern"):
        draft.variables[variable.name] = variable


def _header(is_entry: bool, tokens: Tokens) -> Header:
    returns: tuple[Variable, ...] = ()
    while tokens.peek().startswith(".") and tokens.peek() != ".param":
        tokens.take()  # .noreturn
    if tokens.peek() == "(":
        returns = _parameters(tokens)
    name = tokens.take()
    params = _parameters(tokens) if tokens.peek() == "(" else ()
    limits: dict[str, tuple[int, ...]] = {}
    while tokens.more() and tokens.peek() != ";":
        directive = tokens.take()
        if not directive.startswith("."):
            raise tokens.error(f"{directive!r} after the parameters of {name}")
        limits[directive] = tuple(_numbers(tokens))
    return Header(
        name=name,
        is_entry=is_entry,
        params=params,
        returns=returns,
        max_threads=limits.get(".maxntid", ()),
        required_threads=limits.get(".reqntid", ()),
        cluster=limits.get(".reqnctapercluster", ()),
    )


def _numbers(tokens: Tokens) -> list[int]:
    found: list[int] = []
    while tokens.more() and (tokens.peek()[0].isdigit() or tokens.peek()[0] == '"'):
        if tokens.peek()[0] == '"':
            tokens.take()
        else:
            found.append(tokens.integer())
        tokens.skip(",")
    return found


def _parameters(tokens: Tokens) -> tuple[Variable, ...]:
    tokens.expect("(")
    found: list[Variable] = []
    while not tokens.skip(")"):
        space = tokens.take()
        if space not in (".param", ".reg"):
            raise tokens.error(f"{space!r} where a .param belongs")
        found.append(tokens.variable("param"))
        tokens.skip(",")
    return tuple(found)


def entry_headers(ptx: str) -> Mapping[str, EntryHeader]:
    """The kernels of a PTX file by name, without reading their bodies.

    Raises:
        SimulationError: The text is not well-formed PTX.
    """
    return outline(ptx).entries


def _param(variable: Variable) -> Param:
    return Param(name=variable.name, size=variable.size, align=variable.align, ptx_type=variable.type)


def function_not_found(outlined: Outline, name: str) -> SimulationError:
    """The error for an entry that the file does not have."""
    entries = [h.name for h in outlined.headers.values() if h.is_entry and h.name in outlined.bodies]
    return SimulationError(
        f"The PTX has no kernel named {name!r}; it has: {', '.join(entries) or 'none'}.\n"
        "Name one of these, by its mangled name."
    )

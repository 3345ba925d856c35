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
from dotcu.ptx.instructions import FunctionBody, FunctionHeader, Variable
from dotcu.ptx.lexer import Tokens, braces, malformed, tokenize

_LINKAGE = {".extern", ".visible", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param", ".managed"}


@dataclass(kw_only=True)
class PtxModule:
    """The top level of a PTX file.

    Attributes:
        version: Of the PTX ISA, such as "9.0".
        target: The architecture, such as "sm_90a".
        is_debug: It was compiled for debugging: registers hold the source's variables.
        headers: Functions by name; an extern one has a header and no body.
        bodies: The first and last character of each function's body in the text.
        variables: Those declared outside of functions, by name.
        files: Names of the source files, by the number that `.loc` uses; that of the PTX itself as 0, if
            instructions without a source line have the line of the PTX.
    """

    text: str
    version: str = ""
    target: str = ""
    is_debug: bool = False
    headers: dict[str, FunctionHeader] = field(default_factory=dict)
    bodies: dict[str, tuple[int, int]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    _parsed: dict[str, FunctionBody] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def entries(self) -> Mapping[str, FunctionHeader]:
        """The kernels that have a body, by name."""
        return {n: header for n, header in self.headers.items() if header.is_entry and n in self.bodies}

    @cached_property
    def module_variables(self) -> dict[str, Variable]:
        """The variables that a loaded module holds, by name: all but those in shared memory."""
        return {name: v for name, v in self.variables.items() if v.space != "shared"}

    def entry(self, name: str) -> FunctionHeader:
        """Return the header of a kernel.

        Raises:
            SimulationError: There is none of that name.
        """
        if name not in self.entries:
            raise SimulationError(
                f"The PTX has no kernel named {name!r}; it has: {', '.join(self.entries) or 'none'}.\n"
                "Name one of these, by its mangled name."
            )
        return self.entries[name]

    def body(self, name: str) -> FunctionBody:
        """Return the body of a function, parsed when it is first asked for.

        Raises:
            SimulationError: The body is not well formed; names the line of PTX.
        """
        from dotcu.ptx.parser import parse_body

        if name not in self._parsed:
            header = self.headers[name]
            params = (*header.params, *header.returns)
            self._parsed[name] = parse_body(self.text, self.bodies[name], params, own_lines=0 in self.files)
        return self._parsed[name]

    def static_smem_bytes(self, name: str) -> int:
        """Return the bytes of shared memory that the body of a function declares."""
        end = 0
        for variable in self.body(name).variables.values():
            if variable.space == "shared" and not variable.extern:
                end = -(-end // variable.align) * variable.align + variable.size
        return end


def parse_module(text: str) -> PtxModule:
    """Read the top level of a PTX file.

    Raises:
        SimulationError: The text is not PTX, or not well formed.
    """
    module = PtxModule(text=text)
    position = 0
    words: list[str] = []
    places: list[int] = []
    for opened, closed in (*braces(text), (len(text), len(text))):
        more, spots = tokenize(text, position, opened)
        words += more
        places += spots
        position = closed + 1
        is_end = opened == len(text)
        if words[-1:] == ["="] and not is_end:  # an initialiser: not a body, but part of a directive
            more, spots = tokenize(text, opened, position)
            words += more
            places += spots
        else:
            _statements(Tokens(text, words, places), module, None if is_end else (opened + 1, closed))
            words, places = [], []
    if not module.version:
        raise malformed(text, 0, "no .version directive")
    return module


def _statements(tokens: Tokens, module: PtxModule, body: tuple[int, int] | None) -> None:
    while tokens.more():
        word = tokens.take()
        directive = _DIRECTIVES.get(word)
        if directive is not None:
            directive(tokens, module)
        else:
            _declaration(word, tokens, module, body)


def _version(tokens: Tokens, module: PtxModule) -> None:
    module.version = tokens.take()


def _target(tokens: Tokens, module: PtxModule) -> None:
    module.target = tokens.take()
    module.is_debug = "debug" in _list(tokens)


def _file(tokens: Tokens, module: PtxModule) -> None:
    number = tokens.integer()
    module.files[number] = tokens.take()[1:-1].replace('\\"', '"')
    _list(tokens)


def _list(tokens: Tokens) -> list[str]:
    """Take what follows after commas."""
    taken = []
    while tokens.skip(","):
        taken.append(tokens.take())
    return taken


_DIRECTIVES: Mapping[str, Callable[[Tokens, PtxModule], object]] = {
    ".version": _version,
    ".target": _target,
    ".address_size": lambda tokens, module: tokens.take(),
    ".file": _file,
    ".section": lambda tokens, module: tokens.drain(),
    ".alias": lambda tokens, module: tokens.until(";"),
    ".pragma": lambda tokens, module: tokens.until(";"),
    ";": lambda tokens, module: None,
}


def _declaration(word: str, tokens: Tokens, module: PtxModule, body: tuple[int, int] | None) -> None:
    linkage = ""
    while word in _LINKAGE:
        linkage, word = word, tokens.take()
    if word in (".entry", ".func"):
        header = _header(word == ".entry", tokens)
        module.headers[header.name] = header
        if not tokens.more() and body is not None:
            if header.name in module.bodies:
                raise tokens.error(f"a second body of {header.name!r}")
            module.bodies[header.name] = body
        return
    if word not in _SPACES:
        raise tokens.error(f"the unknown directive {word!r}")
    for variable in tokens.variables(word[1:], extern=linkage == ".extern"):
        module.variables[variable.name] = variable


def _header(is_entry: bool, tokens: Tokens) -> FunctionHeader:
    while tokens.peek().startswith(".") and tokens.peek() != ".param":
        tokens.take()  # .noreturn
    returns = _parameters(tokens)
    name = tokens.take()
    params = _parameters(tokens)
    limits: dict[str, tuple[int, ...]] = {}
    while tokens.more() and tokens.peek() != ";":
        directive = tokens.take()
        if not directive.startswith("."):
            raise tokens.error(f"{directive!r} after the parameters of {name}")
        numbers: list[int] = []
        while tokens.more() and (tokens.peek()[0].isdigit() or tokens.peek()[0] == '"'):
            if tokens.peek()[0] == '"':
                tokens.take()
            else:
                numbers.append(tokens.integer())
            tokens.skip(",")
        limits[directive] = tuple(numbers)
    return FunctionHeader(
        name=name,
        is_entry=is_entry,
        params=params,
        returns=returns,
        max_threads=limits.get(".maxntid", ()),
        required_threads=limits.get(".reqntid", ()),
        cluster=limits.get(".reqnctapercluster", ()),
        max_registers=next(iter(limits.get(".maxnreg", ())), 0),
        min_blocks=max(1, *limits.get(".minnctapersm", ()), 0),
    )


def _parameters(tokens: Tokens) -> tuple[Variable, ...]:
    parameters: list[Variable] = []
    if not tokens.skip("("):
        return ()
    while not tokens.skip(")"):
        space = tokens.take()
        if space not in (".param", ".reg"):
            raise tokens.error(f"{space!r} where a .param is expected")
        parameters.append(tokens.variable("param"))
        tokens.skip(",")
    return tuple(parameters)

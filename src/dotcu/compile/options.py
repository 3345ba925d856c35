"""How a source is compiled: what a user can ask for, and NVRTC's options for it as a table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from dotcu.compile.lexing import DEFINED
from dotcu.compile.target import Target
from dotcu.errors import UsageError

Define = str | int | None


class FrozenMap(Mapping[str, Define]):
    """A mapping that can be hashed: the macros of a `CompileOptions`."""

    def __init__(self, items: Mapping[str, Define]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Define:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


_DEFAULT_DEVICE = ("-default-device", "--device-as-default-execution-space")


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """What a user asks of the compiler.

    Attributes:
        std: The C++ standard, as nvcc names it.
        define: Macros; None defines one as nvcc's bare `-DNAME` does, to 1.
        options: More options, passed on as they are; include folders belong to the `Source`.
        debug: Compile for cuda-gdb: no optimization, full debug information.
    """

    std: str = "c++17"
    define: Mapping[str, Define] = field(default_factory=dict)
    options: Sequence[str] = ()
    debug: bool = False

    def __post_init__(self) -> None:
        _require_types(self.std, self.define, self.options)
        object.__setattr__(self, "define", FrozenMap(self.define))
        object.__setattr__(self, "options", tuple(self.options))
        for option in self.options:
            _require_option(option)
            _refuse(option)

    @property
    def defined(self) -> frozenset[str]:
        """The macros that are known to be defined."""
        return DEFINED | frozenset(self.define)

    @property
    def all_is_device(self) -> bool:
        """Whether a function without annotation is device code, as the user asks by an option of NVRTC."""
        return any(option in _DEFAULT_DEVICE for option in self.options)

    @property
    def key(self) -> Hashable:
        """What of the options decides the code."""
        return (self.std, tuple(sorted(self.define.items(), key=repr)), self.options, self.debug)


@dataclass(frozen=True)
class _Row:
    """An option that dotcu always or sometimes gives, and why."""

    option: str
    when: Callable[[CompileOptions, Target], bool]
    why: str


def _always(options: CompileOptions, target: Target) -> bool:
    return True


LINES = "-lineinfo"

# Source: NVRTC documentation 13.0, "Supported Compile Options".
TABLE = (
    _Row("-arch={target}", _always, "sm_XX gives a cubin and its PTX, compute_XX gives PTX"),
    _Row("-std={options.std}", _always, "the same for every compiler version"),
    _Row(LINES, lambda options, _: not options.debug, "findings and profiles name source lines"),
    _Row("-G", lambda options, _: options.debug, "cuda-gdb; line information is part of it"),
    _Row("-no-source-include", _always, "only headers that the key covers can be included"),
    _Row(
        "--ptxas-options=-v",
        lambda _, target: target.kind == "sm",
        "registers, spills and shared memory come with the log",
    ),
    _Row(
        "--ptxas-options=-warn-spills",
        lambda options, target: target.kind == "sm" and not options.debug,
        "a spill is a warning; under -G everything is in memory anyway",
    ),
)

# Options that would bring in a file, or leave one, behind the key's back.
REFUSED = {
    "-I": "load(..., include=[FOLDER])",
    "--include-path": "load(..., include=[FOLDER])",
    "-include": "#include in the source",
    "--pre-include": "#include in the source",
    "-arch": "module.compile(ARCH)",
    "--gpu-architecture": "module.compile(ARCH)",
    "-std": "load(..., std=STANDARD)",
    "--std": "load(..., std=STANDARD)",
    "-pch": "nothing: dotcu keeps what it compiled",
    "--pch": "nothing: dotcu keeps what it compiled",
    "-rdc=true": "one source file that includes the others",
    "-dc": "one source file that includes the others",
    "-dlto": "one source file that includes the others",
}


def _require_types(std: object, define: object, options: object) -> None:
    if not isinstance(std, str):
        raise UsageError(f'std is a str, got {std!r}.\nWrite std="c++17", say.')
    if not isinstance(define, Mapping):
        raise UsageError(
            f"define is a dict of macros and their values, got {define!r}.\nWrite define={_as_dict(define)}."
        )
    for name, value in define.items():
        _require_macro(name, value)
    if isinstance(options, (str, bytes)) or not isinstance(options, Iterable):
        raise UsageError(
            f"options is a list of compiler options, got {options!r}.\nWrite options=[{options!r}]."
        )


def _require_option(option: object) -> None:
    if not isinstance(option, str) or "\0" in option:
        raise UsageError(
            f'options is a list of str, got {option!r} in it.\nWrite options=["-fmad=false"], say.'
        )


def _as_dict(define: object) -> str:
    given = [define] if isinstance(define, str) else define
    if not isinstance(given, Iterable):
        return '{"NAME": 1}'
    pairs = [str(name).partition("=") for name in given]
    return repr({name: value if equals else None for name, equals, value in pairs})


def _require_macro(name: object, value: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        near = re.sub(r"\W+", "_", str(name)).strip("_")
        near = near if near.isidentifier() else "NAME"
        raise UsageError(
            f"A macro's name was expected in define, got {name!r}.\nWrite define={{{near!r}: {value!r}}}."
        )
    if not (value is None or isinstance(value, (str, Real))) or "\0" in str(value):
        raise UsageError(
            f"The macro {name} in define is a str, a number or None, got {value!r}.\n"
            f"Write define={{{name!r}: {str(value).replace(chr(0), '')!r}}}."
        )


def _refuse(option: str) -> None:
    for refused, instead in REFUSED.items():
        joined = refused == "-I" and option.startswith("-I")
        if joined or option == refused or option.startswith(refused + "="):
            raise UsageError(
                f"The compiler option {option!r} cannot be passed in options.\nUse instead: {instead}"
            )


def arguments(
    options: CompileOptions, target: Target, *, simulated: bool = False, lines: bool = True
) -> tuple[str, ...]:
    """NVRTC's options for a target, in the order in which they are given.

    Args:
        lines: Whether the code names source lines.
    """
    rows = tuple(
        row.option.format(options=options, target=target)
        for row in TABLE
        if row.when(options, target) and (lines or row.option != LINES)
    )
    macros = tuple(f"-D{name}={_spelled(value)}" for name, value in options.define.items())
    return rows + macros + (("-DDOTCU_SIMULATED=1",) if simulated else ()) + tuple(options.options)


def _spelled(value: Define) -> Define:
    if value is None:
        return 1
    return int(value) if isinstance(value, bool) else value


def command_line(display_name: str, given: tuple[str, ...], include: tuple[str, ...]) -> str:
    """The compile as a line for a shell: the same options, spelled for nvcc."""
    spelled = (_NVCC.get(option, option) for option in given)
    folders = (f"-I{folder}" for folder in include)
    result = "-ptx" if any(option.startswith("-arch=compute_") for option in given) else "-cubin"
    words = ["nvcc", *(word for word in spelled if word), *folders, result, display_name]
    return shlex.join(words)


_NVCC = {
    "-no-source-include": "",
    "--ptxas-options=-v": "-Xptxas=-v",
    "--ptxas-options=-warn-spills": "-Xptxas=-warn-spills",
}

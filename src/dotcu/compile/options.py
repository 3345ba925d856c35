"""Compile options: those that a user can give, and NVRTC's options for them as a table."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real

from dotcu.compile.source.lexer import NVRTC_MACROS
from dotcu.compile.target import Target
from dotcu.errors import UsageError

Define = str | int | None


_log = logging.getLogger("dotcu")

_DEFAULT_DEVICE = ("-default-device", "--device-as-default-execution-space")


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """The options that a user gives to the compiler.

    Attributes:
        std: The C++ standard, as nvcc names it, or g++. One before C++17 is taken as C++17.
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
        object.__setattr__(self, "std", self.std.replace("gnu++", "c++"))
        object.__setattr__(self, "define", dict(self.define))
        object.__setattr__(self, "options", _taken(tuple(self.options)))

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def defined(self) -> frozenset[str]:
        """The macros that are known to be defined."""
        return NVRTC_MACROS | frozenset(self.define)

    @property
    def all_is_device(self) -> bool:
        """True where a function without annotation is device code, by an option of NVRTC."""
        return any(option in _DEFAULT_DEVICE for option in self.options)

    @property
    def key(self) -> Hashable:
        """The options that decide the code."""
        return (self.std, tuple(sorted(self.define.items(), key=repr)), self.options, self.debug)


_Applies = Callable[[CompileOptions, Target], bool]

LINES = "-lineinfo"

# Options that dotcu gives, and when. Source: NVRTC documentation 13.0, "Supported Compile Options".
TABLE: tuple[tuple[str, _Applies], ...] = (
    ("-arch={target}", lambda options, target: True),  # sm_XX: a cubin and its PTX; compute_XX: PTX
    ("-std={options.std}", lambda options, target: True),  # the same for every compiler version
    (LINES, lambda options, target: not options.debug),  # findings and profiles name source lines
    ("-G", lambda options, target: options.debug),  # cuda-gdb; line information is part of it
    ("-no-source-include", lambda options, target: True),  # only headers that the key covers
    # registers, spills and shared memory come with the log
    ("--ptxas-options=-v", lambda options, target: target.kind == "sm"),
    # a spill is a warning; under -G everything is in memory anyway
    ("--ptxas-options=-warn-spills", lambda options, target: target.kind == "sm" and not options.debug),
)

_INCLUDE = "load(..., include=[{value}])"
_PRE_INCLUDE = "#include {value} in the source"
_ARCH = "nothing: dotcu compiles for the GPU that a launch runs on. For another one: module.compile({value})"
_STD = "load(..., std={value})"
_PCH = "nothing: dotcu caches the code that it has compiled"
_LINK = "one source file that includes the others"
_TRACE = "dotcu -v, which shows the time of each build"

# Options of nvcc that are for the host's compiler, the linker or nvcc itself, or that say what NVRTC does
# anyway: they are left out. By name, without dashes; and those that take a value.
# Source: CUDA Compiler Driver NVCC 13.0, "Command Option Description".
_LEFT_OUT = re.compile(
    r"O\d?|g|debug|pg|profile|v|c|compile|m64|t\d+|dryrun|W[\w-]*|pedantic|shared|verbose|M|MM|MD|MMD|MP|keep|save-temps|res-usage|resource-usage"
    r"|(?:expt-)?extended-lambda|expt-relaxed-constexpr|allow-unsupported-compiler|use-local-env|f[\w-]+"
    r"|static-global-template-stub|objdir-as-tempdir|forward-unknown(?:-to-host-compiler|-to-host-linker|-opts)|l[\w.:-]+|L.+"
)
_LEFT_OUT_WITH_VALUE = re.compile(
    r"Xcompiler|compiler-options|Xlinker|linker-options|Xfatbin|fatbin-options|Xnvlink|nvlink-options"
    r"|Xarchive|archive-options|optimize|m|machine|t|threads|ccbin|compiler-bindir|cudart|default-stream|compress-mode|x"
    r"|o|output-file|MF|MT|keep-dir|Werror|library|library-path"
)
_FOR_NVRTC = re.compile(r"fmad|ftz|lineinfo|frandom-seed|fdevice-[\w-]+")
"""Options of NVRTC that begin as those of a host's compiler or of a linker."""

# Options that read or write a file which the cache's key does not cover, or that leave code which has
# still to be linked; by name, without dashes and value. Source: NVRTC documentation 13.0, "Supported Compile
# Options"; each spelling tried with NVRTC 13.0.
REFUSED = {
    "I": _INCLUDE, "include-path": _INCLUDE, "isystem": _INCLUDE, "system-include": _INCLUDE,
    "include": _PRE_INCLUDE, "pre-include": _PRE_INCLUDE,
    "arch": _ARCH, "gpu-architecture": _ARCH, "gencode": _ARCH, "generate-code": _ARCH, "code": _ARCH,
    "gpu-code": _ARCH,
    "std": _STD,
    "pch": _PCH, "create-pch": _PCH, "use-pch": _PCH, "pch-dir": _PCH,
    "rdc": _LINK, "relocatable-device-code": _LINK, "dc": _LINK, "device-c": _LINK,
    "dlto": _LINK, "dlink-time-opt": _LINK, "gen-opt-lto": _LINK,
    "optix-ir": "nothing: dotcu compiles to machine code and PTX",
    "fdevice-time-trace": _TRACE, "time": _TRACE,
}  # fmt: skip


def _require_types(std: object, define: object, options: object) -> None:
    if not isinstance(std, str):
        raise UsageError(f'std is a str, got {std!r}.\nFor example: std="c++17"')
    if not isinstance(define, Mapping):
        given = [define] if isinstance(define, str) else define
        shown = '{"NAME": 1}'
        if isinstance(given, Iterable):
            pairs = [str(name).partition("=") for name in given]
            shown = repr({name: value if equals else None for name, equals, value in pairs})
        raise UsageError(
            f"define is a dict of macros and their values, got {define!r}.\nWrite define={shown}."
        )
    for name, value in define.items():
        _require_macro(name, value)
    if isinstance(options, (str, bytes)) or not isinstance(options, Iterable):
        raise UsageError(
            f"options is a list of compiler options, got {options!r}.\nWrite options=[{options!r}]."
        )


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


def _taken(options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options that NVRTC takes, without those of nvcc that mean nothing to it.

    Raises:
        UsageError: One has another way in dotcu.
    """
    taken: list[str] = []
    left: list[str] = []
    waiting = list(options)
    while waiting:
        option = waiting.pop(0)
        name, value = _name_and_value(option, waiting)
        if name in REFUSED and value.strip() != "false":
            raise UsageError(
                f"The compiler option {option!r} cannot be passed in options.\n"
                f"Use instead: {_instead(name, value)}"
            )
        if _FOR_NVRTC.fullmatch(name) or not (
            _LEFT_OUT.fullmatch(name) or _LEFT_OUT_WITH_VALUE.fullmatch(name)
        ):
            behind = option.strip().lstrip("-") in _WITH_VALUE and waiting
            taken += _as_nvrtc(name, option, waiting.pop(0) if behind else "")
            continue
        left.append(option)
        is_apart = "=" not in option and " " not in option.strip() and _LEFT_OUT_WITH_VALUE.fullmatch(name)
        left += [waiting.pop(0)] if is_apart and waiting else []
    if left:
        _log.info("options: %s: left out, since they are not for the device compiler", " ".join(left))
    return tuple(taken)


def _as_nvrtc(name: str, option: str, behind: str) -> list[str]:
    """Return an option, with its value if that is another word, as NVRTC takes it.

    nvcc takes several options for ptxas at once, and a switch without `=`.
    """
    if name in _SWITCHES:
        return [f"{option}={behind}" if behind else option]
    head, equals, values = option.partition("=")
    if name not in ("Xptxas", "ptxas-options"):
        return [option, behind] if behind else [option]
    parts = [part for part in (values if equals else behind).split(",") if part]
    return [word for part in parts for word in ([f"{head}={part}"] if equals else [head, part])] or [option]


_SWITCHES = {"fmad", "ftz", "prec-div", "prec-sqrt"}
_WITH_VALUE = {"Xptxas", "ptxas-options", "Xcudafe", *_SWITCHES}


def _name_and_value(option: object, following: Sequence[object]) -> tuple[str, str]:
    """Return an option's name, without dashes, and its value, which may be the one behind it."""
    if not isinstance(option, str) or "\0" in option:
        raise UsageError(
            f'options is a list of str, got {option!r} in it.\nFor example: options=["-fmad=false"]'
        )
    name, equals, value = option.strip().lstrip("-").partition("=")
    if name.startswith("I"):
        return "I", name[1:].strip() or str(next(iter(following), ""))
    name, _, rest = name.partition(" ")
    return name, value if equals else rest.strip() or str(next(iter(following), ""))


_ARCHITECTURE = re.compile(r"(?:sm|compute)_\w+")
_EXAMPLES = {_INCLUDE: "FOLDER", _PRE_INCLUDE: "FILE", _ARCH: "ARCH", _STD: "STANDARD"}


def _instead(name: str, value: str) -> str:
    """Return what to write for an option, with its value if it has one."""
    remedy = REFUSED[name]
    if remedy == _ARCH:
        found = _ARCHITECTURE.search(value)
        value = found[0] if found else ""
    shown = (
        repr(value).replace("'", '"') if value and not value.startswith("-") else _EXAMPLES.get(remedy, "")
    )
    return remedy.format(value=shown)


_STANDARDS = ("c++03", "c++11", "c++14", "c++17", "c++20")
"""In order: headers of dotcu and of CCCL ask for C++17 at least, `cuda_tile.h` for C++20."""


def arguments(
    options: CompileOptions,
    target: Target,
    *,
    simulated: bool = False,
    lines: bool = True,
    tile: bool = False,
    implicit: bool = False,
) -> tuple[str, ...]:
    """Return NVRTC's options for a target, in the order in which they are given.

    Args:
        tile: The source has tile kernels, so its standard is C++20 at least.
        implicit: What has no annotation is device code.
    """
    least = _STANDARDS.index("c++20" if tile else "c++17")
    if options.std in _STANDARDS[:least]:
        options = replace(options, std=_STANDARDS[least])
    rows = tuple(
        option.format(options=options, target=target)
        for option, applies in TABLE
        if applies(options, target) and (lines or option != LINES)
    )
    values = {name: 1 if value is None else value for name, value in options.define.items()}
    macros = tuple(f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in values.items())
    if tile:
        from dotcu.compile.nvrtc_server import ENABLE_TILE  # few sources have tile kernels

        rows += (ENABLE_TILE,)
    rows += (_DEFAULT_DEVICE[1],) * implicit
    return rows + macros + (("-DDOTCU_SIMULATED=1",) if simulated else ()) + tuple(options.options)


def command_line(display_name: str, given: tuple[str, ...], include: tuple[str, ...]) -> str:
    """Return the compile as a line for a shell: the same options, spelled for nvcc."""
    import shlex  # a launch does not import it

    spelled = (_NVCC.get(option, option) for option in given)
    folders = (f"-I{folder}" for folder in include)
    result = "-ptx" if any(option.startswith("-arch=compute_") for option in given) else "-cubin"
    words = ["nvcc", *(word for word in spelled if word), *folders, result, display_name]
    return shlex.join(words)


_NVCC = {
    "-no-source-include": "",
    _DEFAULT_DEVICE[1]: "",  # nvcc has no such option
    "--ptxas-options=-v": "-Xptxas=-v",
    "--ptxas-options=-warn-spills": "-Xptxas=-warn-spills",
}

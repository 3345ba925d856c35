"""Signs of host code in a file of kernels, and the messages that say how one file serves nvcc and NVRTC."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dotcu.compile.source.declarations import has_unannotated_function
from dotcu.compile.source.lexer import NVRTC_MACROS, active_code, code_only, without_comments
from dotcu.compile.source.source import printable

GUARD_REMEDY = """\
The device compiler accepts only device code. Guard host code, and one file serves both compilers:

    #ifndef __CUDACC_RTC__
    ... host code, and the #include lines that it needs ...
    #endif"""

LAUNCH_REMEDY = """\
A kernel cannot launch another: there is no device runtime. If the launch is in a kernel, make what it
launches a __device__ function and call that, or launch both from Python, one after the other."""

TENSOR_REMEDY = """\
The device compiler has no headers of PyTorch, and dotcu has its number types, accessors, atomics and macros
for device code, not this. Take a pointer and sizes instead: const float* x, long long n
For sizes and strides, too: #include <dotcu/tensor.cuh> and take dotcu::tensor<const float, 2> x"""


@dataclass(frozen=True)
class HostLine:
    """A line that only a host compiler can take.

    Attributes:
        what: Why, in words for a message.
        last: The last line of its statement, if that is known.
        name: What it declares, if it is left out.
        file: The virtual name of its file, or the name to show.
    """

    line: int
    text: str
    what: str
    last: int = 0
    name: str = ""
    file: str = ""


Refusal = tuple[str, int, str]
"""What the compiler refused: its file, its position there, and in which form it was: "whole", an "assert",
the "head" of a function, one that is "inline", or a "stand-in" for one."""

Texts = tuple[tuple[str, str], ...]
"""The virtual names and the texts of a source and of the user's headers that it reaches."""


@dataclass(frozen=True, kw_only=True)
class DeviceParts:
    """The device part of some files, by their virtual names.

    Attributes:
        texts: What is compiled of a file, where that is not all.
        removed: The named declarations that are left out.
        unclear: Lines that are neither clearly host code nor clearly device code.
        pieces: What can be left out, too, if the compiler refuses it, the innermost first; with the first and
            the last line that it is on.
        looked: The files that may have host code.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[HostLine, ...] = ()
    unclear: tuple[HostLine, ...] = ()
    pieces: tuple[tuple[Refusal, int, int], ...] = ()
    looked: frozenset[str] = frozenset()


NO_HOST_CODE = DeviceParts()

DRIVERS_HEADER = "a header of the driver's interface"

# Signs of host code in a line, and their patterns. Directives are matched with literals, the rest without.
DIRECTIVES = {
    "PyTorch's or a binding's header": (
        r'#\s*include\s*[<"](torch|ATen|c10|caffe2|THC|pybind11|nanobind|tvm|xla)/'
    ),
    "Python's header": r'#\s*include\s*[<"]Python\.h[>"]',
    "a header of the host's library": (
        r"#\s*include\s*<(iostream|fstream|sstream|vector|string|map|unordered_map|memory|thread|mutex|chrono"
        r"|stdexcept|iomanip|random|regex|filesystem|(unistd|pthread|omp|mpi|sys/\w+)\.h)>"
    ),
    "the header of a host library": (
        r'#\s*include\s*[<"](cub/(device/\w+|util_allocator)\.cuh'
        r"|(cublas|cublasLt|cudnn|cufft|curand|cusolver\w*|cusparse|nccl"
        r"|thrust/(?!(complex|functional|pair|tuple)\b)\w+)"
        r'(\.h|_v2\.h|Xt\.h)?)[>"]'
    ),
    DRIVERS_HEADER: (
        r'#\s*include\s*[<"]cuda(EGL|GL|VDPAU|D3D\w+|Profiler|_profiler_api|_\w+_interop|\w*Typedefs)\.h[>"]'
    ),
}
CODE = {
    "a launch": r"<<<",
    "main()": r"\bint\s+main\s*\(",
    "a call of the CUDA runtime": (
        r"\bcuda(Malloc\w*|Free\w*|Memcpy\w*|Memset\w*|DeviceSynchronize|DeviceReset|SetDevice|GetDevice\w*"
        r"|GetLastError|PeekAtLastError|GetErrorString|HostAlloc|(Stream|Event|Graph(?!SetConditional))[A-Z]\w*|Launch[A-Z]\w*"
        r"|FuncSetAttribute|FuncGetAttributes|OccupancyMax\w*)\s*\("
    ),
    "a Python binding": (
        r"\b(PYBIND11_MODULE|TORCH_LIBRARY\w*|STABLE_TORCH_LIBRARY\w*|NB_MODULE|(TVM|XLA)_FFI_\w+)\s*\("
    ),
    "a PyTorch macro": r"\b(AT_DISPATCH_\w+|TORCH_CHECK|C10_CUDA_\w+)\s*\(",
    "PyTorch's C++ interface": (
        r"\b(torch|at|c10)::(\w*Tensor(?!Accessor)\w*|empty|zeros|ones|cuda(?!::(detail|philox|ATenCeilDiv)))\b"
    ),
    "the host's standard library": (
        r"\bstd::(vector|string(_view)?|to_string|[io]?stringstream|cout|cerr|map|unordered_map|set|variant|any"
        r"|function|unique_ptr|shared_ptr|make_(shared|unique)|thread|mutex|exception|runtime_error|[io]fstream)\b"
    ),
}
BUNDLED_FOLDER = Path(__file__).parents[2] / "include"
STAND_INS = BUNDLED_FOLDER / "nvrtc"
"""Stand-ins for the host headers that NVRTC lacks; they are for NVRTC alone."""

NOT_FOUND = "this header was not found and is left out"
"""The warning in what stands for a header that is nowhere."""

# Headers that only a host compiler has, by what they belong to.
# Sources: ISO C11 7.1.2; POSIX.1-2017, "Headers"; the toolkit's include folder; Khronos' registry.
HOST_HEADERS = {
    "C": (
        r"(complex|ctype|errno|fenv|iso646|locale|malloc|memory|alloca|setjmp|signal|stdalign|stdarg"
        r"|stdatomic|stdbool|stdnoreturn|tgmath|threads|time|uchar|wchar|wctype)\.h"
    ),
    "POSIX": (
        r"(aio|cpio|dirent|dlfcn|execinfo|fcntl|fmtmsg|fnmatch|ftw|getopt|glob|grp|iconv|langinfo|libgen|monetary"
        r"|mqueue|ndbm|netdb|nl_types|poll|pthread|pwd|regex|sched|search|semaphore|spawn|strings|stropts"
        r"|syslog|tar|termios|trace|ulimit|unistd|utime|utmpx|wordexp|(arpa|net|netinet|sys)/\w+)\.h"
    ),
    "a system or its compilers": (
        r"(asm|bits|gnu|linux|mach|wrl)/.+|(\w*intrin|numa\w*|io|direct|process|[Ww]in(dows|sock\d?|base)"
        r"|wrl|d3d\w*|dxgi\w*|DirectX\w+)\.h"
    ),
    "the toolkit's libraries": (
        r"nvtx3/.+|(nvToolsExt\w*|nvml|nvperf\w*|cupti\w*|cuda_profiler_api|cufile|nvjpeg|npp\w*|nvrtc"
        r"|nvJitLink|nvblas|cublas|cuda_\w+_interop|nvshmem\w*|nvsci\w+)\.h"
    ),
    "graphics": r"(GL|GLES\d?|GLFW|GLUT|EGL|KHR|CL|SDL2?|X11|glad|vulkan)/.+",
    "other libraries": (
        r"(mpi|omp|openacc|mkl\w*|cblas|lapacke?|hdf5|zlib|png|jpeglib|FreeImage)\.h"
        r"|(Eigen|absl|benchmark|boost|fmt|gmock|gtest|json|nlohmann|opencv2|spdlog|tbb)/.+"
    ),
}
_HOST_HEADER = re.compile("|".join(HOST_HEADERS.values()))
HOST_NAMESPACES = frozenset(
    {
        "torch",
        "at",
        "c10",
        "caffe2",
        "pybind11",
        "py",
        "nanobind",
        "nb",
        "Eigen",
        "boost",
        "fmt",
        "chrono",
        "tvm",
        "xla",
    }
)
"""Namespaces that no header of a device compiler has."""


def may_define(name: str, quoted: bool) -> bool:
    """Return whether a header that is not read may define macros of whoever wrote it."""
    is_systems = any(re.fullmatch(HOST_HEADERS[kind], name) for kind in ("C", "POSIX"))
    return not is_systems and (quoted or "/" in name or name.endswith((".hpp", ".cuh")))


TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2|THC)/")
OF_TORCH = re.compile(
    r"\b(?:torch|at|c10)::(?!(?:Half|BFloat16|Float8_\w+|ScalarType|k(?:Half|BFloat16|Float\w*|Double|Bool|Byte|Char|Short|Int|Long)|complex\w*|polar|acc_type|opmath_type|OpMathType|AccumulateType|ceil_div"
    r"|numeric_limits|CustomClassHolder|PhiloxCudaState|\w*TensorAccessor\w*|\w+PtrTraits|native::fastAtomicAdd"
    r"|cuda::(?:ATenCeilDiv|philox|detail::(?:TensorInfo|IndexToOffset|CUDA_NUM_THREADS)))\b)\w+"
)
"""Matches what PyTorch's headers define and dotcu's `left_out/torch`, which stands for them, does not."""

HOST_MACROS = re.compile(
    r"(PYBIND11|NB|TORCH|STABLE_TORCH|AT|C10|TVM_FFI|XLA_FFI)_(?!\w*DEVICE|LAUNCH_BOUNDS|ALWAYS_INLINE)[A-Z0-9_]+"
)
"""Macros of PyTorch and of bindings whose calls make host code alone."""

DEVICE_WORDS = frozenset(
    {"__device__", "__global__", "__constant__", "__managed__", "__shared__", "__tile__", "__tile_global__"}
)
"""Annotations of which one makes a declaration device code."""

WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern in (*DIRECTIVES.values(), *CODE.values())))
_ANY_CODE = re.compile("|".join(f"(?:{pattern})" for pattern in CODE.values()))
_NAMES = re.compile(r"#[ \t]*(?:ifdef|ifndef)[ \t]+(\w+)|defined[ \t]*\(?[ \t]*(\w+)")


def host_code(text: str, defined: Container[str] = NVRTC_MACROS) -> tuple[HostLine, ...]:
    """Return the lines with host code that the device compiler would see.

    Code under `#ifndef __CUDACC_RTC__`, or under a macro that neither the options nor the text
    define, is not seen and not named.
    """
    if not _ANY.search(text):
        return ()
    tested = {first or second for first, second in _NAMES.findall(text)}
    set_here = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", text))
    # what conditions ask for, and nothing here could define
    undefined = {name for name in tested - set_here if name not in defined and not name.startswith("__CUDA")}
    visible = active_code(text, defined, undefined=undefined)
    directives, bare = without_comments(visible).split("\n"), code_only(visible).split("\n")
    signs = [
        ("#" in a and sign_of(DIRECTIVES, a)) or (_ANY_CODE.search(b) and sign_of(CODE, b)) or ""
        for a, b in zip(directives, bare, strict=True)
    ]
    lines = zip(printable(text).split("\n"), signs, strict=True)
    return tuple(
        HostLine(number, line.rstrip("\r"), what) for number, (line, what) in enumerate(lines, 1) if what
    )


FOR_NVRTC_TOO = re.compile(r"/(?:cutlass|cute)/")
"""Matches the names of headers that guard what NVRTC does not take, and that take seconds to look through."""


@functools.lru_cache(maxsize=64)
def files_with_host_code(texts: Texts, defined: frozenset[str]) -> frozenset[str]:
    """Return the files that show host code: a line or a function that only a host takes.

    These signs are cheap to look for, so that a file of kernels alone is never parsed.
    """
    texts = tuple((name, text) for name, text in texts if not FOR_NVRTC_TOO.search(name))
    macros = macros_of(tuple(text for _, text in texts))
    device = {name for name in macros if with_macro_words(frozenset({name}), macros) & DEVICE_WORDS}
    return frozenset(
        name
        for name, text in texts
        if host_code(text, defined) or has_unannotated_function(text, defined, DEVICE_WORDS | device)
    )


@dataclass(frozen=True, kw_only=True)
class Macro:
    """A name that some texts define, in whatever `#if`.

    Attributes:
        called: It takes arguments.
        definitions: For each `#define`, the names of its parameters and its text.
    """

    called: bool
    definitions: tuple[tuple[tuple[str, ...], str], ...]

    @functools.cached_property
    def values(self) -> tuple[str, ...]:
        """The texts that it stands for, as written, with their words pasted."""
        return tuple(re.sub(r"\s*##\s*", "", text) for _, text in self.definitions)


Macros = Mapping[str, Macro]


def macros_of(texts: tuple[str, ...]) -> dict[str, Macro]:
    """Return the macros that some texts define, in whatever `#if`."""
    macros: dict[str, Macro] = {}
    for text in texts:
        for name, brackets, value in _DEFINE.findall(without_comments(text)):
            parameters = tuple(part.strip() for part in brackets[1:-1].split(",")) if brackets else ()
            definition = parameters, re.sub(r"\\\r?\n", " ", value).strip()
            before = macros.get(name)
            macros[name] = Macro(
                called=before.called if before else bool(brackets),
                definitions=(*(before.definitions if before else ()), definition),
            )
    return macros


_LONGEST = 200_000
"""Characters of an expansion that are looked at."""


def expansions(text: str, macros: Macros) -> tuple[str, ...]:
    """Return what the call of a macro becomes, once for each `#define` of it.

    Args:
        macros: Those of all texts; of one that has several `#define`s, and stands inside, the first counts.
    """
    name = WORD.match(text)
    if name is None or name[0] not in macros:
        return (text,)
    others = {word: macro for word, macro in macros.items() if word != name[0]}
    found = []
    for definition in dict.fromkeys(macros[name[0]].definitions):
        one = Macro(called=macros[name[0]].called, definitions=(definition,))
        found.append(_expanded(text, {**others, name[0]: one}, frozenset()))
    return tuple(found)


_PIECE = re.compile(r'"(?:\\.|[^"\\\n])*"|(?<![\w.])[A-Za-z_]\w*')


def _expanded(text: str, macros: Macros, within: frozenset[str]) -> str:
    """Return a text with its macros expanded, but for those that it comes from."""
    pieces, position = [], 0
    while len(text) < _LONGEST and (match := _PIECE.search(text, position)):
        word, behind = match[0], match.end()
        macro = None if word in within else macros.get(word)
        arguments: list[str] = []
        if macro is not None and macro.called:
            arguments, behind = _call_arguments(text, behind)
            macro = macro if behind > match.end() else None
        if macro is not None:
            expanded = [_expanded(each, macros, within) for each in arguments]
            made = _substituted(macro.definitions[0], arguments, expanded)
            word = _expanded(made, macros, within | {word})
        pieces += [text[position : match.start()], word]
        position = behind
    return "".join([*pieces, text[position:]])


def _call_arguments(text: str, position: int) -> tuple[list[str], int]:
    """Return the arguments in the brackets behind a position, and where these end; without any, it."""
    opening = re.compile(r"\s*\(").match(text, position)
    if opening is None:
        return [], position
    arguments, depth, begin = [], 1, opening.end()
    for match in re.compile(r'"(?:\\.|[^"\\\n])*"|[()\[\]{},]').finditer(text, begin):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth == 0 or (depth == 1 and match[0] == ","):
            arguments.append(text[begin : match.start()].strip())
            begin = match.end()
        if depth == 0:
            return arguments, begin
    return [], position


def _substituted(
    definition: tuple[tuple[str, ...], str], arguments: Sequence[str], expanded: Sequence[str]
) -> str:
    """Return the text of a definition with the arguments of a call in the places of its parameters.

    Beside `#` and `##` stands an argument as it was written, elsewhere with its macros expanded.
    """
    parameters, text = definition
    written, values = (_by_name(parameters, each) for each in (arguments, expanded))

    def instead(match: re.Match[str]) -> str:
        if match["string"] is not None:
            return _as_string(written.get(match["string"], ""))
        word = match["word"]
        if word is None or word not in values:
            return match[0]
        is_pasted = text[: match.start()].rstrip().endswith("##") or text[match.end() :].lstrip()[:2] == "##"
        return (written if is_pasted else values)[word]

    # literals apart, also in what is pasted
    pieces = re.split(r'("(?:\\.|[^"\\])*")', _PARAMETER.sub(instead, text))
    pieces[::2] = [re.sub(r"\s*##\s*", "", piece) for piece in pieces[::2]]
    return "".join(pieces)


_PARAMETER = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?<!#)#(?!#)\s*(?P<string>\w+)|(?P<word>(?<![\w.])[A-Za-z_]\w*)'
)


def _by_name(parameters: Sequence[str], arguments: Sequence[str]) -> dict[str, str]:
    values = dict(zip(parameters, arguments, strict=False))
    if parameters and parameters[-1].endswith("..."):
        rest = parameters[-1].removesuffix("...").strip() or "__VA_ARGS__"
        values[rest] = ", ".join(arguments[len(parameters) - 1 :])
    return values


def _as_string(argument: str) -> str:
    r"""Return the literal that `#` makes of an argument. Source: C17 6.10.3.2."""
    escape = r"\\\g<0>"
    quoted = re.sub(r'"(?:\\.|[^"\\])*"', lambda match: re.sub(r'[\\"]', escape, match[0]), argument)
    return f'"{" ".join(quoted.split())}"'


def with_macro_words(words: frozenset[str], macros: Macros) -> frozenset[str]:
    """Return some words, and those of the macros among them, and so on."""
    reached, waiting = set(words), set(words)
    while waiting:
        values = [value for word in waiting if word in macros for value in macros[word].values]
        waiting = {word for value in values for word in WORD.findall(value)} - reached
        reached |= waiting
    return frozenset(reached)


@functools.cache
def stand_ins() -> frozenset[str]:
    """Return the headers of the standard library that dotcu has for device code."""
    return frozenset(path.name for path in STAND_INS.iterdir())


def is_host_include(name: str, quoted: bool, device: Container[str]) -> bool:
    """Return whether an `#include` is for the host alone.

    Args:
        device: Headers of the standard library that device code can have, too.
    """
    sign = sign_of(DIRECTIVES, f"#include <{name}>")
    if sign:  # a header of one's own may have a name of the library's
        return not quoted or "/" in name or sign == DRIVERS_HEADER
    if quoted:
        return False
    return bool(_HOST_HEADER.fullmatch(name)) or ("." not in name and "/" not in name and name not in device)


def sign_of(patterns: Mapping[str, str], text: str) -> str:
    """Name the sign of host code that a text shows, of `DIRECTIVES` or of `CODE`; "" for none."""
    return next((what for what, pattern in patterns.items() if re.search(pattern, text)), "")


def host_code_message(display: str, lines: Sequence[HostLine], *, is_split: bool = False) -> str:
    """Return the message of a `HostCodeError`.

    Args:
        is_split: The host part is left out already: the lines are device code's.
    """
    headline = f"There is host code in {display}:"
    if is_split:
        headline = f"Device code of {display} contains what only a host compiler accepts:"
    launches = [LAUNCH_REMEDY] * any(one.what == "a launch" for one in lines)
    return "\n".join([headline, *_listed(lines), *launches, GUARD_REMEDY])


def unclear_message(display: str, lines: Sequence[HostLine]) -> str:
    """Return the message if device code cannot be separated from host code, on lines of some files."""
    of_torch = ["PyTorch's type" in line.what for line in lines]
    headline = f"Device code and host code of {display} cannot be separated:"
    if all(of_torch):
        headline = f"Device code of {display} uses what only PyTorch's headers define:"
    remedies = [TENSOR_REMEDY] * any(of_torch) + [GUARD_REMEDY] * (not all(of_torch))
    return "\n".join([headline, *_listed(lines), *remedies])


def _listed(lines: Sequence[HostLine], limit: int = 12) -> list[str]:
    width = 1 + max((len(one.what) for one in lines[:limit]), default=0)
    shown = [
        f"    {one.file}:{one.line}: {one.what + ':':<{width}} {one.text.strip()}" for one in lines[:limit]
    ]
    return shown + [f"    ... and {len(lines) - limit} more"] * (len(lines) > limit)

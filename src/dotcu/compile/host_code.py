"""Host code in a file of kernels: which lines, and how one file serves nvcc and NVRTC."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from dotcu.compile.lexing import DEFINED, active, code, without_comments
from dotcu.compile.source import printable

HOW = """\
The device compiler takes device code alone. Guard host code, and one file serves both compilers:

    #ifndef __CUDACC_RTC__
    ... host code, and the #include lines that it needs ...
    #endif"""


@dataclass(frozen=True)
class HostLine:
    """A line that only a host compiler can take."""

    line: int
    text: str
    what: str


# What a line shows, by a pattern. Directives are matched with their literals, the rest without.
DIRECTIVES = (
    (r'#\s*include\s*[<"](torch|ATen|c10|caffe2|pybind11|nanobind)/', "PyTorch's or a binding's header"),
    (r'#\s*include\s*[<"]Python\.h[>"]', "Python's header"),
    (
        (
            r"#\s*include\s*<(iostream|fstream|sstream|vector|string|map|unordered_map|memory|thread|mutex|chrono"
            r"|functional|stdexcept|iomanip|random|regex|filesystem|(unistd|pthread|omp|mpi|sys/\w+)\.h)>"
        ),
        "a header of the host's library",
    ),
    (
        (
            r'#\s*include\s*[<"](cublas|cublasLt|cudnn|cufft|curand|cusolver\w*|cusparse|nccl|thrust/\w+)'
            r'(\.h|_v2\.h|Xt\.h)?[>"]'
        ),
        "the header of a host library",
    ),
)
CODE = (
    (r"<<<", "a launch"),
    (r"\bint\s+main\s*\(", "main()"),
    (
        (
            r"\bcuda(Malloc\w*|Free\w*|Memcpy\w*|Memset\w*|DeviceSynchronize|DeviceReset|SetDevice|GetDevice\w*"
            r"|GetLastError|PeekAtLastError|GetErrorString|HostAlloc|(Stream|Event|Graph)[A-Z]\w*|Launch[A-Z]\w*"
            r"|FuncSetAttribute|FuncGetAttributes|OccupancyMax\w*)\s*\("
        ),
        "a call of the CUDA runtime",
    ),
    (r"\b(PYBIND11_MODULE|TORCH_LIBRARY\w*|STABLE_TORCH_LIBRARY\w*|NB_MODULE)\s*\(", "a Python binding"),
    (r"\b(AT_DISPATCH_\w+|TORCH_CHECK|C10_CUDA_\w+)\s*\(", "a PyTorch macro"),
    (r"\b(torch|at)::(Tensor|empty|zeros|ones|cuda)\b", "PyTorch's C++ interface"),
    (
        r"\bstd::(vector|string|cout|cerr|map|unique_ptr|shared_ptr|thread|runtime_error|[io]fstream)\b",
        "the host's standard library",
    ),
)
HOST_HEADERS = {"Eigen/Dense", "cublas.h", "cuda_profiler_api.h", "errno.h", "signal.h", "time.h", "mpi.h"}
_DIRECTIVES = [(re.compile(pattern), what) for pattern, what in DIRECTIVES]
_CODE = [(re.compile(pattern), what) for pattern, what in CODE]
_NAMES = re.compile(r"#[ \t]*(?:ifdef|ifndef)[ \t]+(\w+)|defined[ \t]*\(?[ \t]*(\w+)")


def host_code(text: str, defined: Container[str] = DEFINED) -> tuple[HostLine, ...]:
    """Lines with host code that the device compiler would see.

    Code under `#ifndef __CUDACC_RTC__`, or under a macro that neither the options nor the text
    define, is not seen and not named.

    Args:
        defined: Macros that are known to be defined.
    """
    visible = active(text, defined, undefined=_undefined(text, defined))
    directives, bare = without_comments(visible).splitlines(), code(visible).splitlines()
    lines = printable(text).splitlines()
    found = []
    for index, line in enumerate(lines):
        what = _match(_DIRECTIVES, directives[index]) or _match(_CODE, bare[index])
        if what:
            found.append(HostLine(index + 1, line, what))
    return tuple(found)


def is_host_header(name: str) -> bool:
    """Whether a header is one that only a host compiler has, by its name."""
    return "." not in name or bool(_match(_DIRECTIVES, f"#include <{name}>")) or name in HOST_HEADERS


def _match(patterns: list[tuple[re.Pattern[str], str]], line: str) -> str:
    return next((what for pattern, what in patterns if pattern.search(line)), "")


def _undefined(text: str, defined: Container[str]) -> set[str]:
    """Macros that conditions of the text ask for and that nothing here could define."""
    asked = {first or second for first, second in _NAMES.findall(text)}
    made = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", text))
    return {name for name in asked - made if name not in defined and not name.startswith("__CUDA")}


def explain(display: str, lines: tuple[HostLine, ...], limit: int = 12) -> str:
    """The message of a `HostCodeError`."""
    width = max((len(line.what) for line in lines[:limit]), default=0)
    shown = [
        f"    {display}:{item.line}: {item.what + ':':<{width + 1}} {item.text.strip()}"
        for item in lines[:limit]
    ]
    rest = [f"    ... and {len(lines) - limit} more"] if len(lines) > limit else []
    headline = f"There is host code in {display}:"
    return "\n".join([headline, *shown, *rest, HOW])

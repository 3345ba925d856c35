"""The kernels and variables that a source declares, found by name; templates of kernels.

The text of the source and of its own headers is scanned; kernels and variables that a macro makes are left
to the compiler (`CompiledUnit`). Nothing here needs torch: dtypes go by their names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.compile.host_split.detect import FOR_NVRTC_TOO, WORD
from dotcu.compile.include_graph import include_graph, system_headers
from dotcu.compile.source.declarations import has_tile_code, split_overload
from dotcu.compile.source.lexer import macro_names, without_comments
from dotcu.errors import ArgumentError

# What the scan for variables passes over: static ones in functions, variable templates, macros.
_STATE = re.compile(
    r"\bstatic\b(?![^;={(\[]*\b(?:const|constexpr)\b)[^;={(\[]*[;={\[]"
    r"|\btemplate\s*<[^;{}()]*>\s*__(?:device|managed)__(?![^;={(\[]*\b(?:const|constexpr)\b)[^;={(\[]*[;={\[]"
    r"|#[ \t]*define\b[^\n]*__(?:device|managed)__(?![^\n]*[(])"
)


@dataclass(frozen=True, kw_only=True)
class ScannedDeclarations:
    """The kernels and variables of a source, by name.

    Attributes:
        kernels: Those with their own name: the source's in order, then its headers'. A
            header's have no line.
        overloads: The declarations of each name that several kernels have, or a kernel and a function
            of CUDA's.
        variables: Qualified names of `__constant__` and `__device__` variables.
        constants: Those of them that no kernel writes.
        has_state: There may be variables that kernels write, in a macro or a function for example.
        is_tile: It is written in CUDA Tile C++, with or without tile kernels.
        is_pytorchs: Device code names what PyTorch's headers declare, such as `at::Half`.
    """

    kernels: tuple[Declaration, ...]
    overloads: Mapping[str, tuple[Declaration, ...]]
    variables: tuple[str, ...]
    constants: tuple[str, ...]
    has_state: bool
    is_tile: bool
    is_pytorchs: bool


def scan_declarations(source: Source, options: CompileOptions) -> ScannedDeclarations:
    """Scan a source and the user's headers that it reaches, without their host part."""
    defined = options.defined
    graph = include_graph(source, system_headers(()), options=options)
    texts = [file.text for file in graph.files if not FOR_NVRTC_TOO.search(file.virtual)]
    macros = frozenset(name for text in texts for name in macro_names(text))
    own = compiler.kernels(texts[0], defined, macros)
    named: dict[str, tuple[Declaration, ...]] = {}
    for kernel in own:
        named[kernel.name] = (*named.get(kernel.name, ()), kernel)
    overloads = {name: same for name, same in named.items() if len(same) > 1 or _is_cudas(same[0])}
    kernels = {name: same[0] for name, same in named.items() if name not in overloads}
    for text in texts[1:]:
        for kernel in compiler.kernels(text, defined, macros):
            if kernel.name not in named:
                kernels.setdefault(kernel.name, replace(kernel, line=0))
    variables = tuple(dict.fromkeys(v for text in texts for v in compiler.variables(text, defined)))
    shared = {v for text in texts for v in compiler.variables(text, defined, writable=True)}
    return ScannedDeclarations(
        kernels=tuple(kernels.values()),
        overloads=overloads,
        variables=variables,
        constants=tuple(name for name in variables if name not in shared),
        has_state=bool(shared) or any(_STATE.search(without_comments(text)) for text in texts),
        is_tile=has_tile_code(texts),
        is_pytorchs=any(name.endswith(("left_out/torch", "left_out/float8")) for name in graph.system),
    )


_NAMES = """
abs acos acosh all any asin asinh atan atan2 atanh ballot cbrt ceil copysign cos cosh cospi erf erfc
erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot
ilogb isfinite isinf isnan j0 j1 jn ldexp lgamma llabs llmax llmin llrint llround log log10 log1p
log2 logb lrint lround max min modf nearbyint nextafter norm normcdf normcdfinv pow rcbrt remainder
remquo rhypot rint round rsqrt scalbln scalbn signbit sin sincos sincospi sinh sinpi sqrt tan tanh
tgamma trunc umax umin y0 y1 yn
"""
CUDA_FUNCTIONS = frozenset(_NAMES.split())
"""Functions that are there before the first line, so that a kernel of such a name is one of several.
Source: CUDA Math API; CUDA Programming Guide, "Warp Vote Functions"."""


def _is_cudas(declaration: Declaration) -> bool:
    return declaration.name in CUDA_FUNCTIONS and not declaration.template_parameters


def match_name(name: str, names: Sequence[str]) -> str | None:
    """Return a qualified name, or the only one that ends in a plain one."""
    if name in names:
        return name
    matches = _ending_in(name, names)
    return matches[0] if len(matches) == 1 else None


def is_unknown(name: str, names: Sequence[str]) -> bool:
    """Return whether no name is this one or ends in it, so that the compiler may be asked for it."""
    return name not in names and not _ending_in(name, names)


def _ending_in(name: str, names: Sequence[str]) -> list[str]:
    return [other for other in names if other.rsplit("::")[-1] == name]


def not_found(file: str, name: str, kind: str, names: Sequence[str]) -> str:
    """Return the message for a name that is missing, or that several names end in.

    Args:
        kind: "kernel", "template" or "variable".
    """
    several = _ending_in(name, names)
    if len(several) > 1:
        which = f"{len(several)} {kind}s named {name}: {', '.join(several)}"
        return f"{file} has {which}.\nSay which: {_lookup_text(kind, several[0])}"
    near = difflib.get_close_matches(name, names, n=max(1, len(names)), cutoff=0.0)
    listed = ", ".join(near) if near else f"no {kind} at all"
    remedy = f"Did you mean {_lookup_text(kind, near[0])}?" if near else _NONE[kind]
    return f"{file} has no {kind} named {name!r}; it has {listed}.\n{remedy}"


_NONE = {
    "kernel": "A kernel is a __global__ void function, or a __tile_global__ one.",
    "template": "A template of kernels begins: template <typename T> __global__ void",
    "variable": "Declare one outside any function, as __constant__ or __device__.",
}


def _lookup_text(kind: str, name: str) -> str:
    return f'module.variable("{name}")' if kind == "variable" else kernel_access(name)


# Templates of kernels


CXX_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "float8_e8m0fnu": "__nv_fp8_e8m0",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "bool": "bool",
}
"""The C++ type of each dtype, by the name that the dtype has in torch."""

PYTORCHS_TYPES = CXX_TYPES | {
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    **{name: f"c10::{name.capitalize()}" for name in CXX_TYPES if name.startswith("float8")},
    **{name: f"c10::{name.capitalize()}" for name in ("float8_e4m3fnuz", "float8_e5m2fnuz")},
}
"""The same for device code in PyTorch's words, which `AT_DISPATCH` macros instantiate with its own types.
Source: torch/headeronly/core/ScalarType.h."""

TYPE_HEADERS = {
    "__half": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
    "__nv_fp8_e5m2": "cuda_fp8.h",
    "__nv_fp8_e8m0": "cuda_fp8.h",
    "(c10|at)::(Half|BFloat16)": "left_out/torch",
    r"(c10|at)::Float8_\w+": "left_out/float8",
}
"""The header that declares a C++ type which the language does not have, by a pattern of its name."""


def instance_name(declaration: Declaration, arguments: Sequence[str]) -> str:
    """Return an instantiation's name expression: `scale_add<float>`; with empty brackets for defaults."""
    types, name = split_overload(declaration.name)
    if types:
        values = dict(zip(map(_parameter_name, declaration.template_parameters), arguments, strict=False))
        for text in declaration.template_parameters[len(arguments) :]:
            values[_parameter_name(text)] = text.partition("=")[2].strip()
        types = WORD.sub(lambda match: values.get(match[0], match[0]), types)
        return f"(void(*)({types})){name}<{', '.join(arguments)}>"
    return f"{name}<{', '.join(arguments)}>"


def _parameter_name(text: str) -> str:
    """Return the name of a template parameter, `N` of `int N = 4`."""
    words: list[str] = WORD.findall(text.partition("=")[0])
    return words[-1] if words else ""


def require_argument_count(declaration: Declaration, values: Sequence[Any]) -> None:
    """Refuse template arguments that are too few or too many."""
    texts = declaration.template_parameters
    most = None if any("..." in text for text in texts) else len(texts)
    least = sum("=" not in text and "..." not in text for text in texts)
    if len(values) < least or (most is not None and len(values) > most):
        amount = str(least) if most in (least, None) else f"{least} to {most}"
        plural, more = "" if most == 1 else "s", " or more" if most is None else ""
        raise ArgumentError(
            f"{declaration.name} takes {amount} template argument{plural}{more}, got {len(values)}: "
            f"{list(values)!r}.\n{template_usage(declaration)}"
        )


def template_usage(declaration: Declaration) -> str:
    """Return a template's declaration, and an example of its use."""
    return f"It is declared: {template_head(declaration)}. Write: {template_example(declaration)}"


def template_head(declaration: Declaration) -> str:
    """Return a template's head, as in the source."""
    return f"template <{', '.join(declaration.template_parameters)}> {overload_key(declaration.name)}"


def template_example(declaration: Declaration) -> str:
    """Return the Python text that instantiates a template, with plausible arguments."""
    values = ", ".join(example_arguments(declaration)).replace("float32", "torch.float32")
    return f"{kernel_access(declaration.name)}[{values or '()'}](...)"


def split_arguments(text: str) -> tuple[str, ...]:
    """Return the parts between commas that are in no brackets: `pair<int, 2>, 4` has two."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def example_arguments(declaration: Declaration) -> tuple[str, ...]:
    """Return arguments that a template might take: `float32`, `256`, `True`."""
    words = [re.split(r"\W", text)[0] for text in declaration.template_parameters if "=" not in text]
    return tuple("256" if _NUMBER.fullmatch(word) else _EXAMPLES.get(word, f'"{word}(0)"') for word in words)


_EXAMPLES = {"typename": "float32", "class": "float32", "bool": "True"}
_NUMBER = re.compile(r"auto|const|constexpr|std|template|u?int\w*|s?size_t|(un)?signed|char|short|long")


def kernel_access(name: str) -> str:
    """Return the Python text for the kernel of a qualified name."""
    shown = overload_key(name)
    return f"module.{shown}" if shown.isidentifier() else f'module.kernels["{shown}"]'


def overload_key(name: str) -> str:
    """Return `k(float*)` for the name of an overload, `(void(*)(float *))k`; another name as it is."""
    types, plain = split_overload(name)
    return f"{plain}({re.sub(r' (?=[*&<>,:]|[][])', '', types)})" if types else plain


def with_headers(source: Source, arguments: Sequence[str]) -> Source:
    """Return the source with the headers that template arguments need and that it does not include."""
    text = " ".join(arguments)
    needed = {header for name, header in TYPE_HEADERS.items() if re.search(rf"\b{name}\b", text)}
    missing = sorted(h for h in needed if not re.search(rf"#\s*include\s*[<\"]{re.escape(h)}", source.text))
    return source.with_headers(missing)

"""Names of projects and operators: which there can be, and why not the others."""

from __future__ import annotations

import keyword
import re
import sys

from dotcu.scaffold import template

LONGEST = 40
"""Characters of a name: then no line of what is made is too long."""

_PROJECT = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", re.ASCII)
_OPERATOR = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEEDED = _words(
    """
    cuda dotcu filelock ml_dtypes numpy platformdirs pytest rich torch triton typer benchmarks src test tests
    """
)
"""What a project imports, or has itself: a module of that name would hide it."""

_TORCH_NAMESPACES = _words("aten c10d higher_order inductor onednn prim prims profiler quantized")

_MODULE_NAMES = _words(
    """
    compile contents instantiate instantiation kernels missing name options source units variable warm
    """
)
"""What a dotcu.Module has beside its kernels."""

_CPP = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
    false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """
)


_CUDA = _words(
    """
    EOF NULL blockDim blockIdx gridDim threadIdx warpSize size_t ptrdiff_t int8_t int16_t int32_t
    int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t dim3
    """
) | {
    f"{kind}{width}"
    for kind in _words("char uchar short ushort int uint long ulong longlong ulonglong float double")
    for width in (1, 2, 3, 4)
}
"""What a kernel file has without an #include, as variables, types and macros. Functions do no harm."""


def project_refusal(name: str) -> str:
    """Why a project cannot have a name; "" where it can."""
    package = package_of(name)
    if not _PROJECT.fullmatch(name):
        return "it must begin with a letter, end with a letter or digit, and have nothing but those, - and _"
    if package in _TORCH_NAMESPACES:
        return "torch has operators under that name"
    return _refusal(package)


def operator_refusal(name: str) -> str:
    """Why an operator cannot have a name; "" where it can."""
    if not _OPERATOR.fullmatch(name):
        return "it must begin with a letter, and have nothing but letters, digits and _"
    if name in _CPP:
        return "it is a keyword of C++"
    if name in _CUDA:
        return "it means something else in CUDA"
    if name in _MODULE_NAMES or name in template.own_names():
        return "the operator's own files use that name for something else"
    return _refusal(name)


def _refusal(name: str) -> str:
    if len(name) > LONGEST:
        return f"it has {len(name)} characters, and {LONGEST} are the most"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if name in sys.stdlib_module_names:
        return "it would hide a module of Python's standard library"
    if name in _NEEDED:
        return f"it would hide {name}, which is needed"
    return ""


def package_of(project: str) -> str:
    """The importable name of a project: `my_lib` for `my-lib`."""
    return project.replace("-", "_")


def alike(name: str) -> str:
    """What is the same for names that differ in case, or in - and _, alone."""
    return package_of(name).lower()


def suggested(name: str, ending: str) -> str:
    """A name that can be, near to one that cannot."""
    clean = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    clean = clean if clean[:1].isalpha() else f"my_{clean}".strip("_")
    clean = clean[: LONGEST - len(ending)].strip("_")
    return clean if _may_be_either(clean) else f"{clean}{ending}"


def _may_be_either(name: str) -> bool:
    return not project_refusal(name) and not operator_refusal(name)

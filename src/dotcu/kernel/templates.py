"""Templates of kernels: their instantiations' names, how they are written, the headers that they need.

Dtypes are spelled by name, so that all of it can be used where there is no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dotcu.compile import Declaration, Source
from dotcu.errors import ArgumentError

TYPES = {
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

HEADERS = {
    "__half": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
    "__nv_fp8_e5m2": "cuda_fp8.h",
    "__nv_fp8_e8m0": "cuda_fp8.h",
}
"""The header that declares a C++ type which the language does not have."""


def instance_name(declaration: Declaration, arguments: Sequence[str]) -> str:
    """An instantiation's name expression: `scale_add<float>`; empty brackets where defaults serve."""
    return f"{declaration.name}<{', '.join(arguments)}>"


def require_count(declaration: Declaration, values: Sequence[Any]) -> None:
    """Refuse template arguments that are too few or too many.

    Raises:
        ArgumentError: They are.
    """
    texts = declaration.template_parameters
    most = None if any("..." in text for text in texts) else len(texts)
    least = sum("=" not in text and "..." not in text for text in texts)
    if len(values) < least or (most is not None and len(values) > most):
        raise ArgumentError(
            f"{declaration.name} takes {_count(least, most)}, got {len(values)}: "
            f"{list(values)!r}.\n{how(declaration)}"
        )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} template arguments or more"
    amount = str(least) if least == most else f"{least} to {most}"
    return f"{amount} template argument{'' if most == 1 else 's'}"


def how(declaration: Declaration) -> str:
    """How a template is declared, and how it is instantiated."""
    return f"It is declared: {describe(declaration)}. Write: {example(declaration)}"


def describe(declaration: Declaration) -> str:
    """A template's head, as in the source."""
    return f"template <{', '.join(declaration.template_parameters)}> {declaration.name}"


def example(declaration: Declaration) -> str:
    """How a template is instantiated, with plausible arguments."""
    dtype = {"float32": "torch.float32"}
    values = [dtype.get(value, value) for value in plausible(declaration)]
    return f"{access(declaration.name)}[{', '.join(values) or '()'}](...)"


def plausible(declaration: Declaration) -> tuple[str, ...]:
    """Arguments that a template might take: `float32`, `256`, `True`."""
    return tuple(_plausible(text) for text in declaration.template_parameters if "=" not in text)


def _plausible(parameter: str) -> str:
    """A plausible argument for a template parameter."""
    if re.match(r"(typename|class)\b", parameter):
        return "float32"
    return "True" if re.match(r"bool\b", parameter) else "256"


def access(name: str) -> str:
    """The Python text that gives the kernel of a qualified name."""
    return f'module.kernels["{name}"]' if "::" in name else f"module.{name}"


def with_headers(source: Source, arguments: Sequence[str]) -> Source:
    """The source with the headers that template arguments need, where it does not include them."""
    text = " ".join(arguments)
    needed = {header for name, header in HEADERS.items() if re.search(rf"\b{name}\b", text)}
    missing = sorted(h for h in needed if not re.search(rf"#\s*include\s*[<\"]{re.escape(h)}", source.text))
    if not missing:
        return source
    return source.with_headers(missing)

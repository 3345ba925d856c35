"""Template arguments: Python values -> C++ text, and the headers that the text needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dotcu.compile import Declaration, Source
from dotcu.errors import ArgumentError
from dotcu.kernel.elements import HEADERS, spelling


def spell_arguments(declaration: Declaration, values: Sequence[Any]) -> tuple[str, ...]:
    """Template arguments as C++ text.

    Raises:
        ArgumentError: Too few or too many, or of a kind that C++ has no text for.
    """
    _require_count(declaration, values)
    return tuple(_spell(declaration, value) for value in values)


def instance_name(declaration: Declaration, arguments: Sequence[str]) -> str:
    """An instantiation's name expression: `scale_add<float>`; empty brackets where defaults serve."""
    return f"{declaration.name}<{', '.join(arguments)}>"


def _spell(declaration: Declaration, value: Any) -> str:
    if isinstance(value, torch.dtype):
        return spelling(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, str) and value.strip():
        return " ".join(value.split())
    raise ArgumentError(
        f"{declaration.name}: a template argument is a torch dtype, an int, a bool or C++ text as a str, "
        f"got {type(value).__name__} {value!r}.\n{_how(declaration)}"
    )


def _require_count(declaration: Declaration, values: Sequence[Any]) -> None:
    texts = declaration.template_parameters
    most = None if any("..." in text for text in texts) else len(texts)
    least = sum("=" not in text and "..." not in text for text in texts)
    if len(values) < least or (most is not None and len(values) > most):
        raise ArgumentError(
            f"{declaration.name} takes {_count(least, most)}, got {len(values)}: "
            f"{list(values)!r}.\n{_how(declaration)}"
        )


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} template arguments or more"
    amount = str(least) if least == most else f"{least} to {most}"
    return f"{amount} template argument{'' if most == 1 else 's'}"


def _how(declaration: Declaration) -> str:
    return f"It is declared: {describe(declaration)}. Write: {example(declaration)}"


def describe(declaration: Declaration) -> str:
    """A template's head, as in the source."""
    return f"template <{', '.join(declaration.template_parameters)}> {declaration.name}"


def example(declaration: Declaration) -> str:
    """How a template is instantiated, with plausible arguments."""
    values = [_example(text) for text in declaration.template_parameters if "=" not in text]
    return f"{access(declaration.name)}[{', '.join(values) or '()'}](...)"


def _example(parameter: str) -> str:
    """A plausible argument for a template parameter."""
    if re.match(r"(typename|class)\b", parameter):
        return "torch.float32"
    return "True" if re.match(r"bool\b", parameter) else "256"


def access(name: str) -> str:
    """The Python text that gives the kernel of a qualified name."""
    return f'module.kernels["{name}"]' if "::" in name else f"module.{name}"


def with_headers(source: Source, arguments: Sequence[str]) -> Source:
    """The source with the headers that template arguments need, where it does not include them.

    They stand behind the text, so that its lines keep their numbers: a name expression is looked
    up at the end of the file, and a template's operators when it is instantiated.
    """
    text = " ".join(arguments)
    needed = {header for name, header in HEADERS.items() if re.search(rf"\b{name}\b", text)}
    missing = sorted(h for h in needed if not re.search(rf"#\s*include\s*[<\"]{re.escape(h)}", source.text))
    if not missing:
        return source
    lines = "".join(f"\n#include <{header}>" for header in missing)
    return Source(source.name, f"{source.text}{lines}\n", source.path, source.include)

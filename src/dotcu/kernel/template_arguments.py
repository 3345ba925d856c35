"""Template arguments: Python values -> C++ text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dotcu.compile import Declaration
from dotcu.errors import ArgumentError
from dotcu.kernel import templates
from dotcu.kernel.elements import spelling


def spell_arguments(declaration: Declaration, values: Sequence[Any]) -> tuple[str, ...]:
    """Template arguments as C++ text.

    Raises:
        ArgumentError: Too few or too many, or of a kind that C++ has no text for.
    """
    templates.require_count(declaration, values)
    return tuple(_spell(declaration, value) for value in values)


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
        f"got {type(value).__name__} {value!r}.\n{templates.how(declaration)}"
    )

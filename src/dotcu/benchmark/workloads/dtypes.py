"""Dtypes by the names that a command line gives them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import torch

from dotcu.checking.cases.case import short
from dotcu.errors import UsageError
from dotcu.operator import Overload

_SHORTER = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}


def chosen(
    overload: Overload, names: Sequence[str | torch.dtype], *, option: str = "--dtypes"
) -> tuple[torch.dtype, ...]:
    """Of an operator's dtypes those that are named; all where none is.

    Args:
        option: Of the command line, by which they were named.

    Raises:
        UsageError: It has none of such a name; answered with the nearest.
    """
    known = {short(dtype): dtype for dtype in overload.dtypes}
    found = []
    for given in names:
        text = short(given) if isinstance(given, torch.dtype) else given.strip().removeprefix("torch.")
        text = _SHORTER.get(text, text)
        if text not in known:
            nearest = difflib.get_close_matches(text, known, n=1, cutoff=0) or list(known)
            raise UsageError(
                f"{overload.qualified_name} has no dtype {text!r}; it has {', '.join(known)}.\n"
                f"Name some of these, or declare it: @dotcu.op(..., dtypes=...).\nType: {option} {nearest[0]}"
            )
        found.append(known[text])
    return tuple(dict.fromkeys(found)) or overload.dtypes

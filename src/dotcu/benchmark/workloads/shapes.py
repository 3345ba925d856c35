"""Shapes from a command line, and what the other tensors of a call become when the first one changes.

`4096x4096,2^28` are two rows, each a shape for an operator's first tensor; `64x48:48x32` is one row, with a
shape for each tensor.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import torch

from dotcu.checking.cases.samples import short
from dotcu.errors import UsageError
from dotcu.operator import Overload

InputShape = tuple[int, ...]
ShapeRow = tuple[InputShape, ...]  # the shape of the first tensor, or one for each
NO_SIZES = "0d"  # the text for a tensor without dimensions

_SIZE = re.compile(r"(\d{1,19})(?:\^(\d{1,2}))?")


def parse_shapes(text: str) -> list[ShapeRow]:
    """Return the rows of a text such as `4096x4096,2^28,64x48:48x32`; UsageError for another form."""
    return [tuple(_shape(part, row) for part in row.split(":")) for row in text.replace(" ", "").split(",")]


def shape_rows(shapes: str | Iterable[str | Sequence[int] | Sequence[Sequence[int]]]) -> list[ShapeRow]:
    """Return the rows of text, or of a list whose items are text, a shape, or a shape for each tensor."""
    items = [shapes] if isinstance(shapes, str) else shapes
    return [row for item in items for row in parse_shapes(item if isinstance(item, str) else _text(item))]


def _text(item: object) -> str:
    """A shape, or several, as text: `4096x4096`, `0d`, `64x48:48x32`."""
    if not isinstance(item, Sequence):
        raise UsageError(f"shapes holds {item!r}.\nGive text or tuples: shapes=['4096x4096', (1024,)].")
    if all(isinstance(size, int) for size in item):
        return "x".join(map(str, item)) or NO_SIZES
    return ":".join(map(_text, item))


def _shape(part: str, row: str) -> InputShape:
    if part == NO_SIZES:
        return ()
    sizes = []
    for word in part.split("x"):
        match = _SIZE.fullmatch(word)
        size = int(match[1]) ** int(match[2] or 1) if match else 0
        if size < 1 or size >= 2**63:
            raise UsageError(
                f"{row!r} is not a shape: {word!r} is not a size.\n"
                "Sizes are whole numbers from 1 on, or powers such as 2^28, joined by x; shapes of several "
                "tensors are joined by : and rows by a comma.\nType: --shapes 4096x4096,2^28"
            )
        sizes.append(size)
    return tuple(sizes)


def shapes_name(shapes: Sequence[InputShape]) -> str:
    """Return shapes as a name: `4096x4096`, or `64x48:48x32` where they differ."""
    return _text(shapes[0] if len(set(shapes)) == 1 else shapes)


def fitted(template: Sequence[InputShape], row: ShapeRow) -> tuple[InputShape, ...]:
    """Return the shapes of all tensors of a call: those of the row, or such that they follow the first one.

    A tensor that has the first one's shape goes on having it. Any other keeps its dimensions, of which those
    that measure what one of the first tensor's does go on doing so; sizes of 1 stay. `template` has the
    shapes of a sample's tensors.
    """
    if len(row) == len(template):
        return tuple(row)
    example = f"\nType: --shapes {_text(template)}" if template else ""
    shown = ", ".join(map(_text, template)) or "none"
    if len(row) > 1 or not template:
        raise UsageError(
            f"{shapes_name(row)} has {len(row)} shapes, and a call has {len(template)} tensors: {shown}.\n"
            f"Give one shape for the first tensor, or one for each.{example}"
        )
    (new,), old = row, template[0]
    others = [shape for shape in template if shape != old]
    if others and len(new) != len(old):
        raise UsageError(
            f"{_text(new)} has {len(new)} dimensions, a sample's first tensor {len(old)}: the shapes "
            f"of the others of {shown} do not follow.\nGive a shape for each.{example}"
        )
    shared = {size for shape in others for size in shape}
    change: dict[int, int] = {}
    for before, after in zip(old, new, strict=False):
        if before == 1 or before not in shared:
            continue
        if change.setdefault(before, after) != after:
            raise UsageError(
                f"the first tensor of a sample has the size {before} more than once, and in "
                f"{_text(new)} it is {change[before]} and {after}: another tensor has it too, "
                f"and could follow either.\nGive a shape for each tensor.{example}"
            )
    return tuple(
        new if shape == old else tuple(change.get(size, size) for size in shape) for shape in template
    )


_SHORTER = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}


def choose_dtypes(
    overload: Overload, names: Sequence[str | torch.dtype], *, option: str = "--dtypes"
) -> tuple[torch.dtype, ...]:
    """Return the dtypes of an operator that an option names; all if none is named.

    Args:
        overload, names, option: An unknown name is answered with the operator's nearest, after the option.
    """
    known = {short(dtype): dtype for dtype in overload.dtypes}
    chosen = []
    for name in names:
        text = short(name) if isinstance(name, torch.dtype) else name.strip().removeprefix("torch.")
        text = _SHORTER.get(text, text)
        if text not in known:
            nearest = difflib.get_close_matches(text, known, n=1, cutoff=0) or list(known)
            raise UsageError(
                f"{overload.qualified_name} has no dtype {text!r}; it has {', '.join(known)}.\n"
                f"Name some of these, or declare it: @dotcu.op(..., dtypes=...).\nType: {option} {nearest[0]}"
            )
        chosen.append(known[text])
    return tuple(dict.fromkeys(chosen)) or overload.dtypes

"""The kernels of a `.cu` file: the plain ones, and the templates that were asked for.

It needs no torch: a file of kernels can be looked at wherever there is a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.errors import ArgumentError, UsageError
from dotcu.inspection.code.units import Template, TextUnit
from dotcu.kernel import templates
from dotcu.kernel.declared import declared

_ASKED = re.compile(r"\s*([A-Za-z_][\w:]*)\s*\[(.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class FileKernels:
    """What a file has to look at.

    Attributes:
        plain: The plain kernels as one; its code holds what only the compiler sees, too.
        instances: Each instantiation as one; their code holds the plain kernels once more.
        left: Templates that no instantiation was asked of.
    """

    plain: TextUnit
    instances: tuple[TextUnit, ...]
    left: tuple[Template, ...]


def kernels_of(source: Source, options: CompileOptions, instantiate: Sequence[str] = ()) -> FileKernels:
    """The kernels that a source declares.

    Args:
        instantiate: Templates with arguments: `scale[float32,256]`.

    Raises:
        UsageError: One of these is no template of the source, takes other arguments, or is written
            otherwise.
    """
    found = {kernel.name: kernel for kernel in declared(source, options).kernels}
    heads = {name: kernel for name, kernel in found.items() if kernel.template_parameters}
    asked = [_read(text, heads, source.name) for text in instantiate]
    plain = TextUnit(source=source, options=options, names=tuple(n for n in found if n not in heads))
    taken = {declaration.name for declaration, _ in asked}
    return FileKernels(
        plain=plain,
        instances=tuple(_instance(source, options, *one) for one in asked),
        left=tuple(_left(kernel) for name, kernel in heads.items() if name not in taken),
    )


def _left(declaration: Declaration) -> Template:
    arguments = ",".join(templates.plausible(declaration))
    return Template(
        name=declaration.name,
        head=templates.describe(declaration),
        example=f"{declaration.name}[{arguments}]",
    )


def _instance(
    source: Source, options: CompileOptions, declaration: Declaration, arguments: Sequence[str]
) -> TextUnit:
    name = templates.instance_name(declaration, arguments)
    return TextUnit(source=templates.with_headers(source, arguments), options=options, names=(name,))


def _read(text: str, heads: Mapping[str, Declaration], file: str) -> tuple[Declaration, tuple[str, ...]]:
    """A template and its arguments, as C++ text."""
    found = _ASKED.fullmatch(text)
    if found is None:
        raise UsageError(
            f"instantiate={text!r} names no template with its arguments.\n"
            "They stand in brackets, a dtype for its C++ type: scale[float32,256]"
        )
    name = found[1]
    named = [head for head in heads if head == name or head.rsplit("::")[-1] == name]
    if len(named) != 1:
        has = ", ".join(map(templates.describe, heads.values())) or "none"
        raise UsageError(
            f"instantiate={text!r}: {file} has {len(named) or 'no'} templates of kernels of that name.\n"
            f"It has {has}.\nName one of them in full, such as {next(iter(heads), 'scale')}[float32]."
        )
    declaration = heads[named[0]]
    arguments = tuple(spelled(argument) for argument in split(found[2]))
    try:
        templates.require_count(declaration, arguments)
    except ArgumentError as error:
        left = _left(declaration)
        told = str(error).partition("\n")[0]
        raise UsageError(f"{told}\nIt is declared: {left.head}.\n{left.remedy.capitalize()}") from error
    return declaration, arguments


def split(text: str) -> tuple[str, ...]:
    """The parts between commas that stand in no brackets: `pair<int, 2>, 4` has two."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def spelled(argument: str) -> str:
    """A template argument as C++ has it: a dtype's name becomes its type, True becomes true."""
    plain = argument.removeprefix("torch.").strip("\"'")
    return {"True": "true", "False": "false"}.get(plain) or templates.TYPES.get(plain, plain)

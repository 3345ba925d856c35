"""The kernels of a `.cu` file: the plain ones, and the templates that were asked for.

It needs no torch: a file of kernels can be inspected wherever there is a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.errors import ArgumentError, UsageError
from dotcu.inspection.code.build import FileUnit
from dotcu.kernel.declarations import (
    CXX_TYPES,
    example_arguments,
    instance_name,
    require_argument_count,
    scan_declarations,
    template_head,
    with_headers,
)

_INSTANTIATION = re.compile(r"\s*([A-Za-z_][\w:]*)\s*\[(.*)\]\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class UninstantiatedTemplate:
    """A template of kernels without a known instantiation.

    Attributes:
        declaration: As in the source.
        example: An instantiation of it: `scale[float32,256]`.
    """

    name: str
    declaration: str
    example: str

    @property
    def remedy(self) -> str:
        """The option to type."""
        return f"type: --instantiate '{self.example}'"


def kernels_in_source(
    source: Source, options: CompileOptions, instantiate: Sequence[str] = ()
) -> tuple[FileUnit, list[FileUnit], tuple[UninstantiatedTemplate, ...]]:
    """Find the kernels that a source declares.

    Args:
        source: A `.cu` file.
        options: How it is compiled.
        instantiate: Templates with arguments: `scale[float32,256]`.

    Returns:
        The plain kernels as one unit, whose code also has those that only the compiler sees; each
        instantiation as one unit, whose code has the plain kernels again; the other templates.

    Raises:
        UsageError: `instantiate` names no template of the source, gives other arguments, or is malformed.
    """
    kernels = {kernel.name: kernel for kernel in scan_declarations(source, options).kernels}
    templates = {name: kernel for name, kernel in kernels.items() if kernel.template_parameters}
    asked = [_read(text, templates, source.name) for text in instantiate]
    plain = tuple(name for name in kernels if name not in templates)
    instances = [
        FileUnit(
            source=with_headers(source, arguments),
            options=options,
            names=(instance_name(declaration, arguments),),
        )
        for declaration, arguments in asked
    ]
    instantiated = {declaration.name for declaration, _ in asked}
    others = tuple(_uninstantiated(one) for name, one in templates.items() if name not in instantiated)
    return FileUnit(source=source, options=options, names=plain), instances, others


def _uninstantiated(declaration: Declaration) -> UninstantiatedTemplate:
    return UninstantiatedTemplate(
        name=declaration.name,
        declaration=template_head(declaration),
        example=f"{declaration.name}[{','.join(example_arguments(declaration))}]",
    )


def _read(text: str, templates: Mapping[str, Declaration], file: str) -> tuple[Declaration, tuple[str, ...]]:
    """Return a template and its arguments, as C++ text."""
    match = _INSTANTIATION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"instantiate={text!r} names no template with its arguments.\n"
            "They stand in brackets, a dtype for its C++ type: scale[float32,256]"
        )
    name = match[1]
    named = [each for each in templates if each == name or each.rsplit("::")[-1] == name]
    if len(named) != 1:
        has = ", ".join(map(template_head, templates.values())) or "none"
        raise UsageError(
            f"instantiate={text!r}: {file} has {len(named) or 'no'} templates of kernels of that name.\n"
            f"It has {has}.\nName one of them in full, such as {next(iter(templates), 'scale')}[float32]."
        )
    declaration = templates[named[0]]
    arguments = tuple(cxx_argument(argument) for argument in split_arguments(match[2]))
    try:
        require_argument_count(declaration, arguments)
    except ArgumentError as error:
        template = _uninstantiated(declaration)
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{reason}\nIt is declared: {template.declaration}.\n{template.remedy.capitalize()}"
        ) from error
    return declaration, arguments


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


def cxx_argument(argument: str) -> str:
    """Return a template argument in C++: a dtype's name becomes its type, True becomes true."""
    plain = argument.removeprefix("torch.").strip("\"'")
    return {"True": "true", "False": "false"}.get(plain) or CXX_TYPES.get(plain, plain)

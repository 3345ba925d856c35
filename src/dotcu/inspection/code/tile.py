"""The Tile IR of a tile kernel, line by line, each with the source locations that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dotcu.inspection.code.ptx import PtxLine, SourceLocation
from dotcu.tile_ir import TileFunction, TileOperation
from dotcu.tile_ir.module import Region
from dotcu.tile_ir.text import describe_operation


def lines_of(function: TileFunction, files: Mapping[str, str]) -> tuple[PtxLine, ...]:
    """Return the lines of a tile kernel.

    Args:
        function: The kernel.
        files: The names to show for the files that its operations name.
    """
    parameters = ", ".join(f"%{value}: {function.types[value]}" for value in function.body.arguments)
    heads = [(f"entry @{function.name}({parameters}) {{", None)]
    rows = [*heads, *_rows(function, function.body, "  "), ("}", None)]
    return tuple(
        PtxLine(number=number, text=text)
        if operation is None
        else PtxLine(
            number=number,
            text=text,
            chain=tuple(SourceLocation(files.get(at.file, at.file), at.line) for at in operation.lines),
            statements=(text.strip(),),
            opcodes=(operation.name,),
        )
        for number, (text, operation) in enumerate(rows, 1)
    )


def _rows(function: TileFunction, block: Region, indent: str) -> Iterator[tuple[str, TileOperation | None]]:
    """Yield the text of each operation, and of the braces around those that it runs."""
    for operation in block.operations:
        head = indent + describe_operation(operation, function)
        for number, region in enumerate(operation.regions):
            arguments = ", ".join(f"%{value}: {function.types[value]}" for value in region.arguments)
            opening = f"({arguments}) {{" if arguments else "{"
            yield (f"{head} {opening}", operation) if number == 0 else (f"{indent}}} else {opening}", None)
            yield from _rows(function, region, indent + "  ")
        yield (f"{indent}}}", None) if operation.regions else (head, operation)

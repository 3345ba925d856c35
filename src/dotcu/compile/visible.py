"""Compiling for those of some names that the compiler sees: an `#if` may hide a kernel from it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dotcu.compile.build import build
from dotcu.compile.failure import is_about
from dotcu.compile.objects import ObjectCode
from dotcu.compile.options import CompileOptions
from dotcu.compile.source import Source
from dotcu.compile.target import Target
from dotcu.errors import CompileError, KernelNotFound, SourceError


def build_visible(
    source: Source,
    *,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    simulated: bool = False,
    probed: bool = True,
    lines: bool = True,
) -> ObjectCode:
    """Give a source's object code, leaving out plain names that the preprocessor has hidden.

    Args:
        names, simulated, probed, lines: As `build` takes them.

    Raises:
        SourceError: The source does not compile, or an instantiation is not possible.
    """

    def made(some: Sequence[str]) -> ObjectCode:
        return build(
            source, options=options, target=target, names=some, simulated=simulated, probed=probed,
            lines=lines,
        )  # fmt: skip

    def sees(name: str) -> bool:
        try:
            made((name,))
        except (KernelNotFound, CompileError):
            if "<" in name:
                raise
            return False
        return True

    try:
        return made(names)
    except SourceError as error:
        blamed = _blamed(error, names)
        if blamed:
            with suppress(SourceError):
                return made([name for name in names if name not in blamed])
        made(())  # where the source itself is at fault, this says how
        seen = [name for name in names if sees(name)]
        if len(seen) == len(names):
            raise
        return made(seen)


def _blamed(error: SourceError, names: Sequence[str]) -> set[str]:
    """The plain names that the compiler complains of by name."""
    found = error.diagnostics if isinstance(error, CompileError) else ()
    return {name for name in names if "<" not in name and any(is_about(name, one) for one in found)}

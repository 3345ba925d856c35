"""Some kernels of a file, compiled without its others and without the probe that learns signatures."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dotcu.compile import CompileOptions, ObjectCode, Source, Target, build, build_visible
from dotcu.compile.hiding import alone
from dotcu.errors import SourceError
from dotcu.inspection.code import ptx
from dotcu.inspection.code.units import KernelCode, Unit
from dotcu.simulator import entry_headers

_NAME = re.compile(r"[\w$]+")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some kernels of a unit, compiled with the others of its file blanked."""

    whole: Unit
    names: tuple[str, ...]

    @property
    def source(self) -> Source:
        """The whole file."""
        return self.whole.source

    @property
    def options(self) -> CompileOptions:
        """Those of the unit."""
        return self.whole.options

    def build(self, target: Target) -> ObjectCode:
        """Compile for a target.

        Raises:
            SourceError: They do not compile, or not without the others.
        """
        source = alone(self.source, self.options, self.names)
        return build_visible(source, options=self.options, target=target, names=self.names)


def isolated(unit: Unit, target: Target, kernels: Sequence[KernelCode]) -> ObjectCode:
    """The code of some kernels that a unit has for a target, and of no other ones.

    Raises:
        SourceError: They do not compile.
        EnvironmentFault: There is no compiler, or none that may be used.
    """
    names = tuple(kernel.name for kernel in kernels)
    source = alone(unit.source, unit.options, names)
    symbols = {kernel.symbol for kernel in kernels}
    if len(set(names)) < len(names):  # overloads, of which no name says which one
        return _only(source, unit.options, target, (), symbols)
    try:
        return _only(source, unit.options, target, names)
    except SourceError:  # another kernel is named in what stays, or begins in an #if and ends in another
        return _only(unit.source, unit.options, target, names)


def _only(
    source: Source,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    symbols: Collection[str] = (),
) -> ObjectCode:
    """The code of some kernels, and of others only where these name them.

    A header may bring others, and a macro may make some: the assembler leaves them out.
    """
    made = build(source, options=options, target=target, names=names, probed=False)
    wanted = {*made.lowered.values(), *symbols}
    others = set(entry_headers(made.ptx)) - wanted
    text = ptx.only(made.ptx, wanted)
    if not others or others.intersection(_NAME.findall(text)):
        return made
    if target.kind == "sm":
        entries = f"--ptxas-options=--entry={','.join(sorted(wanted))}"
        options = replace(options, options=(*options.options, entries))
        made = build(source, options=options, target=target, names=names, probed=False)
    return replace(made, ptx=text)

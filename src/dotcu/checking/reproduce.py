"""The line that runs one trial again: for a shell, for Python, and for pytest."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dotcu.checking.catalogue import Level
from dotcu.operator import Operator


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A trial, and what it ran under.

    Attributes:
        device: As `check` takes it: `simulator`, `cuda:0`.
        trial: Its name.
    """

    operator: Operator
    device: str
    level: Level
    seed: int
    trial: str


Reproduce = Callable[[Rerun], str]
"""Makes the line."""


def by_call(rerun: Rerun) -> str:
    """A call of `dotcu.check`, the operator under its Python name."""
    return (
        f"dotcu.check({rerun.operator.__name__}, device={_quoted(rerun.device)}, "
        f"level={_quoted(rerun.level.name.lower())}, seed={rerun.seed}, only={_quoted(rerun.trial)})"
    )


def by_command(target: str, found: Sequence[tuple[str, Operator]]) -> Reproduce:
    """A `dotcu check` of one operator of a TARGET.

    Args:
        target: As the command was given it, with `:name` or without.
        found: The operators that it names, with their Python names.
    """
    place = target.partition(":")[0]
    names = {operator.qualified_name: name for name, operator in found}

    def line(rerun: Rerun) -> str:
        words = ["dotcu", "check", f"{place}:{names[rerun.operator.qualified_name]}"]
        words += ["--device", rerun.device]
        words += [] if rerun.level is Level.STANDARD else [f"--{rerun.level.name.lower()}"]
        return shlex.join([*words, "--seed", str(rerun.seed), "--only", rerun.trial])

    return line


def by_node(node: str, options: Mapping[str, object]) -> str:
    """A run of one test by pytest, with the options that were given."""
    given = [word for name, value in options.items() for word in (name, str(value))]
    return shlex.join(["pytest", *given, node])


def _quoted(text: str) -> str:
    return f'"{text}"'

"""Kernels in files of their own, and how to launch each: what tests/wrong and tests/right share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dotcu

Size = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of a kernel, and what it is to give.

    Attributes:
        args: The kernel's arguments.
        out: The one of them that is looked at.
        want: What it is to hold after a launch without fault.
        arch: The architecture to compile for.
        step_limit: Steps after which the launch counts as endless.
    """

    args: tuple[Any, ...]
    out: Tensor
    want: Tensor
    grid: Size = 1
    block: Size = 32
    smem_bytes: int = 0
    cluster: Size | None = None
    cooperative: bool = False
    arch: str = "sm_80"
    step_limit: int = 200_000


@dataclass(frozen=True)
class Corpus:
    """A folder of kernels, one in each `.cu` file, and a function for each that makes its launch."""

    folder: Path
    cases: dict[str, Callable[[], Launch]] = field(default_factory=dict)

    def case(self, make: Callable[[], Launch]) -> Callable[[], Launch]:
        """Take in the launch of the kernel in the file that has the function's name."""
        self.cases[make.__name__] = make
        return make

    def path(self, name: str) -> Path:
        """The file of a kernel."""
        return self.folder / f"{name}.cu"

    def launch(
        self, name: str, *, seed: int | None, define: Mapping[str, Any] = {}, debug: bool = False
    ) -> Outcome:
        """Run a kernel once in the simulator."""
        arch = self._arch(name)
        with dotcu.simulate(arch=arch, on_finding="collect", seed=seed) as run:
            launch = self.cases[name]()
            run.step_limit = launch.step_limit * (10 if debug else 1)
            kernel = _kernel(self.path(name), tuple(define.items()), debug)
            kernel(
                *launch.args,
                grid=launch.grid,
                block=launch.block,
                smem_bytes=launch.smem_bytes,
                cluster=launch.cluster,
                cooperative=launch.cooperative,
            )
        return Outcome(launch=launch, findings=list(run.findings))

    def _arch(self, name: str) -> str:
        return self.cases[name]().arch


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a launch left behind."""

    launch: Launch
    findings: list[Any]

    def require_clean(self) -> None:
        """No finding, and the right result."""
        assert [str(f) for f in self.findings] == []
        torch.testing.assert_close(self.launch.out, self.launch.want)


@functools.cache
def _kernel(path: Path, define: tuple[tuple[str, Any], ...], debug: bool) -> Any:
    (kernel,) = dotcu.load(path, define=dict(define), debug=debug).kernels.values()
    return kernel


_MARK = re.compile(r"// (FAULT: (?P<kind>[a-z-]+)(?:, (?P<both>OTHER))?|(?P<other>OTHER)|(?P<then>THEN))$")


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The lines of a kernel that its comments mark.

    Attributes:
        kind: What kind of fault was planted.
        faults: The lines `// FAULT: kind`, where it is to be found.
        others: The lines `// OTHER`, which a message about a fault of two lines has to name.
        consequences: The lines `// THEN`, where the same fault shows once more.
    """

    kind: str
    faults: frozenset[int]
    others: frozenset[int]
    consequences: frozenset[int]


def read_marks(path: Path) -> Marks:
    """The marks of a file of tests/wrong."""
    found = list(_marked_lines(path))
    (kind,) = {mark["kind"] for _, mark in found if mark["kind"]}
    return Marks(
        kind=kind,
        faults=frozenset(line for line, mark in found if mark["kind"]),
        others=frozenset(line for line, mark in found if mark["other"] or mark["both"]),
        consequences=frozenset(line for line, mark in found if mark["then"]),
    )


def _marked_lines(path: Path) -> Iterator[tuple[int, re.Match[str]]]:
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = _MARK.search(text)
        if mark is not None:
            yield number, mark

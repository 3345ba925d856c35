"""Faults that are planted in Triton kernels: what a comment in the kernel says of each, and its launch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dotcu
from dotcu.simulator import Finding

_MARK = re.compile(r"  # (?P<kind>[a-z-]+)(?: (?P<element>(?P<tensor>\w+)\[-?\d+\]))?$")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kernel with a fault, and its twin.

    Attributes:
        kernel: It has a line that ends in `# kind`, or in `# kind tensor[index]`.
        launch: Launches it with the fault, or without if its argument is true.
        shape: Of the tensor; empty if the fault has none.
        arch: The GPU that is simulated.
    """

    kernel: Any
    launch: Callable[[bool], object]
    shape: tuple[int, ...] = ()
    arch: str = "sm_80"

    def __str__(self) -> str:
        return f"{self.kernel.fn.__name__}-{self.arch}"

    def run(self, *, ok: bool, seed: int | None = None) -> list[Finding]:
        """Launch it in the simulator, and return what that finds."""
        with dotcu.simulate(arch=self.arch, on_finding="collect", seed=seed) as run:
            self.launch(ok)
        return run.findings

    def require_found(self) -> None:
        """Fail unless the fault is found by kind, line, element and tensor, in words of Triton."""
        lines, first = inspect.getsourcelines(self.kernel.fn)
        number, mark = next((at, found) for at, line in enumerate(lines) if (found := _MARK.search(line)))
        findings = self.run(ok=False)
        said = "\n".join(map(str, findings))
        here = [each for each in findings if (each.kind, each.line) == (mark["kind"], first + number)]
        assert here, said
        assert f"`{mark['element'].replace('[', '`[')}" in here[0].message if mark["element"] else True, said
        if self.shape:
            assert f"`{mark['tensor']}`" in here[0].caller, said
            assert f"shape {self.shape}" in here[0].caller, said
        for word in ("__sync", "Guard the", "blockIdx", "threadIdx", "smem_bytes", "cp.async"):
            assert word not in said, said

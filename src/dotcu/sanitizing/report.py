"""The report on a script: its findings, what it launched, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from dotcu.errors import EXIT_FAILED
from dotcu.report_base import Report
from dotcu.serialize import plain
from dotcu.simulator.run import Finding

MAX_NAMES = 6
"""Kernels that the summary names."""


@dataclass(frozen=True, kw_only=True)
class SanitizeReport(Report):
    """The findings of a script's kernels.

    Attributes:
        target: The script, or the module.
        arch: The architecture that was simulated.
        findings: One for each kind and line of a kernel.
        launches: How often each kernel was launched.
        status: The exit status of the script itself.
        error: The error that ended it, behind the user's file and line; empty if none did.
        seconds: The time that it took.
    """

    target: str
    arch: str
    findings: tuple[Finding, ...]
    launches: Mapping[str, int]
    status: int
    error: str
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of findings of each kind, the most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())

    @property
    def exit_code(self) -> int:
        """Return 1 if there are findings, else the script's own status, or 1 where it launched nothing."""
        if self.findings:
            return EXIT_FAILED
        return self.status or (0 if self.launches else EXIT_FAILED)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; each finding has its `text` too."""
        report: dict[str, Any] = plain(self)
        for row, finding in zip(report["findings"], self.findings, strict=True):
            row["text"] = str(finding)
        return {**report, "counts": self.counts, "exit_code": self.exit_code}

    def __rich__(self) -> RenderableType:
        text = Text()
        for finding in self.findings:
            text.append(f"{finding}\n\n")
        text.append(self.summary, "bold red" if self.exit_code else "bold green")
        return text

    @property
    def summary(self) -> str:
        """Return what was found, and in how many launches of which kernels."""
        if not self.launches:
            return f"No findings, because {self.target} launched no kernel: nothing was checked."
        found = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        number = len(self.findings)
        heading = f"{_counted(number, 'finding')}: {found}." if number else "No findings."
        names = [*self.launches][:MAX_NAMES]
        others = len(self.launches) - len(names)
        kernels = ", ".join(names) + (f" and {others} more" if others else "")
        ran = f"{_counted(sum(self.launches.values()), 'launch', 'launches')} of {kernels}"
        return f"{heading} {ran}, simulated for {self.arch} in {self.seconds:.1f} s."


def _counted(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"

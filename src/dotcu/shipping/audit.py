"""The audit of a wheel of native code: every rule held against what is in it, none of it loaded."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import process, report_base
from dotcu.errors import ToolchainError, UsageError
from dotcu.inspection import binaries
from dotcu.inspection.binaries import BinaryReport
from dotcu.shipping import torch_symbols
from dotcu.shipping.contents import PYPI_BYTES
from dotcu.shipping.rules import RULES, Facts

TOOLS = ("auditwheel", "abi3audit", "twine")
"""What pip has in `dotcu[build]`, and a wheel of native code is made and audited with."""

_TOOL_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found.

    Attributes:
        problems: By rule, a sentence for each; of every rule, in their order.
        notes: What its users should know.
    """

    wheel: Path
    report: BinaryReport
    problems: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Whether no rule is broken."""
        return not any(self.problems.values())

    @property
    def upload(self) -> str:
        """The line to type."""
        return f"python -m twine upload {self.wheel}"

    def __rich__(self) -> RenderableType:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for rule, found in self.problems.items():
            for number, problem in enumerate(found or ("held",)):
                style = "red" if found else ""
                table.add_row("" if number else rule, Text(problem, style=style, overflow="fold"))
        size = self.report.size
        head = f"{self.wheel.name}: {size:,} bytes, {size / PYPI_BYTES:.2%} of the 100 MB that PyPI takes"
        return Group(Text(head), Text(_code(self.report)), table, *map(Text, self.notes))

    def __str__(self) -> str:
        return report_base.text(self)

    def to_json(self) -> dict[str, Any]:
        """The same as values."""
        return {
            "wheel": str(self.wheel),
            "held": self.held,
            "size_bytes": self.report.size,
            "tags": list(self.report.wheel.tags) if self.report.wheel else [],
            "architectures": {one.arch: one.holds for one in self.report.architectures},
            "problems": {rule: list(found) for rule, found in self.problems.items()},
            "notes": list(self.notes),
            "upload": self.upload,
        }


def _code(report: BinaryReport) -> str:
    found = [f"{one.holds} for {one.arch}" for one in report.architectures]
    return f"code for the CPU{'; ' if found else ', none for a GPU'}{', '.join(found)}"


def require_tools() -> None:
    """Before anything is compiled.

    Raises:
        ToolchainError: What a wheel is repaired and audited with is not installed.
    """
    missing = [name for name in (*TOOLS, "elftools") if importlib.util.find_spec(name) is None]
    if missing:
        raise ToolchainError(
            f"A wheel of native code is repaired and audited by {', '.join(TOOLS)}; not installed: "
            f'{", ".join(missing)}.\nType: pip install "dotcu[build,tools]"'
        )


def audit(wheel: Path, sources: Mapping[str, tuple[str, ...]] | None = None) -> Audit:
    """Hold a wheel, anybody's, against every rule.

    Args:
        sources: By symbol, the sources whose objects use it, where they are known.

    Raises:
        UsageError: There is no such file, it is no wheel, or it cannot be read.
        ToolchainError: A tool is missing, or failed.
    """
    require_tools()
    report = binaries.read(wheel)
    if report.wheel is None:
        raise UsageError(f"{wheel} is no wheel.\nRequired: a file that pip installs, *.whl")
    names, requires = _inside(wheel)
    facts = Facts(
        report=report, names=names, requires=requires, python_abi=_python_abi(wheel),
        metadata=_metadata(wheel), sources=sources or {},
    )  # fmt: skip
    return Audit(
        wheel=wheel, report=report, problems={name: tuple(rule(facts)) for name, rule in RULES.items()},
        notes=tuple(_notes(facts)),
    )  # fmt: skip


def _inside(wheel: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of its files, and what its METADATA requires."""
    with zipfile.ZipFile(wheel) as opened:
        names = tuple(name for name in opened.namelist() if not name.endswith("/"))
        told = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
        text = opened.read(told).decode("utf-8", "replace") if told else ""
    return names, tuple(Parser().parsestr(text).get_all("Requires-Dist") or ())


def _python_abi(wheel: Path) -> dict[str, Mapping[str, Any]]:
    """abi3audit's report, by the name of each extension."""
    words = [sys.executable, "-m", "abi3audit", "--report", "--assume-minimum-abi3", "3.10"]
    done = process.run([*words, wheel], timeout_s=_TOOL_S)
    try:
        specs = json.loads(done.stdout)["specs"]
    except (ValueError, KeyError) as error:
        raise ToolchainError(
            f"{done.line} failed with status {done.status}:\n{(done.stderr or done.stdout).strip()}"
        ) from error
    return {one["name"]: one["result"] for spec in specs.values() for one in spec["wheel"]}


def _metadata(wheel: Path) -> str:
    done = process.run([sys.executable, "-m", "twine", "check", "--strict", wheel], timeout_s=_TOOL_S)
    return " ".join(done.stdout.split()) if done.status else ""


def _notes(facts: Facts) -> Iterator[str]:
    for name, host in facts.hosts:
        found = [symbol.name for symbol in host.undefined if torch_symbols.needs_cuda(symbol)]
        if found:
            yield (
                f"{name} is loaded by torch with CUDA alone, since it uses {found[0]}. "
                f"With #pragma weak {found[0]} one without CUDA loads it, too."
            )

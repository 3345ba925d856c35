"""`dotcu build --check`: the wheel in a clean environment, as a user gets it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import process, report_base, serialize
from dotcu.compile import toolchain
from dotcu.errors import ToolchainError, UsageError
from dotcu.shipping.audit import metadata_complaint

_RUN_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class CleanRun(report_base.Report):
    """The result of a wheel's run in a clean environment.

    Attributes:
        torch: The torch that was installed first.
        rows: For each operator and dtype, or file of tests: samples, where they ran (of tests, how many were
            skipped), and the fault, "" if there is none.
        metadata: The complaint of `twine check`; "" where it passes.
        upload: The line to type.
    """

    torch: str
    rows: tuple[Mapping[str, Any], ...]
    metadata: str
    upload: str
    how: str = "without compiling (DOTCU_JIT=0)"
    columns: tuple[str, ...] = ("operator", "dtype", "samples", "where", "")

    @property
    def passed(self) -> bool:
        return not self.metadata and all(not row["fault"] for row in self.rows)

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in self.columns:
            table.add_column(column)
        for row in self.rows:
            verdict = row["fault"] or "passed"
            table.add_row(row["operator"], row["dtype"], str(row["samples"]), row["where"], verdict)
        head = Text(f"In a clean environment with {self.torch}, {self.how}:")
        said = self.metadata or "twine check: passed"
        return Group(head, table, Text(said), Text(f"To publish it, type: {self.upload}"))

    def to_json(self) -> dict[str, Any]:
        named = ("passed", "torch", "rows", "metadata", "upload")
        return {name: serialize.plain(getattr(self, name)) for name in named}


PROGRAM = """
import json, sys
from dotcu.shipping.wheel_check_child import rows
print(json.dumps({"rows": list(rows(sys.argv[1:]))}))
"""
"""Calls the operators of some modules, and prints a row for each operator and dtype as JSON."""


def check(wheel: Path, modules: Sequence[str]) -> CleanRun:
    """Install a wheel into its own environment, and run its operators there."""
    torch = _this_torch()
    with _environment([torch], [wheel]) as (folder, python):
        done = _run([python, "-c", PROGRAM, *modules], environment={"DOTCU_JIT": "0"}, folder=folder)
    if importlib.util.find_spec("twine") is None:
        metadata = 'The metadata were not checked: twine is not installed. Type: pip install "dotcu[build]"'
    else:
        metadata = metadata_complaint(wheel)
    return CleanRun(
        torch=torch, rows=tuple(json.loads(done.stdout)["rows"]), metadata=metadata,
        upload=f"python -m twine upload {wheel}",
    )  # fmt: skip


def check_by_tests(wheel: Path, root: Path) -> CleanRun:
    """Install a wheel into its own environment, and run a project's tests there, far from its sources."""
    if not list((root / "tests").glob("test_*.py")):
        raise UsageError(
            f"{root / 'tests'} has no test_*.py, and a wheel of C++ is checked by its tests.\n"
            "Write one that calls the operators, or build without --check."
        )
    torch = _this_torch()
    with _environment([torch], [wheel], ["pytest", "numpy"]) as (folder, python):
        shutil.copytree(root / "tests", Path(folder) / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        report = Path(folder) / "report.xml"
        options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder)
        command = (python, "-m", "pytest", *options, f"--junitxml={report}", "tests")
        done = process.run(command, timeout_s=_RUN_S, folder=folder)
        if not report.is_file():
            raise ToolchainError(f"{done.line} failed:\n{(done.stderr or done.stdout).strip()}")
        rows = tuple(_rows_of(report))
    return CleanRun(
        torch=torch, rows=rows, metadata="", upload=f"python -m twine upload {wheel}",
        how="by the project's tests", columns=("tests", "", "passed", "skipped", ""),
    )  # fmt: skip


def _rows_of(report: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each file of tests, in the form of an operator's; `fault` has one's first line."""
    files: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        files.setdefault(case.get("classname", ""), []).append(case)
    for name, cases in files.items():
        faults = [fault for case in cases for fault in (*case.iter("failure"), *case.iter("error"))]
        skipped = sum(1 for case in cases if case.find("skipped") is not None)
        passed = len(cases) - len(faults) - skipped
        first = (faults[0].get("message") or "").partition("\n")[0] if faults else ""
        fault = f"{len(faults)} failed: {first}" if faults else "" if passed else "none was run"
        yield {"operator": name, "dtype": "", "samples": passed, "where": str(skipped), "fault": fault}


def _this_torch() -> str:
    torch = toolchain.find_torch()
    return f"torch=={torch.version.split('+')[0]}" if torch else "torch"


@contextmanager
def _environment(*installed: Sequence[str | Path]) -> Iterator[tuple[str, Path]]:
    """Make a folder with a new environment, each list installed after the one before; and its Python."""
    with tempfile.TemporaryDirectory(prefix="dotcu-check-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        _run([*process.module_command("venv"), Path(folder) / "env"])
        pip = (*process.module_command("pip", python), "install", "--quiet", "--disable-pip-version-check")
        for names in installed:
            _run([*pip, *names])
        yield folder, python


def _run(
    words: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, folder: str | None = None
) -> process.Finished:
    done = process.run(words, timeout_s=_RUN_S, environment=environment or {}, folder=folder)
    if done.status:
        raise ToolchainError(
            f"{done.line} failed:\n{(done.stderr or done.stdout).strip()}\n"
            "It installs from pip's index; what that lacks can be named: export PIP_FIND_LINKS=FOLDER"
        )
    return done

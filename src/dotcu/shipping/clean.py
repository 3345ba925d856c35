"""`dotcu build --check`: the wheel in a clean environment, as a user gets it."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import plain, process
from dotcu.compile import torch_build
from dotcu.errors import ToolchainError

_INSTALL_S = 1800.0
_RUN_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was seen.

    Attributes:
        torch: The torch that was installed first.
        rows: For each operator and dtype: samples, where they ran, and the fault, "" where there is none.
        metadata: What `twine check` says; "" where it holds.
        upload: The line to type.
    """

    torch: str
    rows: tuple[Mapping[str, Any], ...]
    metadata: str
    upload: str

    @property
    def held(self) -> bool:
        """Whether every operator ran and was right, and the metadata hold."""
        return not self.metadata and all(not row["fault"] for row in self.rows)

    def __rich__(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("operator", "dtype", "samples", "where", ""):
            table.add_column(column)
        for row in self.rows:
            verdict = row["fault"] or "held"
            table.add_row(row["operator"], row["dtype"], str(row["samples"]), row["where"], verdict)
        head = Text(f"In a clean environment with {self.torch}, without compiling (DOTCU_JIT=0):")
        said = self.metadata or "twine check: held"
        return Group(head, table, Text(said), Text(f"To publish it, type: {self.upload}"))

    def __str__(self) -> str:
        return plain.text(self)

    def to_json(self) -> dict[str, Any]:
        """The same as values."""
        return {
            "held": self.held,
            "torch": self.torch,
            "rows": [dict(row) for row in self.rows],
            "metadata": self.metadata,
            "upload": self.upload,
        }


def check(wheel: Path, modules: Sequence[str]) -> Checked:
    """Install a wheel into an environment of its own, and run its operators there.

    Raises:
        ToolchainError: The environment cannot be made, or the operators cannot be run.
    """
    found = torch_build.find()
    torch = f"torch=={found.version.split('+')[0]}" if found else "torch"
    with tempfile.TemporaryDirectory(prefix="dotcu-check-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        _run([sys.executable, "-m", "venv", Path(folder) / "env"])
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, torch])
        _run([*pip, wheel])
        done = _run(
            [python, "-m", "dotcu.cli.trial", *modules], environment={"DOTCU_JIT": "0"}, folder=folder
        )
    return Checked(
        torch=torch, rows=tuple(json.loads(done.stdout)["rows"]), metadata=_metadata(wheel),
        upload=f"python -m twine upload {wheel}",
    )  # fmt: skip


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


def _metadata(wheel: Path) -> str:
    if importlib.util.find_spec("twine") is None:
        return 'The metadata were not checked: twine is not installed. Type: pip install "dotcu[build]"'
    done = process.run([sys.executable, "-m", "twine", "check", "--strict", wheel], timeout_s=_INSTALL_S)
    return done.stdout.strip() if done.status else ""

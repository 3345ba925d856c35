"""A notebook in this process: IPython without a kernel, `%load_ext dotcu` done."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

IPython = pytest.importorskip("IPython", reason="notebooks are IPython's")


class Notebook:
    """Cells, run one by one; what each shows."""

    def __init__(self, shell: Any, read: Callable[[], Any]) -> None:
        self.shell, self._read = shell, read

    def run(self, cell: str) -> str:
        """Run a cell; everything that it prints or shows, errors among it."""
        self._read()
        self.shell.run_cell(cell, store_history=True)
        out: str = self._read().out
        return out

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


@pytest.fixture
def notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Notebook]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config, user_module=ModuleType("page"))
    made = Notebook(shell, capsys.readouterr)
    try:
        assert made.run("%load_ext dotcu\nimport dotcu, torch") == ""
        yield made
    finally:
        shell.restore_sys_module_state()
        atexit.unregister(
            shell.atexit_operations
        )  # of which nothing is to be done for a shell without history
        InteractiveShell.clear_instance()

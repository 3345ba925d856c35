"""The public names: sorted, each of them there, nothing else in sight, and nothing done at import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dotcu
from helpers import forked_scripts


def python(script: str, **environment: str) -> str:
    """Run a script in a new process and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=dict(os.environ) | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_is_sorted() -> None:
    assert dotcu.__all__ == sorted(dotcu.__all__)


def test_type_checkers_see_the_names_that_there_are_at_run_time() -> None:
    block = Path(dotcu.__file__).read_text().partition("if TYPE_CHECKING:")[2].partition("\n_PUBLIC")[0]
    imported = re.findall(r"^    from ([\w.]+) import (\w+) as \2$", block, re.MULTILINE)
    expected = [(module, name) for module, names in dotcu._PUBLIC.items() for name in names]
    assert sorted(imported) == sorted(expected)


def test_all_is_what_is_visible() -> None:
    assert dotcu.__all__ == sorted(name for name in dir(dotcu) if not name.startswith("_"))


@pytest.mark.parametrize("name", dotcu.__all__)
def test_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(dotcu, name).__doc__


def test_a_star_import_gives_the_public_names() -> None:
    done = forked_scripts.run(
        "from dotcu import *; print(*sorted(n for n in dir() if not n.startswith('_')))"
    )
    assert done.stdout.split() == dotcu.__all__, done.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'dotcu' has no attribute 'lod'"):
        dotcu.lod  # noqa: B018


def test_import_loads_no_torch_and_no_driver() -> None:
    loaded = python("import sys, dotcu; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "cuda", "cuda.bindings", "cuda.core", "rich", "typer"}
    assert heavy.isdisjoint(loaded)


def test_import_makes_no_directory(tmp_path: Path) -> None:
    python(
        "import dotcu", HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path), DOTCU_CACHE_DIR=str(tmp_path / "c")
    )
    assert list(tmp_path.iterdir()) == []


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; import dotcu\n"


def test_without_torch_a_name_that_needs_it_gives_the_line_to_type() -> None:
    script = WITHOUT_TORCH + "try: dotcu.load\nexcept dotcu.errors.EnvironmentFault as error: print(error)"
    message = python(script)
    assert message.startswith("dotcu.load needs torch, which is not installed")
    assert "\n    pip install torch\n" in message
    assert "\n    pip install torch --index-url https://download.pytorch.org/whl/cpu\n" in message


def test_without_torch_the_errors_and_the_simulator_still_import() -> None:
    python(WITHOUT_TORCH + "dotcu.errors.DotcuError; import dotcu.simulator")

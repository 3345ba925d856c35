"""Every code block of README.md, docs/ and the gallery's pages does what its page says it does.

The blocks of a page are run in order, in an empty folder of its own:

    ```cuda title="scale.cu"     any block with a title is written to that file
    ```python                    run, in one namespace for the page
    ```console                   each `$ line` is run by a shell, and what it prints is compared
    ```sh                        not run: lines that install something or need a clone

In expected output `...` stands for any text, and what is measured (a time, a percentage, a number
below one) for any other. A block under `<!-- needs a GPU -->` is skipped where there is none.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dotcu import errors
from dotcu.benchmark.limits import limit
from dotcu.benchmark.protocol import Protocol
from dotcu.checking import numerics
from dotcu.checking.catalogue import CHECKS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "dotcu" / "gallery").rglob("*.md")),
]
LONG = {
    *("bench.md", "build.md", "check.md", "cli.md", "everywhere.md", "inspect.md", "mixed.md", "native.md"),
    *("new.md", "operators.md", "performance.md", "pitfalls.md", "reading_code.md", "simulator.md"),
    "tutorial.md",
}
"""Pages whose commands take long; `make test-all` runs them."""

BLOCK = re.compile(
    r"^(?P<comment><!-- [^\n]* -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<line>[^\n]*)\n(?P<output>.*?)(?=^\$ |\Z)", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"\b\d+(\.\d+)? (µs|ms|s)\b|\b\d+%|\b0\.\d+\b")
NOT_RUN = {"sh", "text", "cuda", "toml", "yaml", "cpp"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, the file that it is, its text, and the line that it starts on."""

    language: str
    title: str
    text: str
    line: int
    needs_gpu: bool


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', match["info"])
        yield Block(
            language=match["language"],
            title=title[1] if title else "",
            text=re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            line=text.count("\n", 0, match.start("text")) + 1,
            needs_gpu="needs a GPU" in (match["comment"] or ""),
        )


def matches(expected: str, got: str) -> bool:
    pattern = re.escape(normal(expected)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, normal(got), re.DOTALL) is not None


def normal(text: str) -> str:
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in MEASURED.sub("#", text).strip().splitlines()]
    return "\n".join(lines)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `python` and `dotcu` of the environment under test, whatever PATH has."""
    folder = tmp_path_factory.mktemp("bin")
    for name, words in {"python": [sys.executable], "dotcu": [sys.executable, "-m", "dotcu"]}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run_console(block: Block, page: Path, programs: Path, cache: Path) -> None:
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    for command in COMMAND.finditer(block.text):
        done = subprocess.run(
            command["line"],
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(os.environ) | {"PATH": path, "DOTCU_CACHE_DIR": str(cache)},
            check=False,
        )
        got = done.stdout.replace(f"{Path.cwd()}/", "")
        where = f"{page.name}:{block.line}: $ {command['line']}"
        assert matches(command["output"], got), f"{where}\n--- expected\n{command['output']}--- got\n{got}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.name in LONG else ()) for page in PAGES],
    ids=[page.relative_to(ROOT).as_posix() for page in PAGES],
)
def test_page(
    page: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    programs: Path,
) -> None:
    cache = tmp_path_factory.mktemp("empty-cache")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where torch looks a function's module up
    module.__file__ = str(tmp_path / "page.py")
    namespace = vars(module)
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.needs_gpu and not torch.cuda.is_available():
            continue
        if block.title:
            Path(block.title).write_text(block.text)
            sys.modules.pop(Path(block.title).stem, None)  # another page may have a file of that name
        elif block.language == "python":
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(tmp_path / "page.py"), "exec"), namespace)
        elif block.language == "console":
            run_console(block, page, programs, cache)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_a_page_has_a_language_that_is_run_or_said_not_to_be(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE)), "a fence was not understood"
    unknown = [b.line for b in found if b.language not in NOT_RUN | {"python", "console"} and not b.title]
    assert unknown == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("a\n", "a"),
        ("a ... c", "a b\nb c"),
        ("took 12 ms, 4%", "took 3.4 ms, 70%"),
        ("...\nlast", "first\nlast"),
    ],
)
def test_output_that_fits(expected: str, got: str) -> None:
    assert matches(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"), [("a", "ab"), ("", "a"), ("12 lanes", "13 lanes"), ("... c", "a b")]
)
def test_output_that_does_not_fit(expected: str, got: str) -> None:
    assert not matches(expected, got)


def test_every_error_has_its_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and name in (errors.__doc__ or "")
    ]
    assert [name for name in names if f"`{name}`" not in page and f"errors.{name}`" not in page] == []


def test_the_table_of_checks_is_the_catalogue() -> None:
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (quick|standard|full) \|$", page, re.MULTILINE)
    assert rows == [(check.name, check.finds, check.level.name.lower()) for check in CHECKS.values()]


def test_the_bound_in_the_docs_is_the_one_in_force() -> None:
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    told = re.findall(r"\*\*(\d+) times\*\*", page.partition("## The bound")[2].partition("\n## ")[0])
    assert told == [f"{numerics.MARGIN:g}", f"{numerics.NORM_MARGIN:g}"]


def test_the_parameters_of_a_measurement_in_the_docs_are_those_in_force() -> None:
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| .* \|$", page, re.MULTILINE)
    assert rows == [(name, str(value)) for name, value in dataclasses.asdict(Protocol()).items()]


def test_what_marks_a_row_in_the_docs_is_what_does() -> None:
    page = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    assert f"Above {limit.MARKED_ABOVE:g} % a row is marked" in page

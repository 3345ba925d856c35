"""The reference of the site says what the source says: each command, option, variable and error."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import dotcu
from dotcu import errors, settings

pytest.importorskip("mkdocs", reason="the site is made by mkdocs, of dotcu[dev]")
DOCS = Path(__file__).parents[2] / "docs"


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "hooks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return hook("reference")


def written(reference: ModuleType, what: str) -> str:
    text: str = reference.on_page_markdown(f"# A page\n\n<!-- written: {what} -->\n")
    assert "<!--" not in text
    return text


def test_every_variable_is_listed_with_its_default(reference: ModuleType) -> None:
    page = written(reference, "variables")
    for field in dataclasses.fields(settings.Settings):
        assert f"| `{field.metadata['variable']}` |" in page
    assert "| `DOTCU_CACHE_BYTES` | a number; `1073741824` |" in page


def test_every_error_is_listed_with_its_exit_code(reference: ModuleType) -> None:
    page = written(reference, "errors")
    entries = dict(re.findall(r"^::: dotcu\.errors\.(\w+)\n(.*?)(?=^:::|\Z)", page, re.MULTILINE | re.DOTALL))
    assert {name for name in vars(errors) if f"── {name} " in (errors.__doc__ or "")} <= entries.keys()
    assert "Exit code of a command: 2." in entries["UsageError"]


def test_an_error_without_a_remedy_fails_the_build(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class New(errors.DotcuError):
        """An error without a row in the docs."""

    monkeypatch.setattr(errors, "New", New, raising=False)
    with pytest.raises(reference.PluginError, match="no row for New"):
        list(reference.every_error())


def test_every_command_is_listed_with_its_options(reference: ModuleType) -> None:
    page = written(reference, "commands")
    main = (
        (DOCS / "reference" / "commands.md")
        .read_text(encoding="utf-8")
        .partition("Commands:\n")[2]
        .partition("```")[0]
    )
    verbs = re.findall(r"^  ([\w-]+) ", main, re.MULTILINE)
    assert verbs
    assert re.findall(r"^## dotcu ([\w-]+)$", page, re.MULTILINE) == verbs
    assert "| `--only NAME` | a trial, or a prefix of several; may be repeated |" in page


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: [\w.]+\.(\w+)$", pages, re.MULTILINE))
    assert set(dotcu.__all__) - {"errors"} <= shown


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("# Title\n\nIt works. More.\n", "It works."),
        ("# Title\n\n<!-- note -->\n\nSee [a\npage](page.md) for `x.y`.\n\nMore", "See a page for `x.y`."),
    ],
)
def test_a_page_is_listed_for_assistants_by_its_first_sentence(page: str, sentence: str) -> None:
    assert hook("assistants").first_sentence(page) == sentence

"""The moving picture of the README shows what its commands print today."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MEASURED = re.compile(r"\b\d+\.\d+ s\b|\b0\.\d+\b")


@pytest.fixture(scope="module")
def terminal() -> ModuleType:
    spec = importlib.util.spec_from_file_location("picture_terminal", FOLDER / "terminal.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def rows(picture: str) -> list[str]:
    texts = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return [MEASURED.sub("#", html.unescape(re.sub(r"<[^>]*>", "", text))) for text in texts]


def test_the_picture_shows_what_the_commands_print(terminal: ModuleType) -> None:
    shown = rows(terminal.PICTURE.read_text(encoding="utf-8"))
    assert shown == rows(terminal.picture(terminal.scenes())), "type: python docs/pictures/terminal.py"
    assert any("writes at line 5, and nothing orders the two" in row for row in shown)
    assert any(row.startswith("passed: 1 overload") for row in shown)


def test_the_picture_needs_nothing_but_itself(terminal: ModuleType) -> None:
    text = terminal.PICTURE.read_text(encoding="utf-8")
    tags = {element.tag.partition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert tags == {"svg", "style", "rect", "circle", "g", "text", "tspan"}
    assert "url(" not in text
    assert "prefers-reduced-motion" in text

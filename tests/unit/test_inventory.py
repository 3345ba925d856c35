"""docs/inventory.md answers every item of the templates, and what its answers point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dotcu.gallery
from dotcu.cli.main import parser

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "inventory.md"
ITEMS = {
    "A": [*range(1, 22), *range(30, 33)],
    "B": range(1, 17),
    "C": range(1, 35),
    "D": range(1, 25),
    "E": range(1, 15),
    "X": range(1, 10),
}
"""The items that were found in each template, by number. None is ever taken out: it is answered."""

IDS = [f"{letter}{number:02}" for letter, numbers in ITEMS.items() for number in numbers]

ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<there>.*?) \| (?P<here>.*) \|$", re.MULTILINE)
ANSWER = re.compile(r"\*\*(?P<answer>done|otherwise|no)\*\*(?: for [^:]+)?: (?P<how>\S.*)")
LINK = re.compile(r"\]\((?P<page>[^)#]*)(?:#(?P<part>[^)]*))?\)")


def rows(text: str) -> list[tuple[str, str, str]]:
    return [(row["id"], row["there"], row["here"]) for row in ROW.finditer(text)]


def unanswered(text: str) -> list[str]:
    """The items without an answer: no row, no verdict, or a verdict without a place and a reason."""
    answered = set()
    for name, there, here in rows(text):
        answer = ANSWER.fullmatch(here)
        if answer is None or not there:
            continue
        points = LINK.search(answer["how"]) or "`" in answer["how"]
        reason = answer["answer"] != "done" and len(answer["how"].split()) >= 5
        if points or reason:
            answered.add(name)
    return [name for name in IDS if name not in answered]


def parts(page: Path) -> set[str]:
    """What a link can name of a page, after #: its headings, as mkdocs spells them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def leads_nowhere(text: str, folder: Path) -> list[str]:
    wrong = []
    for link in LINK.finditer(text):
        page = (folder / link["page"]).resolve()
        if not page.is_file() or (link["part"] and link["part"] not in parts(page)):
            wrong.append(link[0])
    return wrong


def test_every_item_has_an_answer() -> None:
    assert unanswered(PAGE.read_text(encoding="utf-8")) == []


def test_every_item_is_there_once_and_in_order() -> None:
    assert [name for name, _, _ in rows(PAGE.read_text(encoding="utf-8"))] == IDS


def test_every_link_leads_somewhere() -> None:
    assert leads_nowhere(PAGE.read_text(encoding="utf-8"), DOCS) == []


def test_every_operator_and_command_that_is_named_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    operators = set(re.findall(r"`dotcu\.gallery\.(\w+)", text))
    assert operators
    assert operators <= set(dotcu.gallery.__all__)
    commands = set(re.findall(r"`dotcu ([a-z-]+)", text)) - {"-v"}
    assert commands
    assert commands <= {command.name for command in parser().registered_commands}


def test_every_way_to_come_from_is_in_the_table_and_in_the_menu() -> None:
    folder, menu = DOCS / "coming_from", (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    table = (folder / "index.md").read_text(encoding="utf-8")
    pages = sorted(page.name for page in folder.glob("*.md") if page.name != "index.md")
    assert len(pages) == 10
    assert [page for page in pages if f"]({page})" not in table or f"coming_from/{page}" not in menu] == []
    for page in pages:
        text = (folder / page).read_text(encoding="utf-8")
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert headings == ["What you have", "What you write now", "What you gain", "What you lose"], page


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("", "no row"),
        ("| A05 | sizes |  |", "nothing"),
        ("| A05 | sizes | [Check](check.md) |", "no verdict"),
        ("| A05 | sizes | **done**: yes, all of it, and better |", "a claim without a place"),
        ("| A05 | sizes | **no**: not now |", "no reason"),
    ],
)
def test_an_item_without_an_answer_is_found(row: str, why: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    changed = re.sub(r"^\| A05 \|.*$", row, text, flags=re.MULTILINE)
    assert changed != text
    assert unanswered(changed) == ["A05"], why


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](check.md#nothing-of-the-sort)"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert leads_nowhere(link, DOCS) == [link.removeprefix("[a")]
    assert leads_nowhere("[a](check.md#the-bound)", DOCS) == []

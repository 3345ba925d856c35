"""Write the documentation for assistants when the site is built.

llms.txt         every page of the navigation, with its first sentence (https://llmstxt.org)
llms-full.txt    their text, with the signature and docstring of each object that a page shows
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHOWN = re.compile(
    r"^::: (?P<path>[\w.]+)$(\n    options:\n      members: \[(?P<members>[\w, ]*)\]$)?", re.MULTILINE
)
"""An object that a page shows, and the listed members; without a list, all public ones."""

_pages: dict[str, str] = {}


def on_config(config: Any) -> None:
    """Forget the pages of an earlier build; MkDocs calls this first."""
    _pages.clear()


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> None:
    """Store a page; MkDocs calls this after the other hook has filled it in."""
    _pages[page.file.src_uri] = markdown


def on_post_build(config: Any) -> None:
    """Write both files; MkDocs calls this when the site is built."""
    site = Path(config.site_dir)
    head = f"# {config.site_name}\n\n> {config.site_description}\n"
    lines = "\n".join(listed(config.nav, config.site_url or ""))
    (site / "llms.txt").write_text(f"{head}\n{lines}\n", encoding="utf-8")
    handler = config.plugins["mkdocstrings"].get_handler("python")  # which has read the source by now
    texts = [
        SHOWN.sub(lambda shown: described(handler, shown["path"], shown["members"]), _pages[uri])
        for _, uri in in_order(config.nav)
    ]
    (site / "llms-full.txt").write_text("\n\n".join([head, *map(str.strip, texts)]) + "\n", encoding="utf-8")


# ---------------------------------------------------------------- the list


def listed(nav: list[Any], root: str) -> Iterator[str]:
    """Yield the sections of the navigation with their pages."""
    for entry in nav:
        ((title, below),) = entry.items()
        if isinstance(below, list):
            yield f"\n## {title}\n"
        for name, uri in in_order([entry]):
            address = root + re.sub(r"(^|/)index\.md$", r"\1", uri).replace(".md", "/")
            yield f"- [{name}]({address or './'}): {first_sentence(_pages[uri])}"


def in_order(nav: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the title and file of every page, in the order of the navigation."""
    for entry in nav:
        if isinstance(entry, str):
            yield re.search(r"^# (.*)$", _pages[entry], re.MULTILINE)[1], entry
            continue
        ((title, below),) = entry.items()
        if isinstance(below, list):
            yield from in_order(below)
        else:
            yield title, below


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page, without links."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^#.*$|^<!--.*-->$", "", markdown, flags=re.MULTILINE))
    words = " ".join(next(filter(str.strip, paragraphs), "").split())
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=\.) (?=[A-Z`])", words)[0])


# ---------------------------------------------------------------- objects


def described(handler: Any, path: str, members: str | None) -> str:
    """Return the signature and docstring of an object and its members, as text."""
    shown = handler.collect(path, handler.get_options({}))
    shown = shown.final_target if shown.is_alias else shown
    public = [name for name in shown.members if not name.startswith("_")] if shown.is_class else []
    names = public if members is None else filter(None, members.split(", "))
    below = [(f"{path}.{name}", shown.members[name]) for name in names]
    return "\n\n".join(entry(name, one) for name, one in [(path, shown), *below] if one.docstring)


def entry(path: str, shown: Any) -> str:
    signature = shown.signature() if shown.is_function or shown.is_class else shown.name
    docstring = shown.docstring.value if shown.docstring else ""
    return f"### {path}\n\n```text\n{signature}\n```\n\n{docstring}".rstrip()

"""A page as the text of one HTML file: the template with style, script and data inlined."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

from dotcu.inspection.html.encode import encode
from dotcu.inspection.html.page import Changed, Page

_STYLES = ("theme.css", "layout.css", "panes.css")
_SCRIPTS = ("data.js", "highlight.js", "pane.js", "links.js", "search.js", "head.js", "main.js")
"""In the order in which they are joined into one script, of which the last part starts it."""

_SLOT = re.compile(r"\{\{(\w+)\}\}")


def render(page: Page) -> str:
    """The page as HTML that is whole by itself: it loads nothing, and a browser is forbidden to let it.

    Its policy allows the one script by its digest, so no text of a kernel, however written, can run.

    Raises:
        ValueError: The page has no kernel.
    """
    if not page.kernels:
        raise ValueError(f"a page shows one kernel or more (got none, for {page.title!r})")
    script = _script()
    filled = {
        "title": html.escape(page.title),
        "digest": _digest(script),
        "style": "".join(map(_part, _STYLES)),
        "script": script,
        "data": encode(page),
        "changes": _changes(page.changed),
    }
    return _SLOT.sub(lambda slot: filled[slot[1]], _part("page.html"))


def _changes(changed: Iterable[Changed]) -> str:
    """A section without script: what changed is the same for whatever kernel is shown."""
    items = "".join(
        f"<li><b>{html.escape(one.name)}</b> "
        + (" ".join(f"<span>{html.escape(each)}</span>" for each in one.changes) or "<span>the same</span>")
        + "</li>"
        for one in changed
    )
    if not items:
        return ""
    return f'<details id="changes" open><summary>what changed</summary><ul>{items}</ul></details>'


@cache
def _script() -> str:
    return '"use strict";(() => {\n' + "".join(map(_part, _SCRIPTS)) + "})();\n"


@cache
def _part(name: str) -> str:
    return (resources.files(__package__) / "template" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """As a content security policy spells it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

"""Writes the reference of commands, errors and variables from the source, each time the site is built.

A page says where by a line of its own: `<!-- written: commands -->`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from typer.main import get_command

from dotcu import errors, settings
from dotcu.cli.main import parser

DOCS = Path(__file__).parent.parent
MARK = re.compile(r"^<!-- written: (\w+) -->$", re.MULTILINE)
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<when>.*) \| (?P<remedy>.*) \|$", re.MULTILINE)
"""A row of a table of docs/errors.md."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page, before it becomes HTML."""
    return MARK.sub(lambda mark: "\n".join(WRITERS[mark[1]]()), markdown)


# ---------------------------------------------------------------- commands


def commands() -> Iterator[str]:
    """Every command: how it is called, its arguments and options, in the words of its `--help`."""
    root: Any = get_command(parser())
    with root.make_context("dotcu", [], resilient_parsing=True) as above:
        yield from command("dotcu", root, above)
        for name, verb in root.commands.items():
            with verb.make_context(name, [], parent=above, resilient_parsing=True) as context:
                yield from command(f"dotcu {name}", verb, context)


def command(path: str, verb: Any, context: Any) -> Iterator[str]:
    usage = verb.get_usage(context).removeprefix("Usage: ")
    yield f"## {path}\n\n{text(inspect.cleandoc(verb.help))}\n\n```text\n{usage}\n```\n"
    records = [parameter.get_help_record(context) for parameter in verb.get_params(context)]
    rows = [(f"`{spelled}`", text(meaning)) for spelled, meaning in filter(None, records)]
    yield from table(("argument or option", "meaning"), rows)


# ---------------------------------------------------------------- variables


def variables() -> Iterator[str]:
    """Every environment variable that dotcu reads."""
    heads = ("variable", "takes; default", "meaning")
    yield from table(heads, map(variable, dataclasses.fields(settings.Settings)))
    read = ", ".join(f"`{name}`" for name in settings.READ_BY_COMPILERS)
    yield f"Compilers read some themselves, and what they build is kept by those, too: {read}."


def variable(setting: Any) -> tuple[str, str, str]:
    kinds = {"bool": "1 or 0", "int": "a number", "Path": "a path", "str": "text"}
    kind = kinds[str(setting.type).partition(" ")[0]]
    given = {None: "", True: "; `1`", False: "; `0`"}.get(setting.default, f"; `{setting.default}`")
    return f"`{setting.metadata['variable']}`", kind + given, text(setting.metadata["meaning"])


# ---------------------------------------------------------------- errors


def every_error() -> Iterator[str]:
    """Every class of error, with the remedy that docs/errors.md has for it."""
    remedies = {row["name"]: row for row in ROW.finditer((DOCS / "errors.md").read_text(encoding="utf-8"))}
    for error in classes():
        yield f"::: dotcu.errors.{error.__name__}\n"
        kinds = [f"[`{kind.__name__}`][dotcu.errors.{kind.__name__}]" for kind in error.__subclasses__()]
        row = remedies.get(error.__name__)
        if row is None and not kinds:
            raise PluginError(f"docs/errors.md has no row for {error.__name__}: when, and what to do")
        if row is not None:
            yield f"**When:** {moved(row['when'])}.\n\n**What to do:** {moved(row['remedy'])}.\n"
        if kinds:
            yield f"**Kinds of it:** {', '.join(kinds)}.\n"
        yield f"A command that ends by it has exit code {error.exit_code}.\n"


def classes() -> list[type[errors.DotcuError]]:
    """The errors in the order of the source."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DotcuError)
    ]


def moved(cell: str) -> str:
    """A cell of docs/errors.md, with links as they are from a folder below."""
    return re.sub(r"\]\((?=\w)(?!https?:)", "](../", cell).replace("](#", "](../errors.md#")


# ---------------------------------------------------------------- Markdown


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a table."""
    heads = tuple(heads)
    for cells in (heads, ("---",) * len(heads), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def text(plain: str) -> str:
    """Plain text as Markdown, outside of what it has in backticks."""
    parts = re.split(r"(`[^`]*`)", plain)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)


WRITERS = {"commands": commands, "variables": variables, "errors": every_error}

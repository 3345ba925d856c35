"""Generate the reference of commands, errors and variables from the source when the site is built.

A page marks the place with a line of its own: `<!-- written: commands -->`.
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
ROW = re.compile(r"^\| `(\w+)` \| .+ \| .+ \|$", re.MULTILINE)
"""A row of a table of docs/reference/errors.md: the error, when it is raised, what to do."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the marks of a page; MkDocs calls this before the page becomes HTML."""
    return MARK.sub(lambda mark: "\n".join(WRITERS[mark[1]]()), markdown)


# ---------------------------------------------------------------- commands


def commands() -> Iterator[str]:
    """Yield every command with its usage, arguments and options, as in its `--help`."""
    root: Any = get_command(parser())
    with root.make_context("dotcu", [], resilient_parsing=True) as above:
        yield from command("dotcu", root, above)
        for name, verb in root.commands.items():
            with verb.make_context(name, [], parent=above, resilient_parsing=True) as context:
                yield from command(f"dotcu {name}", verb, context)
                for inner, each in getattr(verb, "commands", {}).items():
                    with each.make_context(inner, [], parent=context, resilient_parsing=True) as below:
                        yield from command(f"dotcu {name} {inner}", each, below)


def command(path: str, verb: Any, context: Any) -> Iterator[str]:
    usage = verb.get_usage(context).removeprefix("Usage: ")
    yield f"## {path}\n\n{text(inspect.cleandoc(verb.help))}\n\n```text\n{usage}\n```\n"
    records = [parameter.get_help_record(context) for parameter in verb.get_params(context)]
    rows = [(f"`{spelled}`", text(meaning)) for spelled, meaning in filter(None, records)]
    yield from table(("argument or option", "meaning"), rows)


# ---------------------------------------------------------------- variables


def variables() -> Iterator[str]:
    """Yield every environment variable that dotcu reads."""
    heads = ("variable", "takes; default", "meaning")
    yield from table(heads, map(variable, dataclasses.fields(settings.Settings)))
    read = ", ".join(f"`{name}`" for name in settings.READ_BY_COMPILERS)
    yield f"Compilers read some variables themselves, and the cache keys cover them: {read}."


def variable(setting: Any) -> tuple[str, str, str]:
    kinds = {"bool": "1 or 0", "tuple[Path,": "paths", "int": "a number", "Path": "a path", "str": "text"}
    kind = kinds[str(setting.type).partition(" ")[0]]
    given = {None: "", (): "", True: "; `1`", False: "; `0`"}.get(setting.default, f"; `{setting.default}`")
    return f"`{setting.metadata['variable']}`", kind + given, text(setting.metadata["meaning"])


# ---------------------------------------------------------------- errors


def every_error() -> Iterator[str]:
    """Yield every error class with its exit code; each needs a row in the tables of the page."""
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    described = set(ROW.findall(page))
    for error in classes():
        kinds = [f"[`{kind.__name__}`][dotcu.errors.{kind.__name__}]" for kind in error.__subclasses__()]
        if error.__name__ not in described and not kinds:
            raise PluginError(
                f"docs/reference/errors.md has no row for {error.__name__}: when, and what to do"
            )
        yield f"::: dotcu.errors.{error.__name__}\n"
        if kinds:
            yield f"Subclasses: {', '.join(kinds)}.\n"
        yield f"Exit code of a command: {error.exit_code}.\n"


def classes() -> list[type[errors.DotcuError]]:
    """Return the error classes in the order of the source."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DotcuError)
    ]


# ---------------------------------------------------------------- Markdown


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    heads = tuple(heads)
    for cells in (heads, ("---",) * len(heads), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def text(plain: str) -> str:
    """Escape plain text for Markdown, except within backticks."""
    parts = re.split(r"(`[^`]*`)", plain)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)


WRITERS = {"commands": commands, "variables": variables, "errors": every_error}

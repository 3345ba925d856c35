"""Files of tuned configurations: `ops.tuned.toml` beside `ops.py`, written by `dotcu tune` and committed.

A file has entries for each operator: on which GPU, for which key of calls, which configuration was fastest,
and a digest of what was tuned. It is sorted, so the same entries make the same text.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import msgspec

from dotcu import serialize
from dotcu.compile.include_graph import include_graph, system_headers
from dotcu.errors import UsageError, quoted
from dotcu.files import read_text
from dotcu.kernel import Kernel, Module
from dotcu.kernel.shape_queries import ByLayout
from dotcu.pyproject import parse_toml

FORMAT = 1
SUFFIX = ".tuned.toml"

_HEAD = """\
# Written by `dotcu tune`: the fastest configurations, by GPU and by key of the calls.
# Commit this file. Do not edit it: tune again, or join files by `dotcu tune TARGET --merge FILE`.
"""

TunedValue = bool | int | float | str
"""A value of a key or of a configuration."""

CallKey = tuple[TunedValue, ...]
"""What of a call matters to its configuration: dtypes and the like by name, sizes by their bucket."""


@dataclass(frozen=True, kw_only=True, order=True)
class TunedGpu:
    """A GPU as a file names it: capability `9.0`."""

    capability: str
    multiprocessors: int
    name: str


@dataclass(frozen=True, kw_only=True)
class TunedEntry:
    """The configuration of a key on a GPU.

    Attributes:
        key: What of a call it is for.
        configuration: Its values by name.
        median_us: Its time.
        over_runner_up: The time of the best of the others, over its own.
        over_default: The time of the author's default, over its own; 0 if the default was rejected.
        digest: Of the operator and its sources, as `digest_of` has it.
        driver: The driver's version.
        date: The day on which it was timed, `2026-11-27`.
    """

    gpu: str
    capability: str
    multiprocessors: int
    key: tuple[bool | int | float | str, ...]
    configuration: dict[str, bool | int | float | str]
    median_us: float
    over_runner_up: float
    over_default: float
    digest: str
    driver: str = ""
    date: str = ""

    @property
    def on(self) -> TunedGpu:
        """The GPU."""
        return TunedGpu(capability=self.capability, multiprocessors=self.multiprocessors, name=self.gpu)

    @property
    def place(self) -> tuple[TunedGpu, tuple[tuple[str, str], ...]]:
        """The key that a file has one entry for, and is sorted by."""
        return self.on, tuple((type(part).__name__, _sortable(part)) for part in self.key)


def _sortable(part: TunedValue) -> str:
    return f"{part:020d}" if type(part) is int else str(part)


def joined(old: Sequence[TunedEntry], new: Sequence[TunedEntry]) -> tuple[TunedEntry, ...]:
    """Return entries in a file's order: of two for one GPU and key the later, of one day the new one."""
    by_place = {entry.place: entry for entry in old}
    for entry in new:
        before = by_place.get(entry.place)
        if before is None or before.date <= entry.date:
            by_place[entry.place] = entry
    return tuple(by_place[place] for place in sorted(by_place))


@dataclass(frozen=True, kw_only=True)
class TunedFile:
    """The content of a file: entries by the operators' qualified names."""

    format: int = FORMAT
    operators: dict[str, tuple[TunedEntry, ...]] = field(default_factory=dict)

    def with_entries(self, operator: str, entries: Sequence[TunedEntry]) -> TunedFile:
        """Return it with entries of an operator added, or in place of older ones."""
        together = joined(self.operators.get(operator, ()), entries)
        return TunedFile(operators={**self.operators, operator: together})

    def to_text(self) -> str:
        """Return the text of the file."""
        lines = [_HEAD, f"format = {self.format}"]
        for name, entries in sorted(self.operators.items()):
            for entry in joined(entries, ()):
                lines += ["", f"[[operators.{_toml(name)}]]"]
                lines += [f"{key} = {_toml(value)}" for key, value in vars(entry).items()]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Write it whole, unless it is there already."""
        text = self.to_text()
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if read_text(path) == text:
                return
        path = path.resolve()  # a link stays one
        whole = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            whole.write_text(text, encoding="utf-8")
            whole.replace(path)
        finally:
            whole.unlink(missing_ok=True)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):  # a JSON string is a basic string of TOML, whose escapes are the same
        return serialize.to_json(value).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def read(path: Path) -> TunedFile:
    """Read a file.

    Raises:
        UsageError: It cannot be read, is of a later format, or not as `dotcu tune` writes it.
    """
    try:
        values = parse_toml(read_text(path))
        if values.get("format") != FORMAT:
            found = values.get("format")
            raise UsageError(
                f"{path} has the format {found!r}, and this dotcu reads {FORMAT}.\n"
                "If a later dotcu wrote it, type: pip install --upgrade dotcu"
            )
        return serialize.from_plain(TunedFile, values)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.\nSee what is there: ls -l {quoted(path.parent)}"
        ) from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{path} is not as `dotcu tune` wrote it: {error}.\n"
            "Restore it from your version control, or delete it and tune again."
        ) from error


def file_of(body: Callable[..., Any]) -> Path | None:
    """Return the file of the tuned configurations of a body's module; None where it has no file."""
    file = getattr(inspect.unwrap(body), "__globals__", {}).get("__file__")
    return Path(file).with_suffix(SUFFIX) if file else None


# ------------------------------------------------------------------ digests


def digest_of(body: Callable[..., Any], *others: Callable[..., Any] | str) -> str:
    """Return a digest of an operator and its sources.

    These are a body, and other functions and text; the functions and constants of their module that they
    name; and the kernels' sources with the headers that those reach.
    """
    digest = hashlib.sha256()
    parts: dict[str, None] = {}
    seen: set[int] = set()
    for each in (body, *others):
        parts.update(dict.fromkeys(_parts(each, seen)))
    for part in sorted(parts):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    value = value.function if isinstance(value, ByLayout) else value
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (Module, Kernel)):
        module = value if isinstance(value, Module) else value.module
        yield include_graph(module.source, system_headers(()), options=module.options).digest
    elif isinstance(value, FunctionType):
        yield _text(value)
        home = value.__module__
        for name in _names(value.__code__):
            named = value.__globals__.get(name)
            own = not isinstance(named, FunctionType) or named.__module__ == home
            if own and name in value.__globals__:
                yield from _parts(named, seen)
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                yield from _parts(cell.cell_contents, seen)
    elif _is_constant(value):
        yield repr(value)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (bool, int, float, str))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return function.__code__.co_code.hex()

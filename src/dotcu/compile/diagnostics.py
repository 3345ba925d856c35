"""The compiler's log as values, and as a message that shows the user's own line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

Lines = Callable[[str], Sequence[str]]
"""Gives the lines of a file by its virtual name, as the user wrote them; none where unknown."""

# cuda/crt front end: `file(line): error: text` and `file(line): warning #177-D: text`.
_HEAD = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<severity>catastrophic error|error|warning|remark|note)(?: #(?P<number>\d+(?:-D)?))?: (?P<text>.*)$"
)
_TOOL = re.compile(
    r"^(?P<tool>ptxas|nvrtc):? (?P<where>.*?)?(?P<severity>warning|error|fatal) *: (?P<text>.*)$"
)
_SUMMARY = re.compile(
    r"^\d+ (?:catastrophic )?errors? detected|^Compilation terminated|^Remark: The warnings"
)
_CARET = re.compile(r"^[ \t]*\^[ \t]*$")
_AT_LINE = re.compile(r"(?P<before>.*\bat line )(?P<line>\d+)(?: of (?P<file>\S+))?(?P<after>.*)")


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One thing that the compiler said.

    Attributes:
        severity: "error", "warning", "remark" or "note".
        file: The user's file, or the name to show for one that is not on disk.
        line: Counted from 1; 0 where the compiler named no line.
        column: Counted from 1; 0 where the compiler gave none.
        source: The line as the user wrote it.
        notes: What the compiler added: the instantiation context, mostly.
    """

    severity: str
    file: str
    line: int
    column: int
    message: str
    source: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = [f"{place}: {self.severity}: {self.message}" if place else f"{self.severity}: {self.message}"]
        if self.source:
            text.append(f"    {self.source}")
            if self.column:
                text.append("    " + _indent(self.source, self.column) + "^")
        return "\n".join([*text, *(f"  {note}" for note in self.notes)])


def _indent(source: str, column: int) -> str:
    """Blanks up to a column, with the tabs of the line above kept so that the caret stands right."""
    return "".join("\t" if character == "\t" else " " for character in source[: column - 1])


def parse(log: str, files: Mapping[str, str], lines: Lines) -> tuple[Diagnostic, ...]:
    """Read a compile's log.

    Args:
        files: What to show for each virtual file name.
        lines: The text of each, for the line that a diagnostic is about.
    """
    found: list[Diagnostic] = []
    for chunk in _chunks(log):
        tool = _TOOL.match(chunk[0])
        if tool:
            found.append(_tool(tool))
        else:
            found.append(_front_end(chunk, files, lines))
    return tuple(found)


def _chunks(log: str) -> list[list[str]]:
    """Split a log at the first line of each diagnostic; lines that belong to none are dropped."""
    chunks: list[list[str]] = []
    open_chunk = False
    for line in log.splitlines():
        if _HEAD.match(line) or _TOOL.match(line):
            chunks.append([line])
            open_chunk = True
        elif _SUMMARY.match(line) or line.startswith("ptxas "):
            open_chunk = False
        elif open_chunk and line.strip():
            chunks[-1].append(line)
    return chunks


def _tool(match: re.Match[str]) -> Diagnostic:
    severity = "warning" if match["severity"] == "warning" else "error"
    where = (match["where"] or "").strip(" ,;")
    return Diagnostic(
        severity=severity, file="", line=0, column=0,
        message=match["text"].strip() + (f" ({where})" if where else "") + f" [{match['tool']}]",
    )  # fmt: skip


def _front_end(chunk: list[str], files: Mapping[str, str], lines: Lines) -> Diagnostic:
    head = _HEAD.match(chunk[0])
    assert head is not None
    carets = [index for index, line in enumerate(chunk) if _CARET.match(line)]
    column = _column(chunk[carets[0] - 1], chunk[carets[0]]) if carets else 0
    message = " ".join([head["text"], *(line.strip() for line in chunk[1 : carets[0] - 1 if carets else 1])])
    notes = chunk[carets[0] + 1 :] if carets else chunk[1:]
    diagnostic = Diagnostic(
        severity="error" if "error" in head["severity"] else head["severity"],
        file=files.get(head["file"], head["file"]),
        line=int(head["line"]),
        column=column,
        message=message + (f" [#{head['number']}]" if head["number"] else ""),
        notes=tuple(_note(note, files, files.get(head["file"], head["file"])) for note in notes),
    )
    return _with_source(diagnostic, lines(head["file"]), chunk[carets[0] - 1][2:] if carets else "")


def _column(shown: str, caret: str) -> int:
    """The caret's column in characters: the compiler indents by two, and counts bytes."""
    before = shown.encode("utf-8", "surrogateescape")[: caret.index("^")]
    return len(before.decode("utf-8", "ignore")) - 1


def _with_source(diagnostic: Diagnostic, lines: Sequence[str], shown: str) -> Diagnostic:
    """Put the user's own line in; where the compiler saw another text, its column is not the user's."""
    if not 0 < diagnostic.line <= len(lines):
        return replace(diagnostic, source=shown)
    source = lines[diagnostic.line - 1]
    if shown.rstrip() == source.rstrip():
        return replace(diagnostic, source=source)
    quote = min((i for i in (source.find('"'), source.find("<")) if i >= 0), default=0)
    return replace(diagnostic, source=source, column=quote + 1 if "#" in source else 0)


def _note(text: str, files: Mapping[str, str], here: str) -> str:
    match = _AT_LINE.match(text.strip())
    if match is None:
        return text.strip() if text.strip().endswith(":") else f"  {text.strip()}"
    file = match["file"].strip('"') if match["file"] else here
    return f"  {match['before']}{match['line']} of {files.get(file, file)}{match['after']}"


def count(errors: int) -> str:
    """`1 error`, `3 errors`."""
    return f"{errors} error" if errors == 1 else f"{errors} errors"

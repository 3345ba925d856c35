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
    r"^\s*(?P<tool>ptxas|nvrtc):? (?P<where>.*?)?(?P<severity>warning|error|fatal) *: (?P<text>.*)$"
)
_END = re.compile(
    r"^At end of source: (?P<severity>error|warning)(?: #(?P<number>\d+(?:-D)?))?: (?P<text>.*)$"
)
_QUOTED = re.compile(r'"(/[^"\n]+)"')
_SUMMARY = re.compile(
    r"^\d+ (?:catastrophic )?errors? detected|^Compilation terminated|^Remark: The warnings"
)
_CARET = re.compile(r"^[ \t]*\^[ \t]*$")
_AT_LINE = re.compile(r"(?P<before>.*\bat line )(?P<line>\d+)(?: of (?P<file>\S+))?(?P<after>.*)")


NAME_MAP = "__nv_name_map"
"""The file that NVRTC says errors in name expressions are in. Source: seen with CUDA 12.8 and 13.0."""

_WIDTH = 160
"""Characters of a line that are shown; of a longer one, those around the caret."""


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
            source, column = _window(self.source, self.column)
            text.append(f"    {source}")
            if column:
                text.append("    " + _indent(source, column) + "^")
        return "\n".join([*text, *(f"  {note}" for note in self.notes)])


def _window(source: str, column: int) -> tuple[str, int]:
    """What of a line is shown, and the column of the caret in that."""
    if len(source) <= _WIDTH:
        return source, column
    start = max(0, min(column - 1 - _WIDTH // 2, len(source) - _WIDTH))
    before, after = "... " if start else "", " ..." if start + _WIDTH < len(source) else ""
    shown = f"{before}{source[start : start + _WIDTH]}{after}"
    return shown, column - start + len(before) if column else 0


def _indent(source: str, column: int) -> str:
    """Blanks up to a column, with the tabs of the line above kept so that the caret stands right."""
    return "".join("\t" if character == "\t" else " " for character in source[: column - 1])


def parse(log: str, files: Mapping[str, str], lines: Lines, *, main: str = "") -> tuple[Diagnostic, ...]:
    """Read a compile's log.

    What the compiler says of lines after a file's last, where dotcu's own text stands, is told of
    the file's end; a note joins the diagnostic that it belongs to.

    Args:
        files: What to show for each virtual file name.
        lines: The text of each, for the line that a diagnostic is about.
        main: The virtual name of the source.
    """
    found: list[Diagnostic] = []
    for chunk in _chunks(log):
        tool, end = _TOOL.match(chunk[0]), _END.match(chunk[0])
        if tool:
            found.append(_tool(tool))
        elif end:
            found.append(_end(end, main, files, lines))
        else:
            diagnostic = _front_end(chunk, files, lines)
            if diagnostic.severity == "note" and found:
                found[-1] = replace(found[-1], notes=(*found[-1].notes, _joined(diagnostic)))
            else:
                found.append(diagnostic)
    return tuple(found)


def _joined(note: Diagnostic) -> str:
    """`to match this "{", at line 1 of k.cu: ...`, of a note that stood by itself."""
    message = re.sub(r" \[#[^]]*\]$", "", note.message)
    shown = f": {_window(note.source.strip(), 0)[0]}" if note.source.strip() else ""
    return f"{message}, at line {note.line} of {note.file}{shown}"


def _end(match: re.Match[str], main: str, files: Mapping[str, str], lines: Lines) -> Diagnostic:
    message = match["text"] + (f" [#{match['number']}]" if match["number"] else "")
    diagnostic = Diagnostic(
        severity=match["severity"], file=files.get(main, main), line=0, column=0, message=message
    )
    return _at_end(diagnostic, lines(main))


AT_END = "at the end of the file"


def _at_end(diagnostic: Diagnostic, lines: Sequence[str]) -> Diagnostic:
    """Tell a diagnostic of the last line that has something in it, after which it stands."""
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    if not last:
        return replace(diagnostic, line=0, column=0, source="", message=f"{diagnostic.message}, {AT_END}")
    source = lines[last - 1].rstrip()
    return replace(
        diagnostic,
        line=last,
        column=len(source) + 1,
        source=source,
        message=f"{diagnostic.message}, {AT_END}",
    )


def _chunks(log: str) -> list[list[str]]:
    """Split a log at the first line of each diagnostic; lines that belong to none are dropped."""
    chunks: list[list[str]] = []
    open_chunk = False
    for line in log.splitlines():
        if _HEAD.match(line) or _TOOL.match(line) or _END.match(line):
            chunks.append([line])
            open_chunk = True
        elif _SUMMARY.match(line) or line.lstrip().startswith("ptxas "):
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
        message=_named(message, files) + (f" [#{head['number']}]" if head["number"] else ""),
        notes=tuple(_note(note, files, files.get(head["file"], head["file"])) for note in notes),
    )
    return _with_source(diagnostic, lines(head["file"]), chunk[carets[0] - 1][2:] if carets else "")


def _named(message: str, files: Mapping[str, str]) -> str:
    """A message with the user's names for the files in it."""
    return _QUOTED.sub(lambda match: f'"{files.get(match[1], match[1])}"', message)


def _column(shown: str, caret: str) -> int:
    """The caret's column in characters: the compiler indents by two, and counts bytes."""
    shown = shown.replace("\ufffd", "?")  # stands for one byte that is not UTF-8
    before = shown.encode("utf-8", "surrogateescape")[: caret.index("^")]
    return len(before.decode("utf-8", "ignore")) - 1


def _with_source(diagnostic: Diagnostic, lines: Sequence[str], shown: str) -> Diagnostic:
    """Put the user's own line in; where the compiler saw another text, its column is not the user's."""
    if lines and diagnostic.line > len(lines):
        return _at_end(diagnostic, lines)
    if not 0 < diagnostic.line <= len(lines):
        return replace(diagnostic, source=shown)
    source = lines[diagnostic.line - 1]
    if _is_part(shown, source):
        return replace(diagnostic, source=source)
    quote = min((i for i in (source.find('"'), source.find("<")) if i >= 0), default=0)
    return replace(diagnostic, source=source, column=quote + 1 if "#" in source else 0)


def _is_part(shown: str, source: str) -> bool:
    """Whether the compiler saw the user's line, or that with some of it blanked."""
    seen = shown.rstrip()
    return (
        len(seen) <= len(source)
        and all(a in (b, " ") for a, b in zip(seen or " ", source, strict=False))
        and (bool(seen) or not source.strip())
    )


def _note(text: str, files: Mapping[str, str], here: str) -> str:
    match = _AT_LINE.match(text.strip())
    if match is None:
        return text.strip() if text.strip().endswith(":") else f"  {text.strip()}"
    file = match["file"].strip('"') if match["file"] else here
    if file == NAME_MAP:
        return f"  {match['before'].removesuffix(' at line ')}{match['after']}"
    return f"  {match['before']}{match['line']} of {files.get(file, file)}{match['after']}"


def count(errors: int) -> str:
    """`1 error`, `3 errors`."""
    return f"{errors} error" if errors == 1 else f"{errors} errors"

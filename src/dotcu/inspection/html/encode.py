"""A page as JSON that can stand inside a <script> element. Pure.

Files are written once however many kernels share them, and a place is "index of the file's name:line".
What the script reads is this and nothing else; `template/data.js` is its other side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dotcu.inspection.html.page import CodeLine, KernelPane, Metric, Note, Page, Place, SourceFile

_UNSAFE: dict[str, str | int | None] = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""What could end the element, begin another, or a comment; escaped, it is the same JSON."""


def encode(page: Page) -> str:
    """The page's data; holds no character that means something to HTML."""
    encoder = _Encoder()
    kernels = [encoder.kernel(kernel) for kernel in page.kernels]
    data = {
        "title": page.title,
        "rows": page.rows,
        "names": list(encoder.names),
        "files": list(encoder.files.values()),
        "kernels": kernels,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(str.maketrans(_UNSAFE)).encode("utf-8", "replace").decode("utf-8")


class _Encoder:
    """Numbers names and files in the order in which they come up."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.files: dict[SourceFile, Mapping[str, Any]] = {}
        self._numbers: dict[SourceFile, int] = {}

    def kernel(self, kernel: KernelPane) -> Mapping[str, Any]:
        return {
            "name": kernel.name,
            "arch": kernel.arch,
            "failure": kernel.failure,
            "facts": [[fact.name, fact.value, fact.note, fact.tone] for fact in kernel.facts],
            "notes": [self._note(note) for note in kernel.notes],
            "files": [self._file(file) for file in kernel.source],
            "ptx": self._code(kernel.ptx),
            "sass": self._code(kernel.sass),
            "metrics": [self._metric(metric) for metric in kernel.metrics],
            "missing": dict(kernel.missing),
        }

    def _file(self, file: SourceFile) -> int:
        if file not in self.files:
            self._numbers[file] = len(self.files)
            lines = [[line.number, line.text] for line in file.lines]
            self.files[file] = {"name": self._name(file.name), "lines": lines}
        return self._numbers[file]

    def _code(self, lines: Iterable[CodeLine]) -> list[Any]:
        return [
            [line.text, line.label, [self._place(place) for place in line.places], line.control]
            for line in lines
        ]

    def _note(self, note: Note) -> list[str]:
        return [note.text, self._place(note.place) if note.place else "", note.tone]

    def _metric(self, metric: Metric) -> Mapping[str, Any]:
        counts = {self._place(place): count for place, count in metric.counts.items() if count}
        return {"name": metric.name, "told": metric.told, "counts": counts}

    def _place(self, place: Place) -> str:
        file, line = place
        return f"{self._name(file)}:{line}"

    def _name(self, file: str) -> int:
        return self.names.setdefault(file, len(self.names))

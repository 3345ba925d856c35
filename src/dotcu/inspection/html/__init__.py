"""Source, PTX and SASS side by side, as one HTML file that needs nothing else.

    Page (plain values) -> encode: JSON -> render: the template with style, script and data in it

Who knows kernels fills a `Page`; nothing here does.
"""

from dotcu.inspection.html.page import (
    Changed,
    CodeLine,
    Fact,
    KernelPane,
    Metric,
    Note,
    Page,
    Place,
    SourceFile,
    SourceLine,
)
from dotcu.inspection.html.render import render

__all__ = [
    "Changed",
    "CodeLine",
    "Fact",
    "KernelPane",
    "Metric",
    "Note",
    "Page",
    "Place",
    "SourceFile",
    "SourceLine",
    "render",
]

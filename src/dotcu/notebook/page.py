"""A report as a notebook shows it: what a terminal would, as tables, and a picture where one tells more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotcu.notebook import markup, pictures

if TYPE_CHECKING:
    from dotcu.report_base import Report

# Notebooks are light or dark and seldom say which: text has the notebook's own colour, and the others are
# of the middle, with a contrast of 3 to 1 or more against white and against black.
_STYLE = """
.dotcu { font: 13px/1.5 var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);
  color: inherit; white-space: pre-wrap; overflow-x: auto; padding: 2px 0; }
.dotcu table { border-collapse: collapse; border: 0; margin: 0; font: inherit; color: inherit; }
.dotcu tr, .dotcu tr:nth-child(even), .dotcu tr:hover { background: transparent; border: 0; }
.dotcu td, .dotcu th { padding: 0 2ch 0 0; border: 0; text-align: left; vertical-align: top;
  white-space: pre-wrap; max-width: 110ch; color: inherit; }
.dotcu .right { text-align: right; }
.dotcu .red { color: #e5484d; } .dotcu .green { color: #2f9e58; }
.dotcu .yellow { color: #b07d00; } .dotcu .cyan { color: #1a8ba6; } .dotcu .dim { opacity: .7; }
.dotcu details { margin-top: 6px; } .dotcu summary { cursor: pointer; color: #1a8ba6; }
.dotcu .bar { display: inline-block; height: .75em; border-radius: 2px; background: #1a8ba6; }
.dotcu img { max-width: 100%; margin-top: 8px; border-radius: 6px; background: white; }
"""


def html(report: Report) -> str:
    """A report as a fragment of HTML, whole by itself."""
    return f'<div class="dotcu"><style>{_STYLE}</style>{markup.render(report)}{pictures.of(report)}</div>'

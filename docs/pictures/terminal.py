"""Make `check.svg`, the animation of the README: a kernel with a race, the check that names it, and the fix.

    python docs/pictures/terminal.py

It shows what the commands print; `tests/unit/test_picture.py` fails when that changes. CSS alone animates it,
so that it moves on GitHub too, and it stands still for readers who prefer reduced motion.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from dotcu.cli.main import parser

PICTURE = Path(__file__).with_name("check.svg")
ONLY = "dotcu check ops.py --quick --device simulator --only my::row_sum/call/float32-s0"
BARRIER = "    __syncthreads();"

KERNEL = """\
__global__ void row_sum(const float* x, float* out, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 256) sum += x[blockIdx.x * n + i];
  part[threadIdx.x] = sum;
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
"""
OPERATOR = """\
import dotcu
import torch

kernels = dotcu.load("row_sum.cu")


@dotcu.op("my::row_sum")
def row_sum(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = x.new_empty(x.shape[0])
    kernels.row_sum(x, out, x.shape[1], grid=x.shape[0], block=256)
    return out


@row_sum.reference
def _(x):
    return x.sum(1)


@row_sum.samples
def _(device, dtype):
    yield dotcu.Sample(torch.randn(4, 1000, device=device, dtype=dtype))
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command and its output."""

    command: str
    output: tuple[Text, ...]


# ---------------------------------------------------------------- the commands


def scenes() -> list[Scene]:
    """Run the commands in an empty folder and return what they print."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("row_sum.cu").write_text(KERNEL)
            Path("ops.py").write_text(OPERATOR)
            wrong = [Scene(command="cat -n row_sum.cu", output=tuple(numbered(KERNEL))), checked()]
            lines = KERNEL.splitlines()
            Path("row_sum.cu").write_text("\n".join([*lines[:6], BARRIER, *lines[6:]]) + "\n")
            return [*wrong, Scene(command=f"sed -i '7i\\{BARRIER}' row_sum.cu", output=()), checked()]
        finally:
            os.chdir(home)


def numbered(source: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        yield Text.assemble((f"{number:4}  ", "dim"), line)


def checked() -> Scene:
    """Run the check in this process, as on a wide terminal, and wrap its lines to the picture."""
    out = io.StringIO()
    terminal = {"FORCE_COLOR": "1", "COLUMNS": "1000", "TERM": "xterm"}
    words = ONLY.split()[1:]
    with (
        mock.patch.dict(os.environ, terminal),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        parser()(words, standalone_mode=False, prog_name="dotcu")
    printed = out.getvalue().replace(f"{Path.cwd()}/", "").splitlines()
    return Scene(command=ONLY, output=tuple(row for line in printed for row in wrapped(Text.from_ansi(line))))


def wrapped(line: Text) -> Iterator[Text]:
    """Wrap a line into rows with the indentation of the first."""
    line.rstrip()
    indent = len(line.plain) - len(line.plain.lstrip())
    words = line[indent:] if line else line
    for row in words.wrap(Console(width=COLUMNS), COLUMNS - indent) or [line]:
        row.rstrip()
        yield Text.assemble(" " * indent, row)


# ---------------------------------------------------------------- the picture

COLUMNS, ROWS = 84, 29
CHARACTER, LINE = 8.4, 19  # pixels
LEFT, TOP = 16, 40
LABEL = "dotcu check names the two lines of a kernel that race, and passes once the barrier is there"

CLASSES = {"bold": "bold", "dim": "dim", "green": "green", "color(1)": "red"}
"""The CSS class for each part of a Rich style."""

TYPED_S, READ_S = (0.0, 0.0, 1.2, 1.2), (0.0, 8.0, 0.8, 5.0)
"""Seconds to type each command, and to show its output: the kernel and its race are there from the start."""

STYLE = """
svg { --back: #f6f8fa; --front: #1f2328; --red: #cf222e; --dim: #59636e; --green: #116329; --edge: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  svg { --back: #0d1117; --front: #e6edf3; --red: #ff7b72; --dim: #9198a1; --green: #7ee787; --edge: #3d444d }
}
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
text, .prompt { fill: var(--front) }
.bold { font-weight: 600 } .red { fill: var(--red) } .dim { fill: var(--dim) } .green { fill: var(--green) }
"""


def picture(shown: list[Scene]) -> str:
    """Return the scenes as an animated SVG."""
    seconds = sum(TYPED_S) + sum(READ_S)
    style, body, scrolls, time, row = [STYLE], [], [], 0.0, 0
    for index, scene in enumerate(shown):
        typed, stands = 100 * time / seconds, 100 * (time + TYPED_S[index]) / seconds
        if TYPED_S[index]:
            style.append(typing_rules(index, len(scene.command), typed, stands, seconds))
        prompt = Text.assemble(("$ ", "green"), scene.command)
        body.append(f'<g class="t{index}">{text_row(prompt, row)}</g>')
        rows = [text_row(line, row + 1 + offset) for offset, line in enumerate(scene.output) if line]
        body.append(f'<g class="o{index}">' + "\n".join(rows) + "</g>")
        scrolls += [(typed, row + 1), (stands, row + 1 + len(scene.output))]
        row += 1 + len(scene.output)
        time += TYPED_S[index] + READ_S[index]
    style.append(scrolling_rules([*scrolls, (100.0, row)], seconds))
    return in_frame("".join(style), "\n".join(body))


def typing_rules(index: int, letters: int, typed: float, stands: float, seconds: float) -> str:
    """Return the CSS rules that type a command and then show its output; times in percent."""
    return (
        f"@keyframes t{index} {{ 0%, {typed:.2f}% {{ clip-path: inset(0 100% 0 0); "
        f"animation-timing-function: steps({letters}) }} "
        f"{stands:.2f}%, 100% {{ clip-path: inset(0 0 0 0) }} }}\n"
        f"@keyframes o{index} {{ 0%, {stands:.2f}% {{ opacity: 0 }} "
        f"{stands + 0.01:.2f}%, 100% {{ opacity: 1 }} }}\n"
        f".t{index} {{ animation: t{index} {seconds:.1f}s infinite }} "
        f".o{index} {{ animation: o{index} {seconds:.1f}s infinite }}\n"
    )


def scrolling_rules(moments: list[tuple[float, int]], seconds: float) -> str:
    """Return the CSS rules that scroll rows out at the top when the next ones do not fit."""
    steps = [f"{at:.2f}% {{ transform: translateY({-LINE * max(0, row - ROWS)}px) }}" for at, row in moments]
    return (
        f"@keyframes scroll {{ {' '.join(steps)} }}\n"
        f".scroll {{ animation: scroll {seconds:.1f}s step-end infinite }}\n"
        "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }\n"
    )


def in_frame(style: str, body: str) -> str:
    width, height = round(LEFT * 2 + CHARACTER * COLUMNS), TOP + LINE * ROWS + 12
    dots = "".join(f'<circle cx="{20 + 18 * n}" cy="18" r="5.5" fill="var(--edge)"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{LABEL}">\n'
        f"<style>{style}</style>\n"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="var(--back)" '
        f'stroke="var(--edge)"/>\n{dots}\n'
        f'<svg x="0" y="{TOP - 6}" width="{width}" height="{LINE * ROWS + 12}"><g class="scroll">\n'
        f"{body}\n</g></svg>\n</svg>\n"
    )


def text_row(line: Text, row: int) -> str:
    """Return a row of text with a fixed length, so that it fits in any font."""
    spans = []
    for span in line.render(Console(), end=""):
        style = str(span.style or "")
        classes = " ".join(name for word, name in CLASSES.items() if word in style)
        text = html.escape(span.text, quote=False)
        spans.append(f'<tspan class="{classes}">{text}</tspan>' if classes else text)
    x, y = LEFT, LINE * (row + 1) - 4
    length = CHARACTER * len(line)
    return f'<text x="{x}" y="{y}" textLength="{length:g}" xml:space="preserve">{"".join(spans)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(scenes()), encoding="utf-8")
    print(f"wrote {PICTURE}")

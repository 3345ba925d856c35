"""What launches ask of PTX that has been assembled: who takes which parameters, and the variables.

Bodies stay only where they are asked, too: to tell which variables a kernel writes, and what it does
with tensor maps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dotcu.compile.objects import PROBE

_ASIDE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n+")
_BRACE = re.compile(r"[{}]")
_EMPTY = "{\n\tret;\n}"
_FUNCTION = re.compile(rf"^[^\n]*\.func\b[^{{;]*(?:;|{re.escape(_EMPTY)})", re.MULTILINE)
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const)\b([^;=]*)", re.MULTILINE
)
_WORD = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*")
_MAP = re.compile(r"\.param\s+\.align\s+(?:64|128)\s+\.b8\s+\S+\[128\]")

_PROBE = re.compile(
    rf"^[^\n]*\.entry \w*{PROBE}\w*\(\s*\)\s*(?:\.\w+[^\n]*\n)*\{{.*?^\}}\n?", re.MULTILINE | re.DOTALL
)


def without_probes(ptx: str) -> str:
    """PTX without the empty kernels that held signatures."""
    return _PROBE.sub("", ptx)


def skeleton(ptx: str) -> str:
    """PTX without what a launch of its machine code never looks at."""
    text = _BLANK.sub("\n", _ASIDE.sub("", ptx))
    bodies = tuple(_bodies(text))
    if _MAP.search(text) or _names_a_variable(text, bodies):
        return text
    for begin, end in reversed(bodies):
        text = text[:begin] + _EMPTY + text[end:]
    return _FUNCTION.sub("", text)


def _bodies(text: str) -> Iterator[tuple[int, int]]:
    """Where functions have theirs; braces that inline assembly brought stand within them."""
    depth = begin = 0
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            begin = begin if depth else brace.start()
            depth += 1
            continue
        depth -= 1
        if depth == 0 and "=" not in text[max(begin - 2, 0) : begin]:  # a variable's first values
            yield begin, brace.end()


def _names_a_variable(text: str, bodies: Sequence[tuple[int, int]]) -> bool:
    """Whether a body does: those that only stand beside it, as constants of a class do, are not asked for."""
    declared = {name for row in _VARIABLE.findall(text) for name in _WORD.findall(row)}
    return any(not declared.isdisjoint(_WORD.findall(text, begin, end)) for begin, end in bodies)

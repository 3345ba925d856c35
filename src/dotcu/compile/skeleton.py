"""What launches ask of PTX that has been assembled: who takes which parameters, and the variables.

Bodies stay only where they are asked, too: to tell which variables a kernel writes, and what it does
with tensor maps.
"""

from __future__ import annotations

import re

from dotcu.compile.signatures import PROBE

_ASIDE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n+")
_BODY = re.compile(r"^\{.*?^\}", re.DOTALL | re.MULTILINE)
_FUNCTION = re.compile(r"^[^\n]*\.func\b[^{;]*(?:;|\{.*?^\})", re.DOTALL | re.MULTILINE)
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
    if _MAP.search(text) or _names_a_variable(text):
        return text
    return _BODY.sub("{\n\tret;\n}", _FUNCTION.sub("", text))


def _names_a_variable(text: str) -> bool:
    """Whether a body does: those that only stand beside it, as constants of a class do, are not asked for."""
    declared = {name for row in _VARIABLE.findall(text) for name in _WORD.findall(row)}
    return any(not declared.isdisjoint(_WORD.findall(body[0])) for body in _BODY.finditer(text))

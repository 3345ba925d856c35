"""PTX text to tokens.

Source: PTX ISA, "Syntax" (chapter 4).
"""

from __future__ import annotations

import re

from dotcu.errors import SimulationError

# One capture: a token. Comments match without it, so that they fall away; any other visible
# character becomes a token of its own, which the parser then refuses.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|(
        \.[A-Za-z_]\w*(?:::\w+)*                     # directive or type, also without a blank: .reg.b16
      | [%$_A-Za-z][\w$]*(?:(?:\.|::)[\w$]+)*       # word, opcode with its modifiers
      | 0[fF][0-9a-fA-F]{8}(?![\w$]) | 0[dD][0-9a-fA-F]{16}(?![\w$])
      | 0[xX][0-9a-fA-F]+U? | \d+\.\d*(?:[eE][+-]?\d+)? | \d+U?
      | "[^"\n]*"
      | \S )""",
    re.VERBOSE | re.DOTALL,
)

_BRACE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*"|([{}])', re.DOTALL)


def tokenize(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Tokens of text[start:end], and where each begins."""
    found = [m for m in _TOKEN.finditer(text, start, end) if m.lastindex]
    return [m.group(1) for m in found], [m.start(1) for m in found]


def braces(text: str) -> list[tuple[int, int]]:
    """Outermost pairs of braces: where each opens and closes.

    Raises:
        SimulationError: A brace has no partner.
    """
    pairs: list[tuple[int, int]] = []
    depth = opened = 0
    for match in _BRACE.finditer(text):
        brace = match.group(1)
        if brace == "{":
            opened = match.start() if depth == 0 else opened
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth < 0:
                raise malformed(text, match.start(), "a } without its {")
            if depth == 0:
                pairs.append((opened, match.start()))
    if depth:
        raise malformed(text, opened, "a { without its }")
    return pairs


def malformed(text: str, position: int, what: str) -> SimulationError:
    """The error for PTX that is not well formed, with the line of PTX it stands in."""
    line = text.count("\n", 0, position) + 1
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    shown = text[begin : end if end >= 0 else len(text)].strip()[:120]
    return SimulationError(
        f"Malformed PTX at its line {line}: got {what} in `{shown}`.\n"
        "The simulator reads the PTX that NVRTC or nvcc emits for sm_80 or later.\n"
        "Compile the source again; if it came from elsewhere, check it with `ptxas`."
    )

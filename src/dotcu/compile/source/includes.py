"""The headers that a text names, and the texts that have them by another name."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dotcu.compile.source.lexer import without_comments

_NAME = r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)"
_INCLUDE = re.compile(rf"(?m)^[ \t]*#[ \t]*include\b[ \t]*(?:{_NAME}|(?P<macro>[A-Za-z_]\w*))")
_HAS_INCLUDE = re.compile(rf"__has_include[ \t]*\([ \t]*{_NAME}[ \t]*\)")
_HEADER_MACRO = re.compile(rf"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+{_NAME}[ \t]*\r?$")

# Macros that Thrust puts its header names together with, and what NVRTC makes of them.
# Source: thrust/detail/config/{device,host}_system.h of CCCL 2 and 3.
THRUST_ROOTS = {
    "__THRUST_DEVICE_SYSTEM_ROOT": "thrust/system/cuda",
    "__THRUST_HOST_SYSTEM_ROOT": "thrust/system/cpp",
}


@dataclass(frozen=True)
class Include:
    """A header's name in a text.

    Attributes:
        spelled: The name between quotes or angles.
        start, end: Its position, delimiters included; that of a macro which stands for it.
        needed: False for `__has_include` and for a macro's value, which only may be included.
    """

    spelled: str
    quoted: bool
    start: int
    end: int
    needed: bool


@functools.lru_cache(maxsize=1024)
def scan_includes(text: str, *, exact: bool = True) -> tuple[Include, ...]:
    """Return every header that a text names, whatever `#if` it is in; exactly, without those in comments.

    The toolkit's headers do without: they are large, and a name too many does no harm there.
    """
    bare = without_comments(text) if exact else text
    directives = list(_INCLUDE.finditer(bare))
    includes = [_include(match, needed=True) for match in directives if match["macro"] is None]
    includes += _by_macro(bare, [match for match in directives if match["macro"] is not None])
    if "__has_include" in bare:
        includes += [_include(match, needed=False) for match in _HAS_INCLUDE.finditer(bare)]
    return tuple(sorted(includes, key=lambda include: include.start))


def _by_macro(text: str, directives: list[re.Match[str]]) -> list[Include]:
    """Return what `#include MACRO` names: at the directive if the text has one value, else at each value."""
    if not directives:
        return []
    values: dict[str, list[re.Match[str]]] = {}
    for value in _HEADER_MACRO.finditer(text):
        values.setdefault(value["macro"], []).append(value)
    includes = []
    for directive in directives:
        named = values.get(directive["macro"], [])
        if len(named) == 1:
            start, end = directive.span("macro")
            includes.append(dataclasses.replace(_include(named[0], needed=True), start=start, end=end))
        else:
            includes += [_include(value, needed=False) for value in named]
    return list(dict.fromkeys(includes))


def _include(match: re.Match[str], *, needed: bool) -> Include:
    group = "quoted" if match["quoted"] is not None else "angled"
    spelled = match[group].strip()
    root, slash, rest = spelled.partition("/")
    return Include(
        spelled=THRUST_ROOTS.get(root, root) + slash + rest,
        quoted=group == "quoted",
        start=match.start(group) - 1,
        end=match.end(group) + 1,
        needed=needed,
    )


def rewrite_includes(text: str, leads: Mapping[Include, str | None]) -> str:
    """Replace each name, in order, by the virtual one that it leads to; with None it stays as it is."""
    pieces: list[str] = []
    position = 0
    for include, virtual in leads.items():
        if virtual is not None:
            pieces += [text[position : include.start], f'"{virtual}"']
            position = include.end
    return "".join([*pieces, text[position:]])

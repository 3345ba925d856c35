"""Find the headers that a text names, in every branch, and write down where they lead."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass

from dotcu.compile.lexing import without_comments

_NAME = r"(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)"
_INCLUDE = re.compile(rf"(?m)^[ \t]*#[ \t]*include\b[ \t]*(?:{_NAME}|(?P<macro>[A-Za-z_]\w*))")
_HAS_INCLUDE = re.compile(rf"__has_include[ \t]*\([ \t]*{_NAME}[ \t]*\)")
_HEADER_MACRO = re.compile(rf"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+{_NAME}[ \t]*\r?$")

# Macros that Thrust puts its header names together with, and what NVRTC makes of them.
# Source: thrust/detail/config/{device,host}_system.h of CCCL 2 and 3.
ROOTS = {
    "__THRUST_DEVICE_SYSTEM_ROOT": "thrust/system/cuda",
    "__THRUST_HOST_SYSTEM_ROOT": "thrust/system/cpp",
}


@dataclass(frozen=True)
class Include:
    """A header's name as it stands in a text.

    Attributes:
        spelled: The name between quotes or angles.
        start, end: Where it stands, delimiters included; a macro that stands for it counts.
        needed: False for `__has_include` and for a macro's value, which only may be included.
    """

    spelled: str
    quoted: bool
    start: int
    end: int
    needed: bool


def scan(text: str, *, exact: bool = True) -> tuple[Include, ...]:
    """Every header that a text names, whatever `#if` it stands in.

    Args:
        exact: Leave out what stands in comments. The toolkit's headers do without: they are large,
            and a name too many does no harm there.
    """
    bare = without_comments(text) if exact else text
    directives = list(_INCLUDE.finditer(bare))
    found = [_include(match, True) for match in directives if match["macro"] is None]
    found += _by_macro(bare, [match for match in directives if match["macro"] is not None])
    if "__has_include" in bare:
        found += [_include(match, False) for match in _HAS_INCLUDE.finditer(bare)]
    return tuple(sorted(found, key=lambda include: include.start))


def _by_macro(text: str, directives: list[re.Match[str]]) -> list[Include]:
    """What `#include MACRO` names: at the directive where the text has one value, else at each value."""
    if not directives:
        return []
    values: dict[str, list[re.Match[str]]] = {}
    for value in _HEADER_MACRO.finditer(text):
        values.setdefault(value["macro"], []).append(value)
    found = []
    for directive in directives:
        named = values.get(directive["macro"], [])
        if len(named) == 1:
            include = _include(named[0], True)
            found.append(
                dataclasses.replace(include, start=directive.start("macro"), end=directive.end("macro"))
            )
        else:
            found += [_include(value, False) for value in named]
    return list(dict.fromkeys(found))


def _include(match: re.Match[str], needed: bool) -> Include:
    group = "quoted" if match["quoted"] is not None else "angled"
    spelled = match[group].strip()
    root, slash, rest = spelled.partition("/")
    return Include(
        ROOTS.get(root, root) + slash + rest, group == "quoted", match.start(group) - 1, match.end(group) + 1,
        needed,
    )  # fmt: skip


def rewrite(text: str, includes: tuple[Include, ...], target: Callable[[Include], str | None]) -> str:
    """Replace each name by the virtual one it leads to; names that lead nowhere stay as they are."""
    pieces: list[str] = []
    position = 0
    for include in includes:
        virtual = target(include)
        if virtual is None:
            continue
        pieces += [text[position : include.start], f'"{virtual}"']
        position = include.end
    return "".join([*pieces, text[position:]])

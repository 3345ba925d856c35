"""Ceilings on disk: measured once for a GPU and its driver, and kept beside compiled code.

    <cache>/limits/v1/<uuid>-<driver>.json

A file is written whole, by one rename. One that is damaged, or that another version wrote, is as good as
none: the ceilings are measured again. A folder that cannot be written costs a warning and the reuse.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from dotcu.benchmark.limits.ceilings import Ceilings
from dotcu.compile import cache

_log = logging.getLogger("dotcu")

LAYOUT = "v1"
"""To be changed where ceilings are measured otherwise, too: what was kept before is not believed then."""


def path_of(uuid: str, driver: str) -> Path:
    """Where the ceilings of a GPU under a driver are kept, whether or not they are there yet."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{uuid}-{driver}")
    return cache.location() / "limits" / LAYOUT / f"{name}.json"


def read(uuid: str, driver: str) -> Ceilings | None:
    """What was kept; None where there is nothing whole."""
    try:
        found = json.loads(path_of(uuid, driver).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ceilings = _parsed(found)
    return ceilings if ceilings is not None and (ceilings.uuid, ceilings.driver) == (uuid, driver) else None


def kept_or(uuid: str, driver: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """What was kept; where there is nothing whole, what `measure` gives, which is kept from now on."""
    found = read(uuid, driver)
    if found is None:
        found = measure()
        keep(found)
    return found


def keep(ceilings: Ceilings) -> None:
    """Write them, whole or not at all; a folder that cannot be written costs a warning."""
    path = path_of(ceilings.uuid, ceilings.driver)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(ceilings), indent=1), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        _log.warning(
            "The limits of this GPU cannot be kept in %s: %s. They are measured again in the next process. "
            "Choose another directory with: export DOTCU_CACHE_DIR=DIRECTORY",
            path.parent, (error.strerror or str(error)).lower(),
        )  # fmt: skip


def _parsed(found: Any) -> Ceilings | None:
    """Ceilings of what a file holds, if each of its values is of the kind that it has to be."""
    names = {field.name: str(field.type) for field in fields(Ceilings)}
    if not isinstance(found, dict) or found.keys() != names.keys():
        return None
    held = all(_is_of(kind, found[name]) for name, kind in names.items())
    return Ceilings(**found) if held else None


def _is_of(kind: str, value: Any) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if kind == "float":
        return _is_rate(value)
    return isinstance(value, Mapping) and all(map(_is_rate, value.values()))


def _is_rate(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0

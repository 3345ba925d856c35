"""An extension of Griffe, which reads the docstrings: in the gallery a function has its package's name."""

from __future__ import annotations

from typing import Any

import griffe


class Functions(griffe.Extension):
    """Drops the functions that `dotcu.gallery` imports: one named as its module is a cycle to Griffe."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Called by Griffe for each module, before those below it are read."""
        if mod.path.startswith("dotcu.gallery"):
            for name in [name for name, member in mod.members.items() if member.is_alias]:
                del mod.members[name]

"""An extension of Griffe for the gallery, where a function has the name of its package."""

from __future__ import annotations

from typing import Any

import griffe


class Functions(griffe.Extension):
    """Drop the functions that `dotcu.gallery` imports: Griffe sees one named like its module as a cycle."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Remove the aliases of a module; Griffe calls this before it reads the submodules."""
        if mod.path.startswith("dotcu.gallery"):
            for name in [name for name, member in mod.members.items() if member.is_alias]:
                del mod.members[name]

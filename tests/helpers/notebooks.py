"""The example notebooks: run them, and write what they show into them.

python tests/helpers/notebooks.py        after a change of a notebook, or of what it shows
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "notebook").glob("*.ipynb"))

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SECONDS = re.compile(r"\d+\.\d+ s\b")


def read(path: Path) -> Any:
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(path: Path) -> Any:
    """A notebook that has been run from above to below, in a new kernel."""
    from nbclient import NotebookClient

    found = read(path)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(found, timeout=300, kernel_name="python3", record_timing=False, resources=where).execute()
    return found


def shown(notebook: Any) -> list[tuple[int, str]]:
    """What each cell shows as text, errors among it, without colours and times."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            text = output.get("text") or output.get("data", {}).get("text/plain")
            text = text if text is not None else "\n".join(output["traceback"])
            found.append((cell["execution_count"], _SECONDS.sub("# s", _COLOUR.sub("", text))))
    return found


if __name__ == "__main__":
    import nbformat

    for each in EXAMPLES:
        nbformat.write(executed(each), each)

"""The example notebook, run as Jupyter runs it: it shows what it is committed with."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from helpers import notebooks

pytest.importorskip("nbclient", reason="nbclient runs notebooks")
pytest.importorskip("ipykernel", reason="a notebook runs in a kernel")

pytestmark = [
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="the notebook was committed as it runs without a GPU"
    ),
    pytest.mark.slow,  # a kernel that starts; test_magic.py tries each cell magic in this process
]


@pytest.fixture(scope="module")
def first_kernel() -> tuple[Any, Any]:
    """The notebook as committed, and as it runs now; starting a kernel takes seconds."""
    (path,) = notebooks.EXAMPLES
    return notebooks.read(path), notebooks.executed(path)


def test_the_notebook_shows_what_it_did_when_it_was_committed(first_kernel: tuple[Any, Any]) -> None:
    committed, now = first_kernel
    assert notebooks.shown(now) == notebooks.shown(committed)


def test_only_the_cells_that_are_to_fail_do(first_kernel: tuple[Any, Any]) -> None:
    _, now = first_kernel
    failed = [o["ename"] for cell in now.cells for o in cell.get("outputs", ()) if o.output_type == "error"]
    assert failed == ["FindingError", "CompileError"]


def test_the_lines_of_a_kernel_have_bars_as_long_as_what_they_execute(first_kernel: tuple[Any, Any]) -> None:
    _, now = first_kernel
    (page,) = (
        html
        for cell in now.cells
        for output in cell.get("outputs", ())
        if "instructions by line" in (html := output.get("data", {}).get("text/html", ""))
    )
    rows = re.findall(r'([\d,]+)</td><td><span class="bar" style="width:([\d.]+)ch"></span></td>', page)
    counts = [int(count.replace(",", "")) for count, _ in rows]
    assert len(counts) > 2
    assert [float(width) for _, width in rows] == pytest.approx(
        [24 * count / max(counts) for count in counts], abs=0.06
    )
    assert "if (i &lt; n) out[i] = by * x[i];" in page

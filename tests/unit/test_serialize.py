"""JSON: what goes in comes back, whatever text and numbers it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from dotcu.serialize import Misfit, from_json, from_plain, plain, to_json


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A part of a report."""

    times: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report."""

    path: str
    inner: Inner | None = None
    rows: tuple[tuple[int, str], ...] = ()
    more: dict[str, int] = field(default_factory=dict)


NOT_UTF8 = "/home/caf\udce9/ops.py"
"""A path as `os.fsdecode` returns it where its bytes are not UTF-8."""


@pytest.mark.parametrize("path", ["ops.py", "Größe.py", NOT_UTF8])
def test_a_dataclass_comes_back(path: str) -> None:
    report = Report(path=path, inner=Inner(times=(1.5, None)), rows=((1, "a"), (2, path)), more={"n": 2**60})
    assert from_json(Report, to_json(report)) == report
    assert from_plain(Report, plain(report)) == report
    assert len(to_json(report).splitlines()) == 1


@pytest.mark.parametrize("path", ["ops.py", NOT_UTF8])
def test_a_number_that_is_not_finite_becomes_null(path: str) -> None:
    report = Report(path=path, inner=Inner(times=(float("nan"), float("inf"), -float("inf"), 0.0)))
    assert plain(report)["inner"] == {"times": [None, None, None, 0.0]}
    read = from_json(Report, to_json(report))
    assert read.inner == Inner(times=(None, None, None, 0.0))


def test_subclasses_of_plain_types_are_plain() -> None:
    values = {"time": np.float64(2.5), "torch": torch.__version__, "path": Path("a/b")}
    expected = {"time": 2.5, "torch": str(torch.__version__), "path": "a/b"}
    assert plain(values) == plain(MappingProxyType(values)) == expected
    assert plain({"time": np.float64("nan")}) == {"time": None}


@pytest.mark.parametrize("text", ["{", '{"path": 1}', "{}", '["\\udce9"]'])
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(Misfit):
        from_json(Report, text)

"""The README's and the docs' figures of calls are those of the committed results."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import call_tables
from calls.gradients import BACKWARD, FORWARD, PAIRS

CUSTOM_OP = "torch.library custom_op, around cuda.core"


@pytest.mark.parametrize(("path", "short"), call_tables.PAGES, ids=lambda value: getattr(value, "name", ""))
def test_a_page_has_the_figures_of_the_committed_results(path: Path, short: bool) -> None:
    now, wanted = call_tables.page(path, short=short)
    assert now == wanted, "type: python benchmarks/call_tables.py"
    assert call_tables.BEGIN in now


def test_operators_of_the_gallery_have_rows_and_means_once_they_were_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(call_tables, "RESULTS", tmp_path)
    assert call_tables.table(short=False).count("\n") == 1, "nothing was measured, so there is only the head"
    rows = []
    for pair, ratio in zip(PAIRS[:2], (0.5, 2.0), strict=True):
        for way in pair.ways:
            own, eager = pair.own_name(way), pair.eager_name(way)
            rows.append(
                {"name": own, "base": eager, "us": {"median": 10 * ratio}, "ratio": {"median": ratio}}
            )
            rows.append({"name": eager, "base": eager, "us": {"median": 10.0}, "ratio": None})
    rows.append({"name": PAIRS[3].own_name(FORWARD), "reason": "not measured here"})
    (tmp_path / "gallery_calls_h200.json").write_text(json.dumps({"results": rows}))
    lines = call_tables.table(short=False).splitlines()
    assert f"| add, {FORWARD} | 5.0 | torch eager | 10.0 | 0.50 |" in lines
    assert f"| add a number, {BACKWARD} | 20.0 | torch eager | 10.0 | 2.00 |" in lines
    assert f"| 2 operators of the gallery, {FORWARD}, mean | | torch eager | | 1.00 |" in lines
    assert len(lines) == 2 + 4 + 2


# A page, a text of it, and the contenders whose medians it has to hold, in the order of the text.
TIMES = (
    (
        "README.md",
        r"an operator's call, on the host \|(.*)\|",
        ("dotcu, torch.ops", "C++ TORCH_LIBRARY", CUSTOM_OP, "CuPy RawKernel", "Triton"),
    ),
    (
        "docs/coming_from/torch_library.md",
        r"a `custom_op` call costs the host (.*)\|",
        (CUSTOM_OP, "C++ TORCH_LIBRARY", "dotcu, torch.ops"),
    ),
    (
        "docs/coming_from/own_jit.md",
        r"a call with its allocation \|(.*)\|",
        ("dotcu, torch.ops", "CuPy RawKernel"),
    ),
    (
        "docs/coming_from/own_jit.md",
        r"a bare launch \|(.*)\|",
        ("dotcu, bare launch", "CuPy RawKernel, bare launch on raw pointers"),
    ),
    ("docs/coming_from/triton.md", r"A call that takes the host (.*)", ("dotcu, torch.ops", "Triton")),
    (
        "docs/coming_from/index.md",
        r"On the host of an H200, an operator's call takes (.*)",
        ("dotcu, torch.ops", "C++ TORCH_LIBRARY"),
    ),
)


@pytest.mark.parametrize(("page", "text", "contenders"), TIMES)
def test_a_comparison_has_the_figures_of_the_committed_results(
    page: str, text: str, contenders: tuple[str, ...]
) -> None:
    rows = call_tables.read("call_overhead_h200.json")
    found = re.search(text, (call_tables.ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} no longer has the text {text!r}"
    times = [float(time) for time in re.findall(r"([\d.]+) µs", found[1])]
    assert times == [round(rows[name]["us"]["median"], 1) for name in contenders]


def test_the_guide_of_tuning_has_the_figures_of_its_run() -> None:
    run = json.loads((call_tables.RESULTS / "tune_h100.json").read_text(encoding="utf-8"))
    guide = " ".join((call_tables.ROOT / "docs/howto/tune.md").read_text(encoding="utf-8").split())
    tuned, rows = run["seconds"], run["gallery"]["rows"]
    worth = sorted(row["over_default"] for row in rows if row.get("over_default"))
    first, *others = (row["seconds"] for row in tuned["rows"])
    better = [f"{each:.2f}" for each in worth if each != 1]
    assert worth[0] == 1, "tuning kept a slower one"
    for text in (
        f"{tuned['configurations']} configurations of a product took {first:.0f} s for the first shape",
        f"{min(others):.0f} to {max(others):.0f} s for each further one: {tuned['seconds']:.0f} s for",
        f"in {len(worth) - len(better)} of {len(worth)} cases",
        f"found one {', '.join(better[:-1])} and {better[-1]} times as fast",
        f"A look-up costs {run['look_up']['look_up_us']:.2f} µs",
        "twenty searches from the start chose the same",
    ):
        assert text in guide
    long = run["exhaustive"]
    assert len(long["rows"]) == 3
    assert all(row["times"] > long["budget"] for row in long["rows"])
    assert f"at most {math.ceil(1000 * long['worst']) / 1000} times as fast" in guide
    equal = run["equal"]["product"]
    assert equal["runs"] == equal["equal"] == 20


def test_the_readme_has_the_figures_of_gpt2s_step() -> None:
    own, _ = call_tables.read("training_gpt2_h200.json").values()
    readme = " ".join((call_tables.ROOT / "README.md").read_text(encoding="utf-8").split())
    figures = f"takes {own['us']['median'] / 1000:.1f} ms, {own['ratio']['median']:.2f} of the time"
    assert figures in readme

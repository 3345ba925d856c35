"""Where instructions come from: by the Python module of Nsight Compute, or by its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ncu_pages
from dotcu.profiling import lines, pages
from dotcu.profiling.tool import Tool

MODULE = """
class Values:
    def __init__(self, values):
        self.values = values

    def num_instances(self):
        return len(self.values)

    def has_correlation_ids(self):
        return True

    def correlation_ids(self):
        return self

    def as_uint64(self, i):
        return self.values[i]


class Info:
    def __init__(self, line):
        self.at = line

    def file_name(self):
        return "/dotcu/kernel.cu"

    def line(self):
        return self.at


class Action:
    lines = {lines}

    def name(self):
        return "square"

    def metric_by_name(self, name):
        return Values(list(self.lines)) if name == "smsp__pcsamp_sample_count" else None

    def source_info(self, address):
        line = self.lines[address]
        return Info(line) if line is not None else None


class Report:
    def num_ranges(self):
        return 1

    def range_by_idx(self, i):
        return self

    def num_actions(self):
        return 1

    def action_by_idx(self, i):
        return Action()


def load_report(path):
    print("loading", path)
    return Report()
"""
"""Has what we use of the interface. Source: Nsight Compute 2025.3, Python Report Interface."""

BASE = ncu_pages.INSTRUCTIONS[0][0]
AT = {BASE: 11, BASE + 0x10: 15, BASE + 0x20: None, BASE + 0x30: 17}


def tool_with(folder: Path, module: str | None, view: str = "") -> Tool:
    path, _ = ncu_pages.program(folder, None, pages={"sourcecuda,sass": view})
    if module is None:
        return Tool(path=path, module=None, version="")
    (folder / "ncu_report.py").write_text(module)
    return Tool(path=path, module=folder, version="")


def places(tool: Tool) -> list[tuple[str, int] | None]:
    (listing,) = lines.placed(tool, Path("x.ncu-rep"), pages.source(ncu_pages.sass()))
    return [each.place for each in listing.instructions]


FILE = "/dotcu/kernel.cu"
EVERY = [(FILE, 11), (FILE, 15), (FILE, 15), (FILE, 17)]


def test_the_module_tells_of_each_address(tmp_path: Path) -> None:
    tool = tool_with(tmp_path, MODULE.replace("{lines}", repr(AT)))
    assert places(tool) == [(FILE, 11), (FILE, 15), None, (FILE, 17)]


def test_addresses_that_are_counted_from_elsewhere_are_matched_by_distance(tmp_path: Path) -> None:
    shifted = {at - BASE: line or 15 for at, line in AT.items()}
    assert places(tool_with(tmp_path, MODULE.replace("{lines}", repr(shifted)))) == EVERY


@pytest.mark.parametrize(
    "module", [None, "raise ImportError('another Python')", "def load_report(path): 1 / 0"]
)
def test_where_the_module_is_of_no_use_the_page_tells(tmp_path: Path, module: str | None) -> None:
    assert places(tool_with(tmp_path, module, ncu_pages.cuda_sass())) == EVERY


def test_where_nothing_tells_instructions_have_no_line(tmp_path: Path) -> None:
    assert places(tool_with(tmp_path, None)) == [None] * 4


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '[{"lines": [["x", "k.cu", 1]]}]', '{"lines": []}'])
def test_what_is_no_answer_of_the_module_is_nothing(text: str) -> None:
    assert lines.read(text) == []


def test_lines_of_no_file_are_left_out() -> None:
    text = json.dumps([{"name": "k", "lines": [[16, "", 0], [32, "k.cu", 3]]}])
    assert lines.read(text) == [{32: ("k.cu", 3)}]

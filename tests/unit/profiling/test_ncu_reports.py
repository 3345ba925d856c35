"""Reports of ncu: launches and instructions by its pages, and the source lines of instructions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dotcu.profiling import ncu
from helpers import ncu_reports


def test_the_raw_page_gives_launches_with_their_metrics_and_units() -> None:
    one, other = ncu.parse_launches(ncu_reports.raw((ncu_reports.SQUARE, ncu_reports.COPY)))
    assert (one.name, one.grid, one.block) == (ncu_reports.SQUARE, "(1056, 1, 1)", "(256, 1, 1)")
    assert other.name == ncu_reports.COPY
    assert one.metrics["gpu__time_duration.sum"] == (31200.0, "ns")
    assert one.metrics["launch__waves_per_multiprocessor"] == (1.0, "")


def test_a_cell_that_is_no_number_has_no_value() -> None:
    (launched,) = ncu.parse_launches(ncu_reports.raw())
    assert launched.metrics["smsp__pcsamp_interval"][0] is None


def test_the_source_page_gives_instructions_with_samples_by_reason() -> None:
    ((name, listing),) = ncu.parse_instructions(ncu_reports.sass())
    assert name == ncu_reports.SQUARE
    assert len(listing) == 4
    load = listing[1]
    assert (load.address, load.text) == (0x7F2EF9254D10, "LDG.E R4, desc[UR4][R2.64]")
    assert (load.samples, load.executed, load.location) == (400, 8448, None)
    assert load.stalls == {"long_sb": 380, "selected": 10, "wait": 10}


def test_the_same_kernel_twice_gives_two_listings() -> None:
    listings = ncu.parse_instructions(ncu_reports.sass((ncu_reports.SQUARE, ncu_reports.SQUARE)))
    assert [len(some) for _, some in listings] == [4, 4]


def test_the_page_of_lines_reports_where_each_instruction_comes_from_and_counts_it_once() -> None:
    ((_, listing),) = ncu.parse_instructions(ncu_reports.cuda_sass())
    assert [each.location for each in listing] == [
        ("/dotcu/kernel.cu", number) for number in (11, 15, 15, 17)
    ]
    assert sum(each.samples for each in listing) == 490


def test_a_number_before_the_address_is_passed_over() -> None:
    text = ncu_reports.line(["#", "Address", "Source", "# Samples"]) + ncu_reports.line(
        ["1", "0x10", "NOP", "3"]
    )
    ((only,),) = [some for _, some in ncu.parse_instructions(text)]
    assert (only.address, only.text, only.samples) == (0x10, "NOP", 3)


def test_of_two_columns_of_one_name_the_first_counts() -> None:
    heads = ["Address", "Source", "Instructions Executed", "Instructions Executed"]
    text = ncu_reports.line(heads) + ncu_reports.line(["0x10", "NOP", "3", "96"])
    assert ncu.parse_instructions(text)[0][1][0].executed == 3


def test_words_that_are_no_page_give_nothing() -> None:
    for text in ("", "==ERROR== no report\n", "nothing, really\n", '"Kernel Name"\n'):
        assert ncu.parse_launches(text) == []
        assert ncu.parse_instructions(text) == []
    assert ncu.parse_launches(ncu_reports.line([*ncu_reports.HEADS, "gpu__time_duration.sum"])) == []


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

BASE = ncu_reports.INSTRUCTIONS[0][0]
AT = {BASE: 11, BASE + 0x10: 15, BASE + 0x20: None, BASE + 0x30: 17}


def tool_with(folder: Path, module: str | None, view: str = "") -> Path:
    path, _ = ncu_reports.program(folder, None, pages={"sourcecuda,sass": view})
    if module is not None:
        inside = folder / "extras" / "python"
        inside.mkdir(parents=True)
        (inside / ncu.MODULE).write_text(module)
    return path


def locations(tool: Path) -> list[tuple[str, int] | None]:
    ((_, listing),) = ncu.located(tool, Path("x.ncu-rep"), ncu.parse_instructions(ncu_reports.sass()))
    return [each.location for each in listing]


FILE = "/dotcu/kernel.cu"
EVERY = [(FILE, 11), (FILE, 15), (FILE, 15), (FILE, 17)]


def test_the_module_has_the_line_of_each_address(tmp_path: Path) -> None:
    tool = tool_with(tmp_path, MODULE.replace("{lines}", repr(AT)))
    assert locations(tool) == [(FILE, 11), (FILE, 15), None, (FILE, 17)]


def test_addresses_that_are_counted_from_elsewhere_are_matched_by_distance(tmp_path: Path) -> None:
    shifted = {at - BASE: line or 15 for at, line in AT.items()}
    assert locations(tool_with(tmp_path, MODULE.replace("{lines}", repr(shifted)))) == EVERY


@pytest.mark.parametrize(
    "module", [None, "raise ImportError('another Python')", "def load_report(path): 1 / 0"]
)
def test_where_the_module_is_of_no_use_the_page_reports(tmp_path: Path, module: str | None) -> None:
    assert locations(tool_with(tmp_path, module, ncu_reports.cuda_sass())) == EVERY


def test_where_nothing_reports_instructions_have_no_line(tmp_path: Path) -> None:
    assert locations(tool_with(tmp_path, None)) == [None] * 4


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '[{"lines": [["x", "k.cu", 1]]}]', '{"lines": []}'])
def test_what_is_no_answer_of_the_module_is_nothing(text: str) -> None:
    assert ncu.parse_lines(text) == []


def test_lines_of_no_file_are_left_out() -> None:
    text = json.dumps([{"name": "k", "lines": [[16, "", 0], [32, "k.cu", 3]]}])
    assert ncu.parse_lines(text) == [{32: ("k.cu", 3)}]

"""A program: the source lines of every instruction in a report, by Nsight Compute's own Python module.

    python report_reader.py MODULE_FOLDER REPORT FILE

It writes `[{"name": kernel, "lines": [[address, file, line], ...]}, ...]`, launch by launch, to FILE. It is a
program of its own, because the module is native code that another version of Python may not load. It imports
nothing of dotcu. Source: Nsight Compute, Python Report Interface.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BY_ADDRESS = ("inst_executed", "smsp__pcsamp_sample_count")
"""Metrics that have a value for each instruction's address; the first that a report has will do."""


def _main(folder: str, report: str, file: str) -> None:
    """Write the source line of each instruction of a report to a file."""
    sys.path.insert(0, folder)
    module = importlib.import_module("ncu_report")
    context = module.load_report(report)
    ranges = (context.range_by_idx(i) for i in range(context.num_ranges()))
    actions = [each.action_by_idx(i) for each in ranges for i in range(each.num_actions())]
    listings = [{"name": action.name(), "lines": list(_lines(action))} for action in actions]
    Path(file).write_text(json.dumps(listings))


def _lines(action: Any) -> Iterator[tuple[int, str, int]]:
    for address in _addresses(action):
        info = action.source_info(address)
        if info is not None:
            yield address, info.file_name(), info.line()


def _addresses(action: Any) -> list[int]:
    for name in BY_ADDRESS:
        metric = action.metric_by_name(name)
        if metric is not None and metric.num_instances() and metric.has_correlation_ids():
            ids = metric.correlation_ids()
            return [ids.as_uint64(i) for i in range(metric.num_instances())]
    return []


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3])

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.benchmark.limits import ceilings
from dotcu.benchmark.limits.ceilings import Ceilings

MEASURED = Ceilings(
    read_gbps=4420.5,
    two_to_one_gbps=4390,
    copy_gbps=4260,
    write_gbps=4680,
    l2_read_gbps=8000,
    l2_copy_gbps=6000,
    l2_write_gbps=5000,
    matrix_tflops={"bfloat16": 794.0},
    plain_tflops={"float32": 62.0},
    gpu="NVIDIA H200",
    uuid="GPU-12ab",
    driver="580.65.06",
    measured_at="2026-11-21T12:00:00+00:00",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path):
        yield tmp_path


def read() -> Ceilings | None:
    return ceilings.read_saved("GPU-12ab", "580.65.06")


def test_what_is_saved_is_read_again() -> None:
    ceilings.save(MEASURED)
    assert read() == MEASURED


def test_it_lies_in_the_cache_folder_and_leaves_nothing_beside_it(folder: Path) -> None:
    ceilings.save(MEASURED)
    ceilings.save(dataclasses.replace(MEASURED, copy_gbps=4300))
    assert [path for path in folder.rglob("*") if path.is_file()] == [
        ceilings.saved_path("GPU-12ab", "580.65.06")
    ]


def test_another_gpu_or_driver_has_its_own() -> None:
    ceilings.save(MEASURED)
    assert ceilings.read_saved("GPU-34cd", "580.65.06") is None
    assert ceilings.read_saved("GPU-12ab", "590.1") is None


def test_a_file_that_was_copied_from_another_gpu_is_not_believed() -> None:
    ceilings.save(MEASURED)
    ceilings.saved_path("GPU-12ab", "580.65.06").rename(ceilings.saved_path("GPU-34cd", "580.65.06"))
    assert ceilings.read_saved("GPU-34cd", "580.65.06") is None


GOOD = dataclasses.asdict(MEASURED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\xff",
        json.dumps(GOOD)[:-10],
        json.dumps({**GOOD, "copy_gbps": "fast"}),
        json.dumps({**GOOD, "copy_gbps": float("nan")}),
        json.dumps({**GOOD, "copy_gbps": 0}),
        json.dumps({**GOOD, "matrix_tflops": [1]}),
        json.dumps({**GOOD, "matrix_tflops": {"bfloat16": None}}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({name: value for name, value in GOOD.items() if name != "copy_gbps"}),
    ],
    ids=range(13),
)
def test_a_damaged_file_is_as_good_as_none(text: str) -> None:
    ceilings.save(MEASURED)
    file = ceilings.saved_path("GPU-12ab", "580.65.06")
    for whole in (text, f"{hashlib.sha256(text.encode('latin-1')).hexdigest()}\n{text}"):
        file.write_text(whole, encoding="latin-1")
        assert read() is None


def test_a_figure_in_which_a_bit_was_flipped_is_not_believed() -> None:
    ceilings.save(MEASURED)
    file = ceilings.saved_path("GPU-12ab", "580.65.06")
    file.write_text(file.read_text().replace("794.0", "594.0"))
    assert read() is None


def test_names_with_slashes_stay_in_the_folder(folder: Path) -> None:
    assert ceilings.saved_path("../../x", "/etc").parent == folder / "limits" / ceilings.LAYOUT


def test_a_folder_that_cannot_be_written_costs_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "limits").write_text("in the way")
    with caplog.at_level(logging.WARNING, "dotcu"):
        ceilings.save(MEASURED)
    assert "cannot be saved" in caplog.text
    assert "DOTCU_CACHE_DIR" in caplog.text
    assert read() is None

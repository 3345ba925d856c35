"""Pages of a report, read: what is there, and what is not."""

from __future__ import annotations

import ncu_pages
from dotcu.profiling import pages


def test_the_raw_page_gives_launches_with_their_metrics_and_units() -> None:
    one, other = pages.raw(ncu_pages.raw((ncu_pages.SQUARE, ncu_pages.COPY)))
    assert (one.name, one.grid, one.block) == (ncu_pages.SQUARE, "(1056, 1, 1)", "(256, 1, 1)")
    assert other.name == ncu_pages.COPY
    assert one.metrics["gpu__time_duration.sum"] == pages.Metric(value=31200.0, unit="ns")
    assert one.metrics["launch__waves_per_multiprocessor"] == pages.Metric(value=1.0, unit="")


def test_a_cell_that_is_no_number_has_no_value() -> None:
    (launched,) = pages.raw(ncu_pages.raw())
    assert launched.metrics["smsp__pcsamp_interval"].value is None


def test_the_source_page_gives_instructions_with_samples_by_reason() -> None:
    (listing,) = pages.source(ncu_pages.sass())
    assert listing.name == ncu_pages.SQUARE
    assert len(listing.instructions) == 4
    load = listing.instructions[1]
    assert (load.address, load.text) == (0x7F2EF9254D10, "LDG.E R4, desc[UR4][R2.64]")
    assert (load.samples, load.executed, load.place) == (400, 8448, None)
    assert load.stalls == {"long_sb": 380, "selected": 10, "wait": 10}


def test_the_same_kernel_twice_gives_two_listings() -> None:
    listings = pages.source(ncu_pages.sass((ncu_pages.SQUARE, ncu_pages.SQUARE)))
    assert [len(each.instructions) for each in listings] == [4, 4]


def test_the_page_of_lines_tells_where_each_instruction_comes_from_and_counts_it_once() -> None:
    (listing,) = pages.source(ncu_pages.cuda_sass())
    assert [each.place for each in listing.instructions] == [
        ("/dotcu/kernel.cu", number) for number in (11, 15, 15, 17)
    ]
    assert sum(each.samples for each in listing.instructions) == 490


def test_a_number_before_the_address_is_passed_over() -> None:
    text = ncu_pages.line(["#", "Address", "Source", "# Samples"]) + ncu_pages.line(["1", "0x10", "NOP", "3"])
    ((only,),) = [each.instructions for each in pages.source(text)]
    assert (only.address, only.text, only.samples) == (0x10, "NOP", 3)


def test_of_two_columns_of_one_name_the_first_counts() -> None:
    heads = ["Address", "Source", "Instructions Executed", "Instructions Executed"]
    text = ncu_pages.line(heads) + ncu_pages.line(["0x10", "NOP", "3", "96"])
    assert pages.source(text)[0].instructions[0].executed == 3


def test_words_that_are_no_page_give_nothing() -> None:
    for text in ("", "==ERROR== no report\n", "nothing, really\n", '"Kernel Name"\n'):
        assert pages.raw(text) == []
        assert pages.source(text) == []
    assert pages.raw(ncu_pages.line([*ncu_pages.HEADS, "gpu__time_duration.sum"])) == []

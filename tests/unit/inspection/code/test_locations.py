from __future__ import annotations

from dotcu.inspection.code.locations import SourceLocation, kernel_file, shown_location

HEADER, KERNEL, CALLER = SourceLocation("h.cuh", 3), SourceLocation("k.cu", 10), SourceLocation("k.cu", 20)


def test_the_home_is_the_outermost_file_of_the_first_instruction_that_has_a_line() -> None:
    assert kernel_file([(), (HEADER, KERNEL), (SourceLocation("other.cu", 1),)]) == "k.cu"


def test_without_lines_there_is_no_home() -> None:
    assert kernel_file([(), ()]) == ""


def test_a_headers_code_stands_beside_the_line_that_calls_it() -> None:
    assert shown_location((HEADER, KERNEL), "k.cu") == KERNEL


def test_of_two_lines_at_home_the_inner_one_is_taken() -> None:
    assert shown_location((KERNEL, CALLER), "k.cu") == KERNEL


def test_code_of_another_file_alone_keeps_its_outermost_place() -> None:
    assert shown_location((HEADER,), "k.cu") == HEADER
    assert shown_location((), "k.cu") is None

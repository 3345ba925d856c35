from __future__ import annotations

from dotcu.inspection.code.places import Place, home_of, user_place

HEADER, KERNEL, CALLER = Place("h.cuh", 3), Place("k.cu", 10), Place("k.cu", 20)


def test_the_home_is_the_outermost_file_of_the_first_instruction_that_has_a_line() -> None:
    assert home_of([(), (HEADER, KERNEL), (Place("other.cu", 1),)]) == "k.cu"


def test_without_lines_there_is_no_home() -> None:
    assert home_of([(), ()]) == ""


def test_a_headers_code_stands_beside_the_line_that_calls_it() -> None:
    assert user_place((HEADER, KERNEL), "k.cu") == KERNEL


def test_of_two_lines_at_home_the_inner_one_is_taken() -> None:
    assert user_place((KERNEL, CALLER), "k.cu") == KERNEL


def test_code_of_another_file_alone_keeps_its_outermost_place() -> None:
    assert user_place((HEADER,), "k.cu") == HEADER
    assert user_place((), "k.cu") is None

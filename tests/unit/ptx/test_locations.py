from __future__ import annotations

from dotcu.ptx.instructions import NOWHERE, Location
from dotcu.ptx.parser import Locations


def test_before_any_directive_there_is_no_line() -> None:
    assert Locations().current == NOWHERE


def test_an_inlined_line_knows_the_chain_that_led_to_it() -> None:
    locations = Locations()
    locations.move((1, 10, 5))
    locations.move((2, 3, 1), (1, 10, 5))
    locations.move((2, 7, 1), (2, 3, 1))
    assert locations.current == Location(2, 7, Location(2, 3, Location(1, 10)))


def test_a_place_that_was_never_named_is_known_by_its_line() -> None:
    locations = Locations()
    locations.move((2, 3, 1), (1, 10, 5))
    assert locations.current == Location(2, 3, Location(1, 10))


def test_line_zero_changes_nothing() -> None:
    locations = Locations()
    locations.move((1, 10, 5))
    locations.move((1, 0, 5))
    assert locations.current == Location(1, 10)

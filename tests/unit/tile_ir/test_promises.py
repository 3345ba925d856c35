"""The promises of tile kernels about their parameters."""

from __future__ import annotations

from dotcu.tile_ir import promises, read
from helpers.tile_launches import BYTECODE, line_of

MODULE = read(BYTECODE)


def test_promises_are_of_the_parameter_with_their_line() -> None:
    found = promises(MODULE.functions["promised"])
    told = [(promise.parameter, str(promise.predicate)) for promise in found]
    assert told == [(2, "div_by<8>"), (2, "bounded<0, 100000>"), (0, "div_by<16>")]
    assert [promise.line.line for promise in found if promise.line] == [
        line_of("int n = ct::assume_bounded"),
        line_of("int n = ct::assume_bounded"),
        line_of("auto x = ct::assume_aligned"),
    ]


def test_a_promise_tells_which_values_keep_it() -> None:
    divisible, bounded, aligned = promises(MODULE.functions["promised"])
    assert [divisible.holds(n) for n in (0, 8, -8, 12)] == [True, True, True, False]
    assert [bounded.holds(n) for n in (-1, 0, 100_000, 100_001)] == [False, True, True, False]
    assert [aligned.holds(address) for address in (1 << 44, (1 << 44) + 8)] == [True, False]


def test_a_kernel_without_promises_has_that_of_its_extents_alone() -> None:
    (size,) = promises(MODULE.functions["add"])
    assert (size.parameter, str(size.predicate)) == (3, "bounded<0, ?>")

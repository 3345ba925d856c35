"""What fields of a launch can hold."""

from __future__ import annotations

import math
import struct

import pytest

from dotcu.call_cache.record import FieldKind
from exact import (
    LEAST,
    MOST,
)
from recorded_calls import FLOAT, INT, Driver, Operator, writing

FORMATS = {
    FieldKind.INT8: "<b", FieldKind.INT16: "<h", FieldKind.INT32: "<i", FieldKind.INT64: "<q",
    FieldKind.UINT8: "<B", FieldKind.UINT16: "<H", FieldKind.UINT32: "<I", FieldKind.UINT64: "<Q",
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_an_integer_field_takes_what_its_type_holds(driver: Driver, kind: FieldKind) -> None:
    operator = Operator(driver, [INT], writing(kind, INT))
    for power in (7, 8, 15, 16, 31, 32, 63):
        for number in (2**power - 1, min(2**power, MOST), -(2**power), max(-(2**power) - 1, LEAST), 0, -1):
            try:
                want = struct.pack(FORMATS[kind], number)
            except struct.error:
                assert operator(number) == "body", number
            else:
                assert operator(number) is None, number
                assert operator.launched[-1].parameters == want.ljust(16, b"\0")


LARGEST = 3.4028234663852886e38


@pytest.mark.parametrize(
    "number",
    [
        *(0.0, -0.0, 0.1, 1e-46, -1e-45, LARGEST, -LARGEST, math.inf, -math.inf),
        *(
            math.nextafter(3.4028235677973366e38, 0),
            3.4028235677973366e38,
            -3.4028235677973366e38,
            1e39,
            -1e308,
        ),
    ],
)
def test_a_float_field_is_rounded_and_does_not_overflow(driver: Driver, number: float) -> None:
    operator = Operator(driver, [FLOAT], writing(FieldKind.FLOAT32, FLOAT))
    try:
        want = struct.pack("<f", number)
    except OverflowError:
        assert operator(number) == "body"
    else:
        assert operator(number) is None
        assert operator.launched[0].parameters == want.ljust(16, b"\0")


def test_a_float_field_takes_nan_and_an_int(driver: Driver) -> None:
    operator = Operator(driver, [FLOAT], writing(FieldKind.FLOAT32, FLOAT))
    assert operator(math.nan) is operator(3) is None
    first, second = (struct.unpack("<f12x", launched.parameters)[0] for launched in operator.launched)
    assert math.isnan(first)
    assert second == 3.0

"""The native part as it is built: what an attacker would need is taken away."""

from __future__ import annotations

import mmap
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest

from dotcu.elf import Image, read_host_binary, read_sections, rows_of

FLAGS_1, NOW = 0x6FFFFFFB, 1


def test_the_native_part_has_stack_protection_and_no_table_that_can_be_written() -> None:
    spec = find_spec("dotcu._native")
    if spec is None or spec.origin is None:
        pytest.skip("needs the native part: python hatch_build.py")
    with (
        Path(spec.origin).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        image = Image(name="the native part", data=data)
        undefined = {symbol.symbol for symbol in read_host_binary(image).undefined}
        dynamic = next(one for one in read_sections(image) if one.name == ".dynamic")
        flags = dict(rows_of(image, dynamic, struct.Struct("<QQ")))
    assert "__stack_chk_fail" in undefined
    assert flags[FLAGS_1] & NOW

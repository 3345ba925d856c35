"""Tile IR bytecode: what a file holds, its source lines and its text; what is no such file is refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from dotcu.errors import TileCodeError
from dotcu.tile_ir import read, text
from dotcu.tile_ir.table import OPERATIONS
from helpers.tile_launches import BYTECODE, FOLDER, kernels, line_of

MODULE = read(BYTECODE)


def test_the_kernels_their_parameters_and_hints() -> None:
    matmul = MODULE.functions["matmul"]
    assert [str(type_) for type_ in matmul.parameters] == ["tile<ptr<bf16>>"] * 3 + ["tile<i32>"] * 3
    assert matmul.hints == {"default": {"num_cta_in_cga": 2, "num_worker_warps_per_cta": 8}}
    assert MODULE.version == (13, 5)
    assert "release 13.5" in MODULE.producer


def test_each_operation_has_its_line_in_the_users_file() -> None:
    lines = {
        operation.name: operation.line
        for operation in MODULE.functions["histogram"].operations()
        if operation.line is not None
    }
    assert lines["atomic_rmw_tko"].line == line_of("ct::atomic_add_masked")
    assert {line.file for line in lines.values()} == {"/kernels.cu"}


def test_operands_attributes_and_types() -> None:
    function = MODULE.functions["matmul"]
    (product,) = [each for each in function.operations() if each.name == "mmaf"]
    types = [str(function.types[value]) for value in product.inputs]
    assert types == ["tile<128x64xbf16>", "tile<64x128xbf16>", "tile<128x128xf32>"]
    load = next(each for each in function.operations() if each.name == "load_view_tko")
    assert load.attributes["memory_ordering_semantics"] == "weak"
    assert load.attributes["inbounds"] == (False, False)
    view = function.types[load.operands["view"][0]]
    assert str(view) == (
        "partition_view<tile=(128x64), padding_value = zero, tensor_view<?x?xbf16, strides=[?,1]>>"
    )


def test_the_text_shows_operations_beside_lines() -> None:
    shown = text(MODULE)
    assert "entry @matmul(%0: tile<ptr<bf16>>," in shown
    assert f"// kernels.cu:{line_of('total = ct::mma')}" in shown
    assert "global constant @" in shown
    assert sum(line.startswith("entry @") for line in shown.splitlines()) == len(MODULE.functions)


def test_each_number_names_one_operation() -> None:
    names = [form.name for form in OPERATIONS.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin"),
        (b"\x7fELF" + bytes(60), "does not begin"),
        (BYTECODE[:8] + bytes([12, 0]) + BYTECODE[10:], "version 12.0"),
        (BYTECODE[:8] + bytes([13, 99]) + BYTECODE[10:], "version 13.99"),
        (BYTECODE + b"\0", "follow its end"),
    ],
)
def test_what_is_no_such_file(data: bytes, said: str) -> None:
    with pytest.raises(TileCodeError, match=said):
        read(data)


@pytest.mark.parametrize("end", [9, 12, 100, 1000, 5000, 10_000, len(BYTECODE) - 1])
def test_a_file_that_is_cut(end: int) -> None:
    with pytest.raises(TileCodeError, match="cannot be read"):
        read(BYTECODE[:end])


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_are_refused_or_read_but_never_crash(seed: int) -> None:
    rng = np.random.default_rng(seed)
    damaged = bytearray(BYTECODE)
    for at in rng.integers(12, len(damaged), rng.integers(1, 6)):
        damaged[at] ^= 1 << int(rng.integers(8))
    with contextlib.suppress(TileCodeError):
        text(read(bytes(damaged)))


def test_the_program_of_the_tests_is_decoded_whole() -> None:
    for name in MODULE.functions:
        assert kernels().decoded(name).operations


@pytest.mark.parametrize("version", [(13, 3), (13, 4)])
def test_files_of_older_compilers(version: tuple[int, int]) -> None:
    module = read((FOLDER / "older_{}_{}.tileir".format(*version)).read_bytes())
    assert module.version == version
    operations = {operation.name: operation for operation in module.functions["older"].operations()}
    assert operations["ftoi"].attributes["rounding_mode"] == "nearest_int_to_zero"
    assert operations["exp"].attributes["rounding_mode"] == "full"
    assert operations["print_tko"].attributes["str"] == "%d\n"
    assert operations["load_view_tko"].line is not None

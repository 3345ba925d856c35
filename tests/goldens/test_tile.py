"""The interpreter of Tile IR against a GPU: each golden tile kernel gives what the hardware gave."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from dotcu.simulator.tile.launch import TileProgram
from dotcu.tile_ir import TileFunction, TileOperation
from dotcu.tile_ir.table import OPERATIONS
from golden_recipes import Array
from tile_case import EXACT, RECORDED, TILE_IR, Data, TileCase, from_planes, load, source_digest
from tile_cases import CASES
from tile_launch import interpreted

CODE_MANIFEST, CODE = load(TILE_IR)
MANIFEST, BYTES = load(RECORDED)
FILES = sorted(CODE)
KERNELS: dict[tuple[str, str], list[TileCase]] = {}
"""The cases of each kernel for all its element types, by file and name."""

for made in CASES:
    KERNELS.setdefault((made.file, made.kernel.split("<")[0]), []).append(made)

# What stays without a golden, and why.
LEFT_OUT = {
    "get_index_space_shape": "no call of CUDA Tile C++ makes it",
    "get_tensor_shape": "no call of CUDA Tile C++ makes it",
    "mmaf_scaled": "needs an architecture after sm_90",
}


@functools.cache
def program(file: str) -> TileProgram:
    return TileProgram.parse(CODE[file])


def symbol(case: TileCase) -> str:
    """Return the mangled name of a case's kernel."""
    name: str = CODE_MANIFEST["files"][case.file]["symbols"][case.kernel]
    return name


def function(case: TileCase) -> TileFunction:
    return program(case.file).module.functions[symbol(case)]


_known: dict[str, dict[str, Array]] = {}


def recorded(case: TileCase) -> dict[str, Array]:
    """Return what the hardware gave."""
    if case.name not in _known:
        arrays = case.arrays()
        _known[case.name] = {
            name: from_planes(BYTES[f"{case.name}:{name}"], arrays[name]) for name in case.outputs
        }
    return _known[case.name]


@pytest.mark.parametrize(("file", "kernel"), KERNELS)
def test_the_interpreter_gives_what_the_hardware_gave(file: str, kernel: str) -> None:
    differences = {
        case.name: text
        for case in KERNELS[file, kernel]
        if (text := case.difference(interpreted(program(file), symbol(case), case), recorded(case)))
    }  # a finding is raised
    assert not differences


@pytest.mark.parametrize("file", FILES)
def test_the_code_is_of_this_source(file: str) -> None:
    made_of = CODE_MANIFEST["files"][file]["source"]
    assert made_of == source_digest(file), f"{file}.cu has changed: run tests/goldens/compile_tile.py"


def test_each_case_was_recorded_with_this_code_and_these_inputs() -> None:
    expected = {
        case.name: {"tile_ir": CODE_MANIFEST["files"][case.file]["tile_ir"], "inputs": case.inputs_digest}
        for case in CASES
    }
    assert MANIFEST["cases"] == expected, "run tests/goldens/record_tile.py on a GPU"


def test_the_manifest_says_what_the_goldens_were_recorded_with() -> None:
    made = MANIFEST["made"]
    assert made["gpu"].startswith("NVIDIA H")
    assert all(made[key] for key in ("driver", "nvrtc", "date", "command"))


def operations(body: tuple[TileOperation, ...]) -> Iterator[str]:
    """Yield the name of each operation, those of inner regions too."""
    for operation in body:
        yield operation.name
        for region in operation.regions:
            yield from operations(region.operations)


def test_each_operation_of_the_dialect_is_in_a_golden() -> None:
    held = {
        name
        for file in FILES
        for kernel in program(file).module.functions.values()
        for name in operations(kernel.body.operations)
    }
    assert {row.name for row in OPERATIONS.values()} - held == LEFT_OUT.keys()


def test_each_bound_has_its_source() -> None:
    bounds = [bound for case in CASES for bound in case.bounds.values() if bound != EXACT]
    assert bounds
    assert all(bound.source != EXACT.source for bound in bounds)


def _spoilt(type: str, array: Array, digits: int) -> Array:
    """Return elements of which the last bits are others."""
    word = np.dtype(f"u{array.itemsize}")
    return (array.view(word) ^ word.type(digits)).view(array.dtype) if type != "bool" else ~array


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_seen(file: str) -> None:
    for case in (case for case in CASES if case.file == file):
        given = recorded(case)
        for name, type_ in case.outputs.items():
            if case.bounds.get(name, EXACT) == EXACT:
                assert case.difference({**given, name: _spoilt(type_, given[name], 1)}, given), case.name


def test_a_result_beyond_its_bound_is_seen() -> None:
    for case in CASES:
        given = recorded(case)
        for name, type_ in case.outputs.items():
            if case.bounds.get(name, EXACT) != EXACT:
                sign = 1 << (8 * given[name].itemsize - 1)
                assert case.difference({**given, name: _spoilt(type_, given[name], sign)}, given), case.name


def test_arguments_of_each_case_are_of_the_kernels_types() -> None:
    for case in CASES:
        pointers = [type_.is_pointer for type_ in function(case).parameters]
        assert [isinstance(argument, Data) for argument in case.args.values()] == pointers, case.name

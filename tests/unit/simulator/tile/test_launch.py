"""Tile kernels in the simulator: what they compute, against NumPy, and what a run counts."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest

from dotcu.errors import FindingError, SimulationError, TileCodeError
from dotcu.simulator import Run
from dotcu.simulator.tile.launch import TileProgram
from dotcu.simulator.tile.state import TileLaunch
from helpers.tile_launches import BYTECODE, FOLDER, SOURCE, kernels, launched, line_of
from helpers.trial_operators import bug_of_dotcu

RNG = np.random.default_rng(7)
bf16 = ml_dtypes.bfloat16


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [1, 128, 300])
def test_an_elementwise_kernel_by_views(n: int) -> None:
    a, b, c = normal(n), normal(n), np.zeros(n, np.float32)
    run = launched("add", -(-n // 128), a=a, b=b, c=c, n=n)
    assert run.findings == []
    np.testing.assert_array_equal(c, a + b)


def test_an_elementwise_kernel_by_pointers() -> None:
    x, y = normal(300), np.zeros(300, np.float32)
    assert launched("scale", 3, x=x, y=y, n=300, by=np.float32(0.3)).findings == []
    np.testing.assert_array_equal(y, x * np.float32(0.3))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (200, 136, 72), (1, 1, 1)])
def test_a_matrix_product(m: int, n: int, k: int) -> None:
    a, b, c = normal(m, k, dtype=bf16), normal(k, n, dtype=bf16), np.zeros((m, n), bf16)
    run = launched("matmul", (-(-m // 128), -(-n // 128), 1), a=a, b=b, c=c, m=m, n=n, k=k)
    assert run.findings == []
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(exact) * 2.0**-8 + 1e-4
    assert (np.abs(c.astype(np.float64) - exact) <= bound).all()


def test_a_softmax_of_rows_that_are_padded() -> None:
    x, y = normal(5, 200, dtype=bf16), np.zeros((5, 200), bf16)
    assert launched("softmax", 5, x=x, y=y, rows=5, columns=200).findings == []
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    np.testing.assert_allclose(y.astype(np.float64), e / e.sum(1, keepdims=True), rtol=2.0**-8)


def test_shapes_sums_and_scans() -> None:
    x = RNG.integers(-100, 100, (8, 16)).astype(np.int32)
    turned, sums, running = np.zeros(128, np.int32), np.zeros(8, np.int32), np.zeros(128, np.int32)
    assert launched("shapes", 1, x=x, turned=turned, sums=sums, running=running).findings == []
    np.testing.assert_array_equal(turned, x.T.reshape(-1))
    np.testing.assert_array_equal(sums, x.sum(1))
    np.testing.assert_array_equal(running, x.cumsum(1).reshape(-1))


def test_atomics_that_meet_at_one_element() -> None:
    x, bins = RNG.integers(0, 4, 300).astype(np.int32), np.zeros(4, np.int32)
    assert launched("histogram", 3, x=x, bins=bins, n=300).findings == []
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=4))


def test_a_table_of_the_module() -> None:
    x, out = np.array([3, 0, 7], np.int32), np.zeros(3, np.int32)
    assert launched("table", 3, x=x, out=out).findings == []
    np.testing.assert_array_equal(out, [7, 2, 19])


def test_a_print_is_in_the_output_with_its_tile_block() -> None:
    run = launched("said", 1, x=np.zeros(1, np.int32), n=5)
    assert run.output == ["tile block (0,0,0): n is 5, half of it 2.5\n"]


def test_an_empty_grid_runs_nothing() -> None:
    y = np.zeros(128, np.float32)
    assert launched("same_tile", 0, y=y, n=128).counters.steps == 0


def test_bytes_and_operations_are_counted_by_line() -> None:
    a, b, c = normal(300), normal(300), np.zeros(300, np.float32)
    counters = launched("add", 3, a=a, b=b, c=c, n=300).counters
    assert (counters.launches, counters.loaded_bytes, counters.stored_bytes) == (1, 2400, 1200)
    assert counters.operations == {"f32": 3 * 128}
    line = counters.lines["kernels.cu", line_of("row(c, n).store_masked(row(a, n).load_masked(i) + row")]
    assert (line.loaded_bytes, line.flops) == (2400, 3 * 128)


def test_a_matrix_product_counts_as_2mnk() -> None:
    a, b, c = normal(128, 64, dtype=bf16), normal(64, 128, dtype=bf16), np.zeros((128, 128), bf16)
    run = launched("matmul", 1, a=a, b=b, c=c, m=128, n=128, k=64)
    assert run.counters.operations == {"bf16": 2 * 128 * 128 * 64}


def test_a_run_that_raises_stops_at_the_first_finding() -> None:
    with pytest.raises(FindingError, match=r"kernels\.cu:\d+: out-of-bounds write") as error:
        launched("scale_unmasked", 2, run=Run(), x=normal(256), y=np.zeros(200, np.float32), by=np.float32(2))
    assert error.value.finding.line == line_of("ct::store(y + i, ct::load(x + i) * by);")
    assert error.value.finding.source == SOURCE.splitlines()[error.value.finding.line - 1]


def test_a_limit_of_steps_ends_a_loop_without_end() -> None:
    run = Run(on_finding="collect", step_limit=1000)
    launched("spin", 1, run=run, flag=np.zeros(1, np.int32), out=np.zeros(1, np.int32))
    (finding,) = run.findings
    assert finding.kind == "step-limit"
    assert "still running after 1000 operations" in finding.message


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(SimulationError, match="no kernel 'nothing'"):
        kernels().decoded("nothing")


def test_a_grid_that_is_negative() -> None:
    with pytest.raises(SimulationError, match=r"grid \(-1, 1, 1\)"):
        launched("same_tile", -1, y=np.zeros(128, np.float32), n=128)


def test_a_tile_that_was_loaded_stays_as_it_was() -> None:
    a, b = normal(128), normal(128)
    first, second = a.copy(), b.copy()
    assert launched("swap", 1, a=a, b=b).findings == []
    np.testing.assert_array_equal(a, second)
    np.testing.assert_array_equal(b, first)


def test_rows_that_a_list_names_and_tiles_with_gaps() -> None:
    x, out, spread = normal(16, 8), np.zeros((4, 8), np.float32), np.zeros(8, np.float32)
    rows = np.array([15, 2, 99, 2], np.int32)
    assert launched("picked", 1, x=x, rows=rows, out=out, spread=spread).findings == []
    np.testing.assert_array_equal(out, np.stack((x[15], x[2], np.zeros(8, np.float32), x[2])))
    np.testing.assert_array_equal(spread, x.reshape(-1)[48:56])


def test_a_seed_shuffles_tile_blocks_and_changes_no_right_result() -> None:
    last = set()
    for seed in range(4):
        y = np.zeros(128, np.float32)
        launched("same_tile", 8, run=Run(on_finding="collect", seed=seed), y=y, n=128)
        last.add(float(y[0]))
    assert len(last) > 1  # another tile block is the last to store
    total = np.zeros(1, np.float32)
    run = Run(on_finding="collect", seed=1)
    parts, arrived = np.zeros(4, np.float32), np.zeros(1, np.int32)
    launched("handed_over", 4, run=run, parts=parts, total=total, arrived=arrived)
    assert run.findings == []
    assert total[0] == 10


@pytest.mark.parametrize("version", ["13_3", "13_4"])
def test_kernels_of_older_compilers(version: str) -> None:
    older = TileProgram.parse((FOLDER / f"older_{version}.tileir").read_bytes())
    x, whole, rest = normal(100), np.zeros(100, np.int32), np.zeros(100, np.float32)
    run = launched("older", 1, program=older, x=x, whole=whole, rest=rest, n=100)
    assert run.findings == []
    np.testing.assert_array_equal(whole, x.astype(np.int32))
    exact = x.astype(np.float64)
    expected = np.sqrt(np.exp(exact) * np.exp2(exact)) + np.tanh(exact) - whole
    np.testing.assert_allclose(rest, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_code_that_can_be_read_never_crashes_the_simulator(seed: int) -> None:
    rng = np.random.default_rng(seed)
    damaged = bytearray(BYTECODE)
    for at in rng.integers(12, len(damaged), 2):
        damaged[at] = int(rng.integers(256))
    try:
        program = TileProgram.parse(bytes(damaged))
    except TileCodeError:
        return
    for name, function in program.module.functions.items():
        arguments = {
            f"p{at}": np.zeros(512, np.float32) if type_.is_pointer else np.int32(3)
            for at, type_ in enumerate(function.parameters)
        }
        with contextlib.suppress(SimulationError):
            launched(name, 2, run=Run(on_finding="collect", step_limit=500), program=program, **arguments)


def test_a_bug_of_the_interpreter_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TileLaunch, "execute", bug_of_dotcu)
    with pytest.raises(KeyError, match="planted"):
        launched("add", 1, a=normal(1), b=normal(1), c=normal(1), n=1)


def test_tiles_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(launch: TileLaunch) -> None:
        raise MemoryError("cannot allocate 1 TiB")

    monkeypatch.setattr(TileLaunch, "execute", too_large)
    with pytest.raises(SimulationError, match=r"add do not fit .*1 TiB\.\nUse smaller tiles"):
        launched("add", 1, a=normal(1), b=normal(1), c=normal(1), n=1)

"""The process that makes a first call, here in this one and then in its own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu import settings
from dotcu.benchmark.first_call import FirstCall, first_call
from dotcu.benchmark.first_call_child import LATER_CALLS, counting_imports, measure
from dotcu.compile import cache
from dotcu.errors import OperatorError, UsageError
from dotcu.telemetry import Stopwatch
from helpers import forked_scripts
from helpers.first_call_reports import stage

OPS = '''
import sys
import torch
from torch import Tensor
import dotcu

print("said while it is imported")
kernels = dotcu.load_inline("""
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
""")

@dotcu.op("first_calls::%(name)s")
def twice(x: Tensor) -> Tensor:
    print("said by the body")
    %(body)s
    out = torch.empty_like(x)
    kernels.twice(x, out, x.numel(), grid=1, block=64)
    return out

@twice.samples
def _(device, dtype):
    for n in (33, 7, 0):
        yield dotcu.Sample(torch.ones(n, device=device, dtype=dtype))

@dotcu.op("first_calls::%(name)s_idle")
def idle(x: Tensor) -> Tensor:
    return torch.empty_like(x)
'''


@pytest.fixture
def ops(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A file with two operators, of which the second has no samples."""

    def write(body: str = "pass") -> str:
        name = f"{request.node.name.replace('-', '_')}"[-40:]
        (tmp_path / "ops.py").write_text(OPS % {"name": f"op_{name}", "body": body})
        return str(tmp_path / "ops.py")

    return write


def facts(target: str, folder: Path) -> dict[str, Any]:
    """Return all that `measure` replies."""
    with settings.override(cache_dir=folder / "cache"):
        phases, fields = measure(target, Stopwatch("interpreter"))
        cache.forget()
    return {"phases": phases, **fields}


def test_the_first_sample_that_has_elements_is_called(ops: Any, tmp_path: Path) -> None:
    found = facts(ops() + ":twice", tmp_path)
    assert found["sample"] == "Sample(float32[33])"
    assert len(found["later_ms"]) == LATER_CALLS
    assert found["note"] == ""


def test_of_several_operators_it_is_the_first_and_the_others_are_named(ops: Any, tmp_path: Path) -> None:
    found = facts(ops(), tmp_path)
    assert found["note"] == "the first of 2 operators there: twice, idle"


def test_compiling_counts_to_the_call_or_to_the_import_that_did_it(ops: Any, tmp_path: Path) -> None:
    during_call = facts(ops(), tmp_path)
    assert _stages(during_call, "compile") == ["call"]
    file = Path(ops())
    eager = file.with_name("eager.py")
    text = file.read_text().replace("first_calls::", "first_calls::eager_").replace("2 * x[i]", "3 * x[i]")
    eager.write_text(text + "\nkernels.warm()\n")
    assert _stages(facts(str(eager), tmp_path), "compile") == ["start"]


def _stages(found: dict[str, Any], phase: str) -> list[str]:
    return [stage for stage, phases in found["phases"].items() if phase in phases]


def test_an_operator_without_samples_is_refused_with_what_to_give_it(ops: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no sample with elements") as caught:
        facts(ops() + ":idle", tmp_path)
    assert "@idle.samples" in str(caught.value)


def test_a_call_that_fails_shows_the_users_line(ops: Any, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"failed, on Sample\(float32\[33\]\)") as caught:
        facts(ops("raise ValueError('not today')"), tmp_path)
    assert "ValueError: not today" in str(caught.value)


def test_what_is_measured_with_imports_nothing_that_a_call_would_import() -> None:
    script = """
import sys, torch, dotcu.kernel, dotcu.operator
before = set(sys.modules)
import dotcu.benchmark.first_call_child
heavy = ("torch", "numpy", "cuda", "sympy", "matplotlib")
new = {name for name in set(sys.modules) - before if name.split(".")[0] in heavy}
assert not new, new
"""
    done = forked_scripts.run(script)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> FirstCall:
    """A first call in processes of its own."""
    file = tmp_path_factory.mktemp("target") / "ops.py"
    file.write_text(OPS % {"name": "alone", "body": "pass"})
    return first_call(str(file), "twice")


@pytest.mark.slow
def test_the_first_process_compiles_and_the_second_finds_what_it_made(found: FirstCall) -> None:
    empty, filled = (stage(run, "call") for run in found.runs)
    for step in ("nvrtc", "compile", "store"):
        assert step in empty
        assert step not in filled
    for phases in (empty, filled):
        assert "cache" in phases
        assert ("launch" if torch.cuda.is_available() else "simulate") in phases


@pytest.mark.slow
def test_the_phases_account_for_the_whole(found: FirstCall) -> None:
    for run in found.runs:
        assert all(phase["ms"] >= 0 for phase in run["phases"])
        assert abs(run["remainder_ms"]) < 0.05 * run["whole_ms"]
        assert stage(run, "start")["torch"] > 50
        assert run["call_ms"] > 0
        assert len(run["later_ms"]) == LATER_CALLS


@pytest.mark.slow
def test_the_report_is_of_the_operator_that_was_named(found: FirstCall) -> None:
    assert found.operator == "first_calls::alone"
    assert found.sample == "Sample(float32[33])"
    assert (found.device == "simulator") is not torch.cuda.is_available()
    assert "said" not in str(found)


@pytest.mark.slow
def test_an_operator_that_is_not_there_is_refused_by_the_process() -> None:
    with pytest.raises(UsageError, match="has no operator 'sqare'") as caught:
        first_call("dotcu.gallery", "sqare")
    assert "square" in str(caught.value)


# ------------------------------------------------------------------ imports in a call


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package, and a module that imports it and takes its time."""
    (tmp_path / "counted_package").mkdir()
    (tmp_path / "counted_package" / "__init__.py").write_text("import csv\n")
    (tmp_path / "counted_package" / "inner.py").write_text("value = 1\n")
    (tmp_path / "counted_package" / "other.py").write_text("value = 2\n")
    (tmp_path / "counted_module.py").write_text(
        "import time\ntime.sleep(0.05)\nfrom counted_package import inner\n"
    )
    (tmp_path / "counted_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("counted_")]:
        del sys.modules[name]


def test_an_import_counts_with_all_that_it_imports_in_turn(modules: None) -> None:
    watch = Stopwatch("call")
    with counting_imports(watch) as names:
        module = importlib.import_module("counted_module")
        from counted_package import other  # type: ignore[import-not-found]
    assert names == ["counted_module", "counted_package.other"]
    assert watch.read()[0]["imports"] > 0.05
    assert other.value == 2
    assert module.inner.value == 1


def test_what_is_imported_looks_as_if_it_were_not_counted(modules: None) -> None:
    bootstrap = vars(importlib)["_bootstrap"]
    before = bootstrap._find_and_load
    with counting_imports(Stopwatch("call")):
        module = importlib.import_module("counted_module")
    assert type(module.__loader__) is SourceFileLoader
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert bootstrap._find_and_load is before


def test_a_module_that_is_there_costs_nothing_and_one_that_is_nowhere_is_missing(modules: None) -> None:
    watch = Stopwatch("call")
    with counting_imports(watch) as names:
        importlib.import_module("json")
        assert names == []
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("counted_nowhere")
    assert watch.phase == "call"


def test_a_module_that_fails_ends_the_count(modules: None) -> None:
    watch = Stopwatch("call")
    with counting_imports(watch), pytest.raises(ZeroDivisionError):
        importlib.import_module("counted_broken")
    assert watch.phase == "call"
    assert "counted_broken" not in sys.modules


def test_within_another_step_an_import_is_part_of_that(modules: None) -> None:
    watch = Stopwatch("call")
    with counting_imports(watch) as names, watch.within("bindings"):
        importlib.import_module("counted_module")
    assert names == []
    assert "imports" not in watch.read()[0]
    assert watch.read()[0]["bindings"] > 0.05


def test_an_import_of_another_thread_does_not_count(modules: None) -> None:
    watch = Stopwatch("call")
    with counting_imports(watch) as names:
        thread = threading.Thread(target=importlib.import_module, args=["counted_module"])
        thread.start()
        thread.join()
    assert names == []
    assert "counted_module" in sys.modules

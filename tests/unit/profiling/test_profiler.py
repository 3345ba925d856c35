"""From a target to a report: with counters, and by every way to have none. A program stands for ncu."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import serialize
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.profiling import ProfileReport, ncu, profile, profiler
from dotcu.profiling.report import KernelTiming
from dotcu.profiling.worker import ProfiledCall, ProfileRequest
from helpers import ncu_reports, trial_operators

TIMING = KernelTiming(name=ncu_reports.SQUARE, per_call=1.0, median_us=31.25, min_us=30.5, max_us=33.0)
Profiled = Callable[..., ProfileReport]


def call_of(kernel: Path, **more: object) -> ProfiledCall:
    values = {
        "operator": "dotcu::square", "case": "float32-16777216", "sample": "Sample(float32[16777216])",
        "gpu": "NVIDIA H200", "kernels": ("square<float32>",), "files": {"/dotcu/kernel.cu": str(kernel)},
    }  # fmt: skip
    return ProfiledCall(**values | more)  # type: ignore[arg-type]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text("\n" * 14 + "    out[i] = x[i] * x[i];\n")
    return path


@pytest.fixture
def profiled(tmp_path: Path, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    """Profiles the gallery's square, as if on a GPU, under a program that stands for ncu."""
    (tmp_path / "kept").mkdir()

    def alone(request: ProfileRequest) -> ProfiledCall:
        Path(request.trace).write_text("{}")
        return call_of(kernel, timings=(TIMING,))

    def run(*, installed: bool = True, **options: object) -> ProfileReport:
        path, _ = ncu_reports.program(tmp_path, serialize.plain(call_of(kernel)), **options)  # type: ignore[arg-type]
        monkeypatch.setattr(ncu, "find", lambda: path if installed else None)
        return profile("dotcu.gallery:square", folder=tmp_path / "kept")

    monkeypatch.setattr(ncu, "permission", lambda: ncu.Permission(None, None, False))
    monkeypatch.setattr(profiler, "_gpu", lambda device, target: torch.device("cuda:0"))
    monkeypatch.setattr(ncu, "run_without_ncu", alone)
    return run


def test_each_overload_with_samples_of_its_own_is_profiled(
    profiled: Profiled, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def alone(request: ProfileRequest) -> ProfiledCall:
        asked.append(request.overload)
        return call_of(kernel, operator=f"ns::square.{request.overload}")

    def none(device: object, dtype: object) -> list[dotcu.Sample]:
        return []

    operator = trial_operators.squaring()
    for name in ("Scaled", "Unsampled"):
        made = operator.overload(name)(_squared)
        if name == "Scaled":
            made.samples(none)
    monkeypatch.setattr(profiler, "resolve", lambda target, verb: [("square", operator)])
    monkeypatch.setattr(ncu, "run_without_ncu", alone)
    report = profiled(installed=False)
    assert asked == ["", "Scaled"]
    assert "ns::square.Scaled on NVIDIA H200" in str(report)


def test_an_operator_whose_other_overload_alone_has_samples_is_profiled_by_that() -> None:
    operator = trial_operators.squaring()
    operator._samples = None
    assert profiler.sampled(operator) == [""], "its default overload says that it has none"
    operator.overload("Scaled")(_squared).samples(lambda device, dtype: [])
    assert profiler.sampled(operator) == ["Scaled"]


def _squared(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * x * scale


def test_figures_and_lines_are_shown_and_the_report_is_kept(profiled: Profiled, tmp_path: Path) -> None:
    report = profiled()
    assert report.counted
    shown = str(report)
    for words in (
        "dotcu::square on NVIDIA H200 (cuda:0), float32-16777216",
        "Nsight Compute 2025.3.1.0, clocks not locked, caches warm",
        "square<float>  grid (1056, 1, 1), block (256, 1, 1)",
        "memory 92.2 %, compute (SM) 23.0 %: bound by memory",
        "duration 31.2 µs",
        "DRAM rate 4.31 TB/s, DRAM read 67.1 MB",
        "theoretical 100.0 %, achieved 91.2 %, registers per thread 16",
        "waves 1; 8 blocks fit, limited by warps",
        "490 samples: 92 % long_sb, waits for global or local memory",
        "98.0  kernel.cu:15  long_sb 94 %, wait 3 %  out[i] = x[i] * x[i];",
    ):
        assert words in shown
    assert (tmp_path / "kept" / "dotcu-square-float32-16777216.ncu-rep").read_bytes() == b"report"


def test_what_the_report_lacks_is_said(profiled: Profiled) -> None:
    few = {"gpu__time_duration.sum": ("ns", "1,000")}
    shown = str(profiled(pages={"raw": ncu_reports.raw(metrics=few), "sourcesass": ""}))
    assert "memory not in the report, compute (SM) not in the report\n" in shown
    assert "the report does not say what limits it" in shown
    assert "the report has no instructions" in shown
    assert "bank conflicts" not in shown


def test_lines_that_cannot_be_read_are_said(profiled: Profiled) -> None:
    shown = str(profiled(pages={"sourcecuda,sass": ""}))
    assert "which line an instruction comes from could not be read" in shown
    assert "no line" in shown


def test_a_kernel_of_torchs_differs_from_dotcus(profiled: Profiled) -> None:
    names = (ncu_reports.COPY, ncu_reports.SQUARE)
    pages = {"raw": ncu_reports.raw(names), "sourcesass": ncu_reports.sass(names)}
    shown = str(profiled(pages=pages | {"sourcecuda,sass": ncu_reports.cuda_sass(names)}))
    assert (
        "at::native::elementwise_kernel<128, 4>  grid (1056, 1, 1), block (256, 1, 1), launched by torch"
        in shown
    )


def test_where_counters_are_refused_it_says_why_and_what_to_do_and_times(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "permission", lambda: ncu.Permission(True, False, True))
    report = profiled(said=ncu_reports.REFUSED)
    assert not report.counted
    shown = str(report)
    assert "no counters: /proc/driver/nvidia/params has RmProfilingAdminOnly: 1" in shown
    assert "NVreg_RestrictProfilingToAdminUsers=0" in shown
    assert "--cap-add=SYS_ADMIN" in shown
    assert "31.25  30.50  33.00         1  square<float>" in shown
    assert (tmp_path / "kept" / "dotcu-square-float32-16777216.trace.json").read_text() == "{}"


def test_what_cannot_work_is_not_tried(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "permission", lambda: ncu.Permission(True, False, False))
    (found,) = profiled().profiles
    assert found.missing_counters is not None
    assert found.missing_counters.kind == "refused"
    assert not (tmp_path / "words.json").exists(), "ncu was started"


def test_without_ncu_it_says_how_to_get_it_and_times(profiled: Profiled) -> None:
    report = profiled(installed=False)
    (found,) = report.profiles
    assert found.missing_counters is not None
    assert found.missing_counters.kind == "missing"
    assert "https://developer.nvidia.com/nsight-compute" in str(report)
    assert found.timings == (TIMING,)


def test_another_failure_of_ncus_is_reported_and_it_times(profiled: Profiled) -> None:
    shown = str(profiled(said="==ERROR== Failed to prepare kernel for profiling\n"))
    assert "no counters: Failed to prepare kernel for profiling" in shown
    assert "square<float>" in shown


def test_the_json_form_has_figures_lines_and_what_limits(profiled: Profiled) -> None:
    values = json.loads(json.dumps(profiled().to_json()))
    assert (values["version"], values["counted"]) == (2, True)
    (kernel,) = values["profiles"][0]["kernels"]
    assert kernel["bound"] == "memory"
    assert kernel["limiters"] == ["warps"]
    assert kernel["figures"]["memory_percent"] == 92.15
    assert kernel["lines"][0]["line"] == 15


def test_a_missing_folder_is_reported_before_anything_runs(profiled: Profiled, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        profile("dotcu.gallery:square", folder=tmp_path / "none")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", [None, "cuda", "cuda:1"])
def test_without_a_gpu_it_says_what_can_be_had(device: str | None) -> None:
    with pytest.raises(EnvironmentFault, match="torch sees none here") as raised:
        profile("dotcu.gallery:square", device=device)
    assert "dotcu bench dotcu.gallery:square --device simulator" in str(raised.value)


def test_the_simulator_is_no_gpu_to_profile() -> None:
    with pytest.raises(EnvironmentFault, match="profiling needs a GPU, and simulator is not one"):
        profile("dotcu.gallery:square", device="simulator")


def test_an_operator_that_is_not_there_is_reported() -> None:
    with pytest.raises(UsageError, match=r"Type: dotcu profile dotcu.gallery:square"):
        profile("dotcu.gallery:sqare")

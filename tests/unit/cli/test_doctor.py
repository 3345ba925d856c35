"""`dotcu doctor`: each part judged by itself and beside the others, with what to do about it."""

from __future__ import annotations

import _ctypes
import json
import re
import sysconfig
from pathlib import Path

import pytest
import typer

from dotcu import settings
from dotcu.cli import doctor
from dotcu.compile import toolchain, toolchain_report
from dotcu.compile.driver import Gpu
from dotcu.compile.toolchain import TorchBuild
from dotcu.compile.toolchain_report import ToolchainRow

H200 = Gpu(index=0, name="NVIDIA H200", capability=(9, 0))
MISSING = ToolchainRow(
    name="NVRTC", fits=False, note="none was found", remedy="pip install nvidia-cuda-nvrtc"
)
USED = ToolchainRow(name="NVRTC", version="13.0.88", path=Path("/lib/libnvrtc.so.13"), note="used, from pip")


def torch(version: str = "2.13.0", cuda: tuple[int, int] | None = None) -> TorchBuild:
    return TorchBuild(version=version, cuda=cuda, hip="")


def report(monkeypatch: pytest.MonkeyPatch, *rows: ToolchainRow) -> None:
    monkeypatch.setattr(toolchain_report, "report", lambda: list(rows))


def test_the_compiler_of_tile_kernels_is_not_always_needed() -> None:
    row = ToolchainRow(name="tile NVRTC", fits=False, note="not found", remedy="pip install", optional=True)
    assert doctor.judge(row, [row]).state == doctor.ABSENT


def test_a_part_that_fits_is_fine() -> None:
    part = doctor.judge(USED, [USED])
    assert (part.state, part.version, part.path) == (doctor.FINE, "13.0.88", "/lib/libnvrtc.so.13")


def test_no_compiler_is_a_fault_with_the_line_to_type() -> None:
    part = doctor.judge(MISSING, [MISSING])
    assert (part.state, part.note, part.remedy) == (doctor.FAULT, MISSING.note, MISSING.remedy)


def test_a_second_compiler_that_does_not_fit_is_no_fault() -> None:
    newer = ToolchainRow(name="NVRTC", version="13.5", fits=False, note="newer than torch's CUDA")
    assert doctor.judge(newer, [USED, newer]).state == doctor.ABSENT


@pytest.mark.parametrize("name", toolchain.TOOLS)
def test_a_tool_that_is_not_there_is_no_fault(name: str) -> None:
    row = ToolchainRow(name=name, fits=False)
    assert doctor.judge(row, [row]).state == doctor.ABSENT


def test_a_machine_without_a_driver_lacks_nothing() -> None:
    row = ToolchainRow(name="driver", note="no NVIDIA driver")
    assert doctor.judge(row, [row]).state == doctor.ABSENT


def test_a_gpu_that_no_code_can_be_made_for_is_a_fault() -> None:
    row = ToolchainRow(name="GPU 0", version="3.5", fits=False, note="no longer supported")
    assert doctor.judge(row, [row]).state == doctor.FAULT


@pytest.mark.parametrize(
    ("build", "driver", "gpus"),
    [
        (torch("2.11.0"), None, ()),
        (torch("2.13.0+cpu"), (13, 0), ()),
        (torch("2.13.0", (13, 0)), (13, 1), (H200,)),
        (torch("2.13.0", (13, 2)), (13, 0), (H200,)),
        (torch("2.13.0", (13, 0)), None, ()),
        (torch("3.0.0", (12, 8)), (13, 0), (H200,)),
    ],
)
def test_torch_that_fits(build: TorchBuild, driver: tuple[int, int] | None, gpus: tuple[Gpu, ...]) -> None:
    assert doctor.judge_torch(build, driver, gpus) is None


@pytest.mark.parametrize(
    ("build", "driver", "gpus", "because"),
    [
        (torch("2.10.1"), None, (), "dotcu needs torch 2.11 or later"),
        (torch("1.13.1"), None, (), "dotcu needs torch 2.11 or later"),
        (torch("2.13.0+cpu"), (13, 0), (H200,), "NVIDIA H200), and this torch was built without CUDA"),
        (torch("2.13.0", (13, 0)), (12, 8), (H200,), "for CUDA 13.0, and the driver supports CUDA 12.8"),
    ],
)
def test_torch_that_does_not_fit(
    build: TorchBuild, driver: tuple[int, int] | None, gpus: tuple[Gpu, ...], because: str
) -> None:
    part = doctor.judge_torch(build, driver, gpus)
    assert part is not None
    assert (part.state, part.version) == (doctor.FAULT, build.version)
    assert because in part.note
    assert part.remedy


def test_a_fault_gives_exit_code_3_and_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, MISSING)
    with pytest.raises(typer.Exit) as caught:
        doctor.command()
    assert caught.value.exit_code == 3
    shown = capsys.readouterr().out
    assert "NVRTC:      pip install nvidia-cuda-nvrtc\n" in shown
    assert shown.endswith("dotcu does not work here: see NVRTC\n")


@pytest.mark.parametrize("name", ["", "no_such_file", "text", "library"])
def test_a_compiler_that_is_none_is_a_fault(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("text")
    path = Path(_ctypes.__file__) if name == "library" else tmp_path / name
    with settings.override(nvrtc=path), pytest.raises(typer.Exit) as caught:
        doctor.command()
    assert caught.value.exit_code == 3
    shown = capsys.readouterr().out
    assert re.search(r"DOTCU_NVRTC: +unset DOTCU_NVRTC\n", shown)
    assert shown.endswith("dotcu does not work here: see DOTCU_NVRTC\n")


def test_a_compiler_that_was_given_and_is_one_is_no_fault() -> None:
    with settings.override(nvrtc=toolchain.nvrtc().path):
        assert "DOTCU_NVRTC" not in {part.name for part in doctor.examine()}


def test_a_toolkit_that_is_no_folder_is_a_fault(tmp_path: Path) -> None:
    with settings.override(cuda_home=tmp_path / "nowhere"):
        (part,) = [part for part in doctor.examine() if part.name == "CUDA_HOME"]
    assert (part.state, part.remedy) == (doctor.FAULT, "unset CUDA_HOME")


def test_where_nothing_is_missing_the_last_line_says_where_kernels_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, USED)
    doctor.command()
    assert capsys.readouterr().out.endswith("dotcu works here: kernels run in the simulator\n")
    report(monkeypatch, USED, ToolchainRow(name="GPU 0", version="9.0"))
    doctor.command()
    assert capsys.readouterr().out.endswith("dotcu works here: kernels run on the GPU\n")


def test_this_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.command(as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["version"] == 1
    parts = {part["name"]: part for part in shown["parts"]}
    assert {"platform", "driver", "torch", "NVRTC", "cuobjdump", "nvcc"} <= set(parts)
    assert parts["NVRTC"]["state"] == doctor.FINE
    assert Path(parts["NVRTC"]["path"]).is_file()


def test_an_installation_without_the_native_part_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", 0)
    (part,) = doctor.native_parts(has_torch=True)
    assert (part.state, part.remedy) == (doctor.ABSENT, "pip install --force-reinstall dotcu")


def test_a_free_threaded_python_has_no_native_part_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", 1)
    (part,) = doctor.native_parts(has_torch=True)
    assert (part.state, part.remedy) == (doctor.ABSENT, "")
    assert "none for a free-threaded Python" in part.note


def test_it_says_whose_tuned_entries_a_gpu_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotcu.operator import configurations
    from dotcu.operator.tuned import TunedEntry, TunedFile, TunedGpu

    (tmp_path / "pyproject.toml").write_text('[tool.dotcu]\nmodules = ["lib.ops"]\n')
    (tmp_path / "src" / "lib").mkdir(parents=True)
    entry = TunedEntry(
        gpu="NVIDIA H100", capability="9.0", multiprocessors=132, key=(), configuration={"rows": 1},
        median_us=1.0, over_runner_up=1.0, over_default=1.0, digest="",
    )  # fmt: skip
    file = tmp_path / "src" / "lib" / "ops.tuned.toml"
    TunedFile().with_entries("lib::scale", [entry]).write(file)
    monkeypatch.chdir(tmp_path)
    for capability, state, said in (
        ("9.0", doctor.FINE, "NVIDIA H200 uses the entries of NVIDIA H100"),
        ("8.0", doctor.ABSENT, "no entry for NVIDIA H200, nor for its relatives: it uses the defaults"),
    ):
        here = TunedGpu(capability=capability, multiprocessors=114, name="NVIDIA H200")
        monkeypatch.setattr(configurations, "gpu_at_hand", lambda index, here=here: here)
        (part,) = doctor.tuned_parts([H200])
        assert (part.name, part.state, part.note) == ("ops.tuned.toml", state, said)
    assert [part.note for part in doctor.tuned_parts([])] == ["for NVIDIA H100; there is no GPU here"]
    file.write_text("format = 9\n")
    (part,) = doctor.tuned_parts([])
    assert part.state == doctor.ABSENT
    assert "format 9" in part.note

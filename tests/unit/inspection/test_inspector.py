from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dotcu
from dotcu import gallery
from dotcu.compile import Target, driver, toolchain
from dotcu.compile.driver import Gpu
from dotcu.errors import ArgumentError, SourceNotFound, UsageError
from dotcu.inspection import InspectReport, inspect, inspector
from dotcu.inspection.inspector import resolve_targets, target_names
from helpers.inspected_kernels import leave_out_sass, needs_nvdisasm

GALLERY = Path(next(iter(gallery.__path__)))
SOURCE = """
#include "by.cuh"
template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= BY; }
__global__ void plain(int* x) { x[threadIdx.x] = BY; }
#if __CUDA_ARCH__ >= 900
__global__ void newer(int* x) { x[threadIdx.x] = 2; }
#endif
"""


@pytest.fixture(autouse=True)
def _sass_where_needed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_sass(request, monkeypatch)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("file")
    (folder / "include").mkdir()
    (folder / "include" / "by.cuh").write_text("#ifndef BY\n#define BY 3\n#endif\n")
    path = folder / "k.cu"
    path.write_text(SOURCE)
    return path


def names(report: InspectReport) -> list[tuple[str, str]]:
    return [(one.code.name, str(one.code.arch)) for one in report.kernels]


def inspect_file(file: Path, *, name: str = "", **options: object) -> InspectReport:
    target = f"{file}:{name}" if name else file
    return inspect(target, include=[file.parent / "include"], **options)  # type: ignore[arg-type]


of = functools.cache(inspect_file)


def test_a_file_gives_its_plain_kernels_for_each_architecture(file: Path) -> None:
    found = of(file, arch=("sm_80", "sm_90"))
    assert names(found) == [("plain", "sm_80"), ("plain", "sm_90"), ("newer", "sm_90")]
    assert [template.name for template in found.templates] == ["scale"]
    assert found.failed == ()


def test_templates_are_instantiated_as_asked(file: Path) -> None:
    found = of(file, arch="sm_90", instantiate=("scale[float32]", "scale[float64]"))
    assert [name for name, _ in names(found)] == ["plain", "newer", "scale<float>", "scale<double>"]
    assert found.templates == ()


def test_a_name_after_the_colon_picks_a_kernel_or_a_templates_instances(file: Path) -> None:
    assert names(of(file, name="plain", arch="sm_90")) == [("plain", "sm_90")]
    instances = of(file, name="scale", arch="sm_90", instantiate=("scale[float32]", "scale[int32]"))
    assert [name for name, _ in names(instances)] == ["scale<float>", "scale<int>"]
    (template,) = inspector._only(of(file, arch="sm_90"), "scale").templates
    assert template.name == "scale"


def test_a_name_that_is_not_there_is_reported_the_nearest(file: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no kernel 'plane'; it has plain, newer, scale.\nType: .*k.cu:plain"
    ):
        inspector._only(replace(of(file, arch="sm_90"), target=f"{file}:plane"), "plane")


def test_a_file_of_templates_alone_is_answered_with_the_line_that_instantiates_one(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("template <typename T, int N> __global__ void scale(T* x) { x[0] *= N; }\n")
    for target in (path, f"{path}:scale"):
        with pytest.raises(UsageError, match=r"only templates .*: template <typename T, int N> scale\.\n"):
            inspect(target)
    with pytest.raises(UsageError, match=r"\nType: dotcu inspect '.*/k\.cu:scale\[float32,256\]'$"):
        inspect(path)


def test_a_template_that_is_named_in_a_file_of_others_is_answered_the_same(file: Path) -> None:
    with pytest.raises(UsageError, match=r"\nType: dotcu inspect '.*/k\.cu:scale\[float32\]'$"):
        inspect_file(file, name="scale", arch="sm_90")


def test_macros_and_options_decide_the_code(file: Path) -> None:
    plain = of(file, name="plain", arch="sm_90").kernels[0]
    other = inspect_file(file, name="plain", arch="sm_90", define={"BY": 77}).kernels[0]
    assert plain.code.cubin != other.code.cubin


def test_an_architecture_that_fails_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "__global__ void k(int* x) {\n#if __CUDA_ARCH__ < 900\n"
        '#error "for Hopper"\n#endif\n    x[0] = 1;\n}\n'
    )
    found = inspect(path, arch=["sm_80", "sm_90"])
    assert names(found) == [("k", "sm_90")]
    (failure,) = found.failed
    assert (str(failure.arch), failure.names) == ("sm_80", ("k",))
    assert f'{path}:3:2: error: #error directive: "for Hopper"' in failure.message or "for Hopper" in str(
        found
    )


FAULTY = """
__global__ void good(int* x) { x[0] = 1; }
__global__ void bad(int* x) { asm("cp.async.wait_all;"); }
__global__ void worse(int* x) { x[0] = nothing; }
template <typename T> __global__ void scale(T* x) { x[0] *= 2; }
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> InspectReport:
    path = tmp_path_factory.mktemp("faulty") / "k.cu"
    path.write_text(FAULTY)
    return inspect(path, arch="sm_75", instantiate=["scale[float32]"])


def test_kernels_that_fail_leave_the_others_of_their_file_and_are_reported_each_with_its_error(
    faulty: InspectReport,
) -> None:
    assert [name for name, _ in names(faulty)] == ["good", "scale<float>"]
    bad, worse = faulty.failed
    assert (bad.names, worse.names) == (("bad",), ("worse",))
    assert "cp.async.wait_all" in bad.message
    assert "k.cu:4:40: error: identifier" in worse.message
    assert "nothing" not in bad.message


def test_a_kernel_that_was_named_is_shown_without_the_failures_of_others(faulty: InspectReport) -> None:
    for name, full in (("good", "good"), ("scale", "scale<float>")):
        found = inspector._only(faulty, name)
        assert (names(found), found.failed) == ([(full, "sm_75")], ())


def test_a_kernel_that_was_named_and_fails_is_reported_alone(faulty: InspectReport) -> None:
    found = inspector._only(faulty, "bad")
    (failure,) = found.failed
    assert (found.kernels, failure.names) == ((), ("bad",))
    assert "nothing" not in failure.message


def test_an_architecture_that_does_not_exist_is_refused_with_those_that_do(file: Path) -> None:
    with pytest.raises(UsageError, match=r"sm_80, .*sm_90a"):
        of(file, arch="sm_91")


def test_a_file_that_is_not_there_is_reported_the_nearest(file: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"k\.cu"):
        inspect(file.with_name("kk.cu"))


OPERATORS = """
import torch
import dotcu

kernels = dotcu.load_inline('__global__ void twice(float* y) { y[threadIdx.x] *= 2; }')

@dotcu.op("inspected_file::twice")
def twice(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    kernels.twice(y, grid=1, block=y.numel())
    return y

@twice.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(32, device=device, dtype=dtype))
    yield dotcu.Sample(torch.ones(128, device=device, dtype=dtype))

@dotcu.op("inspected_file::other")
def other(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""


def test_an_operator_gives_what_its_samples_launch_and_counts_it(tmp_path: Path) -> None:
    file = tmp_path / "inspected_ops.py"
    file.write_text(OPERATORS)
    found = inspect(f"{file}:twice", arch="sm_90")
    assert names(found) == [("twice", "sm_90")]
    one = found.kernel("twice")
    assert {str(each.shape) for each in one.occupancy} == {"block=32", "block=128"}
    assert one.counts is not None
    assert one.counts.total.global_requests > 0
    assert found.notes == ()
    assert found.target == f"{file}:twice"
    alone = inspect(f"{file}:twice", arch="compute_90", counts=False).kernel("twice")
    assert (alone.counts, alone.level, alone.occupancy, alone.code.resources) == (None, "PTX", (), None)


@pytest.mark.slow
def test_a_module_with_a_name_gives_one_operator() -> None:
    found = inspect("dotcu.gallery:square", arch="sm_90", counts=False)
    assert {name.partition("<")[0] for name, _ in names(found)} == {"square"}
    assert all(one.counts is None for one in found.kernels)


@pytest.mark.slow
def test_several_operators_are_taken_in_a_list() -> None:
    found = inspect([gallery.square, gallery.fast_add], arch="sm_90", counts=False)
    plain = {name.partition("<")[0] for name, _ in names(found)}
    assert plain >= {"square", "fast_add"}


@needs_nvdisasm
@pytest.mark.slow
def test_the_gallerys_vector_loads_are_seen_and_its_narrow_ones_reported() -> None:
    wide = inspect(gallery.fast_add, arch="sm_90").kernel("fast_add<float, 4, 1, false>")
    assert ("global memory", "load, 16 B per thread") in {(each.group, each.label) for each in wide.emitted}
    narrow = inspect(gallery.add, arch="sm_90").kernel("add<float, 1, 4, false>")
    assert "narrow access" in {remark.kind for remark in narrow.remarks}


def test_a_block_can_be_asked_for(file: Path) -> None:
    (occupancy,) = of(file, name="plain", arch="sm_90", block=(8, 8), smem_bytes=4096).kernels[0].occupancy
    assert (occupancy.shape.block, occupancy.shape.smem_bytes, occupancy.why) == (
        (8, 8, 1),
        4096,
        "requested",
    )


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"block": 0}, "a block has from 1 to 1024 threads"),
        ({"block": 2048}, "a block has from 1 to 1024 threads"),
        ({"block": (1, 1, 1, 1)}, "three dimensions"),
        ({"block": 32, "smem_bytes": -1}, "smem_bytes=-1 is not a number of bytes, 0 or more"),
        ({"smem_bytes": 100}, "needs a block"),
    ],
)
def test_a_block_that_cannot_be_is_refused(file: Path, options: dict[str, object], shown: str) -> None:
    with pytest.raises(UsageError, match=shown):
        inspect_file(file, **options)


def test_how_a_file_is_compiled_is_not_asked_of_operators() -> None:
    with pytest.raises(UsageError, match=r"define is for a \.cu file"):
        inspect(gallery.square, define={"N": 1})


@pytest.mark.parametrize("target", [3, [], ["square"]])
def test_what_is_no_target_is_refused(target: object) -> None:
    with pytest.raises(UsageError):
        inspect(target)


def test_without_nvdisasm_the_rest_is_reported_and_what_to_type(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = inspect_file(file, name="plain", arch="sm_90")
    one = found.kernels[0]
    assert one.code.resources is not None
    assert one.occupancy
    assert one.level == "PTX"
    (note,) = found.notes
    assert "pip install nvidia-cuda-nvdisasm" in note


WITHOUT_TORCH = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec

def without_torch(name, path=None, target=None):
    return None if name == "torch" else find(name, path, target)

importlib.machinery.PathFinder.find_spec = without_torch
from dotcu.inspection import inspect
"""


def python(script: str) -> str:
    """What a script prints where torch is not installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + script],
        capture_output=True, text=True, env=dict(os.environ), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_torch_files_can_be_inspected_and_operators_give_the_line_to_type() -> None:
    path = GALLERY / "square" / "kernel.cu"
    kernels, *message = python(
        f"report = inspect({str(path)!r}, arch='compute_90', instantiate=['square[float64,2,1]'])\n"
        "print(*(one.code.name for one in report.kernels))\n"
        "from dotcu.errors import EnvironmentFault\n"
        "try: inspect('dotcu.gallery', arch='sm_90')\nexcept EnvironmentFault as error: print(error)"
    ).splitlines()
    assert kernels == "square<double, 2, 1>"
    assert message[0] == "dotcu.inspect('dotcu.gallery') needs torch, which is not installed."
    assert any("pip install torch" in line for line in message)


def test_a_fault_that_every_instantiation_shows_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("template <typename T> __global__ void k(T* x) { x[0] = 1; }\nint bad = ;\n")
    found = inspect(path, arch=["sm_80", "sm_90"], instantiate=["k[float32]", "k[float64]"])
    assert found.kernels == ()
    assert [str(failure.arch) for failure in found.failed] == ["sm_80", "sm_90"]
    assert all(set(failure.names) == {"k<float>", "k<double>"} for failure in found.failed)


def test_what_was_loaded_is_a_target_as_a_whole_or_by_kernel(file: Path) -> None:
    kernels = dotcu.load(file, include=[file.parent / "include"])
    whole = inspect(kernels, arch="sm_90")
    assert names(whole) == [("plain", "sm_90"), ("newer", "sm_90")]
    assert whole.notes == (
        "scale is a template: inspect an instantiation of it, module.scale[torch.float32]",
    )
    assert names(inspect(kernels.scale["double"], arch="sm_90")) == [("scale<double>", "sm_90")]
    again = inspect(kernels, arch="sm_90")
    assert names(again) == [*names(whole), ("scale<double>", "sm_90")]
    assert again.notes == ()


def test_a_template_that_was_loaded_needs_its_arguments(file: Path) -> None:
    with pytest.raises(ArgumentError, match=r"scale\[torch.float32\]"):
        inspect(dotcu.load(file).scale, arch="sm_90")


def test_several_architectures_are_taken_in_order_each_once() -> None:
    assert [str(t) for t in resolve_targets(["sm_90a", "sm_80", "sm_90a", "compute_80"])] == [
        "sm_90a", "sm_80", "compute_80",
    ]  # fmt: skip


def test_without_a_gpu_it_is_sm_90(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "gpus", lambda: ())
    assert resolve_targets(None) == (Target.parse("sm_90"),)


def test_with_a_gpu_it_is_what_a_launch_compiles_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "gpus", lambda: (Gpu(index=0, name="H200", capability=(9, 0)),))
    monkeypatch.setattr(driver, "version", lambda: (13, 0))
    assert resolve_targets(None) == (Target.parse("sm_90a"),)


@pytest.mark.parametrize("name", ["sm_91", "sm_90f", "sm_80a", "hopper", "sm_35", "compute_91", ""])
def test_an_architecture_that_does_not_exist_is_reported_those_that_do(name: str) -> None:
    with pytest.raises(UsageError, match=r"sm_80, .*sm_90, sm_90a, sm_100, sm_100a, sm_100f"):
        resolve_targets(name)


def test_the_names_that_the_compiler_takes_are_those_that_are_listed() -> None:
    """Seen by compiling for each: NVRTC 13.0 takes an `a` from sm_90 and an `f` from sm_100 on."""
    assert target_names((80, 90, 100)) == ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")
    assert set(target_names(toolchain.supported(toolchain.nvrtc()))) >= {"sm_75", "sm_121f"}

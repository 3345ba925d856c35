from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dotcu
from dotcu import gallery
from dotcu.compile import toolchain
from dotcu.errors import ArgumentError, SourceNotFound, UsageError
from dotcu.inspection import InspectReport, inspect
from inspecting import needs_nvdisasm

GALLERY = Path(next(iter(gallery.__path__)))
SOURCE = """
#include "by.cuh"
template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= BY; }
__global__ void plain(int* x) { x[threadIdx.x] = BY; }
#if __CUDA_ARCH__ >= 900
__global__ void newer(int* x) { x[threadIdx.x] = 2; }
#endif
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "by.cuh").write_text("#ifndef BY\n#define BY 3\n#endif\n")
    path = tmp_path / "k.cu"
    path.write_text(SOURCE)
    return path


def names(report: InspectReport) -> list[tuple[str, str]]:
    return [(one.code.name, str(one.code.arch)) for one in report.kernels]


def of(file: Path, *, name: str = "", **options: object) -> InspectReport:
    target = f"{file}:{name}" if name else file
    return inspect(target, include=[file.parent / "include"], **options)  # type: ignore[arg-type]


def test_a_file_gives_its_plain_kernels_for_each_architecture(file: Path) -> None:
    found = of(file, arch=["sm_80", "sm_90"])
    assert names(found) == [("plain", "sm_80"), ("plain", "sm_90"), ("newer", "sm_90")]
    assert [template.name for template in found.templates] == ["scale"]
    assert found.failed == ()


def test_templates_are_instantiated_as_asked(file: Path) -> None:
    found = of(file, arch="sm_90", instantiate=["scale[float32]", "scale[float64]"])
    assert [name for name, _ in names(found)] == ["plain", "newer", "scale<float>", "scale<double>"]
    assert found.templates == ()


def test_a_name_after_the_colon_picks_a_kernel_or_a_templates_instances(file: Path) -> None:
    assert names(of(file, name="plain", arch="sm_90")) == [("plain", "sm_90")]
    instances = of(file, name="scale", arch="sm_90", instantiate=["scale[float32]", "scale[int32]"])
    assert [name for name, _ in names(instances)] == ["scale<float>", "scale<int>"]
    (left,) = of(file, name="scale", arch="sm_90").templates
    assert left.name == "scale"


def test_a_name_that_is_not_there_is_told_the_nearest(file: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no kernel 'plane'; it has plain, newer, scale.\nType: .*k.cu:plain"
    ):
        of(file, name="plane", arch="sm_90")


def test_macros_and_options_decide_the_code(file: Path) -> None:
    plain = of(file, name="plain", arch="sm_90").kernels[0]
    other = of(file, name="plain", arch="sm_90", define={"BY": 77}).kernels[0]
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


def faulty(folder: Path, name: str = "", **options: object) -> InspectReport:
    path = folder / "k.cu"
    path.write_text(FAULTY)
    return inspect(f"{path}:{name}" if name else path, arch="sm_75", **options)  # type: ignore[arg-type]


def test_kernels_that_fail_leave_the_others_of_their_file_and_are_told_each_with_its_error(
    tmp_path: Path,
) -> None:
    found = faulty(tmp_path, instantiate=["scale[float32]"])
    assert [name for name, _ in names(found)] == ["good", "scale<float>"]
    bad, worse = found.failed
    assert (bad.names, worse.names) == (("bad",), ("worse",))
    assert "cp.async.wait_all" in bad.message
    assert "k.cu:4:40: error: identifier" in worse.message
    assert "nothing" not in bad.message


def test_a_kernel_that_was_named_is_shown_without_the_failures_of_others(tmp_path: Path) -> None:
    found = faulty(tmp_path, "good")
    assert (names(found), found.failed) == ([("good", "sm_75")], ())
    found = faulty(tmp_path, "scale", instantiate=["scale[float64]"])
    assert (names(found), found.failed) == ([("scale<double>", "sm_75")], ())


def test_a_kernel_that_was_named_and_fails_is_told_alone(tmp_path: Path) -> None:
    found = faulty(tmp_path, "bad")
    (failure,) = found.failed
    assert (found.kernels, failure.names) == ((), ("bad",))
    assert "nothing" not in failure.message


def test_an_architecture_that_does_not_exist_is_refused_with_those_that_do(file: Path) -> None:
    with pytest.raises(UsageError, match=r"sm_80, .*sm_90a"):
        of(file, arch="sm_91")


def test_a_file_that_is_not_there_is_told_the_nearest(file: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"k\.cu"):
        inspect(file.with_name("kk.cu"))


def test_an_operator_gives_what_its_samples_launch_and_counts_it() -> None:
    found = inspect(gallery.square, arch="sm_90")
    assert ("square<float, 4, 1>", "sm_90") in names(found)
    one = found.kernel("square<float, 4, 1>")
    assert {str(held.shape) for held in one.held} == {"block=32", "block=128"}
    assert one.counted is not None
    assert one.counted.total.global_requests > 0
    assert found.notes == ()
    assert found.target == "dotcu::square"


def test_a_module_with_a_name_gives_one_operator() -> None:
    found = inspect("dotcu.gallery:square", arch="sm_90", counts=False)
    assert {name.partition("<")[0] for name, _ in names(found)} == {"square"}
    assert all(one.counted is None for one in found.kernels)


@pytest.mark.slow
def test_several_operators_are_taken_in_a_list() -> None:
    found = inspect([gallery.square, gallery.fast_add], arch="sm_90", counts=False)
    plain = {name.partition("<")[0] for name, _ in names(found)}
    assert plain >= {"square", "fast_add"}


@needs_nvdisasm
@pytest.mark.slow
def test_the_gallerys_vector_loads_are_seen_and_its_narrow_ones_told() -> None:
    wide = inspect(gallery.fast_add, arch="sm_90").kernel("fast_add<float, 4, 1, false>")
    assert ("global memory", "load, 16 B a lane") in {(each.group, each.label) for each in wide.emitted}
    narrow = inspect(gallery.add, arch="sm_90").kernel("add<float, 1, 4, false>")
    assert "narrow access" in {remark.kind for remark in narrow.remarks}


def test_ptx_alone_is_looked_at_without_an_assembler() -> None:
    found = inspect(gallery.square, arch="compute_90", counts=False)
    one = found.kernel("square<float, 4, 1>")
    assert (one.level, one.held, one.code.resources) == ("PTX", (), None)


def test_a_block_can_be_asked_for(file: Path) -> None:
    (held,) = of(file, name="plain", arch="sm_90", block=(8, 8), smem_bytes=4096).kernels[0].held
    assert (held.shape.block, held.shape.smem_bytes, held.why) == ((8, 8, 1), 4096, "asked for")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"block": 0}, "a block has from 1 to 1024 threads"),
        ({"block": 2048}, "a block has from 1 to 1024 threads"),
        ({"block": (1, 1, 1, 1)}, "three dimensions"),
        ({"block": 32, "smem_bytes": -1}, "no memory is negative"),
        ({"smem_bytes": 100}, "goes with a block"),
    ],
)
def test_a_block_that_cannot_be_is_refused(file: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        of(file, **options)


def test_how_a_file_is_compiled_is_not_asked_of_operators() -> None:
    with pytest.raises(UsageError, match=r"define is for a \.cu file"):
        inspect(gallery.square, define={"N": 1})


@pytest.mark.parametrize("target", [3, [], ["square"]])
def test_what_is_no_target_is_refused(target: object) -> None:
    with pytest.raises(UsageError):
        inspect(target)


def test_without_nvdisasm_the_rest_is_told_and_what_to_type(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = of(file, name="plain", arch="sm_90")
    one = found.kernels[0]
    assert one.code.resources is not None
    assert one.held
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


def test_a_file_of_kernels_needs_no_torch() -> None:
    path = GALLERY / "sum" / "kernel.cu"
    told = python(
        f"report = inspect({str(path)!r}, arch='sm_90',\n"
        "    instantiate=['sum_rows[float32,float32,float32,float32,32,4]'])\n"
        "print(*(one.code.name for one in report.kernels))"
    )
    assert told == "sum_rows<float, float, float, float, 32, 4>"


def test_operators_without_torch_are_an_error_with_the_line_to_type() -> None:
    told = python(
        "from dotcu.errors import EnvironmentFault\n"
        "try: inspect('dotcu.gallery', arch='sm_90')\nexcept EnvironmentFault as error: print(error)"
    )
    assert told.startswith("dotcu.inspect('dotcu.gallery') needs torch, which is not installed.")
    assert "pip install torch" in told


def test_a_fault_that_every_instantiation_shows_is_told_once(tmp_path: Path) -> None:
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

"""Compiled code of a wheel: it runs where nothing can be compiled, and is refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import settings
from dotcu.compile import Target, driver, prebuilt
from dotcu.compile.prebuilt import PrebuiltVariant
from dotcu.errors import (
    CompileError,
    FindingError,
    JitDisabled,
    KernelNotFound,
    PrebuiltCodeError,
    ToolchainError,
)
from dotcu.shipping import lock
from helpers import projects


@pytest.fixture
def made(tmp_path: Path) -> projects.Made:
    return projects.make(tmp_path / "project")


@pytest.fixture
def package(made: projects.Made, tmp_path: Path) -> Path:
    """An installed package."""
    projects.lock(made)
    return projects.install(made, tmp_path / "site")


def run(package: Path) -> torch.Tensor:
    x, out = torch.arange(200.0), torch.empty(200)
    kernels = dotcu.load(package / "scale.cu")
    kernels.scale[torch.float32](x, out, 3.0, 200, grid=2, block=128)
    return out


def test_it_runs_where_nothing_can_be_compiled(package: Path, tmp_path: Path) -> None:
    with projects.no_compiler(tmp_path):
        assert torch.equal(run(package), torch.arange(200.0) * 3)
    assert not (tmp_path / "empty").exists()


TABLE = (
    projects.SCALE
    + """
struct Rows { const float* x[2]; float* out; int n; };
__global__ void add_rows(Rows rows) {
    int i = threadIdx.x;
    if (i < rows.n) rows.out[i] = rows.x[0][i] + rows.x[1][i];
}
"""
)


def test_it_knows_the_members_of_structs(tmp_path: Path) -> None:
    ops = projects.OPS.replace("    return out\n", """\
    rows = {{"x": [x, out], "out": out, "n": 4}}
    kernels.add_rows(rows, grid=1, block=32)
    return out
""", 1)  # fmt: skip
    made = projects.make(tmp_path, source=TABLE, ops=ops.replace("x * by", "x * by + 0"))
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    x, out = torch.arange(4.0), torch.empty(4)
    with projects.no_compiler(tmp_path):
        kernels = dotcu.load(package / "scale.cu")
        kernels.add_rows({"x": [x, x], "out": out, "n": 4}, grid=1, block=32)
    assert torch.equal(out, 2 * x)


MACROS = """
#define MAKE(name) __global__ void name##_one(float* x) { *x = table_a[1]; }
#define TABLE(name) __constant__ float table_##name[2]
TABLE(a);
MAKE(put)
struct Sum { const float* x; float by; };
#define ADD __global__ void add(Sum sum, float* out) { *out = *sum.x + sum.by; }
ADD
#define EACH(name) template <typename T> __global__ void name(T* x, T by) { *x *= by; }
EACH(times)
"""


@pytest.mark.parametrize("plain", ["", "__global__ void scanned(float* x) {}\n"])
def test_it_holds_what_only_macros_name(tmp_path: Path, plain: str) -> None:
    scanned = "    kernels.times[x.dtype](out, by, grid=1, block=1)\n    return out\n"
    ops = projects.OPS.replace("    return out\n", scanned, 1)
    made = projects.make(tmp_path, source=projects.SCALE + MACROS + plain, ops=ops)
    planned = projects.lock(made)  # no sample launches put_one or add
    assert lock.read(tmp_path) == planned.lock
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path):
        kernels, x = dotcu.load(package / "scale.cu"), torch.zeros(1)
        kernels.variable("table_a").write(torch.tensor([0.0, 5.0]))
        kernels.put_one(x, grid=1, block=1)
        kernels.times[torch.float32](x, 3.0, grid=1, block=1)
        kernels.add({"x": x, "by": 2.0}, x, grid=1, block=1)
        with pytest.raises(KernelNotFound, match="no kernel named 'nothing'"):
            _ = kernels.nothing
    assert x.item() == 17


def test_it_is_taken_before_the_compiler(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(package)
    assert ": prebuilt (" in caplog.text
    assert "compiled" not in caplog.text


def test_occupancy_is_reported_of_prebuilt_machine_code(package: Path, tmp_path: Path) -> None:
    compiled = dotcu.load_inline(projects.SCALE).scale[torch.float32]
    with projects.no_compiler(tmp_path), dotcu.simulate(arch="sm_80"):
        kernel = dotcu.load(package / "scale.cu").scale[torch.float32]
        told, registers = kernel.occupancy(128), kernel.attributes.registers
    with dotcu.simulate(arch="sm_80"):
        assert (told, registers) == (compiled.occupancy(128), compiled.attributes.registers)


def test_ptx_has_no_register_counts(package: Path, tmp_path: Path) -> None:
    kernel = dotcu.load(package / "scale.cu").scale[torch.float32]
    error = pytest.raises(ToolchainError, match=r"compute_80: it is not machine code")
    with projects.no_compiler(tmp_path), dotcu.simulate(arch="sm_90"), error:
        kernel.occupancy(128)
    with dotcu.simulate(arch="sm_90"):
        assert kernel.attributes.registers > 0


def test_what_the_driver_cannot_load_is_compiled_here(
    package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "version", lambda: (12, 8))
    code = dotcu.load(package / "scale.cu").scale[torch.float32].unit.code(Target.parse("sm_80"))
    assert code.object.cubin is not None
    assert ": prebuilt (" not in caplog.text


def test_a_finding_names_the_installed_file_and_its_line(made: projects.Made, tmp_path: Path) -> None:
    made.write("scale.cu", projects.SCALE.replace("if (i < n) ", ""))
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path), pytest.raises(FindingError) as raised:
        run(package)
    finding = raised.value.finding
    assert (finding.kind, Path(finding.file), finding.line) == ("out-of-bounds", package / "scale.cu", 4)


def test_variables_are_written_in_prebuilt_code(made: projects.Made, tmp_path: Path) -> None:
    source = (
        "__constant__ float table[4];\n"
        "__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }\n"
    )
    made.write("scale.cu", source + projects.SCALE)
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path):
        kernels, out = dotcu.load(package / "scale.cu"), torch.empty(4)
        kernels.variable("table").write(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        kernels.look_up(out, grid=1, block=4)
    assert out.tolist() == [1, 2, 3, 4]


def test_two_packages_with_kernels_of_one_name_live_together(made: projects.Made, tmp_path: Path) -> None:
    other = projects.make(tmp_path / "other", source=projects.SCALE.replace("by *", "2 * by *"))
    packages = []
    for one in (made, other):
        projects.lock(one)
        packages.append(projects.install(one, tmp_path / "site"))
    with projects.no_compiler(tmp_path):
        assert torch.equal(run(packages[1]), 2 * run(packages[0]))


def test_an_instantiation_that_is_not_covered_is_an_error_with_its_reason(
    package: Path, tmp_path: Path
) -> None:
    x, out = torch.ones(4).double(), torch.empty(4).double()
    kernel = dotcu.load(package / "scale.cu").scale
    with projects.no_compiler(tmp_path), pytest.raises((JitDisabled, ToolchainError)) as raised:
        kernel[torch.float64](x, out, 3.0, 4, grid=1, block=4)
    assert f"{package / '__dotcu__'} has no code for scale<double>" in str(raised.value)


def test_one_file_loaded_with_two_folders_of_headers_is_two(tmp_path: Path) -> None:
    ops = projects.OPS.replace(
        'kernels = dotcu.load("scale.cu")',
        'kernels = dotcu.load("scale.cu", include=["a"])\nother = dotcu.load("scale.cu", include=["b"])',
    ).replace("    return out", "    other.scale[x.dtype](x, out, by, n, grid=1, block=128)\n    return out")
    source = "#include <factor.cuh>\n" + projects.SCALE.replace("by *", "factor * by *")
    made = projects.make(tmp_path / "project", ops=ops, source=source)
    for folder, factor in {"a": 2, "b": 5}.items():
        made.write(f"{folder}/factor.cuh", f"constexpr float factor = {factor};\n")
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path):
        for folder, factor in {"a": 2, "b": 5}.items():
            x, out = torch.ones(4), torch.empty(4)
            kernels = dotcu.load(package / "scale.cu", include=[package / folder])
            kernels.scale[torch.float32](x, out, 3.0, 4, grid=1, block=4)
            assert out.tolist() == [3 * factor] * 4


def test_the_simulator_runs_a_wheel_for_later_gpus_than_the_one_it_stands_for(tmp_path: Path) -> None:
    made = projects.make(tmp_path / "project", architectures=("9.0a",))
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path):
        assert torch.equal(run(package), torch.arange(200.0) * 3)


def test_a_header_that_the_wheel_lacks_is_reported_with_what_the_wheel_lacks(tmp_path: Path) -> None:
    made = projects.make(
        tmp_path / "project", source='#include "far.cuh"\n__device__ Far far;\n' + projects.SCALE
    )
    made.write("far.cuh", "struct Far {};\n")
    projects.lock(made)
    package = projects.install(made, tmp_path / "site", without=(f"{made.name}/far.cuh",))
    x, out = torch.ones(4).double(), torch.empty(4).double()
    with pytest.raises(CompileError) as raised:
        dotcu.load(package / "scale.cu").scale[torch.float64](x, out, 3.0, 4, grid=1, block=4)
    assert "far.cuh" in str(raised.value)
    assert "has no code for scale<double>" in str(raised.value)


def test_an_instantiation_that_is_not_covered_is_compiled_where_that_is_allowed(package: Path) -> None:
    x, out = torch.ones(4).double(), torch.empty(4).double()
    dotcu.load(package / "scale.cu").scale[torch.float64](x, out, 3.0, 4, grid=1, block=4)
    assert out.tolist() == [3, 3, 3, 3]


def test_an_edited_source_is_compiled_again(package: Path, tmp_path: Path) -> None:
    run(package)
    source = package / "scale.cu"
    source.write_text(source.read_text().replace("by *", "2 * by *"))
    assert torch.equal(run(package), torch.arange(200.0) * 6)
    with settings.override(jit="error", cache_dir=tmp_path / "empty"), pytest.raises(JitDisabled) as raised:
        run(package)
    assert "scale.cu is not what" in str(raised.value)


def test_an_edited_header_is_seen(made: projects.Made, tmp_path: Path) -> None:
    made.write("inner/factor.cuh", "constexpr float factor = 1;\n")
    made.write(
        "scale.cu",
        '#include "inner/factor.cuh"\n' + projects.SCALE.replace("by *", "factor * by *"),
    )
    projects.lock(made)
    package = projects.install(made, tmp_path / "site")
    with projects.no_compiler(tmp_path):
        assert torch.equal(run(package), torch.arange(200.0) * 3)
    (package / "inner" / "factor.cuh").write_text("constexpr float factor = 5;\n")
    assert torch.equal(run(package), torch.arange(200.0) * 15)


def test_headers_that_the_wheel_does_not_hold_are_not_missed(tmp_path: Path) -> None:
    ops = projects.OPS.replace('"scale.cu"', '"scale.cu", include=["third_party"]')
    made = projects.make(tmp_path / "project", ops=ops, source='#include "lib/factor.cuh"\n' + projects.SCALE)
    made.write("third_party/lib/factor.cuh", "// nothing\n")
    projects.lock(made)
    header = f"{made.name}/third_party/lib/factor.cuh"
    package = projects.install(made, tmp_path / "site", without=(header,))
    assert not (package / "third_party").exists()
    with projects.no_compiler(tmp_path):
        kernels = dotcu.load(package / "scale.cu", include=[package / "third_party"])
        x, out = torch.ones(4), torch.empty(4)
        kernels.scale[torch.float32](x, out, 3.0, 4, grid=1, block=4)
    assert out.tolist() == [3, 3, 3, 3]


def _edit_manifest(folder: Path, change: object) -> None:
    words = json.loads((folder / "manifest.json").read_text())
    words.update(change)  # type: ignore[call-overload]
    (folder / "manifest.json").write_text(json.dumps(words))


@pytest.mark.parametrize(
    ("file", "spoil", "told"),
    [
        ("manifest.json", lambda f: f.write_bytes(f.read_bytes()[:-40]), "not a dotcu manifest"),
        ("manifest.json", lambda f: f.write_text("[]"), "not a dotcu manifest"),
        ("manifest.json", lambda f: (f.unlink(), f.mkdir()), "is a directory"),
        ("manifest.json", lambda f: _edit_manifest(f.parent, {"made_by": "9"}), "its digest is not the one"),
        ("manifest.json", lambda f: _edit_manifest(f.parent, {"format": 99}), "reads format 3"),
        ("compute_8x.0.xz", lambda f: f.write_bytes(f.read_bytes()[:-4] + b"abcd"), "is not the one in"),
        ("compute_8x.0.xz", Path.unlink, "no such file"),
    ],
    ids=["cut", "a list", "a folder", "edited", "of a later format", "another pack", "no pack"],
)
def test_what_was_tampered_with_is_not_run(package: Path, file: str, spoil: object, told: str) -> None:
    spoil(package / "__dotcu__" / file)  # type: ignore[operator]
    with pytest.raises(PrebuiltCodeError) as raised:
        run(package)
    assert file in str(raised.value)
    assert told in str(raised.value)
    assert "pip install" in str(raised.value)


SM_80, SM_90A, PTX = (Target.parse(text) for text in ("sm_80", "sm_90a", "compute_80"))


@pytest.mark.parametrize(
    ("target", "capability", "driver", "reason"),
    [
        (SM_80, (8, 0), (13, 0), ""),
        (SM_80, (8, 6), (13, 0), ""),
        (SM_80, (9, 0), (13, 0), "compute capability is 9.0"),
        (SM_80, (7, 5), (13, 0), "compute capability is 7.5"),
        (SM_80, (8, 0), (12, 8), "needs a driver of CUDA 13.0"),
        (SM_90A, (9, 0), (13, 0), ""),
        (SM_90A, (10, 0), (13, 0), "compute capability is 10.0"),
        (PTX, (12, 0), (13, 1), ""),
        (PTX, (12, 0), (13, 0), "needs a driver of CUDA 13.1"),
        (PTX, (7, 5), (13, 1), "compute capability is 7.5"),
    ],
    ids=str,
)
def test_a_gpu_and_its_driver_take_what_they_can(
    target: Target, capability: tuple[int, int], driver: tuple[int, int], reason: str
) -> None:
    variant = PrebuiltVariant(target=target, simulated=False, record=0)
    told = prebuilt._refuse_variant(
        variant, capability=capability, driver=driver, compiler=(13, 1), is_tile=False
    )
    assert reason in told
    assert bool(told) == bool(reason)


def test_machine_code_is_preferred_to_ptx_and_the_nearest_to_others(tmp_path: Path) -> None:
    made = projects.make(tmp_path / "project", architectures=("8.0", "8.6", "9.0"))
    projects.lock(made)
    source = dotcu.load(projects.install(made, tmp_path / "site") / "scale.cu")
    names, options = ("scale<float>",), source.options
    for capability, target in {
        (8, 0): "sm_80",
        (8, 9): "sm_86",
        (9, 0): "sm_90",
        (12, 0): "compute_80",
    }.items():
        found = prebuilt.find_prebuilt(source.source, options, names, capability=capability, driver=(99, 0))
        assert str(found.target) == target  # type: ignore[union-attr]
    old = prebuilt.find_prebuilt(source.source, options, names, capability=(7, 5), driver=(99, 0))
    assert isinstance(old, tuple)
    assert [line.split(":")[0] for line in old[1:]] == ["sm_80", "sm_86", "sm_90", "compute_80"]

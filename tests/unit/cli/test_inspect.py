"""`dotcu inspect`: what it shows of kernels and of binaries, what it writes where, and how it refuses."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from dotcu.cli import inspect as inspecting_command
from dotcu.cli import main
from dotcu.errors import UsageError
from helpers.inspected_kernels import leave_out_sass, needs_nvdisasm

DATA = Path(__file__).parents[1] / "inspection" / "data"

SCALE = """
template <typename T>
__global__ void scale(const T* x, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 3 * x[i];
}

__global__ void clear(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0;
}
"""
ONLY_NEW = """
__global__ void fill(float* out) {
#if __CUDA_ARCH__ < 900
    out[0] = nothing;
#else
    out[0] = 1;
#endif
}
"""
OPS = """
import torch
from torch import Tensor

import dotcu

print("imported")
kernels = dotcu.load_inline(
    "__global__ void twice(const float* x, float* out) {{ out[threadIdx.x] = 2 * x[threadIdx.x]; }}"
)


@dotcu.op("cli_inspect::{name}")
def twice(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.twice(x, out, grid=1, block=x.numel())
    return out


twice.samples(lambda device, dtype: [dotcu.Sample(torch.ones(64, device=device))])
"""


class Ran(NamedTuple):
    """A command's exit code, and what it printed where."""

    code: int
    out: str
    err: str


class Inspect:
    """Runs the command in a folder that has a few files of kernels."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self.captured = captured

    def __call__(self, *words: str) -> Ran:
        code, out, err = self.raw(*words)
        return Ran(code, out.decode(), err)

    def raw(self, *words: str) -> tuple[int, bytes, str]:
        with pytest.raises(SystemExit) as end:
            main.main(["inspect", *words])
        printed = self.captured.readouterr()
        return int(end.value.code or 0), printed.out, printed.err.decode()


@pytest.fixture(autouse=True)
def _sass_where_needed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_sass(request, monkeypatch)


@pytest.fixture
def inspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Inspect:
    (tmp_path / "k.cu").write_text(SCALE)
    (tmp_path / "new.cu").write_text(ONLY_NEW)
    (tmp_path / "ops.py").write_text(OPS.format(name=f"f{abs(hash(tmp_path))}"))
    monkeypatch.chdir(tmp_path)
    return Inspect(capfdbinary)


# ------------------------------------------------------------ kernels


def test_of_a_file_each_kernel_is_shown_and_a_template_says_how_to_ask(inspect: Inspect) -> None:
    code, out, _ = inspect("k.cu", "--arch", "sm_90", "--arch", "sm_80")
    assert code == 0
    assert "clear  sm_90  k.cu:8\n  resources  " in out
    assert "clear  sm_80  k.cu:8\n" in out
    assert "type: --instantiate 'scale[float32]'" in out


def test_a_template_is_shown_as_it_is_instantiated(inspect: Inspect) -> None:
    _, out, _ = inspect("k.cu", "--instantiate", "scale[float64]", "--arch", "sm_90")
    assert "scale<double>  sm_90  k.cu:3\n" in out


def test_one_instantiation_can_stand_in_the_target(inspect: Inspect) -> None:
    _, out, _ = inspect("k.cu:scale[float64]", "--arch", "sm_90")
    assert "scale<double>  sm_90" in out
    assert "clear" not in out


def test_folders_of_headers_and_macros_are_given_as_to_a_compiler(inspect: Inspect, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "size.h").write_text("#define SIZE (EXTRA + 3)\n")
    (tmp_path / "size.cu").write_text(
        '#include "size.h"\n#if defined(FAST) && FAST == 1\n'
        "__global__ void k(float* x) { __shared__ float s[SIZE]; s[threadIdx.x] = *x; *x = s[1]; }\n#endif\n"
    )
    code, out, _ = inspect("size.cu", "-I", "theirs", "-D", "FAST", "--define", "EXTRA=5", "--arch", "sm_90")
    assert (code, "32 B of static shared memory" in out) == (0, True)


def test_a_block_and_its_shared_memory_are_what_occupancy_is_reported_for(inspect: Inspect) -> None:
    _, out, _ = inspect("k.cu:clear", "--arch", "sm_90", "--block", "256", "--smem-bytes", "40000")
    assert "block=256, smem_bytes=40000: 5 blocks per multiprocessor, 40 of 64 warps (62%)" in out
    assert "with at most 37888 B of shared memory, 2112 fewer: 6 blocks, 48 warps" in out


def test_of_an_operator_what_its_samples_launch_is_shown_and_counted(inspect: Inspect) -> None:
    code, out, err = inspect("ops.py", "--arch", "sm_90")
    assert code == 0
    assert "twice  sm_90" in out
    assert "block=64: 32 blocks per multiprocessor" in out
    assert "thread instructions of PTX" in out
    assert ("imported" in out, "imported" in err) == (False, True)


@pytest.mark.slow
def test_of_an_operator_of_the_gallery_each_instantiation_is_shown(inspect: Inspect) -> None:
    _, out, _ = inspect("dotcu.gallery:square", "--arch", "sm_90")
    assert "square<float, 4, 1>  sm_90" in out
    assert "square<__half, 8, 1>  sm_90" in out


@needs_nvdisasm
def test_lines_show_source_beside_ptx_and_sass(inspect: Inspect) -> None:
    _, out, _ = inspect("k.cu:clear", "--arch", "sm_90", "--lines")
    (head,) = [line for line in out.splitlines() if line.startswith("line  ")]
    assert head.split() == ["line", "source", "PTX", "SASS"]
    assert "st.global" in out
    assert "STG.E" in out


def test_json_is_all_that_is_printed(inspect: Inspect) -> None:
    found = json.loads(inspect("ops.py", "--arch", "sm_90", "--json").out)
    assert found["version"] == 2
    (kernel,) = found["kernels"]
    assert kernel["name"] == "twice"
    assert kernel["resources"]["registers"] > 0
    assert kernel["occupancy"][0]["limiters"] == ["threads", "blocks"]
    assert kernel["counts"]["total"]["lane_instructions"] > 64


# ------------------------------------------------------------ a page, plain text, a difference


def test_page_is_written_and_holds_the_kernel_and_its_source(inspect: Inspect) -> None:
    code, out, _ = inspect("k.cu", "--arch", "sm_90", "--html", "page.html")
    text = Path("page.html").read_text()
    assert (code, out) == (0, "the page is in page.html\n")
    assert text.startswith("<!doctype html>")
    assert '"clear"' in text
    assert "blockIdx.x * blockDim.x + threadIdx.x" in text


def test_page_in_a_folder_that_is_not_there_is_refused(inspect: Inspect) -> None:
    code, _, err = inspect("k.cu", "--arch", "sm_90", "--html", "none/page.html")
    assert code == 2
    assert "none/page.html cannot be written: No such file or directory" in err


@needs_nvdisasm
@pytest.mark.parametrize(
    ("what", "has"),
    [
        ("ptx", ".visible .entry _Z5clearPfi("),
        ("sass", "_Z5clearPfi:  // clear sm_90\n"),
        ("symbols", "T _Z5clearPfi\tclear\tsm_90\n"),
        ("resources", "\nclear\tsm_90\t"),
    ],
)
def test_text_goes_to_standard_output_or_into_a_file(inspect: Inspect, what: str, has: str) -> None:
    words = ("k.cu:clear", "--arch", "sm_90", "--emit", what)
    code, out, err = inspect(*words)
    assert (code, err) == (0, "")
    assert has in out
    assert inspect(*words, "-o", "file") == (0, "", "")
    assert Path("file").read_text() == out


def test_cubin_goes_out_as_bytes_and_can_be_inspected(inspect: Inspect) -> None:
    words = ("k.cu:clear", "--arch", "sm_90", "--emit", "cubin")
    code, out, _ = inspect.raw(*words)
    assert (code, out[:4]) == (0, b"\x7fELF")
    inspect(*words, "-o", "k.cubin")
    assert Path("k.cubin").read_bytes() == out
    told = inspect("k.cubin")
    assert told.code == 0
    assert "  sm_90  SASS  1 module" in told.out
    assert "clear(float*, int)" in told.out


def test_a_cubin_of_two_architectures_is_refused(inspect: Inspect) -> None:
    code, _, err = inspect("k.cu:clear", "--arch", "sm_90", "--arch", "sm_80", "--emit", "cubin")
    assert code == 2
    assert "clear sm_90, clear sm_80" in err


@needs_nvdisasm
def test_difference_of_two_instantiations_is_reported_from_the_other_to_this_one(inspect: Inspect) -> None:
    code, out, _ = inspect("k.cu:scale[float64]", "--diff", "k.cu:scale[float32]", "--arch", "sm_90")
    assert code == 0
    assert out.startswith("scale<float> sm_90 -> scale<double> sm_90\n")
    assert "  FMUL: 1 -> 0 (-1)\n" in out
    assert "\n+DMUL R, R, 3\n" in out


def test_difference_from_itself_is_none(inspect: Inspect) -> None:
    _, out, _ = inspect("k.cu", "--diff", "k.cu", "--arch", "sm_90", "--json")
    assert json.loads(out)["same"] is True


def test_page_of_a_difference_shows_it(inspect: Inspect) -> None:
    words = ("k.cu:scale[float64]", "--diff", "k.cu:scale[float32]", "--arch", "sm_90")
    code, out, _ = inspect(*words, "--html", "page.html")
    (section,) = re.findall(r'<details id="changes".*</details>', Path("page.html").read_text())
    assert (code, "scale<float> sm_90 -> scale<double> sm_90\n" in out) == (0, True)
    assert "scale&lt;float&gt; sm_90 -&gt; scale&lt;double&gt; sm_90" in section
    assert re.search(r"<span>registers: \d+ -&gt; \d+ \(\+\d+\)</span>", section)


# ------------------------------------------------------------ binaries


def test_of_a_binary_it_is_reported_which_gpus_run_it(inspect: Inspect) -> None:
    code, out, _ = inspect(str(DATA / "lz4.fatbin"))
    assert code == 0
    assert "  sm_80  SASS and PTX  1 module" in out
    assert "  natively on    8.0 (A100), 8.6 (A10, RTX 30)" in out
    assert "9.0 (H100, H200)" in next(line for line in out.splitlines() if "by JIT on" in line)
    assert "  not on         7.5 (T4, RTX 20)\n" in out


def test_of_a_binary_json_says_the_same(inspect: Inspect) -> None:
    found = json.loads(inspect(str(DATA / "lz4.fatbin"), "--json").out)
    assert [found["version"], found["kind"], found["architectures"][0]["arch"]] == [2, "fatbin", "sm_80"]
    assert [found["runs_on"][gpu]["how"] for gpu in ("7.5", "8.6", "9.0")] == ["no", "native", "jit"]


def test_an_architecture_that_a_binary_has_not_is_refused_with_those_that_it_has(inspect: Inspect) -> None:
    code, _, err = inspect(str(DATA / "lz4.fatbin"), "--arch", "sm_90")
    assert code == 2
    assert "has no code for sm_90.\nIt has code for sm_80." in err


def test_symbols_of_a_library_are_those_that_nm_names(inspect: Inspect) -> None:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not library.is_file() or shutil.which("nm") is None:
        pytest.skip("needs torch's libc10.so, and nm of binutils")
    lines = inspect(str(library), "--emit", "symbols").out.splitlines()
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", "--without-symbol-versions", "-C", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    needed = {line.split(maxsplit=1)[1] for line in listed if line.split()[0] == "U"}
    named = {line[2:].rpartition("@")[0] or line[2:] for line in lines if line.startswith("U ")}
    assert {name for name in needed if "<" not in name} <= named  # demanglers space templates in two ways
    assert any(line.startswith("T c10::") for line in lines)


def test_symbols_of_device_code_are_its_kernels(inspect: Inspect) -> None:
    inspect("k.cu:clear", "--arch", "sm_90", "--emit", "ptx", "-o", "k.ptx")
    assert "T _Z5clearPfi\tclear(float*, int)\tsm_90\n" in inspect("k.ptx", "--emit", "symbols").out


@pytest.mark.parametrize("words", [(), ("--json",), ("--emit", "symbols")])
def test_a_damaged_member_of_a_wheel_is_reported_beside_the_rest_and_ends_with_one(
    inspect: Inspect, words: tuple[str, ...]
) -> None:
    whole = Path(sys.executable).resolve().read_bytes()
    with zipfile.ZipFile("a-1-py3-none-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("a/broken.so", whole[:900])
        wheel.writestr("a/whole.so", whole)
    code, out, err = inspect("a-1-py3-none-linux_x86_64.whl", *words)
    assert code == 1
    assert "a/broken.so is cut short" in (err if "--emit" in words else out)
    assert ("U __libc_start_main" if "--emit" in words else "a/whole.so") in out


def test_a_program_without_an_ending_is_reported_by_its_bytes(inspect: Inspect) -> None:
    shutil.copy(Path(sys.executable).resolve(), "program")
    code, out, _ = inspect("program")
    assert code == 0
    assert out.startswith("program: ")
    assert "no device code" in out
    assert "libc.so.6" in out


# ------------------------------------------------------------ what goes wrong


def test_a_kernel_that_one_architecture_refuses_is_shown_for_the_other_and_ends_with_one(
    inspect: Inspect,
) -> None:
    code, out, _ = inspect("new.cu", "--arch", "sm_80", "--arch", "sm_90")
    assert code == 1
    assert "fill  sm_90  new.cu:" in out
    assert "sm_80 (fill) could not be compiled:" in out
    assert 'identifier "nothing" is undefined' in out


@pytest.mark.parametrize("what", ["sass", "cubin", "resources"])
def test_machine_code_of_ptx_alone_is_refused(inspect: Inspect, what: str) -> None:
    code, out, err = inspect("k.cu:clear", "--arch", "compute_90", "--emit", what)
    assert (code, out) == (2, "")
    assert "compute_90 is only PTX.\n" in err
    assert "Type: --arch sm_90, or --emit ptx" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--emit", "resources"),
        ("--emit", "cubin", "-o", "k.cubin"),
        ("--diff", "k.cu"),
        ("--html", "page.html"),
    ],
)
def test_what_failed_is_reported_beside_what_is_written(inspect: Inspect, words: tuple[str, ...]) -> None:
    code, out, err = inspect("new.cu", "--arch", "sm_80", "--arch", "sm_90", *words)
    assert code == 1
    assert 'identifier "nothing" is undefined' in err
    assert "nothing" not in out


def test_where_nothing_compiles_the_reason_is_reported_and_nothing_is_emitted(inspect: Inspect) -> None:
    code, out, err = inspect("new.cu", "--arch", "sm_80", "--emit", "cubin")
    assert (code, out) == (1, "")
    assert 'identifier "nothing" is undefined' in err


def test_page_shows_what_failed(inspect: Inspect) -> None:
    inspect("new.cu", "--arch", "sm_80", "--html", "page.html")
    assert "does not compile for sm_80" in Path("page.html").read_text()


def test_an_architecture_that_does_not_exist_is_refused_with_those_that_do(inspect: Inspect) -> None:
    code, _, err = inspect("k.cu", "--arch", "sm_91")
    assert code == 2
    assert "not support the architecture 'sm_91'" in err
    assert "sm_90, sm_90a, " in err


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        ("none.cu", 2, "There is no file"),
        ("none.so", 2, "none.so cannot be read: No such file or directory"),
        ("none_such", 2, "there is no file and no importable module 'none_such'"),
        ("k.cu:scal", 2, "Type: dotcu inspect k.cu:scale"),
        ("text.so", 2, "text.so is not an ELF file, fatbin, wheel or PTX: it begins with the bytes 68 65"),
        ("README", 2, "or a .cu of kernels, or a .py of operators"),
        ("short.cubin", 2, "short.cubin is cut short"),
        ("k.cubin:clear", 2, "cannot be selected by name"),
    ],
)
def test_a_target_that_is_none_is_refused(inspect: Inspect, target: str, code: int, told: str) -> None:
    inspect("k.cu:clear", "--arch", "sm_90", "--emit", "cubin", "-o", "k.cubin")
    Path("short.cubin").write_bytes(Path("k.cubin").read_bytes()[:900])
    for name in ("text.so", "README"):
        Path(name).write_text("hello")
    ran = inspect(target)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-o", "file"), "Type: --emit sass -o file"),
        (("--emit", "nothing"), "it is one of ptx, tileir, sass, cubin, symbols, resources"),
        (("--emit", "ptx", "--json"), "--emit and --json"),
        (("--emit", "ptx", "--html", "p.html"), "--emit and --html"),
        (("--lines", "--diff", "k.cu"), "--lines and --diff"),
        (("--smem-bytes", "100"), "Type: --block 256"),
        (("--block", "4096"), "Invalid value for '--block': 4096 is not a number of threads from 1 to 1024."),
        (("--smem-bytes", "-1"), "Invalid value for '--smem-bytes': -1 is not a number of bytes, 0 or more."),
        (("--instantiate", "clear[float32]"), "no templates of kernels of that name"),
    ],
)
def test_options_that_make_no_sense_are_refused(inspect: Inspect, words: tuple[str, ...], told: str) -> None:
    ran = inspect("k.cu", "--arch", "sm_90", *words)
    assert (ran.code, Path("p.html").exists()) == (2, False)
    assert told in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("--html", "p.html"),
        ("--diff", "k.cu"),
        ("--lines",),
        ("--block", "256"),
        ("--smem-bytes", "100"),
        ("--instantiate", "scale[float32]"),
        ("--emit", "sass"),
    ],
)
def test_what_is_for_kernels_is_refused_for_a_binary(inspect: Inspect, words: tuple[str, ...]) -> None:
    code, out, err = inspect(str(DATA / "lz4.fatbin"), *words)
    assert (code, out) == (2, "")
    assert (
        f"{' '.join(words[:2]) if words[0] == '--emit' else words[0]} is for kernels that dotcu compiles"
        in err
    )


def test_no_half_of_a_file_stays_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    (tmp_path / "mine").touch()
    for name in ("mine", "new"):
        with pytest.raises(UsageError, match="No space left"):
            inspecting_command._write(tmp_path / name, b"a page")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]

"""Operators in C++: they ask the driver for what the bodies launch in Python, and refuse what has no plan.

No GPU takes part: the driver is one that writes down what it is asked to launch.
"""

from __future__ import annotations

import json
import math
import operator
import os
import random
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu.checking.target import resolve
from dotcu.compile import ObjectCode, Target
from dotcu.cpp import tools
from dotcu.errors import ToolchainError, UsageError
from dotcu.operator import Overload
from dotcu.shipping import project, wheel
from dotcu.shipping.assembling import Job
from dotcu.shipping.operator_library import recording
from dotcu.shipping.operator_library import writing as cpp
from dotcu.shipping.operator_library.expressions import INT_MAX, INT_MIN, OPERATIONS
from dotcu.shipping.tracing import importing
from helpers import aotinductor, forked_scripts, projects, recorded_launches

HERE = Path(__file__).parent
GPU = {"sm_75": "7 5 40", "sm_80": "8 0 108", "sm_86": "8 6 72", "sm_90": "9 0 132"}
"""What driver.c says of itself: compute capability and multiprocessors, these as the simulator has them."""

KERNELS = """\
template <typename T>
__global__ void scale(const T* x, T* out, float by, long long n) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = static_cast<T>(by * static_cast<float>(x[i]));
}

__global__ void fill(float* out, double by, int n, unsigned char twice) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = static_cast<float>(by) * (1 + twice);
}

__global__ void add(const float* x, const float* bias, float* out, int* count, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + (bias ? bias[i] : 0.0f);
    if (i == 0) *count = n;
}

__global__ void window(const float* x, int by_row, int by_column, float* out, long long columns, double by) {
    const long long i = blockIdx.x, k = threadIdx.x;
    if (k < columns) out[i * columns + k] = static_cast<float>(by) * x[i * by_row + k * by_column];
}
"""

OPS = '''\
from typing import Optional

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("scale.cu")


@dotcu.op("{name}::scale", dtypes=(torch.float32, torch.float16))
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    """x times a number."""
    out = torch.empty_like(x)
    n = x.numel()
    kernels.scale[x.dtype](x, out, by, n, grid=dotcu.cdiv(n, 128), block=128)
    return out


@scale.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(300, device=device, dtype=dtype), 3.0)
    yield dotcu.Sample(torch.ones(3, 4, device=device, dtype=dtype), by=3)


@scale.reference
def _(x, by=2.0):
    return x * by


@scale.overload("out", mutates_args=("out",))
def _(x: Tensor, by: float = 2.0, *, out: Tensor) -> None:
    n = x.numel()
    kernels.scale[x.dtype](x, out, by, n, grid=dotcu.cdiv(n, 128), block=128)


@dotcu.op("{name}::fill")
def fill(like: Tensor, by: float, how: str = "once") -> Tensor:
    """A number everywhere, by as many blocks as there are multiprocessors."""
    out = torch.empty_like(like)
    n = like.numel()
    blocks = min(dotcu.sm_count(like) * 2, dotcu.cdiv(n, 64))
    kernels.fill(out, by / 2 + 1, n, int(how == "twice"), grid=blocks, block=64)
    return out


@fill.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(300, device=device, dtype=dtype), 3.0)
    yield dotcu.Sample(torch.ones(30000, device=device, dtype=dtype), 3.0, "twice")


@dotcu.op("{name}::resident")
def resident(like: Tensor) -> Tensor:
    """Twos, by as many blocks as a multiprocessor holds."""
    out = torch.empty_like(like)
    kernels.fill(out, 2.0, like.numel(), 0, grid=kernels.fill.occupancy(64), block=64)
    return out


@resident.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(300, device=device, dtype=dtype))


@dotcu.op("{name}::add")
def add(x: Tensor, bias: Tensor | None = None, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """x plus a bias, and how many elements there are."""
    out, count = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
    n = x.shape[0] if rows is None else rows
    kernels.add(x, bias, out, count, n, grid=dotcu.cdiv(n, 32), block=32)
    return out, count


@add.samples
def _(device, dtype):
    x = torch.ones(50, device=device, dtype=dtype)
    yield dotcu.Sample(x)
    yield dotcu.Sample(x, x)
    yield dotcu.Sample(x, rows=40)


@dotcu.op("{name}::window")
def window(x: Tensor, by: float, start: int = 1) -> Tensor:
    """A part of x, in a part of new memory, with a block that depends on the alignment."""
    part = x[start:, ..., 1:]
    rows, columns = part.shape
    room = torch.zeros(8 + rows, columns, device=x.device)
    block = 64 if dotcu.is_aligned(part, 8) else 32
    kernels.window(dotcu.strided(part), room[8:], columns, by * 0.5 + rows, grid=rows, block=block)
    return room.view(-1)[8 * columns :].view(part.shape)


@window.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(5, 7, device=device, dtype=dtype), 3.0, 2)
    yield dotcu.Sample(torch.ones(6, 7, device=device, dtype=dtype), 3.0, 3)
    yield dotcu.Sample(torch.ones(7, 5, device=device, dtype=dtype).t(), 3.0)


by_one, by_two = (dotcu.load("stepped.cu", define={{"STEP": step}}) for step in (1, 2))


@dotcu.op("{name}::stepped")
def stepped(x: Tensor, twice: bool) -> Tensor:
    """One file, loaded in two ways."""
    out = torch.empty_like(x)
    n = x.numel()
    if twice:
        by_two.stepped(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    else:
        by_one.stepped(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


@stepped.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype), False)
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype), True)


@dotcu.op("{name}::asks")
def asks(x: Tensor) -> Tensor:
    """Another kernel on another device."""
    out = torch.empty_like(x)
    if x.is_cuda:
        by_two.stepped(x, out, x.numel(), grid=1, block=64)
    else:
        by_one.stepped(x, out, x.numel(), grid=1, block=64)
    return out


@dotcu.op("{name}::dtyped")
def dtyped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What the stable ABI has no argument for."""
    out = torch.empty_like(x, dtype=dtype)
    by_one.stepped(x, out, x.numel(), grid=1, block=64)
    return out


@dtyped.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype), torch.float32)


@dotcu.op("{name}::nowhere")
def nowhere(x: Optional[Tensor] = None) -> Tensor:
    """Without a tensor, nothing says where it runs."""
    out = torch.empty_like(x)
    by_one.stepped(x, out, x.numel(), grid=1, block=64)
    return out


by_variable = dotcu.load("stepped.cu", define={{"STEP": 3}})
by_variable.variable("start").write(torch.tensor(5.0))


@dotcu.op("{name}::varies")
def varies(x: Tensor) -> Tensor:
    """Reads what Python wrote into a variable."""
    out = torch.empty_like(x)
    by_variable.stepped(x, out, x.numel(), grid=1, block=64)
    return out


@varies.samples
@asks.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype))


@dotcu.op("{name}::copied")
def copied(x: Tensor) -> Tensor:
    """What no plan can say."""
    return scale(x.cpu(), 1.0)


@copied.samples
def _(device, dtype):
    yield dotcu.Sample(torch.ones(50, device=device, dtype=dtype))
'''


STEPPED = """\
__constant__ float start;

__global__ void stepped(const float* x, float* out, long long n) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = start + STEP * x[i];
}
"""


@dataclass(frozen=True)
class Written:
    """A project's operators in C++."""

    made: projects.Made
    folder: Path
    compiled: dict[Job, ObjectCode]
    notes: tuple[str, ...]
    planned: dict[Overload, recording.Calls]
    library: Path
    symbols: str


@pytest.fixture(scope="module")
def compiler() -> tools.HostCompiler:
    try:
        return tools.host()
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, compiler: tools.HostCompiler) -> Written:
    folder = tmp_path_factory.mktemp("cpp")
    made = projects.make(folder / "project", architectures=("8.0", "9.0"), source=KERNELS, ops=OPS)
    made.write("__init__.py", "from .ops import *\n")
    made.write("stepped.cu", STEPPED)
    planned = wheel.prepare(project.read(made.root))
    compiled = wheel.compile_kernels(planned, lambda _: None)
    operators = [operator for _, operator in resolve(made.name, verb="build")]
    targets = [Target.parse("sm_80"), Target.parse("sm_90")]
    notes = cpp.write_source(folder / "out", made.name, operators, compiled, targets)
    library = cpp.library(folder / "out", made.name, flags=["-DDOTCU_DEVICE=CPU", "-O0", "-Wall", "-Werror"])
    every, _ = recording.record_all(operators, targets)
    sizes = {
        code.lowered[launch.kernel]: len(launch.parameters)
        for calls in every.values() for call in calls for launch in call.launches
        for code in compiled.values() if launch.kernel in code.lowered
    }  # fmt: skip
    symbols = ",".join(f"{name}={size}" for name, size in sizes.items())
    return Written(made, folder / "out", compiled, notes, every, library, symbols)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, compiler: tools.HostCompiler) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    words = [*compiler.words, "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    words += ["-o", folder / "libcuda.so.1", HERE / "driver.c"]
    subprocess.run(words, check=True)
    return folder


def surroundings(written: Written, driver: Path, folder: Path, arch: str) -> dict[str, str]:
    """The environment of a program for which driver.c is the driver."""
    return {
        **os.environ, "LD_LIBRARY_PATH": str(driver), "DRIVER_GPU": GPU[arch],
        "DRIVER_LOG": str(folder / "log"), "DRIVER_PARAMETERS": written.symbols,
    }  # fmt: skip


@dataclass(frozen=True)
class CallSet:
    """Calls on one GPU, each of an operator with arguments that are a Python text."""

    arch: str
    calls: Sequence[tuple[str, str]]
    capturing: bool = False


def call(written: Written, driver: Path, folder: Path, sets: Sequence[CallSet]) -> list[list[Any]]:
    """Call operators of the library where there is no other."""
    rows = []
    for one in sets:
        environment = surroundings(written, driver, folder, one.arch)
        environment |= {"DRIVER_CAPTURING": "1"} if one.capturing else {}
        rows.append((environment, [(f"{written.made.name}::{n}", text) for n, text in one.calls]))
    (folder / "calls").write_text(json.dumps(rows))
    words = [str(path) for path in (driver / "libcuda.so.1", written.library, folder / "calls")]
    script = f"import runpy; runpy.run_path({str(HERE / 'calls_in_cpp.py')!r})['main'](*{words})"
    done = forked_scripts.run(script, environment=surroundings(written, driver, folder, sets[0].arch))
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_it_runs_from_an_aotinductor_package_without_python(
    written: Written, driver: Path, compiler: tools.HostCompiler, tmp_path: Path
) -> None:
    package = aotinductor.package(written.made.root, f"{written.made.name}::scale", tmp_path, device="cpu")
    program = aotinductor.program(compiler, tmp_path)
    environment = surroundings(written, driver, tmp_path, "sm_90")
    words = [program, written.library, package, "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.stdout == "error 0, without Python\n", done.stdout + done.stderr
    assert "_Z5scaleIfEvPKT_PS0_fx" in (tmp_path / "log").read_text()


ASKED = ("grid", "block", "smem_bytes", "parameters")
FITTING = (
    ("scale", "[torch.ones(300), 3.0]"),
    ("scale", "[torch.ones(0), 3.0]"),
    ("scale", "[torch.ones(5, 7, dtype=torch.float16), -1e-3]"),
    ("scale", "[torch.ones(1000)[1:], 2.0]"),
    ("scale.out", "[torch.ones(300), 3.0, torch.empty(300)]"),
    ("fill", "[torch.ones(77), 0.1, 'once']"),
    ("fill", "[torch.ones(30000), 0.1, 'twice']"),
    ("stepped", "[torch.ones(70), True]"),
    ("add", "[torch.ones(50), None, None]"),
    ("add", "[torch.ones(33), torch.ones(33), None]"),
    ("add", "[torch.ones(33), None, 20]"),
    ("window", "[torch.ones(9, 4), 0.1, 2]"),
    ("window", "[torch.ones(9, 5), 1e300, 3]"),
    ("window", "[torch.ones(8 * 4 + 1)[1:].view(8, 4), -7.5, 5]"),
    ("window", "[torch.ones(4, 9).t(), 0.5, 1]"),
    ("asks", "[torch.ones(30)]"),
)
RESIDENT = ("resident", "[torch.ones(300)]")


@pytest.mark.parametrize(
    "arch", ["sm_80", *(pytest.param(f"sm_{more}", marks=pytest.mark.slow) for more in (86, 90))]
)
def test_the_driver_is_asked_for_what_the_bodies_launch(
    written: Written, driver: Path, tmp_path: Path, arch: str, replied: list[list[Any]]
) -> None:
    calls = FITTING if arch == "sm_86" else (*FITTING, RESIDENT)
    (replies,) = replied[4:] if arch == "sm_80" else call(written, driver, tmp_path, [CallSet(arch, calls)])
    bodies = {one.qualified_name: one for one in written.planned}
    for (name, text), reply in zip(calls, replies, strict=True):
        assert "error" not in reply, (name, text, reply)
        overload, args = bodies[f"{written.made.name}::{name}"], eval(text, {"torch": torch})
        in_python, results = recorded_launches.launches_of(overload, args, arch)
        asked = [{key: one[key] for key in ASKED} for one in reply["asked"]]
        assert asked == in_python.placed([*args, *results], reply["addresses"]), (name, text)
        assert reply["layouts"] == [[[*t.shape], [*t.stride()], str(t.dtype)] for t in results], (name, text)
    asked = [[one["grid"][0] for one in reply["asked"]] for reply in replies]
    grids = dict(zip([text for _, text in calls], asked, strict=True))
    assert grids["[torch.ones(0), 3.0]"] == []
    assert grids["[torch.ones(30000), 0.1, 'twice']"] == [2 * int(GPU[arch].split()[2])]  # multiprocessors


REFUSED = (
    ("scale", "[torch.ones(4, 3).t(), 2.0]", "with tensors of shapes [3, 4] on sm_80"),
    ("scale", "[torch.ones(3, dtype=torch.float64), 1.0]", "(float32[1d]) (float32[2d])"),
    ("scale", "[torch.ones(2, 2, 2), 1.0]", "with tensors of shapes [2, 2, 2] on sm_80"),
    ("fill", "[torch.ones(5), 1.0, 'thrice']", "Add a sample like this call"),
    ("add", "[torch.ones(5), torch.ones(5), 7]", "with tensors of shapes [5], [5] on sm_80"),
)


@pytest.fixture(scope="module")
def replied(written: Written, driver: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """The replies to calls that are refused: of a call itself, by another GPU, and during a capture.

    The last are those to calls that fit, made by the same process: it has imported torch.
    """
    sets = (
        CallSet("sm_80", [one[:2] for one in REFUSED]),
        CallSet("sm_86", [RESIDENT]),
        CallSet("sm_75", [("scale", "[torch.ones(3), 1.0]")]),
        CallSet("sm_80", [("scale", "[torch.ones(3), 1.0]")], capturing=True),
        CallSet("sm_80", [*FITTING, RESIDENT]),
    )
    return call(written, driver, tmp_path_factory.mktemp("replied"), sets)


def test_a_call_like_no_sample_is_refused(written: Written, replied: list[list[Any]]) -> None:
    for (name, text, told), reply in zip(REFUSED, replied[0], strict=True):
        assert f"{written.made.name}::{name} has no code in C++ for this call" in reply["error"], text
        assert told in reply["error"], text


def test_what_hangs_on_occupancy_holds_on_just_that_gpu(replied: list[list[Any]]) -> None:
    (reply,) = replied[1]
    assert "has calls in C++ that depend on the occupancy of sm_80, and this" in reply["error"]
    assert "capability 8.6. Build it with this one among its architectures." in reply["error"]


def test_a_gpu_that_there_is_no_code_for_is_named(replied: list[list[Any]]) -> None:
    (reply,) = replied[2]
    assert "has no code for a GPU of compute capability 7.5; it has sm_80, sm_90" in reply["error"]


def test_nothing_is_loaded_while_a_graph_is_captured(replied: list[list[Any]]) -> None:
    (reply,) = replied[3]
    assert "cannot be while a CUDA graph is captured. Call the operator once" in reply["error"]


def test_what_has_no_plan_is_reported(written: Written) -> None:
    assert "copied" not in {one.signature.name for one in written.planned}
    told = {note.split("::")[1].split()[0]: note.split("is not in C++: ")[1] for note in written.notes}
    assert sorted(told) == ["copied", "dtyped", "nowhere", "varies"], told
    assert told["copied"].startswith(
        "it calls the operator aten._to_copy.default, and only launches can be recorded"
    )
    assert told["dtyped"].startswith("it depends on a dtype")
    assert told["nowhere"].startswith("each of its tensors may be left out")
    assert told["varies"].startswith("variables of stepped.cu are written from Python")


def test_one_file_loaded_in_two_ways_is_two_kernels(written: Written) -> None:
    (stepped,) = [some for one, some in written.planned.items() if one.signature.name == "stepped"]
    assert len(stepped) == 2
    text = (written.folder / "operators.cpp").read_text()
    assert len(re.findall(r'const Kernel kernel_\d+ = \{"stepped"', text)) == 2
    tables = re.findall(r"_variants\[\] = (\{\{code_\d+, \"_Z7stepped\w+\".*\});", text)
    assert len(set(tables)) == len(tables) == 2


def test_a_project_without_plans_is_refused(tmp_path: Path) -> None:
    ops = projects.OPS.replace("out = torch.empty_like(x)", "out = torch.empty_like(x.cpu())")
    made = projects.make(tmp_path, ops=ops)
    with importing(made.root, made.name):
        operators = [operator for _, operator in resolve(made.name, verb="build")]
    with pytest.raises(UsageError, match=r"No operator of .* can be in C"):
        cpp.write_source(tmp_path / "out", made.name, operators, {}, [Target.parse("sm_80")])


def test_another_folder_is_not_replaced(written: Written, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    operators = [operator for _, operator in resolve(written.made.name, verb="build")]
    targets = [Target.parse("sm_80"), Target.parse("sm_90")]
    with pytest.raises(UsageError, match="it is not replaced"):
        cpp.write_source(tmp_path / "mine", written.made.name, operators, written.compiled, targets)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


INTEGERS = (
    0,
    1,
    -1,
    2,
    -2,
    7,
    -7,
    62,
    63,
    64,
    65,
    2**31,
    2**53,
    -(2**53),
    2**53 + 1,
    INT_MAX,
    INT_MIN,
    INT_MIN + 1,
)
DOUBLES = (0.0, -0.0, 1.5, -1.5, 2.0**53, 9.3e18, -9.3e18, 1e308, float("inf"), float("-inf"), float("nan"))
IN_PYTHON: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv, "Mod": operator.mod,
    "PythonMod": operator.mod, "Abs": abs, "Min": min, "Max": max, "BitwiseFn_bitwise_and": operator.and_,
    "BitwiseFn_bitwise_or": operator.or_, "BitwiseFn_bitwise_xor": operator.xor, "ToFloat": float,
    "IntTrueDiv": operator.truediv, "FloatTrueDiv": operator.truediv, "TruncToInt": math.trunc,
    "FloorToInt": math.floor, "CeilToInt": math.ceil, "RoundToInt": round,
}  # fmt: skip


@pytest.mark.slow
def test_numbers_are_python_s(compiler: tools.HostCompiler, tmp_path: Path) -> None:
    """Every operation, on all pairs of numbers at which something may go wrong."""
    assert {name for name, _ in OPERATIONS} == set(IN_PYTHON)
    cases = [
        (index, a, b)
        for index, (_, double) in enumerate(OPERATIONS)
        for values in [DOUBLES if double else INTEGERS]
        for a in values for b in random.Random(index).sample(values, len(values))
    ]  # fmt: skip
    functions = []
    for index, ((_, double), (template, into_double)) in enumerate(OPERATIONS.items()):
        kind = "double" if double else "int64_t"
        functions.append(
            f"if (op == {index}) {{ const auto a = as<{kind}>(first), b = as<{kind}>(second); (void)b;"
            f" const {'double' if into_double else 'int64_t'} made = {template.format('a', 'b')};"
            " show(exact, made); }"
        )
    header = files("dotcu.shipping.operator_library").joinpath("runtime.h").read_text()
    (tmp_path / "dotcu.h").write_text(header)
    (tmp_path / "main.cpp").write_text(
        '#include "dotcu.h"\n#include <cstdio>\nusing namespace dotcu;\n'
        "template <typename T> T as(uint64_t bits) { T made; std::memcpy(&made, &bits, 8); return made; }\n"
        "template <typename T> void show(const Exact& exact, T made) {\n"
        "    uint64_t bits; std::memcpy(&bits, &made, 8);\n"
        '    if (exact.holds) std::printf("%llx\\n", (unsigned long long)bits); else std::puts("none");\n}\n'
        "int main() {\n    int op; unsigned long long first, second;\n"
        '    while (std::scanf("%d %llx %llx", &op, &first, &second) == 3) {\n        Exact exact;\n        '
        + "\n        ".join(functions) + "\n    }\n}\n"
    )  # fmt: skip
    words = [
        *compiler.words,
        *tools.find_torch().compile_words(),
        "-O1",
        "-o",
        tmp_path / "main",
        tmp_path / "main.cpp",
    ]
    subprocess.run([*map(str, words), "-ldl"], check=True)
    lines = "".join(f"{index} {_bits(a):x} {_bits(b):x}\n" for index, a, b in cases)
    done = subprocess.run([tmp_path / "main"], input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [_computed(*case) for case in cases]


def _bits(value: int | float) -> int:
    data = struct.pack("<d", value) if isinstance(value, float) else struct.pack("<q", value)
    return int(struct.unpack("<Q", data)[0])


def _computed(index: int, a: Any, b: Any) -> str:
    """The bits of Python's result; none of what 64 bits, or the 53 of a double, do not hold."""
    (name, double), (template, into_double) = list(OPERATIONS.items())[index]
    if (
        into_double
        and not double
        and any(abs(one) > 2**53 for one in ((a, b) if "{1}" in template else (a,)))
    ):
        return "none"
    try:
        made = IN_PYTHON[name](*((a, b) if "{1}" in template else (a,)))
    except (ZeroDivisionError, OverflowError, ValueError):
        return "none"
    if not into_double and not INT_MIN <= made <= INT_MAX:
        return "none"
    return f"{_bits(float(made) if into_double else int(made)):x}"


@pytest.mark.slow
def test_the_wheel_holds_source_and_library(written: Written, driver: Path, tmp_path: Path) -> None:
    settings = written.made.root / "pyproject.toml"
    said = settings.read_text().replace('version = "0.1"', 'version = "0.1"\nreadme = "README.md"')
    settings.write_text(said)
    (written.made.root / "README.md").write_text("Operators.\n")
    words = [sys.executable, "-m", "dotcu", "build", "--no-isolation", "--cpp", "--out", tmp_path, "--json"]
    done = subprocess.run(words, cwd=written.made.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wheel = Path(json.loads(done.stdout)["wheel"])
    assert f"note: {written.made.name}::copied with float32, sample 0 is not in C++" in done.stderr
    assert "-cp310-abi3-manylinux_" in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        folder = f"{written.made.name}/cpp"
        held = {name for name in opened.namelist() if name.startswith(folder) and not name.endswith("/")}
        library = f"{folder}/lib{written.made.name}_operators.so"
        assert held == {f"{folder}/operators.cpp", f"{folder}/dotcu.h", library}
        opened.extract(library, tmp_path)
    text = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]); getattr(torch.ops, sys.argv[2]).fill.default"
    )
    subprocess.run([sys.executable, "-c", text, tmp_path / library, written.made.name], check=True)

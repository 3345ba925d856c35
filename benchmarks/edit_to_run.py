"""How long from an edited kernel to its result? dotcu beside every other route that is installed.

    python benchmarks/edit_to_run.py [--save FILE] [--repeat N] [--only NAME ...]

Each route gets the text of an add kernel in which one constant changed, so that nothing is in a
cache, compiles it, and runs it on 4096 elements; the result is compared before its time counts.
The process is warm: the route did the same once before, with another constant. On a machine without
a GPU dotcu runs the kernel in its simulator, and the C++ routes run the same loop on the CPU.

`new process` is another question: the code was compiled before, a new process asks for it; the
time runs from the call to the loaded code, imports and CUDA's own start apart.

Routes that are not installed are named with the reason. Ratios are to dotcu's median in this run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ELEMENTS = 4096
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")

KERNEL = """
extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i] + CONSTANT;
}
"""

LAUNCHER = """
void launch(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
    add<<<(n + 255) / 256, 256, 0, stream>>>(a, b, out, n);
}
"""

LOOP = "for (int i = 0; i < n; ++i) out[i] = a[i] + b[i] + CONSTANT;"


@dataclass(frozen=True)
class Timing:
    """Seconds of one route: median and range over its edits."""

    route: str
    median_s: float
    min_s: float
    max_s: float
    edits: int


@dataclass(frozen=True)
class Skipped:
    """A route that could not be tried here."""

    route: str
    reason: str


Edit = Callable[[float], torch.Tensor]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """The two inputs, the same for every route."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(ELEMENTS, generator=generator).to(DEVICE) for _ in range(2))
    return a, b


A, B = inputs()


def number(constant: float) -> str:
    """A constant as C++ text."""
    return f"{constant!r}f"


def dotcu_route() -> Edit:
    """dotcu, the kernel alone."""
    import dotcu

    def edit(constant: float) -> torch.Tensor:
        module = dotcu.load_inline(KERNEL.replace("CONSTANT", number(constant)))
        out = torch.empty_like(A)
        module.add(A, B, out, ELEMENTS, grid=dotcu.cdiv(ELEMENTS, 256), block=256)
        return out

    return edit


def torch_load_inline_route() -> Edit:
    """torch.utils.cpp_extension.load_inline: torch/extension.h, pybind11."""
    from torch.utils.cpp_extension import load_inline

    signature = "at::Tensor add_tensors(at::Tensor a, at::Tensor b)"
    pointers = "a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), (int)a.numel()"
    head = f"{signature} {{ auto out = at::empty_like(a); "

    def edit(constant: float) -> torch.Tensor:
        name = f"add_{abs(hash(constant)):x}"
        kernel, loop = (
            KERNEL.replace("CONSTANT", number(constant)),
            LOOP.replace("CONSTANT", number(constant)),
        )
        run = "void run(const float* a, const float* b, float* out, int n) {" + loop + "}"
        with tempfile.TemporaryDirectory() as folder:
            if ON_GPU:
                body = head + f"launch({pointers}, at::cuda::getCurrentCUDAStream()); return out; }}"
                module = load_inline(
                    name,
                    cpp_sources=signature + ";",
                    cuda_sources="#include <ATen/cuda/CUDAContext.h>\n" + kernel + LAUNCHER + body,
                    functions=["add_tensors"],
                    build_directory=folder,
                )
            else:
                body = head + f"run({pointers}); return out; }}"
                module = load_inline(
                    name, cpp_sources=run + body, functions=["add_tensors"], build_directory=folder
                )
            return module.add_tensors(A, B)

    return edit


def tvm_ffi_route() -> Edit:
    """tvm_ffi.cpp.load_inline: its own light headers."""
    import tvm_ffi.cpp

    arguments = "tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out"
    pointers = (
        "(const float*)a.data_ptr(), (const float*)b.data_ptr(), (float*)out.data_ptr(), (int)a.size(0)"
    )

    def edit(constant: float) -> torch.Tensor:
        kernel, loop = (
            KERNEL.replace("CONSTANT", number(constant)),
            LOOP.replace("CONSTANT", number(constant)),
        )
        name = f"add_{abs(hash(constant)):x}"
        if ON_GPU:
            stream = "(cudaStream_t)TVMFFIEnvGetStream(a.device().device_type, a.device().device_id)"
            body = f"void add_tensors({arguments}) {{ launch({pointers}, {stream}); }}"
            source = "#include <tvm/ffi/extra/c_env_api.h>\n" + kernel + LAUNCHER + body
            module = tvm_ffi.cpp.load_inline(name, cuda_sources=source, functions=["add_tensors"])
        else:
            run = "void run(const float* a, const float* b, float* out, int n) {" + loop + "}\n"
            body = f"void add_tensors({arguments}) {{ run({pointers}); }}"
            module = tvm_ffi.cpp.load_inline(name, cpp_sources=run + body, functions=["add_tensors"])
        out = torch.empty_like(A)
        module.add_tensors(A, B, out)
        return out

    return edit


def torch_compile_kernel_route() -> Edit:
    """torch.cuda._compile_kernel: NVRTC, no cache of its own."""
    need_gpu()

    def edit(constant: float) -> torch.Tensor:
        kernel = torch.cuda._compile_kernel(KERNEL.replace("CONSTANT", number(constant)), "add")
        out = torch.empty_like(A)
        kernel(grid=(ELEMENTS // 256, 1, 1), block=(256, 1, 1), args=[A, B, out, ELEMENTS])
        return out

    return edit


def cupy_route() -> Edit:
    """cupy.RawKernel: NVRTC."""
    need_gpu()
    import cupy

    def edit(constant: float) -> torch.Tensor:
        kernel = cupy.RawKernel(KERNEL.replace("CONSTANT", number(constant)), "add")
        out = torch.empty_like(A)
        torch.cuda.synchronize()
        arguments = (A.data_ptr(), B.data_ptr(), out.data_ptr(), cupy.int32(ELEMENTS))
        kernel((ELEMENTS // 256,), (256,), arguments)
        cupy.cuda.Device().synchronize()
        return out

    return edit


TRITON = """
import triton
import triton.language as tl

@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, i < n) + tl.load(b + i, i < n) + CONSTANT, i < n)
"""


def triton_route() -> Edit:
    """triton.jit: another language, the same edit."""
    need_gpu()
    import importlib.util

    import triton  # noqa: F401  (named as missing where it is)

    folder = Path(tempfile.mkdtemp())

    def edit(constant: float) -> torch.Tensor:
        path = folder / f"add_{abs(hash(constant)):x}.py"
        path.write_text(TRITON.replace("CONSTANT", repr(constant)))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        out = torch.empty_like(A)
        module.add[(ELEMENTS // 256,)](A, B, out, ELEMENTS, BLOCK=256)
        return out

    return edit


def need_gpu() -> None:
    """Refuse a route that has no way to run without a GPU."""
    if not ON_GPU:
        raise RuntimeError("it needs a GPU")


@dataclass(frozen=True)
class Route:
    """A way from text to result, and how many edits are worth their time."""

    name: str
    make: Callable[[], Edit]
    edits: int


ROUTES = (
    Route("dotcu", dotcu_route, 20),
    Route("CuPy RawKernel", cupy_route, 10),
    Route("torch.cuda._compile_kernel", torch_compile_kernel_route, 10),
    Route("Triton", triton_route, 5),
    Route("tvm-ffi load_inline", tvm_ffi_route, 3),
    Route("torch load_inline", torch_load_inline_route, 1),
)


def measure(route: Route, repeat: int | None) -> Timing | Skipped:
    """Time a route's edits, after one that does not count."""
    try:
        edit = route.make()
        edits = repeat or route.edits
        seconds = [timed(edit, 1000 + os.getpid() + i * 0.5) for i in range(edits + 1)][1:]
    except Exception as error:  # a peer fails in its own way: its first line is the reason
        return Skipped(
            route.name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )
    return Timing(route.name, statistics.median(seconds), min(seconds), max(seconds), edits)


def timed(edit: Edit, constant: float) -> float:
    """Seconds from the text to the finished result; the result must be right."""
    synchronize()
    start = time.perf_counter()
    out = edit(constant)
    synchronize()
    seconds = time.perf_counter() - start
    torch.testing.assert_close(out, A + B + constant)
    return seconds


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if ON_GPU:
        torch.cuda.synchronize()


NEW_PROCESS = """
import time, torch, dotcu
if torch.cuda.is_available():
    import cuda.bindings.driver
    torch.zeros(1, device="cuda"); torch.cuda.synchronize()
dotcu.load_inline  # its imports
start = time.perf_counter()
module = dotcu.load_inline({source!r})
module.warm()
print(time.perf_counter() - start)
"""


def new_process(repeat: int) -> Timing | Skipped:
    """Seconds from the call to the loaded code, in processes that find it in the cache."""
    source = KERNEL.replace("CONSTANT", number(os.getpid() + 0.25))
    command = [sys.executable, "-c", NEW_PROCESS.format(source=source)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DOTCU_CACHE_DIR": folder}
        seconds = []
        for _ in range(repeat + 1):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                return Skipped("dotcu, new process, filled cache", done.stderr.splitlines()[-1])
            seconds.append(float(done.stdout))
    seconds = seconds[1:]
    return Timing(
        "dotcu, new process, filled cache", statistics.median(seconds), min(seconds), max(seconds), repeat
    )


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    return {
        "gpu": torch.cuda.get_device_name() if ON_GPU else None,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def show(results: list[Timing | Skipped]) -> None:
    """Print a line for each route, with its ratio to dotcu."""
    base = next((r.median_s for r in results if isinstance(r, Timing) and r.route == "dotcu"), None)
    print(f"{'route':34} {'median':>10} {'min':>10} {'max':>10} {'times dotcu':>12}")
    for result in results:
        if isinstance(result, Skipped):
            print(f"{result.route:34} not measured: {result.reason}")
            continue
        ratio = f"{result.median_s / base:12.2f}" if base else f"{'-':>12}"
        figures = " ".join(f"{s * 1000:7.1f} ms" for s in (result.median_s, result.min_s, result.max_s))
        print(f"{result.route:34} {figures} {ratio}")


def main() -> None:
    """Measure every route, print, and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--repeat", type=int, help="edits of each route, instead of a number for each")
    parser.add_argument("--only", nargs="+", help="routes whose names contain one of these words")
    options = parser.parse_args()
    chosen = [r for r in ROUTES if not options.only or any(word in r.name for word in options.only)]
    results: list[Timing | Skipped] = [measure(route, options.repeat) for route in chosen]
    if not options.only:
        results.append(new_process(options.repeat or 5))
    show(results)
    if options.save:
        entries = [asdict(result) for result in results]
        document = {
            "version": 1,
            "command": "python benchmarks/edit_to_run.py",
            "machine": machine(),
            "results": entries,
        }
        options.save.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""The peers in Python. Each is given what an author can make ready before the call.

That is the compiled kernel, and for those who take them the launch configuration and the stream object.
cuda.core is a package of its own: pip install cuda-core
Only the C++ contenders and dotcu check what they are called with.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from calls.work import BLOCK, BLOCKS, ELEMENTS, KERNELS, Call, Contender, Inputs, Once

SCHEMA = "(Tensor a, Tensor b) -> Tensor"


def torch_add(inputs: Inputs) -> Call:
    """torch's own."""
    a, b = inputs.a, inputs.b
    return lambda: torch.add(a, b)


def cuda_core_add() -> Any:
    """`add` by cuda.core, with torch's memory and on torch's current stream."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

    index = torch.cuda.current_device()
    device = Device(index)
    device.set_current()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    kernel = Program(KERNELS.read_text(), "c++", options).compile("cubin").get_kernel("add")
    config = LaunchConfig(grid=BLOCKS, block=BLOCK)
    count = ctypes.c_int32(ELEMENTS)
    current = torch._C._cuda_getCurrentRawStream
    streams = {current(index): Stream.from_handle(current(index))}

    def add(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        stream = streams[current(index)]
        launch(stream, config, kernel, a.data_ptr(), b.data_ptr(), out.data_ptr(), count)
        return out

    return add


cuda_core = Once(cuda_core_add)


def cuda_core_alone(inputs: Inputs) -> Call:
    """A Python function that launches by cuda.core."""
    add, a, b = cuda_core(), inputs.a, inputs.b
    return lambda: add(a, b)


def register() -> Any:
    """Register the same function by torch.library's define and impl."""
    library = torch.library.Library("call_overhead_library", "FRAGMENT")
    library.define(f"add{SCHEMA}")
    library.impl("add", cuda_core(), "CUDA")
    return library


library = Once(register)  # keeps it: the registration lives as long as the library does


def define_and_impl(inputs: Inputs) -> Call:
    """A call of what was registered."""
    library()
    op, a, b = torch.ops.call_overhead_library.add, inputs.a, inputs.b
    return lambda: op(a, b)


def custom_op(inputs: Inputs) -> Call:
    """The same function, registered by torch.library.custom_op."""
    op = torch.library.custom_op("call_overhead_custom::add", cuda_core(), mutates_args=(), schema=SCHEMA)
    a, b = inputs.a, inputs.b
    return lambda: op(a, b)


def triton(inputs: Inputs) -> Call:
    """triton.jit."""
    from calls.triton_add import add

    a, b = inputs.a, inputs.b

    def call() -> Tensor:
        out = torch.empty_like(a)
        add[(BLOCKS,)](a, b, out, ELEMENTS, BLOCK=BLOCK)
        return out

    return call


def cupy(inputs: Inputs) -> Call:
    """cupy.RawKernel, on torch's stream, which is made CuPy's current one beforehand."""
    import cupy

    kernel = cupy.RawKernel(KERNELS.read_text(), "add")
    cupy.cuda.Stream.from_external(torch.cuda.current_stream()).use()
    a, b, count = inputs.a, inputs.b, cupy.int32(ELEMENTS)

    def call() -> Tensor:
        out = torch.empty_like(a)
        kernel((BLOCKS,), (BLOCK,), (a.data_ptr(), b.data_ptr(), out.data_ptr(), count))
        return out

    return call


def compile_kernel(inputs: Inputs) -> Call:
    """torch.cuda._compile_kernel."""
    kernel = torch.cuda._compile_kernel(KERNELS.read_text(), "add")
    a, b = inputs.a, inputs.b

    def call() -> Tensor:
        out = torch.empty_like(a)
        kernel(grid=(BLOCKS, 1, 1), block=(BLOCK, 1, 1), args=[a, b, out, ELEMENTS])
        return out

    return call


TVM_FFI = """
#include <tvm/ffi/extra/c_env_api.h>

void add_tensors(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out) {
    int n = static_cast<int>(a.size(0));
    auto stream = static_cast<cudaStream_t>(
        TVMFFIEnvGetStream(a.device().device_type, a.device().device_id));
    add<<<(n + 255) / 256, 256, 0, stream>>>(static_cast<const float*>(a.data_ptr()),
                                             static_cast<const float*>(b.data_ptr()),
                                             static_cast<float*>(out.data_ptr()), n);
}
"""


def tvm_ffi(inputs: Inputs) -> Call:
    """tvm_ffi.cpp.load_inline, which allocates nothing: torch does."""
    import tvm_ffi.cpp

    module = tvm_ffi.cpp.load_inline(
        "call_overhead_tvm_ffi", cuda_sources=KERNELS.read_text() + TVM_FFI, functions=["add_tensors"]
    )
    add, a, b = module.add_tensors, inputs.a, inputs.b

    def call() -> Tensor:
        out = torch.empty_like(a)
        add(a, b, out)
        return out

    return call


CONTENDERS = (
    Contender(name="torch.add", make=torch_add),
    Contender(name="cuda.core alone", make=cuda_core_alone),
    Contender(name="torch.library define and impl, around cuda.core", make=define_and_impl),
    Contender(name="torch.library custom_op, around cuda.core", make=custom_op),
    Contender(name="torch.cuda._compile_kernel", make=compile_kernel),
    Contender(name="CuPy RawKernel", make=cupy),
    Contender(name="tvm-ffi", make=tvm_ffi),
    Contender(name="Triton", make=triton),
)

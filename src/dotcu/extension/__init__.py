"""C++ and CUDA with host code: what needs a host compiler, and nvcc.

    request + tools -> units (commands, keys) -> objects, cached by what the compiler read -> library

A file with only kernels needs none of this: `dotcu.load` takes it with NVRTC.
"""

from dotcu.extension.load import NativeLibrary, compile_program, load_native, run_program

__all__ = ["NativeLibrary", "compile_program", "load_native", "run_program"]

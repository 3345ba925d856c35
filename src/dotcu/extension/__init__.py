"""C++ and CUDA with host code: what needs a host compiler, and nvcc.

    request + tools -> units (commands, keys) -> objects, kept by what the compiler read -> library

A file of kernels alone needs none of this: `dotcu.load` takes it with NVRTC.
"""

from dotcu.extension.library import NativeLibrary
from dotcu.extension.load import load_native
from dotcu.extension.program import Program, compile_program, run

__all__ = ["NativeLibrary", "Program", "compile_program", "load_native", "run"]

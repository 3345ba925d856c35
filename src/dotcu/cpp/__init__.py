"""C++ and CUDA with host code: what needs a host compiler, and nvcc.

    request + tools -> units (commands, keys) -> objects, cached by what the compiler read -> library

A file with only kernels needs none of this: `dotcu.load` takes it with NVRTC.
"""

from dotcu.cpp.load import CppLibrary, compile_program, load_cpp, run_program

__all__ = ["CppLibrary", "compile_program", "load_cpp", "run_program"]

"""The add kernel in Triton, in a module of its own since Triton reads a kernel's source from its file."""

import triton
import triton.language as tl


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + t, tl.load(a + t, t < n) + tl.load(b + t, t < n), t < n)

"""From a project to a wheel: for every Python and torch, and of kernels alone for every CPU too.

tracing: samples -> lock (dotcu.lock)  with torch, on the developer's machine
wheel: lock -> plan, compiles, pip     wheel_check installs and calls what came out
hook: lock -> assembling, or C++       without torch, in pip's isolated environment
compile.prebuilt: wheel -> code        on the user's machine, without a compiler
pack: samples -> a pack for caches     `dotcu cache pack`
"""

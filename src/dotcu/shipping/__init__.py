"""From kernels to one wheel for every Python, torch and CPU.

tracing: samples -> dotcu.lock        with torch, on the developer's machine
hook: dotcu.lock -> wheel             without torch, in an isolated environment
compile.prebuilt: wheel -> code        on the user's machine, without a compiler
"""

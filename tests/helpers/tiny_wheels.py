"""Wheels with tiny libraries, good and bad, as the host's compiler and a zip file make them."""

from __future__ import annotations

import base64
import functools
import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

TAG = f"cp310-abi3-manylinux_2_39_{platform.machine()}"
"""A system as new as any that tests run on."""

STABLE = 'extern "C" int torch_parallel_for(long); extern "C" int call() { return torch_parallel_for(1); }\n'

# What torch/extension.h makes of one line, without the header.
UNSTABLE = """
namespace at { struct Tensor { Tensor(const Tensor&); }; }
namespace c10 { void report(const char*); }
at::Tensor twice(const at::Tensor& x) { c10::report("x"); return x; }
"""

# The limited API has PyLong_FromLong, and _PyLong_Sign it has not.
MODULE = """
extern "C" void* PyLong_FromLong(long);
extern "C" int _PyLong_Sign(void*);
extern "C" void* PyInit__cpp() { return _PyLong_Sign(PyLong_FromLong(1)) ? PyLong_FromLong(2) : nullptr; }
"""


def library(path: Path, text: str, *flags: str) -> Path:
    """Compile C++ to a shared library; what it uses need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".cpp")
    source.write_text(text)
    found = shutil.which("c++")
    # Without a target it is for this machine alone, and looks for libraries in each folder of -L.
    zig = [sys.executable, "-m", "ziglang", "c++", "-target", f"{platform.machine()}-linux-gnu"]
    compiler = [found] if found else zig
    words = [*compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(path), *flags]
    subprocess.run(words, check=True, capture_output=True, text=True)
    source.unlink()
    return path


@functools.cache
def needing_torch(folder: Path) -> tuple[str, ...]:
    """Flags by which a library needs `libtorch.so`, of which this makes one with nothing in it."""
    library(folder / "libtorch.so", "", "-Wl,-soname,libtorch.so")
    return f"-L{folder}", "-Wl,--no-as-needed", "-ltorch"


def wheel(
    folder: Path,
    files: Mapping[str, Path | bytes],
    *,
    name: str = "mylib",
    tag: str = TAG,
    requires: tuple[str, ...] = ("torch>=2.10",),
) -> Path:
    """A wheel of these files, by their names in it."""
    info = f"{name}-0.1.dist-info"
    about = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 0.1", "Summary: A trial", "License: none"]
    about += ["Description-Content-Type: text/markdown", *(f"Requires-Dist: {one}" for one in requires)]
    tags = ["Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: false", f"Tag: {tag}"]
    held = {at: data if isinstance(data, bytes) else data.read_bytes() for at, data in files.items()}
    held[f"{info}/METADATA"] = "\n".join([*about, "", f"# {name}", ""]).encode()
    held[f"{info}/WHEEL"] = "\n".join([*tags, ""]).encode()
    rows = [f"{at},sha256={_digest(data)},{len(data)}" for at, data in held.items()]
    held[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-0.1-{tag}.whl"
    with zipfile.ZipFile(made, "w") as opened:
        for at, data in held.items():
            opened.writestr(at, data)
    return made


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")

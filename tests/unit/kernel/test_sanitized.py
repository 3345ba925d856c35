"""The native part under AddressSanitizer and UndefinedBehaviorSanitizer: its own tests, once more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "src/dotcu/native").glob("*.c"))
FLAGS = (
    "-O1", "-g", "-std=c11", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip

PRELOADED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("dotcu._native", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["dotcu._native"] = module
spec.loader.exec_module(module)
import dotcu
from dotcu.kernel import native
assert native.library() is module
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


def _library(compiler: str, name: str) -> Path:
    """Return where a compiler has a library; the name alone where it has none."""
    command = [compiler, f"-print-file-name={name}"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


@pytest.mark.slow
def test_the_native_tests_touch_no_memory_that_is_not_theirs(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc, whose sanitizers these are")
    # Without libstdc++ beside it, AddressSanitizer ends the process where torch throws.
    libraries = [_library(compiler, name) for name in ("libasan.so", "libstdc++.so.6")]
    if not all(path.is_absolute() for path in libraries):
        pytest.skip("this gcc has no AddressSanitizer")
    made = tmp_path / "_native.abi3.so"
    headers = sysconfig.get_path("include")
    subprocess.run([compiler, *FLAGS, f"-I{headers}", *map(str, SOURCES), "-o", str(made)], check=True)
    # Python's own allocator hides what is freed; leaks at exit are Python's and torch's.
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "PYTHONMALLOC": "malloc",
    }
    tests = [ROOT / "tests/unit" / name for name in (
        "kernel/test_native.py", "kernel/test_launch_plans.py", "operator/test_native_calls.py",
    )]  # fmt: skip
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-W", "ignore:Module already imported"]
    command = [sys.executable, "-c", PRELOADED, str(made), *options]
    done = subprocess.run(
        [*command, *map(str, tests)], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

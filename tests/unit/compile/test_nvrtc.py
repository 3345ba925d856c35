"""The compiler's process: it stops at once, it may crash, and it outlives nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu.compile import ObjectCode, nvrtc, toolchain
from dotcu.errors import ToolchainError

Build = Callable[..., ObjectCode]


ENDLESS = """
template <int N> __device__ float f(float x) { return f<N - 1>(x * 1.0001f + N) * f<N - 1>(x - N); }
template <> __device__ float f<0>(float x) { return x; }
__global__ void k(float* x) { x[0] = f<24>(x[0]); }
"""
SMALL = "__global__ void k(float* x) { x[0] = 1; }"


class Stopped(Exception):
    """What the handlers of these tests raise."""


def pid_of_compiler() -> int:
    """Return the process that compiles for this one."""
    (server,) = nvrtc._servers
    return server._process.pid


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone, or a zombie; for ever, if it does not end."""
    with contextlib.suppress(OSError):
        while Path(f"/proc/{pid}/cmdline").read_bytes():
            time.sleep(0.01)


def during_a_compile(act: Callable[[], object]) -> threading.Thread:
    """Do something once the compiler is asked."""

    def wait() -> None:
        while nvrtc._idle or not nvrtc._loaded:
            time.sleep(0.01)
        time.sleep(0.2)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_stops_a_compile_and_the_next_one_works(
    make: Build, cache_dir: Path, number: signal.Signals
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(number, stop)
    try:
        sender = during_a_compile(lambda: os.kill(os.getpid(), number))
        with pytest.raises(Stopped):
            make(ENDLESS)
        sender.join()
    finally:
        signal.signal(number, before)
    assert not list(cache_dir.glob("v1/temporary/*/*"))
    assert "k" in make(SMALL).lowered


def test_the_handler_of_a_signal_may_compile_during_a_compile(make: Build, cache_dir: Path) -> None:
    compiled = []

    def compile_and_stop(*_: object) -> None:
        compiled.append(make(SMALL).lowered["k"])
        raise Stopped

    before = signal.signal(signal.SIGUSR1, compile_and_stop)
    try:
        sender = during_a_compile(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(Stopped):
            make(ENDLESS)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert compiled == ["_Z1kPf"]


def test_a_compiler_that_crashes_is_an_error_and_the_next_compile_works(make: Build) -> None:
    killer = during_a_compile(lambda: os.kill(pid_of_compiler(), signal.SIGSEGV))
    advice = r"crashed: SIGSEGV\.\n.*leave parts of the source out.*\n.*export DOTCU_NVRTC="
    with pytest.raises(ToolchainError, match=advice):
        make(ENDLESS)
    killer.join()
    assert "k" in make(SMALL).lowered


def test_a_compiler_that_was_killed_between_two_compiles_is_started_again(make: Build) -> None:
    make(SMALL)
    (server,), killed = nvrtc._servers, pid_of_compiler()
    os.kill(killed, signal.SIGKILL)
    while server.is_alive():
        time.sleep(0.01)
    assert "k" in make(SMALL, target="sm_90").lowered
    assert pid_of_compiler() != killed


@pytest.mark.parametrize("executable", ["", "/no/python", "/bin/false"])
def test_without_a_python_to_start_the_compiler_is_called_in_this_process(
    python: Callable[[str], list[str]], executable: str
) -> None:
    path = toolchain.nvrtc().path
    text = f"""
sys.executable = {executable!r}
from pathlib import Path
from dotcu.compile import nvrtc
print(nvrtc.architectures(Path({str(path)!r})), nvrtc._servers)
"""
    done = subprocess.run(python(text), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{nvrtc.architectures(path)} []"


OTHER = f"""
import os, threading, time
from dotcu.compile import CompileOptions, Target, build, inline_source, nvrtc
def make(text):
    source, target = inline_source(text), Target.parse("compute_80")
    return build(source, options=CompileOptions(), target=target, names=["k"])
thread = threading.Thread(target=make, args=({ENDLESS!r},), daemon=True)
thread.start()
while thread.is_alive() and (nvrtc._idle or not nvrtc._loaded):
    time.sleep(0.01)
"""


def test_the_compiler_ends_with_the_process_that_asked(
    python: Callable[[str], list[str]], cache_dir: Path
) -> None:
    text = f"{OTHER}\nprint(nvrtc._servers[0]._process.pid, flush=True)\ntime.sleep(600)"
    environment = {**os.environ, "DOTCU_CACHE_DIR": str(cache_dir)}
    with subprocess.Popen(python(text), stdout=subprocess.PIPE, env=environment, text=True) as asking:
        assert asking.stdout is not None
        compiler = int(asking.stdout.readline())
        assert Path(f"/proc/{compiler}").exists()
        asking.kill()
    wait_for_end(compiler)


def test_a_child_that_is_forked_during_a_compile_compiles_by_itself(
    python: Callable[[str], list[str]], cache_dir: Path
) -> None:
    text = f"""{OTHER}
child = os.fork()
if child == 0:
    print(*make({SMALL!r}).lowered, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""
    environment = {**os.environ, "DOTCU_CACHE_DIR": str(cache_dir), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(python(text), capture_output=True, env=environment, text=True, check=True)
    assert done.stdout.split() == ["k", "0"], done.stderr

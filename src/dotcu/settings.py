"""Every environment variable that dotcu reads: name, type, default, meaning.

The environment is read by the first call of `current()`, and again after an `EnvironmentFault`, whose
remedy may be a variable; nothing else in dotcu looks at it. A test, or a program that has its own
configuration, replaces the settings for a while with `override()`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dotcu import errors
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.locks import ForkSafeLock

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}
_MODES = {"DOTCU_JIT": ({"allow", "warn", "error"}, "allow", "error")}
"""For a variable with modes: these, and those that a switch turned on, or off, stands for."""


def _variable(name: str, default: object, meaning: str, *, read_per_call: bool = False) -> Any:
    return field(
        default=default, metadata={"variable": name, "meaning": meaning, "read_per_call": read_per_call}
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings in the environment. Each field's metadata names its variable and meaning."""

    cache_dir: Path | None = _variable(
        "DOTCU_CACHE_DIR", None, "the folder of compiled code; default: the user's cache directory"
    )
    cache_bytes: int = _variable(
        "DOTCU_CACHE_BYTES", 1 << 30, "size that the cache is trimmed to, oldest entries out first"
    )
    cache_dirs: tuple[Path, ...] = _variable(
        "DOTCU_CACHE_DIRS", (), "folders to read compiled code from, separated by `:`; never written"
    )
    cache_remote: str | None = _variable(
        "DOTCU_CACHE_REMOTE", None, "a store to read compiled code from: s3://, gs://, https://, file://, ..."
    )
    cache_remote_write: bool = _variable(
        "DOTCU_CACHE_REMOTE_WRITE", False, "1: put what is compiled here into that store"
    )
    cache_timeout_s: int = _variable(
        "DOTCU_CACHE_TIMEOUT_S", 10, "seconds after which a store that does not answer is left alone"
    )
    cache_trust: str | None = _variable(
        "DOTCU_CACHE_TRUST", None, "a store whose code is run also where no dotcu.lock has its digest"
    )
    jit: str = _variable(
        "DOTCU_JIT",
        "allow",
        "allow, warn at each compile, or error where code is missing; 1 and 0: the first, the last",
    )
    simulate: bool = _variable(
        "DOTCU_SIMULATE",
        False,
        "1: operators on CPU tensors run their body in the simulator",
        read_per_call=True,
    )
    native: bool = _variable(
        "DOTCU_NATIVE",
        True,
        "0: launches and calls go through Python, not through the native part",
        read_per_call=True,
    )
    launch_blocking: bool = _variable(
        "CUDA_LAUNCH_BLOCKING",
        False,
        "1: wait for every launch, so that a kernel's fault names the kernel",
        read_per_call=True,
    )
    debug: bool = _variable(
        "DOTCU_DEBUG", False, "1: show whole tracebacks, also in the command line", read_per_call=True
    )
    nvrtc: Path | None = _variable(
        "DOTCU_NVRTC", None, "the libnvrtc to use, instead of the one that dotcu would choose"
    )
    cuda_home: Path | None = _variable(
        "CUDA_HOME", None, "an installed CUDA toolkit, for tools that pip did not install"
    )
    cxx: str | None = _variable("CXX", None, "the host compiler of `load_cpp`, instead of the first on PATH")
    arch_list: str | None = _variable(
        "TORCH_CUDA_ARCH_LIST", None, "the architectures that `dotcu build` compiles for: 8.0;9.0+PTX"
    )
    use_cuda: bool = _variable("USE_CUDA", True, "0: a wheel of C++ is built without its `.cu` files")
    cpp_library: Path | None = _variable(
        "DOTCU_CPP_LIBRARY", None, "set by `dotcu build`: the library that a wheel gets"
    )
    operator_library: Path | None = _variable(
        "DOTCU_OPERATOR_LIBRARY", None, "set by `dotcu build --cpp`: the operators in C++ that it adds"
    )
    channel: str | None = _variable(
        "DOTCU_CHANNEL", None, "set by commands that run your code: where the process that does says its end"
    )
    check_apart: bool = _variable(
        "DOTCU_CHECK_APART", False, "set by `dotcu check`, after a crash: each trial runs in a worker"
    )
    nvtx_injection: Path | None = _variable(
        "NVTX_INJECTION64_PATH", None, "set by a profiler that sees NVTX ranges"
    )
    cuda_injection: Path | None = _variable(
        "CUDA_INJECTION64_PATH", None, "set by a profiler that sees CUDA calls"
    )

    def lasting(self) -> Settings:
        """Return these settings with defaults for those that each call reads anew."""
        anew: dict[str, Any] = {
            f.name: f.default for f in dataclasses.fields(self) if f.metadata["read_per_call"]
        }
        return dataclasses.replace(self, **anew)


def read(environment: Mapping[str, str]) -> Settings:
    """Parse settings from an environment.

    Raises:
        UsageError: A variable's value is not of its type; names the variable and the values it takes.
    """
    values = {
        f.name: _parse(f.metadata["variable"], str(f.type), environment[f.metadata["variable"]])
        for f in dataclasses.fields(Settings)
        if environment.get(f.metadata["variable"], "") != ""
    }
    return Settings(**values)


def _parse(variable: str, kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise UsageError(
            f"{variable}={text!r} is not a switch: it takes 1 or 0.\n"
            f"Type: export {variable}=1, or for the default: unset {variable}"
        )
    if variable in _MODES:
        modes, on, off = _MODES[variable]
        if text.lower() in modes:
            return text.lower()
        if text.lower() in _TRUE | _FALSE:
            return on if text.lower() in _TRUE else off
        raise UsageError(
            f"{variable}={text!r} is none of its modes: {', '.join(sorted(modes))}.\n"
            f"Type: export {variable}={on}, or for the default: unset {variable}"
        )
    if kind == "int":
        if text.isdecimal():
            return int(text)
        what, of, example = (
            ("number of bytes", "1 GiB", 1 << 30) if "BYTES" in variable else ("number", "ten", 10)
        )
        raise UsageError(
            f"{variable}={text!r} is not a whole {what}, in digits.\n"
            f"For {of}, type: export {variable}={example}"
        )
    if kind.startswith("tuple"):
        return tuple(_path(variable, part) for part in text.split(os.pathsep) if part)
    return text if kind.startswith("str") else _path(variable, text)


def _path(variable: str, text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # there is no such user, or no home of this one
        raise UsageError(
            f"{variable}={text!r} names a home folder that is not known.\n"
            f"Type: export {variable}=/A/PATH/IN/FULL, or for the default: unset {variable}"
        ) from error


def with_variables(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with some variables added, for a program that is started."""
    return {**os.environ, **more}


def keep_from_others(variable: str) -> None:
    """Remove a variable from this process's environment: it is not for programs that this one starts."""
    os.environ.pop(variable, None)


# Source: GCC manual, "Environment Variables Affecting GCC"; nvcc manual, "NVCC Environment Variables".
READ_BY_COMPILERS = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN",
)  # fmt: skip


def of_compilers() -> dict[str, str]:
    """Return the variables that host compilers and nvcc read by themselves, where they are set."""
    return {name: os.environ[name] for name in READ_BY_COMPILERS if name in os.environ}


_base: Settings | None = None
_faults = 0
_current: Settings | None = None
_overrides: list[dict[str, Any]] = []
_watchers: list[Callable[[Settings, Settings], None]] = []
_lock = ForkSafeLock()


def watch(watcher: Callable[[Settings, Settings], None]) -> None:
    """Call a function at each change, with the settings before and after it."""
    _watchers.append(watcher)


def current() -> Settings:
    """Return the settings in force, read from the environment where that is due."""
    if _current is None or _faults != EnvironmentFault.count:
        _read()
    assert _current is not None
    return _current


def _read() -> None:
    global _base, _current, _faults
    with _lock:
        faults, base = EnvironmentFault.count, read(os.environ)
        before, _base, _faults = _base, base, faults
        if _current is None:
            _current = base
        elif base != before:
            _update()


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Replace some settings, for every thread, until the block ends.

    Blocks of several threads may overlap: the settings of those that have not ended are in force, the last
    begun before the others.
    """
    dataclasses.replace(current(), **changes)  # refuses a setting that does not exist
    with _lock:
        _overrides.append(changes)
        changed = _update()
    try:
        yield changed
    finally:
        with _lock:
            _overrides[:] = [each for each in _overrides if each is not changes]
            _update()


def _update() -> Settings:
    """Put the overrides in force, and call the watchers."""
    global _current
    before = current()
    assert _base is not None
    changes = {name: value for each in _overrides for name, value in each.items()}
    _current = dataclasses.replace(_base, **changes) if changes else _base
    for watcher in _watchers:
        watcher(before, _current)
    return _current


errors.tell_of_debugging(lambda: current().debug)

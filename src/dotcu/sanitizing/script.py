"""`run_script()`: a script or a module, as Python runs it, with its kernels in the simulator."""

from __future__ import annotations

import linecache
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType

from dotcu import tracebacks
from dotcu.errors import EXIT_FAILED, DotcuError, UsageError
from dotcu.files import read_file
from dotcu.kernel.simulation import DEFAULT_ARCH
from dotcu.sanitizing.report import SanitizeReport
from dotcu.sanitizing.session import collecting
from dotcu.simulator import CHECKS

INTERRUPTED = 130
"""The status of a script that an interrupt has ended: 128 + SIGINT."""


def run_script(
    target: str,
    arguments: Sequence[str] = (),
    *,
    is_module: bool = False,
    arch: str = DEFAULT_ARCH,
    seed: int | None = None,
    checks: Collection[str] = CHECKS,
    cuda_as_cpu: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> SanitizeReport:
    """Run a script in this process as `python script.py` does, and report on the kernels that it launches.

    Args:
        target: The path of the script, of a folder or of an archive with a `__main__.py`; or a module.
        arguments: The rest of its `sys.argv`.
        is_module: Run a module, as `python -m` does.
        arch: As in `dotcu.simulate`, as are the next two.
        seed: The order of warps and atomics.
        checks: Those that are on.
        cuda_as_cpu: Let it create its tensors on "cuda": they are on the CPU.
        progress: Told of each launch: its kernel, how many blocks have ended, and how many it has.

    Raises:
        UsageError: There is no such script or module, or an option has a value that it does not take.
        EnvironmentFault: Triton is installed, and too old.

    Note:
        It prints the traceback of an error that ends the script, on standard error, as Python does.
    """
    if not is_module and not Path(target).exists():
        raise UsageError(
            f"There is no script {target}.\nRequired: a Python file, or -m and a module.\n"
            "Type: dotcu sanitize script.py, or dotcu sanitize -m pytest tests/"
        )
    start = time.perf_counter()
    with _as_main(target, arguments, is_module), collecting(arch, seed, checks, cuda_as_cpu) as run:
        if progress is not None:
            run.progress = progress
        if is_module:
            _require(target)
        status, error = _run(target, is_module)
    return SanitizeReport(
        target=target,
        arch=run.arch,
        findings=tuple(replace(each, file=_from_here(each.file)) for each in run.findings),
        launches=dict(run.launches),
        status=status,
        error=error,
        seconds=time.perf_counter() - start,
    )


def _from_here(file: str) -> str:
    return tracebacks.file_line(file, None) if Path(file).is_absolute() else file


@contextmanager
def _as_main(target: str, arguments: Sequence[str], is_module: bool) -> Iterator[None]:
    """Let `sys` be as Python has it when it begins to run a script."""
    argv, path, main = sys.argv, sys.path, sys.modules["__main__"]
    folder = Path.cwd() if is_module else Path(target).resolve().parent
    sys.argv, sys.path = [target, *arguments], [str(folder), *path]
    try:
        yield
    finally:
        sys.argv, sys.path, sys.modules["__main__"] = argv, path, main


def _run(target: str, is_module: bool) -> tuple[int, str]:
    """Run it to its end; return its exit status, and the error that ended it."""
    try:
        if is_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif Path(target).is_file() and Path(target).suffix not in (".zip", ".pyz"):
            _execute(Path(target).absolute())
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, ""
        return EXIT_FAILED, str(end.code)
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except Exception as error:
        explained = _explained(error)
        if not explained:
            error.__traceback__ = _own(error.__traceback__)
            sys.excepthook(type(error), error, error.__traceback__)
        return EXIT_FAILED, explained
    return 0, ""


def _require(module: str) -> None:
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError as error:
        is_there = not f"{module}.".startswith(f"{error.name}.")
    except Exception:  # of the package that it is in: running the module raises it again
        return
    if not is_there:
        raise UsageError(
            f"There is no module {module}.\nRequired: one that is installed, or in the working directory.\n"
            "For a script, leave out -m: dotcu sanitize script.py"
        )


def _execute(path: Path) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(compile(read_file(path), str(path), "exec", dont_inherit=True), main.__dict__)


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame on that is the script's."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (
        __file__,
        runpy.__file__,
        "<frozen runpy>",
    ):
        trace = trace.tb_next
    return trace


def _explained(error: Exception) -> str:
    """Return what to do about an error of dotcu or Triton, behind the user's line; empty of another."""
    lines = [
        tracebacks.file_line(file, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if tracebacks.is_user_file(file := frame.f_code.co_filename)
    ]
    place = f"{lines[-1]}: " if lines else ""
    if isinstance(error, DotcuError):
        return f"{place}{error}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "triton":
        return (
            f"{place}Triton is imported, and not installed.\n"
            "Required: Triton 3.7 or later; it needs no GPU, and a torch for the CPU will do.\n"
            "Type: python -m pip install triton"
        )
    if type(error).__module__.startswith("triton."):
        kernel = _line_of_kernel(error)
        return (
            f"{kernel or place}Triton refuses the kernel: {error}\n"
            + (f"It is launched at {place.removesuffix(': ')}.\n" if kernel and place else "")
            + "Required: a kernel that Triton compiles for the architecture that is simulated.\n"
            "Correct the line; or, where Triton needs another GPU for it, add --arch, as in --arch sm_90"
        )
    return ""


def _line_of_kernel(error: Exception) -> str:
    """Return the file and line that Triton refuses: its errors have the kernel's text, and a line in that."""
    text, line = getattr(error, "src", None) or "", getattr(getattr(error, "node", None), "lineno", 0)
    for module in list(sys.modules.values()) if text and line else ():
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py") and tracebacks.is_user_file(file):
            before, found, _ = "".join(linecache.getlines(file)).partition(text)
            if found:
                return f"{tracebacks.file_line(file, before.count(chr(10)) + line)}: "
    return ""

"""Errors of a host compiler, nvcc or the linker, with the user's own line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from dotcu.compile import diagnostics
from dotcu.compile.cache import Store
from dotcu.compile.diagnostics import Diagnostic, count
from dotcu.errors import CompileError
from dotcu.process import Finished

LOGS = 16
"""The number of logs of failed compiles that stay, the newest."""

_HOST = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_LINKER = re.compile(r"(?P<text>(?:undefined reference to|multiple definition of|cannot find) .*)$")
_NVCC = re.compile(r"^nvcc fatal +: (?P<text>.*)$")
_TOOL = re.compile(r"^\S+: (?:fatal )?error: (?P<text>.*)$")

_QUALIFIER = re.compile(r"__attribute__\(\((global|device|host|shared|constant|managed)\)\)")
"""What `__global__` and its like are when the compiler shows a line. Source: crt/host_defines.h."""

# A pattern in the output, and what to do about it.
_REMEDIES = (
    (r"Python\.h: No such file", "Python's headers are missing. Install them: apt install python3-dev"),
    (r"unsupported GNU version", "This nvcc does not take this g++. Choose an older one: export CXX=g++-12"),
    (
        r"Unsupported gpu architecture",
        "This nvcc makes no code for it. Name another: arch='sm_80', or take a newer nvcc.",
    ),
    (
        r"No space left on device",
        "The disk is full. Make room, or choose another: export DOTCU_CACHE_DIR=DIRECTORY",
    ),
    (
        r"Killed signal|out of memory",
        "Memory ran out. A file on the stable ABI takes a tenth: docs/howto/native.md",
    ),
)


def explain(step: str, done: Finished, store: Store, key: str) -> CompileError:
    """Return the error for a command that failed: its first complaint, and the file with the whole output.

    Args:
        step: The step that failed: a source's name, or "linking scale".
    """
    log = f"{done.line}\n{done.stdout}{done.stderr}"
    complaints = parse(f"{done.stdout}{done.stderr}")
    errors = [one for one in complaints if "error" in one.severity]
    first = str(errors[0]) if errors else (done.stderr or done.stdout).strip()[-2000:]
    head = f"{step}: {count(len(errors))}" + (", the first of them" if len(errors) > 1 else "")
    remedies = [remedy for pattern, remedy in _REMEDIES if re.search(pattern, log)]
    lines = [f"{head}:" if errors else f"{step}: status {done.status}:", first, *remedies[:1]]
    kept = keep_log(store, key, log)
    return CompileError(
        "\n".join([*lines, f"The whole output: {kept}" if kept else f"The command: {done.line}"]),
        diagnostics=complaints, log=log, command=done.line,
    )  # fmt: skip


def keep_log(store: Store, key: str, log: str) -> Path | None:
    """Write a log where it stays until others have come; None if the cache cannot be written.

    Args:
        key: The cache key of the step that failed.
    """
    folder = store.root / "logs"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{key[:16]}.log"
        file.write_text(log, errors="surrogateescape")
        for old in sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime)[LOGS:]:
            old.unlink()
        return file
    return None


def parse(log: str) -> tuple[Diagnostic, ...]:
    """Read the output of GCC, Clang, nvcc and the linker, in its order."""
    host = _of_host(log.splitlines())
    device = diagnostics.parse_log(as_written(log), str, _lines)
    if not device:
        return tuple(host or _of_tools(log.splitlines()))
    whole = (replace(one, severity="error") if "error" in one.severity else one for one in device)
    return (*whole, *host)


def as_written(log: str) -> str:
    """nvcc's output with the qualifiers in lines of source as the user wrote them, and carets moved along."""
    lines = log.splitlines()
    for index, (line, below) in enumerate(pairwise(lines)):
        if below.strip() != "^":
            continue
        caret = below.index("^")
        before, after = (_QUALIFIER.sub(r"__\1__", part) for part in (line[:caret], line[caret:]))
        lines[index : index + 2] = [before + after, " " * len(before) + "^"]
    return "\n".join(lines)


def _of_host(lines: Sequence[str]) -> list[Diagnostic]:
    complaints = []
    for line in lines:
        match = _HOST.match(line)
        if match is None or match["severity"] == "note":
            continue
        own, number = _lines(match["file"]), int(match["line"])
        complaints.append(
            Diagnostic(
                severity="warning" if match["severity"] == "warning" else "error",
                file=match["file"],
                line=number,
                column=int(match["column"] or 0),
                message=match["text"],
                source=own[number - 1].rstrip() if 0 < number <= len(own) else "",
            )
        )
    return complaints


def _of_tools(lines: Sequence[str]) -> list[Diagnostic]:
    """Return what the linker, nvcc itself, or a compiler's driver says, of no line of a source."""
    matches = [next(filter(None, (p.search(line) for p in (_LINKER, _NVCC, _TOOL))), None) for line in lines]
    return [
        Diagnostic(severity="error", file="", line=0, column=0, message=match["text"])
        for match in matches
        if match is not None and "ld returned" not in match["text"]
    ]


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return []

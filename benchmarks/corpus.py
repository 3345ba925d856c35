"""Load and compile every `.cu` with kernels of some checkouts, unchanged, and count what stops the rest.

    python benchmarks/corpus.py CHECKOUT... [--save FILE] [--only TEXT] [--jobs N]

A file passes if `dotcu.load` takes it and NVRTC compiles it for sm_80, or for sm_90a if it needs that: its
plain kernels, and an instantiation of each of its templates. The arguments are those of a launch or an
explicit instantiation in the file, with guesses for those that the launcher's own templates give: float for a
type, 32, 64 or 128 for a number. A template for which the file has no arguments, and no guess compiles,
counts as not tried. A file gets include paths and nothing else: its own folder, those above it in its
checkout, those named `include`, `inc` or `Common`, and the nearest that has a header which it names and which
is neither in these nor the toolkit's. The checkouts
are not part of this repository: clone them, submodules included. FILE is written after each checkout, and
keeps what it has of others.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import dotcu
from dotcu.compile.include_graph import system_headers
from dotcu.compile.toolchain import nvrtc
from dotcu.errors import DotcuError
from dotcu.kernel.declarations import split_arguments

LIMIT_S = 600  # of processor time, which does not depend on what else the machine does
LOAD_GOAL_S = 0.3
MAX_TEMPLATES = 12  # of a file; the others are like these
FIRST = "__global__ void first() {}\nint main() { first<<<1, 1>>>(); }\n"
INCLUDE_FOLDERS = ("include", "inc", "Common", "common")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one file.

    Attributes:
        repository: The name of its checkout.
        file: Its path there.
        stage: `passed`, or what failed: `load`, `compile`, `instantiate`, `time`, `crash`.
        error: The first line of the error.
        kernels: The number of kernels, templates included; 0 if it did not load.
        instantiated: The number of templates of which an instantiation compiles.
        untried: The number of templates whose arguments are not known.
        load_s: Processor time of loading, in seconds, in a process that has loaded another file, and with
            nothing of this one in the cache if it was not tried before.
    """

    repository: str
    file: str
    stage: str
    error: str = ""
    kernels: int = 0
    instantiated: int = 0
    untried: int = 0
    load_s: float = 0.0


@functools.cache
def headers_of(root: Path) -> Mapping[str, Sequence[Path]]:
    """Return the files of a checkout that may be headers, by name."""
    found: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix in (".h", ".hpp", ".cuh", ".inl", ".hxx", ".cu", ".inc") and path.is_file():
            found.setdefault(path.name, []).append(path)
    return found


@functools.cache
def include_folders(root: Path) -> Sequence[Path]:
    """Return the folders of a checkout that are named as folders of headers are."""
    return [folder for name in INCLUDE_FOLDERS for folder in sorted(root.rglob(name)) if folder.is_dir()]


def include_paths(file: Path, root: Path) -> list[Path]:
    """Return the folders in which a file's build would look for headers."""
    above = [folder for folder in file.parents if folder == root or root in folder.parents]
    folders = list(dict.fromkeys([*above, *include_folders(root)]))
    seen, waiting = {file}, [file]
    while waiting:
        path = waiting.pop()
        text = path.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', text, re.MULTILINE):
            header = next((f / name for f in (path.parent, *folders) if (f / name).is_file()), None)
            if header is None and system_headers(nvrtc().include).find(name) is None:
                ending = [each for each in headers_of(root).get(Path(name).name, ())
                          if each.as_posix().endswith(f"/{name}")]  # fmt: skip
                header = max(ending, key=lambda each: len(os.path.commonpath([each, path])), default=None)
                if header is not None:
                    folders.append(header.parents[len(Path(name).parts) - 1])
            if header is not None and header.resolve() not in seen:
                seen.add(header.resolve())
                waiting.append(header.resolve())
    return list(dict.fromkeys(folders))


def attempt(file: Path, root: Path) -> Outcome:
    """Load and compile one file."""
    place: dict[str, Any] = {"repository": root.name, "file": str(file.relative_to(root))}
    include = include_paths(file, root)
    start = time.process_time()
    try:
        module = dotcu.load(file, include=include)
    except DotcuError as error:
        return Outcome(**place, stage="load", error=_first_line(error, root))
    load_s, kernels = time.process_time() - start, len(module.kernels)
    loaded: dict[str, Any] = {**place, "kernels": kernels, "load_s": load_s}
    for arch in ("sm_80", "sm_90a"):
        try:
            module.compile(arch)
        except DotcuError as error:
            failure = Outcome(**loaded, stage="compile", error=_first_line(error, root))
        else:
            outcome = instantiated(module, file.read_text(encoding="utf-8", errors="replace"), arch, loaded)
            if outcome.stage == "passed":
                return outcome
            failure = outcome
    return failure


def instantiated(module: dotcu.Module, text: str, arch: str, loaded: Mapping[str, Any]) -> Outcome:
    """Compile an instantiation of each template of a file, and return what became of the file."""
    templates = [kernel for kernel in module.kernels.values() if kernel.is_template]
    compiled = untried = 0
    for kernel in templates[:MAX_TEMPLATES]:
        rows, is_named = rows_of(kernel.declaration.template_parameters, kernel.name, text)
        failure = ""
        for row in rows:
            try:
                kernel[row].compile(arch)
            except DotcuError as error:
                failure = failure or str(error)
            else:
                compiled, failure = compiled + 1, ""
                break
        untried += bool(failure) and not is_named
        if failure and is_named:
            first = _first_line(DotcuError(failure), Path())
            error = f"{kernel.name}[{', '.join(map(str, rows[0]))}]: {first}"
            return Outcome(**loaded, stage="instantiate", error=error, instantiated=compiled, untried=untried)
    return Outcome(**loaded, stage="passed", instantiated=compiled, untried=untried)


KNOWN = re.compile(
    r"(?:true|false|-?\d+[uUlL]*|(?:(?:unsigned|signed|const|c10::|at::)\s*)*(?:bool|char|short|int|long|float"
    r"|double|half2?|__half2?|__nv_bfloat16|nv_bfloat16|Half|BFloat16|u?int\d+_t|float[24]))"
)
"""Matches template arguments that mean the same everywhere."""


def rows_of(parameters: Sequence[str], name: str, text: str) -> tuple[list[tuple[Any, ...]], bool]:
    """Return template arguments to try, and whether a launch or an instantiation names them all."""
    plain = re.escape(re.sub(r"^\(.*\)", "", name).rsplit("::")[-1])
    # a launch: `k<...><<<`; an instantiation: `template __global__ void k<...>(`
    named = re.findall(
        rf"\b{plain}\s*<([^;{{}}()]*?)>\s*<<<|\btemplate\s+__global__[^;{{}}]*?\b{plain}\s*<([^;{{}}()]*)>\s*\(",
        text,
    )
    given = [split_arguments(first or second) for first, second in named]
    rows: list[tuple[Any, ...]] = []
    for known in [row for row in given if all(map(KNOWN.fullmatch, row))][:3]:
        rows.append(known)
    is_named = bool(rows)
    for number in (32, 64, 128):
        for row in [*given[:2], ()]:
            guessed = [
                value if value and KNOWN.fullmatch(value) else guess(parameter, number)
                for parameter, value in itertools.zip_longest(parameters, row, fillvalue="")
                if value or ("=" not in parameter and "..." not in parameter)
            ]
            rows.append(tuple(guessed))
    return list(dict.fromkeys(rows)), is_named


def guess(parameter: str, number: int) -> Any:
    """Return an argument that a template parameter might take."""
    if re.match(r"(typename|class)\b", parameter):
        return torch.float32
    return True if parameter.startswith("bool") else number


def _first_line(error: DotcuError, root: Path) -> str:
    lines = [line.strip() for line in str(error).replace(f"{root.parent}/", "").splitlines() if line.strip()]
    telling = next((line for line in lines if ": error:" in line), lines[0])
    if telling.endswith(":") and len(lines) > 1:
        telling = lines[1]
    return f"{type(error).__name__}: {telling}"


def _in_child(file: Path, root: Path, into: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 5))
    into.send(attempt(file, root))


def attempt_alone(file: Path, root: Path) -> Outcome:
    """Do so in a process of its own, which a crash or an endless loop ends alone."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(file, root, sender))
    child.start()
    sender.close()
    try:
        return receiver.recv()  # type: ignore[no-any-return]
    except EOFError:
        child.join()
        outcome = "crash", f"the process ended with status {child.exitcode}"
        if child.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            outcome = "time", f"no result within {LIMIT_S} s of processor time"
    finally:
        child.kill()
        child.join()
    return Outcome(repository=root.name, file=str(file.relative_to(root)), stage=outcome[0], error=outcome[1])


def files_with_kernels(root: Path) -> Iterator[Path]:
    """Yield the `.cu` files of a checkout that have a kernel."""
    for file in sorted(root.rglob("*.cu")):
        if "__global__" in file.read_text(encoding="utf-8", errors="replace"):
            yield file


def revision(root: Path) -> str:
    """Return the commit of a checkout, or nothing if it is none."""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def cause(outcome: Outcome) -> str:
    """Return an error without its names, numbers and paths: equal errors of different files become one."""
    text = re.sub(r"^(\w+): \S+?:(\d+:)*\s*", r"\1: ", outcome.error)
    text = re.sub(r"(['\"`]).*?\1|/\S+", "...", text)
    return re.sub(r"\d+", "N", text)[:110]


def table(outcomes: Sequence[Outcome]) -> str:
    """Return what passed by repository, and what failed by cause, as Markdown."""
    lines = [
        "| repository | files | compile as they are | | templates instantiated | not tried |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups = {
        name: [o for o in outcomes if o.repository == name]
        for name in sorted({o.repository for o in outcomes})
    }
    for name, group in [*groups.items(), ("all", list(outcomes))]:
        passed = sum(outcome.stage == "passed" for outcome in group)
        tried = sum(outcome.instantiated for outcome in group), sum(outcome.untried for outcome in group)
        lines.append(
            f"| {name} | {len(group)} | {passed} | {passed / len(group):.0%} | {tried[0]} | {tried[1]} |"
        )
    seconds = [outcome.load_s for outcome in outcomes if outcome.kernels]
    if seconds:
        slow = sum(each > LOAD_GOAL_S for each in seconds)
        median = f"Loading takes {statistics.median(seconds):.2f} s of processor time in the median file"
        lines += ["", f"{median}, and more than {LOAD_GOAL_S} s in {slow} of {len(seconds)}."]
    causes = Counter(cause(outcome) for outcome in outcomes if outcome.stage != "passed")
    lines += ["", "| cause | files |", "| --- | ---: |"]
    return "\n".join(
        [*lines, *(f"| {text.replace('|', '/')} | {count} |" for text, count in causes.most_common(40))]
    )


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--save", type=Path, help="write every outcome as JSON")
    parser.add_argument("--only", default="", help="files whose path has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="files to try at a time")
    options = parser.parse_args()
    kept = (
        json.loads(options.save.read_text(encoding="utf-8")) if options.save and options.save.exists() else {}
    )
    revisions, outcomes = (
        dict(kept.get("revisions", {})),
        [Outcome(**each) for each in kept.get("outcomes", [])],
    )
    dotcu.load_inline(FIRST)  # imports what loading needs, before the children start
    for root in (checkout.resolve() for checkout in options.checkouts):
        files = [file for file in files_with_kernels(root) if options.only in str(file)]
        with ThreadPoolExecutor(options.jobs) as pool:
            tried = list(pool.map(functools.partial(attempt_alone, root=root), files))
        again = {(outcome.repository, outcome.file) for outcome in tried}
        outcomes = [each for each in outcomes if (each.repository, each.file) not in again] + tried
        outcomes.sort(key=lambda each: (each.repository.lower(), each.file))
        revisions[root.name] = revision(root)
        if options.save:
            document = {
                "version": 2,
                "revisions": dict(sorted(revisions.items(), key=lambda each: each[0].lower())),
                "outcomes": [asdict(outcome) for outcome in outcomes],
            }
            options.save.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not outcomes:
        print("no .cu file with kernels was found", file=sys.stderr)
        return 2
    print(table(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())

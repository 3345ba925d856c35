"""Run public Triton kernels in the simulator, unchanged, and compare them with plain torch.

    python -m benchmarks.triton_corpora --sources DIR [--case TEXT] [--limit SECONDS] [--save FILE] [NAME ...]

DIR has a checkout of each library, by the name of its repository; none is part of this one. NAME is a module
beside this one, as in `liger`; without it, all run whose checkouts are there. Each case runs in a process of
its own. A kernel is a function with `@triton.jit` that was launched; it runs if a case that launches it
returns, and is right if the results of all such cases are. FILE keeps what it has of others.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import triton_corpora
from benchmarks.triton_corpora.case import Outcome, attempt

RESULTS = Path(__file__).parents[1] / "results" / "triton_corpora.json"
LIMIT_S = 300


def modules() -> list[str]:
    """Return the names of the modules that have a library's cases."""
    return [found.name for found in pkgutil.iter_modules(triton_corpora.__path__)
            if found.name not in ("__main__", "case")]  # fmt: skip


def source_of(name: str) -> Any:
    """Return the module of a library: its SOURCE, the FOLDER to import from in its checkout, its CASES."""
    return import_module(f"benchmarks.triton_corpora.{name}")


def checkout(sources: Path, name: str) -> Path:
    """Return the folder of a library's checkout."""
    return sources / str(source_of(name).SOURCE).partition("/")[2]


def run_here(sources: Path, name: str, case_name: str, into: Path) -> None:
    """Run a case in this process, and write its outcome."""
    source = source_of(name)
    sys.path.insert(0, str(checkout(sources, name) / source.FOLDER))
    case = next(case for case in source.CASES if case.name == case_name)
    into.write_text(json.dumps(asdict(attempt(case, lambda text: print(text, flush=True)))), encoding="utf-8")


def run_apart(sources: Path, name: str, case_name: str, limit_s: float) -> Outcome:
    """Run a case in a process of its own, which a crash or an endless loop ends alone."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "benchmarks.triton_corpora", "--sources", str(sources)]
        command += ["--case", case_name, "--into", str(into), name]
        log = (Path(folder) / "log").open("w+", encoding="utf-8")
        with log:
            try:
                status = subprocess.run(
                    command, stdout=log, stderr=log, timeout=limit_s, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return Outcome(case=case_name, error=f"no result within {limit_s:g} s", seconds=limit_s)
            log.seek(0)
            printed = log.read()
        if not into.exists():
            last = (printed.strip().splitlines() or [""])[-1]
            return Outcome(case=case_name, error=f"the process ended with status {status}: {last}")
        outcome = Outcome(**json.loads(into.read_text(encoding="utf-8")))
        if outcome.findings:
            print(printed)
        return outcome


def summary(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the kernels of a library: all that were launched, those that ran, those that are right."""
    rows = list(outcomes)
    launched = {kernel for row in rows for kernel in row["kernels"]}
    ran = {kernel for row in rows if row["ran"] for kernel in row["kernels"]}
    wrong = {kernel for row in rows if row["ran"] and not row["right"] for kernel in row["kernels"]}
    return {
        "cases": len(rows),
        "cases_right": sum(row["right"] for row in rows),
        "kernels": len(launched),
        "ran": len(ran),
        "right": len(ran - wrong),
        "findings": len({finding for row in rows for finding in row["findings"]}),
        "faults_of_the_library": len({fault for row in rows for fault in row["faults"]}),
    }


def commit_of(folder: Path) -> str:
    """Return the commit of a checkout, or nothing if it is none."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def table(sources: Mapping[str, Any]) -> str:
    """Return the summaries as Markdown."""
    lines = ["| source | cases | right | kernels | ran | right | findings | the library's faults |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    rows = {name: source["summary"] for name, source in sources.items()}
    rows["all"] = {key: sum(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
    return "\n".join(
        [*lines, *(f"| {name} | {' | '.join(map(str, row.values()))} |" for name, row in rows.items())]
    )


def measure(sources: Path, name: str, only: str, limit_s: float) -> list[dict[str, Any]]:
    """Run the cases of a library and print each outcome."""
    rows = []
    for case in source_of(name).CASES:
        if only in case.name:
            outcome = run_apart(sources, name, case.name, limit_s)
            state = "right" if outcome.right else "ran  " if outcome.ran else "ERROR"
            found = ", ".join([*outcome.findings, *(f"known: {fault}" for fault in outcome.faults)])
            told = "; ".join(text for text in (outcome.error, found) if text)
            print(
                f"{state} {outcome.seconds:6.1f} s  {name} {case.name} ({len(outcome.kernels)})  {told}",
                flush=True,
            )
            rows.append(asdict(outcome))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, required=True, help="the folder that has the checkouts")
    parser.add_argument("--case", default="", help="cases whose name has this in it")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for a case")
    parser.add_argument("--save", type=Path, default=RESULTS, help="where the outcomes go, as JSON")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # what run_apart passes
    parser.add_argument("source", nargs="*", choices=[[], *modules()], help="a module beside this one")
    options = parser.parse_args(arguments)
    if options.into:
        run_here(options.sources, options.source[0], options.case, options.into)
        return 0
    missing = [name for name in options.source or modules() if not checkout(options.sources, name).is_dir()]
    for name in missing:
        print(f"no checkout of {source_of(name).SOURCE}. Type: git clone https://github.com/"
              f"{source_of(name).SOURCE} {checkout(options.sources, name)}", file=sys.stderr)  # fmt: skip
    names = [name for name in options.source or modules() if name not in missing]
    if not names or (missing and options.source):
        return 2
    import triton

    saved = json.loads(options.save.read_text(encoding="utf-8")) if options.save.exists() else {"sources": {}}
    for name in names:
        rows = measure(options.sources, name, options.case, options.limit)
        again = {row["case"] for row in rows}
        known = {case.name for case in source_of(name).CASES}
        earlier = saved["sources"].get(name, {}).get("cases", [])
        rows += [row for row in earlier if row["case"] not in again and row["case"] in known]
        saved["sources"][name] = {
            "source": source_of(name).SOURCE,
            "commit": commit_of(checkout(options.sources, name)),
            "triton": triton.__version__,
            "summary": summary(rows),
            "cases": sorted(rows, key=lambda row: row["case"]),
        }
        saved["sources"] = dict(sorted(saved["sources"].items()))
        options.save.write_text(json.dumps({"version": 1, **saved}, indent=1) + "\n", encoding="utf-8")
    print(table(saved["sources"]))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(tempfile.gettempdir()) / "triton_corpora"))
    sys.exit(main())

"""The loop of `dotcu watch`: saves come in, a worker is asked, its events become the state, which is shown.

An event is a JSON object; docs/reference/reports.md has their keys. A row of an event `timed` has op, case,
median_us and note. Its `measured`, the raw samples, is a `Measured` of `benchmark.results` as JSON, or None;
its `change` since the last version that passed is a `Change`.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import watchfiles
from rich.console import Group, RenderableType
from rich.text import Text

from dotcu import errors
from dotcu.checking.report import AGAIN, cause_of, failure_text, result_json
from dotcu.checking.results import LIMIT_S, START_S, CheckResult, Failed
from dotcu.errors import DotcuError, UsageError
from dotcu.files import read_file
from dotcu.serialize import from_plain, plain
from dotcu.tracebacks import file_line
from dotcu.workers import Worker, WorkerCrash

WatchEvent = dict[str, Any]

_PHASES = {
    "begun": "loading",
    "planned": "checking",
    "checked": "compiling",
    "compiled": "timing",
} | dict.fromkeys(("unloadable", "crashed", "done"), "waiting")
_COPIED = {"device", "trials", "passed", "not_tried", "seconds", "kernels", "timings"}  # as they are


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """All that a page shows of the version under way, which was saved, or the start, at `begun`.

    `trouble` is why it could not be loaded or tried to the end; the trial `first` had the first result. What
    is `good` is of the last version that passed.
    """

    target: str
    begun: float
    phase: str = "starting"  # then as in `_PHASES`
    saved: WatchEvent | None = None
    device: str = ""
    trouble: str = ""
    trials: int = 0
    tried: int = 0
    trying: str = ""
    first: str = ""
    first_s: float = 0.0
    first_passed: bool = False
    failures: tuple[Failed, ...] = ()
    passed: bool | None = None
    not_tried: Sequence[str] = ()
    seconds: float = 0.0
    kernels: Sequence[Mapping[str, Any]] = ()
    timings: Sequence[Mapping[str, Any]] = ()
    good_kernels: Sequence[Mapping[str, Any]] = ()
    good_timings: Sequence[Mapping[str, Any]] = ()

    @property
    def is_settled(self) -> bool:
        """True if no more follows before the next save."""
        return self.phase == "waiting"


def after(event: WatchEvent, state: WatchState) -> WatchState:
    kind = event["event"]
    if kind == "saved":
        kernels, timings = state.good_kernels, state.good_timings
        if state.passed and state.is_settled:
            kernels, timings = state.kernels, state.timings or timings
        return WatchState(
            target=state.target, begun=event["at"], phase="loading", saved=event, device=state.device,
            good_kernels=kernels, good_timings=timings,
        )  # fmt: skip
    changes = {key: value for key, value in event.items() if key in _COPIED}
    changes["phase"] = _PHASES.get(kind, state.phase)
    if kind == "trying":
        changes["trying"] = event["trial"]
    elif kind == "tried":
        failures = tuple(result for result in results_of(event) if isinstance(result, Failed))
        changes |= {"tried": state.tried + 1, "trying": "", "failures": state.failures + failures}
        if not state.first:
            first_s = time.time() - state.begun
            changes |= {"first": event["trial"], "first_s": first_s, "first_passed": not failures}
    elif kind == "unloadable":
        changes |= {"passed": False, "trouble": event["message"]}
    elif kind == "crashed":
        during = f" during {state.trying}" if state.trying else ""
        evidence = (f"    {line}".rstrip() for line in event["evidence"].splitlines())
        changes |= {"passed": False, "trouble": "\n".join((f"{event['reason']}{during}", *evidence))}
    return replace(state, **changes)


def results_of(event: WatchEvent) -> tuple[CheckResult, ...]:
    return from_plain(tuple[CheckResult, ...], plain(event["results"]))


# ---------------------------------------------------------------- what is shown


def event_json(event: WatchEvent) -> WatchEvent:
    """Return an event as `dotcu watch --json` prints it: results as in the JSON form of a check."""
    shown = {"results": list(map(result_json, results_of(event)))} if event["event"] == "tried" else {}
    return event | shown


def lines(state: WatchState, before: WatchState) -> Iterator[str]:
    """Yield the lines that are new in a state, each with the time."""
    older = set(_texts(before)) if before.begun == state.begun else set()
    for text, _ in (each for each in _texts(state) if each not in older):
        yield f"{time.strftime('%H:%M:%S')} " + "\n    ".join(text.splitlines())


def page(state: WatchState, width: int) -> RenderableType:
    where = f" on {state.device}" if state.device else ""
    if state.saved is not None:
        where += time.strftime(", saved at %H:%M:%S", time.localtime(state.saved["at"]))
    parts: list[RenderableType] = [
        Text.assemble((state.target, "bold"), where, ("   Ctrl-C quits; the report stays on screen", "dim"))
    ]
    if not state.is_settled:
        tried = f"  {state.tried} of {state.trials} trials  {state.trying}" if state.trials else ""
        elapsed_s = max(0.0, time.time() - state.begun)
        parts.append(Text(f"{state.phase} {elapsed_s:.1f} s{tried}".rstrip(), style="dim"))
    for text, style in _texts(state):
        parts += [Text(), *_error(text, width)] if "\n" in text else [Text(text, style=style)]
    return Group(*parts)


_STYLES = {"faster": "green", "unclear": "yellow", "slower": "bold red", "passed": "bold green"}

_SHOWN = 3  # failures, one for each cause; `dotcu check` shows more
_MEMORY = {"smem": "shared", "stack": "stack", "spill": "spilled"}
_UNITS = {"registers": "registers"} | {f"{kind}_bytes": f"B {name}" for kind, name in _MEMORY.items()}


def _texts(state: WatchState) -> Iterator[tuple[str, str]]:
    """Yield all that is known of a version, each text with its style."""
    if state.saved is not None:
        written = [file for file in state.saved["files"] if file not in state.saved["gone"]]
        parts = {"saved": written, "deleted": state.saved["gone"]}
        yield "; ".join(f"{', '.join(files)} {what}" for what, files in parts.items() if files), ""
    if state.first:
        word = "passed" if state.first_passed else "FAILED"
        yield f"first result after {state.first_s:.2f} s: {state.first} {word}", _STYLES.get(word, "bold red")
    if state.trouble:
        yield state.trouble, "bold red"
    unlike = {cause_of(result): result for result in reversed(state.failures)}
    for result in [result for result in state.failures if unlike[cause_of(result)] is result][:_SHOWN]:
        yield failure_text(result), "bold red"
    if state.passed is not None and not state.trouble:
        failed = len({result.trial for result in state.failures})
        word = "passed" if state.passed else "FAILED" if failed else "INCOMPLETE"
        of = f"{failed} of " if failed else ""
        trials = f"{of}{state.trials} trial{'' if state.trials == 1 else 's'}, {state.seconds:.1f} s"
        yield f"quick check {word}: {trials}", _STYLES.get(word, "bold red")
    yield from ((line, "bold red") for line in state.not_tried)
    good = {(row["kernel"], row["arch"]): row for row in state.good_kernels}
    for row in state.kernels:
        before = good.get((row["kernel"], row["arch"]), row)
        taken = [
            f"{row[key]} {unit}" + (f" (was {before[key]})" if before[key] != row[key] else "")
            for key, unit in _UNITS.items()
            if row[key] or before[key] or key == "registers"
        ]
        yield f"{row['kernel']} on {row['arch']}: {', '.join(taken)}", "yellow" if before != row else ""
    for row in state.timings:
        change, notes = row["change"], [f"{row['median_us']:.2f} us"] if row["measured"] else []
        if change is not None:
            ratio = "{value:.3f} times the last version that passed ({low:.3f} to {high:.3f})"
            notes += [f"{change['verdict']}: {ratio.format(**change['ratio'])}", change["note"]]
        text = "; ".join(filter(None, (*notes, row["note"])))
        yield f"{row['op']} {row['case']}: {text}", _STYLES.get(change["verdict"], "") if change else ""


def _error(text: str, width: int) -> Iterator[Text]:
    """Yield a message: its first line bold; of a source line too long for its caret, the part around that."""
    first, *rest = text.splitlines()
    yield Text(first, style="bold")
    start = 0
    for line, following in zip_longest(rest, rest[1:], fillvalue=""):
        if line.startswith(f"    {AGAIN}"):
            yield from _command(line, width)
            continue
        if following.strip() == "^":
            start = max(0, following.index("^") - width // 2) if len(following) > width else 0
        is_source = "^" in (line.strip(), following.strip())
        shown = Text(
            line[start:] if is_source else line, no_wrap=is_source, overflow="crop" if is_source else "fold"
        )
        shown.highlight_regex(r"^ *\^$|(?<=: )(catastrophic error|error): ", "bold red")
        yield shown


def _command(line: str, width: int) -> Iterator[Text]:
    """Yield a command in lines that a shell joins when they are pasted: a backslash ends all but the last.

    It breaks before options. The backslash is in the last column, so that no blanks of the screen follow it.
    """
    start, *options = line.split(" --")
    parts = [start]
    for option in options:
        if len(parts[-1]) + len(f" --{option}") <= width - 2:
            parts[-1] += f" --{option}"
        else:
            parts.append(f"        --{option}")
    for part in parts[:-1]:
        yield Text(f"{part:<{width - 1}}\\", no_wrap=True)
    yield Text(parts[-1], overflow="fold")


# ---------------------------------------------------------------- the loop

ENTRY = "dotcu.watching.worker:serve"
GRACE_S = 1.0  # in which a worker must stop working on an older version; most trials take less
RECENT_S = 5.0  # a file whose time is older was not written just now: it counts from when it was seen


def watch(
    target: str, *, device: str | None = None, seed: int = 0
) -> Generator[tuple[WatchEvent, WatchState], None, None]:
    """Try a target now and at each save, for ever: yield each event, and the state after it.

    Args:
        target, device, seed: As `check` takes them.

    Raises:
        UsageError, EnvironmentFault: No save can make it work.
    """
    path = Path(target.partition(":")[0])
    if path.suffix == ".py" and not path.is_file():
        raise UsageError(f"there is no file {path}.\nTARGET is a file such as ops.py, or a module.")
    if path.suffix != ".py" and path.is_file():
        raise UsageError(
            f"{path} is not a Python file, so it defines no operators.\n"
            "Watch the Python file that loads it and defines operators; a save of either file counts."
        )
    return Watcher(target, device, seed).run([path.parent] if path.suffix == ".py" else [])


class Watcher:
    """One run of the command, with one worker at a time."""

    def __init__(self, target: str, device: str | None, seed: int) -> None:
        self._inbox: queue.SimpleQueue[tuple[Worker, WatchEvent] | None] = (
            queue.SimpleQueue()
        )  # None: a notice
        self._request: dict[str, Any] = {"number": 0, "target": target, "device": device, "seed": seed}
        self._state = WatchState(target=target, begun=time.time())
        self._folders: set[Path] = set()
        self._noticed: set[Path] = set()
        self._stop = threading.Event()
        self._snapshot: Snapshot = {}
        self._asked_s = time.time()
        self._stopping = False  # the worker is to leave an older version
        self._deadline: float | None = None  # while a version is under way
        self._worker = self._started()

    def run(self, folders: Iterable[Path]) -> Generator[tuple[WatchEvent, WatchState], None, None]:
        """Yield every event, from now on; look for saves in `folders` and those that the worker names."""
        try:
            self._ask()
            self._follow(folders)
            while True:
                event = self._next()
                if event is None:
                    continue
                if event["event"] == "unloadable" and not self._folders:
                    raise UsageError(event["message"])  # there is nothing to save
                self._state = after(event, self._state)
                yield event, self._state
                self._act(event)
        finally:
            self._stop.set()
            self._worker.kill()
            self._worker.close()

    def _next(self) -> WatchEvent | None:
        """Wait for a notice, an event or the deadline; return the event to show."""
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            message = self._inbox.get(timeout=left)
        except queue.Empty:
            if not self._stopping:
                return {"event": "crashed", "reason": f"no output for {LIMIT_S:g} s", "evidence": ""}
            self._ask_another()
            return None
        if message is None:
            return self._look()
        sender, event = message
        crashed = event["event"] == "crashed"
        number = event.pop("number", self._request["number"])
        if sender is not self._worker or number != self._request["number"]:
            return None  # of a worker that was replaced, or of an older version
        if crashed and self._deadline is None:
            return None  # the next save starts another
        # a worker may have ended over an older version, where it had not begun with this one
        if (crashed and self._stopping) or event.get("again"):
            self._ask_another()
            return None
        self._stopping = False
        self._deadline = time.monotonic() + (START_S if event["event"] == "begun" else LIMIT_S)
        return event

    def _look(self) -> WatchEvent | None:
        before, self._snapshot = self._snapshot, look(self._folders)
        files = changed(before, self._snapshot)
        if not files:
            return None
        now = time.time()
        times = [self._snapshot[file][0] for file in files if file in self._snapshot]
        at = max((at for at in times if now - RECENT_S < at <= now), default=now)
        gone = [file_line(str(file), None) for file in files if file not in self._snapshot]
        return {"event": "saved", "files": [file_line(str(f), None) for f in files], "gone": gone, "at": at}

    def _act(self, event: WatchEvent) -> None:
        kind = event["event"]
        if kind == "saved":
            self._ask()
        elif kind == "watched":
            self._follow(map(Path, event["folders"]))
        elif kind == "refused":
            raise getattr(errors, event["kind"])(event["message"])
        elif kind in ("crashed", "done", "unloadable"):
            self._deadline = None
            if kind == "crashed":  # another starts at once, for the next save
                self._worker.kill()
                self._worker = self._started()

    def _ask(self) -> None:
        """Have this version tried, whatever is under way."""
        self._asked_s = time.time()
        self._request["number"] += 1
        if self._worker.closed:  # that it has ended is still to be heard
            self._deadline, self._worker = None, self._started()
        self._stopping = self._deadline is not None and self._worker.ready
        self._deadline = time.monotonic() + (GRACE_S if self._stopping else START_S)
        with suppress(WorkerCrash):  # it ended just now: an event says so
            self._worker.send({**self._request, "good": self._state.good_timings})

    def _ask_another(self) -> None:
        """Have a new worker try this version."""
        self._worker.kill()
        self._deadline, self._worker = None, self._started()
        self._ask()

    def _started(self) -> Worker:
        worker = Worker(ENTRY)
        worker.start()
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        return worker

    def _listen(self, worker: Worker) -> None:
        while not worker.closed:
            try:
                event = worker.receive()
            except WorkerCrash as crash:
                worker.close()  # a request to it would start it again
                event = {"event": "crashed", "reason": crash.reason, "evidence": crash.evidence}
            except DotcuError as error:  # of the worker's own: what a target raises is an event
                event = {"event": "refused", "kind": type(error).__name__, "message": str(error)}
            if event is not None:
                self._inbox.put((worker, event))

    def _follow(self, folders: Iterable[Path]) -> None:
        """Look at these folders too. A save in them since the worker was asked is a change."""
        new = {folder.resolve() for folder in folders} - self._folders
        self._folders |= new
        present = {folder for folder in self._folders if folder.is_dir()}  # also those that have come to be
        if present and present != self._noticed:
            self._stop.set()
            self._stop, self._noticed = threading.Event(), present
            threading.Thread(target=self._notice, args=(present, self._stop), daemon=True).start()
        older = {file: seen for file, seen in look(new).items() if seen[0] <= self._asked_s}
        self._snapshot = {**self._snapshot, **older}
        self._inbox.put(None)

    def _notice(self, folders: Collection[Path], stop: threading.Event) -> None:
        """Ask for a look when something may have changed in folders, and every second anyway."""
        for _ in watchfiles.watch(
            *folders, watch_filter=None, step=10, debounce=100, stop_event=stop, rust_timeout=1000,
            yield_on_timeout=True, recursive=False, raise_interrupt=False,
        ):  # fmt: skip
            self._inbox.put(None)


SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl"}

Snapshot = Mapping[Path, tuple[float, bytes]]
"""The time of each file in seconds since the epoch, and the digest of its contents."""


def look(folders: Iterable[Path]) -> Snapshot:
    """Return the files of folders as they are now; those in the folders themselves alone."""
    snapshot = {}
    for file in (file for folder in folders for file in folder.glob("*") if file.suffix in SUFFIXES):
        with suppress(OSError):  # gone meanwhile, or a folder with such a name
            snapshot[file] = file.stat().st_mtime, hashlib.sha256(read_file(file)).digest()
    return snapshot


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Return the files that are new, gone, or have other contents."""
    new = [file for file, (_, digest) in after.items() if file not in before or before[file][1] != digest]
    return sorted([*new, *(before.keys() - after.keys())])

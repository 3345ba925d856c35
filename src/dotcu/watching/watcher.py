"""The loop of `dotcu watch`: saves come in, a worker is asked, its events become the state."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dotcu import errors
from dotcu.checking.trial import LIMIT_S, START_S
from dotcu.errors import DotcuError, EnvironmentFault, UsageError
from dotcu.tracebacks import file_line
from dotcu.watching.state import Event, WatchState, after
from dotcu.workers import Worker, WorkerCrash

ENTRY = "dotcu.watching.worker:serve"
"""The function that takes requests in a worker."""

GRACE_S = 0.5
"""The time in which a worker must stop working on an older version; most trials take less."""

PATIENCE_S = 0.1
"""The interval at which that time is extended while no other worker is ready."""

RECENT_S = 5.0
"""A file whose time is older was not written just now: its save counts from when it was seen."""


def watch(
    target: str, *, device: str | None = None, seed: int = 0
) -> Generator[tuple[Event, WatchState], None, None]:
    """Try a target now and at each save, for ever; close the iterator to end it.

    Args:
        target: `ops.py` or `package.module`, with `:name` or without.
        device: As `check` takes it.
        seed: The start of random numbers.

    Yields:
        Each event, and the state after it.

    Raises:
        UsageError: The target or the device cannot be, whatever is saved.
        EnvironmentFault: The machine lacks something.
    """
    path = Path(target.partition(":")[0])
    if path.suffix == ".py" and not path.is_file():
        raise UsageError(f"there is no file {path}.\nTARGET is a file such as ops.py, or a module.")
    if path.suffix != ".py" and path.is_file():
        raise UsageError(
            f"{path} is not a Python file, so it has no operators to check.\n"
            "Name the file that loads it and defines operators with @dotcu.op: saves of both are seen."
        )
    return Watcher(target, device, seed).run([path.parent] if path.suffix == ".py" else [])


class Watcher:
    """One run of the command: a worker at work, and at most one spare that can take over from it."""

    def __init__(self, target: str, device: str | None, seed: int) -> None:
        try:
            import watchfiles
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                "dotcu watch needs watchfiles, which is not installed.\nType: pip install watchfiles"
            ) from error
        self._watch_files: Any = watchfiles.watch
        self._inbox: queue.SimpleQueue[tuple[Worker, Event] | None] = queue.SimpleQueue()  # None: a notice
        self._request: dict[str, Any] = {"number": 0, "target": target, "device": device, "seed": seed}
        self._state = WatchState(target=target, begun=time.time())
        self._folders: set[Path] = set()
        self._noticed: set[Path] = set()
        self._stop = threading.Event()
        self._snapshot: Snapshot = {}
        self._asked_s = time.time()
        self._letting_go = False
        self._deadline: float | None = None  # while a version is under way
        self._worker: Worker | None = None
        self._spare: Worker | None = None

    def run(self, folders: Iterable[Path]) -> Generator[tuple[Event, WatchState], None, None]:
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
                self._state = after(event, self._state, time.time())
                yield event, self._state
                self._act(event)
        finally:
            self._stop.set()
            workers = [worker for worker in (self._worker, self._spare) if worker is not None]
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.close()

    # ------------------------------------------------------------ what comes in

    def _next(self) -> Event | None:
        """Wait for a notice, an event or the deadline; return the event to show."""
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            message = self._inbox.get(timeout=left)
        except queue.Empty:
            return self._overdue()
        if message is None:
            return self._look()
        sender, event = message
        crashed = event["event"] == "crashed"
        if crashed and sender is self._spare:
            self._spare = None
        if crashed and sender is self._worker and self._deadline is None:
            self._worker = None  # the next save starts another
        number = event.pop("number", self._request["number"])
        if sender is not self._worker or number != self._request["number"]:
            return None  # of a worker that was replaced, or of an older version
        # a worker may have ended over an older version, where it had not begun with this one
        if (crashed and self._letting_go) or event.get("again"):
            self._pass_on()
            return None
        self._letting_go = False
        self._deadline = time.monotonic() + (START_S if event["event"] == "begun" else LIMIT_S)
        return event

    def _overdue(self) -> Event | None:
        """The worker has said nothing in time."""
        if not self._letting_go:
            return {"event": "crashed", "reason": f"no output for {LIMIT_S:g} s", "evidence": ""}
        if self._spare is not None and self._spare.ready:
            self._pass_on()
            return None
        self._spare = self._spare or self._started()
        self._deadline = time.monotonic() + PATIENCE_S
        return None

    def _look(self) -> Event | None:
        before, self._snapshot = self._snapshot, look(self._folders, self._snapshot)
        files = changed(before, self._snapshot)
        if not files:
            return None
        now = time.time()
        times = [_saved_s(self._snapshot[file]) for file in files if file in self._snapshot]
        at = max((at for at in times if now - RECENT_S < at <= now), default=now)
        gone = [file_line(str(file), None) for file in files if file not in self._snapshot]
        return {
            "event": "saved",
            "files": [file_line(str(file), None) for file in files],
            "gone": gone,
            "at": at,
        }

    # ------------------------------------------------------------ what is done

    def _act(self, event: Event) -> None:
        kind = event["event"]
        if kind == "saved":
            self._ask()
        elif kind == "watched":
            self._follow(map(Path, event["folders"]))
        elif kind == "refused":
            raise getattr(errors, event["kind"])(event["message"])
        elif kind == "crashed":
            self._deadline = None
            self._replace()
        elif kind in ("done", "unloadable"):
            self._deadline = None
            self._spare = self._spare or self._started()  # for the next save

    def _ask(self) -> None:
        """Have this version tried, whatever is under way."""
        self._asked_s = time.time()
        self._request["number"] += 1
        if self._worker is None or self._worker.closed:  # the latter is still to be heard
            self._deadline = None
            self._replace()
        assert self._worker is not None
        self._letting_go = self._deadline is not None and self._worker.ready
        self._deadline = time.monotonic() + (GRACE_S if self._letting_go else START_S)
        with suppress(WorkerCrash):  # it ended just now: an event says so
            self._worker.send({**self._request, "good": self._state.good_timings})

    def _pass_on(self) -> None:
        """Have another worker try this version."""
        self._deadline = None
        self._replace()
        self._ask()

    def _replace(self) -> None:
        """Go on with the spare, or with a new worker."""
        if self._worker is not None:
            self._worker.kill()
        self._worker, self._spare = self._spare or self._started(), None

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
        if new:
            older = {file: seen for file, seen in look(new, {}).items() if _saved_s(seen) <= self._asked_s}
            self._snapshot = {**self._snapshot, **older}
            self._inbox.put(None)

    def _notice(self, folders: Collection[Path], stop: threading.Event) -> None:
        """Ask for a look when something may have changed in folders, and every second.

        A notice of the file system is only a reason to look: editors write in many ways, and some file
        systems give none.
        """
        notices = self._watch_files(
            *folders, watch_filter=None, step=STEP_MS, debounce=10 * STEP_MS, stop_event=stop,
            rust_timeout=LOOK_MS, yield_on_timeout=True, recursive=False, raise_interrupt=False,
        )  # fmt: skip
        for _ in notices:
            self._inbox.put(None)


# ---------------------------------------------------------------- files

SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl"}
"""The suffixes of the files that are watched."""

STEP_MS = 10
"""Files that are saved within this time of each other count as one save."""

LOOK_MS = 1000
"""The interval of polling, independent of the file system's events."""

Seen = tuple[tuple[int, int, int], bytes]
"""A file as it was seen: its time (ns), inode and size; the digest of its contents."""

Snapshot = Mapping[Path, Seen]


def look(folders: Collection[Path], before: Snapshot) -> Snapshot:
    """Return the files of folders as they are now; those in the folders themselves alone."""
    snapshot: dict[Path, Seen] = {}
    for file in (file for folder in folders for file in folder.glob("*") if file.suffix in SUFFIXES):
        with suppress(OSError):  # gone meanwhile, or a folder with such a name
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            same = file in before and before[file][0] == stamp
            # Clocks of file systems have steps: two quick saves may have the same time.
            if same and time.time() - status.st_mtime > RECENT_S:
                snapshot[file] = before[file]
            else:
                snapshot[file] = stamp, hashlib.sha256(file.read_bytes()).digest()
    return snapshot


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Return the files that are new, gone, or have other contents."""
    new = [file for file, (_, digest) in after.items() if file not in before or before[file][1] != digest]
    return sorted([*new, *(before.keys() - after.keys())])


def _saved_s(seen: Seen) -> float:
    return seen[0][0] / 1e9

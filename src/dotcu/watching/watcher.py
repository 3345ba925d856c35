"""The loop of `dotcu watch`: saves come in, a worker is asked, its events become the state."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotcu import errors
from dotcu.checking.trial import LIMIT_S, START_S
from dotcu.errors import DotcuError, EnvironmentFault, UsageError
from dotcu.watching.state import Event, WatchRequest, WatchState, after
from dotcu.workers import Worker, WorkerCrash

ENTRY = "dotcu.watching.worker:serve"
"""The function that takes requests in a worker."""

GRACE_S = 0.5
"""The time in which a worker must stop working on an older version; most trials take less."""

PATIENCE_S = 0.1
"""The interval at which that time is extended while no other worker is ready."""

RECENT_S = 5.0
"""A file whose time is older was not written just now, but moved here: it counts from when it was seen."""


def watch(
    target: str, *, device: str | None = None, seed: int = 0
) -> Generator[tuple[Event, WatchState], None, None]:
    """Try a target now and at each save, for ever; close the iterator to end it.

    Args:
        target: `ops.py` or `package.module`, with `:name` or without.
        device: As `check` takes it.
        seed: What random numbers start from.

    Yields:
        Each event, and the state after it.

    Raises:
        UsageError: The target or the device cannot be, whatever is saved.
        EnvironmentFault: The machine lacks something.
    """
    _require_python(target)
    watcher = Watcher(target, device, seed)
    try:
        yield from watcher.run()
    finally:
        watcher.close()


def _require_python(target: str) -> None:
    path = Path(target.partition(":")[0])
    if path.suffix == ".py" and not path.is_file():
        raise UsageError(f"there is no file {path}.\nTARGET is a file such as ops.py, or a module.")
    if path.suffix != ".py" and path.is_file():
        raise UsageError(
            f"{path} is not a Python file, so it has no operators to check.\n"
            "Name the file that loads it and defines operators with @dotcu.op: saves of both are seen."
        )


class Watcher:
    """One run of the command: a worker at work, and at most one spare that can take over from it."""

    def __init__(self, target: str, device: str | None, seed: int) -> None:
        self._inbox: queue.SimpleQueue[tuple[Worker, Event] | None] = (
            queue.SimpleQueue()
        )  # None: look at files
        self._notices = FolderNotices(lambda: self._inbox.put(None))
        self._target, self._device, self._seed = target, device, seed
        self._state = WatchState(target=target, begun=time.time())
        self._folders: set[Path] = set()
        self._snapshot: Snapshot = {}
        self._number, self._asked_s = 0, time.time()
        self._busy = self._letting_go = False
        self._deadline = 0.0
        self._threads: dict[Worker, threading.Thread] = {}
        self._worker: Worker | None = self._started()
        self._spare: Worker | None = None

    def close(self) -> None:
        """End all that was started."""
        self._notices.close()
        for each in self._threads:
            each.kill()
        for each, thread in self._threads.items():
            each.close()
            thread.join()

    def run(self) -> Iterator[tuple[Event, WatchState]]:
        """Yield every event, from now on."""
        place = Path(self._target.partition(":")[0])
        self._follow([place.parent] if place.suffix == ".py" else [])
        self._ask()
        while True:
            for event in self._next():
                if event["event"] == "unloadable" and not self._folders:
                    raise UsageError(event["message"])  # there is nothing to save
                self._state = after(event, self._state, time.time())
                yield event, self._state
                self._act(event)

    # ------------------------------------------------------------ what comes in

    def _next(self) -> list[Event]:
        left = max(0.0, self._deadline - time.monotonic()) if self._busy else None
        try:
            message = self._inbox.get(timeout=left)
        except queue.Empty:
            return self._overdue()
        if message is None:
            return self._look()
        sender, event = message
        at_work = sender is self._worker
        if event["event"] == "crashed":
            self._forget(sender)
            if not (at_work and self._busy):
                return []
            # it may have ended over an older version, where it had not begun with this one
            return self._pass_on() if self._letting_go else [event]
        return self._hear(event) if at_work else []

    def _hear(self, event: Event) -> list[Event]:
        if event.pop("number", self._number) != self._number:
            return []  # of an older version
        self._letting_go = False
        self._deadline = time.monotonic() + (START_S if event["event"] == "begun" else LIMIT_S)
        if event["event"] == "unloadable" and event["again"]:
            return self._pass_on()
        return [event]

    def _overdue(self) -> list[Event]:
        """The worker has said nothing in time."""
        if not self._letting_go:
            return [{"event": "crashed", "reason": f"no output for {LIMIT_S:g} s", "evidence": ""}]
        if self._spare is not None and self._spare.ready:
            return self._pass_on()
        self._spare = self._spare or self._started()
        self._deadline = time.monotonic() + PATIENCE_S
        return []

    def _look(self) -> list[Event]:
        before, self._snapshot = self._snapshot, look(self._folders, self._snapshot)
        files = changed(before, self._snapshot)
        if not files:
            return []
        now = time.time()
        times = [self._snapshot[file].saved_s for file in files if file in self._snapshot]
        at = max((at for at in times if now - RECENT_S < at <= now), default=now)
        gone = [_shown(file) for file in files if file not in self._snapshot]
        return [{"event": "saved", "files": list(map(_shown, files)), "gone": gone, "at": at}]

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
            self._busy = False
            self._replace()
        elif kind in ("done", "unloadable"):
            self._busy = False
            self._spare = self._spare or self._started()  # for the next save

    def _ask(self) -> None:
        """Have this version tried, whatever is under way."""
        self._number += 1
        self._asked_s = time.time()
        current = self._worker or self._replace()
        self._letting_go = self._busy and current.ready
        request = WatchRequest(
            number=self._number,
            target=self._target,
            device=self._device,
            seed=self._seed,
            good=self._state.good_timings,
        )
        current.send(request)
        self._busy = True
        self._deadline = time.monotonic() + (GRACE_S if self._letting_go else START_S)

    def _pass_on(self) -> list[Event]:
        """Have another worker try this version."""
        self._busy = False
        self._replace()
        self._ask()
        return []

    def _replace(self) -> Worker:
        """Go on with the spare, or with a new worker."""
        if self._worker is not None:
            self._worker.kill()
        self._worker, self._spare = self._spare or self._started(), None
        return self._worker

    def _started(self) -> Worker:
        new = Worker(ENTRY)
        new.start()
        self._threads[new] = threading.Thread(target=self._listen, args=(new,), daemon=True)
        self._threads[new].start()
        return new

    def _listen(self, sender: Worker) -> None:
        while True:
            try:
                event = sender.receive()
            except WorkerCrash as crash:
                event = {"event": "crashed", "reason": crash.reason, "evidence": crash.evidence}
            except DotcuError as error:  # of the worker's own: what a target raises is an event
                event = {"event": "refused", "kind": type(error).__name__, "message": str(error)}
            if event is not None:
                self._inbox.put((sender, event))
                if event["event"] == "crashed":
                    return

    def _forget(self, ended: Worker) -> None:
        ended.close()  # a request that was sent after its end has started it again
        del self._threads[ended]
        if ended is self._spare:
            self._spare = None
        if ended is self._worker:
            self._worker = None

    def _follow(self, folders: Iterable[Path]) -> None:
        """Look at these folders too. What was saved in them since the worker was asked is a change."""
        new = {folder.resolve() for folder in folders} - self._folders
        self._folders |= new
        self._notices.follow(self._folders)  # also of those that have come to be
        if not new:
            return
        found = look(new, {})
        older = {file: seen for file, seen in found.items() if seen.saved_s <= self._asked_s}
        self._snapshot = {**self._snapshot, **older}
        self._inbox.put(None)


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


# ---------------------------------------------------------------- files
#
# A notice of the file system is only a reason to look: editors write in many ways, and some file systems
# give none, so there is a look every second in any case.

SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl"}
"""The suffixes of the files that are watched."""

STEP_MS = 10
"""Files that are saved within this time of each other count as one save."""

LOOK_MS = 1000
"""The interval of polling, independent of the file system's events."""

CLOCK_STEP_S = 0.05
"""More than the step of a file system's clock: two saves within one step have the same time."""


@dataclass(frozen=True, kw_only=True)
class SeenFile:
    """A file as it was seen.

    Attributes:
        stamp: Its inode, time and size.
        is_settled: Whether another save would have given it another stamp: then the same stamp means the
            same contents. Clocks of file systems have steps.
    """

    stamp: tuple[int, int, int]
    digest: bytes
    is_settled: bool

    @property
    def saved_s(self) -> float:
        """The time of the save, in seconds since the epoch."""
        return self.stamp[1] / 1e9


Snapshot = Mapping[Path, SeenFile]


def look(folders: Collection[Path], before: Snapshot) -> Snapshot:
    """Return the files of folders as they are now; those in the folders themselves alone."""
    seen: dict[Path, SeenFile] = {}
    for folder in folders:
        try:
            files = [file for file in folder.iterdir() if file.suffix in SUFFIXES]
        except OSError:  # the folder is gone
            continue
        seen |= {file: one for file in files if (one := _seen(file, before.get(file))) is not None}
    return seen


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Return the files that are new, gone, or have other contents."""
    unlike = [
        file for file, seen in after.items() if file not in before or before[file].digest != seen.digest
    ]
    return sorted([*unlike, *(before.keys() - after.keys())])


def _seen(file: Path, before: SeenFile | None) -> SeenFile | None:
    try:
        status = file.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if before is not None and before.stamp == stamp and before.is_settled:
            return before
        settled = time.time() - status.st_mtime > CLOCK_STEP_S
        return SeenFile(stamp=stamp, digest=hashlib.sha256(file.read_bytes()).digest(), is_settled=settled)
    except OSError:  # gone meanwhile, or a folder with such a name
        return None


class FolderNotices:
    """Calls a function when something may have changed in some folders, from its own thread.

    Raises:
        EnvironmentFault: watchfiles is not installed.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        try:
            import watchfiles
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                "dotcu watch needs watchfiles, which is not installed.\nIt comes with the tools: "
                'pip install "dotcu[tools]"'
            ) from error
        self._watch: Any = watchfiles.watch
        self._notify = notify
        self._stop = threading.Event()
        self._followed: set[Path] = set()

    def follow(self, folders: Collection[Path]) -> None:
        """Watch these folders, as far as they exist, and no others."""
        here = {folder for folder in folders if folder.is_dir()}
        if here == self._followed:
            return
        self.close()
        self._stop, self._followed = threading.Event(), here
        threading.Thread(target=self._follow, args=(here, self._stop), daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()

    def _follow(self, folders: Collection[Path], stop: threading.Event) -> None:
        if not folders:
            return
        notices = self._watch(
            *folders, watch_filter=None, step=STEP_MS, debounce=10 * STEP_MS, stop_event=stop,
            rust_timeout=LOOK_MS, yield_on_timeout=True, recursive=False, raise_interrupt=False,
        )  # fmt: skip
        for _ in notices:
            if not stop.is_set():
                self._notify()

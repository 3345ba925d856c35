"""The loop: saves come in, a worker is asked, what it says becomes the state."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dotcu import errors
from dotcu.checking.protocol import LIMIT_S, START_S
from dotcu.errors import UsageError
from dotcu.watching import events
from dotcu.watching.crew import Crew, Said
from dotcu.watching.events import Begun, Broken, Event, Request, Saved
from dotcu.watching.files import Notices, Snapshot, changed, look
from dotcu.watching.state import State, after

GRACE_S = 0.5
"""So long a worker may take to let go of an older version; most trials take less."""

PATIENCE_S = 0.1
"""And for so long again and again while no other is ready to take over."""

RECENT_S = 5.0
"""A file whose time is older was not written just now, but moved here: it counts from when it was seen."""


class Look:
    """Word that files may have changed."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """An event, and what is known then."""

    event: Event
    state: State


def watch(target: str, *, device: str | None = None, seed: int = 0) -> Generator[Step, None, None]:
    """Try a target now and at each save, for ever; close the iterator to end it.

    Raises:
        UsageError: The target or the device cannot be, whatever is saved.
        EnvironmentFault: The machine lacks something.
    """
    require_python(target)
    watcher = Watcher(target, device, seed)
    try:
        yield from watcher.run()
    finally:
        watcher.close()


def require_python(target: str) -> None:
    """Refuse a file that is not there, or has no operators.

    Raises:
        UsageError: It is such a file.
    """
    path = Path(target.partition(":")[0])
    if path.suffix == ".py" and not path.is_file():
        raise UsageError(f"there is no file {path}.\nTARGET is a file such as ops.py, or a module.")
    if path.suffix != ".py" and path.is_file():
        raise UsageError(
            f"{path} is not a Python file, so it has no operators to check.\n"
            "Name the file that loads it and defines operators with @dotcu.op: saves of both are seen."
        )


class Watcher:
    """One run of the command."""

    def __init__(self, target: str, device: str | None, seed: int) -> None:
        self._inbox: queue.SimpleQueue[Said | Look] = queue.SimpleQueue()
        self._notices = Notices(lambda: self._inbox.put(Look()))
        self._target, self._device, self._seed = target, device, seed
        self._state = State(target=target, begun=time.time())
        self._folders: set[Path] = set()
        self._snapshot: Snapshot = {}
        self._number, self._asked_s = 0, time.time()
        self._busy = self._letting_go = False
        self._deadline = 0.0
        self._crew = Crew(self._inbox.put)

    def close(self) -> None:
        """End all that was started."""
        self._notices.close()
        self._crew.close()

    def run(self) -> Iterator[Step]:
        """Every event, from now on."""
        place = Path(self._target.partition(":")[0])
        self._follow([place.parent] if place.suffix == ".py" else [])
        self._ask()
        while True:
            for event in self._next():
                if isinstance(event, events.Unloadable) and not self._folders:
                    raise UsageError(event.message)  # there is nothing to save
                self._state = after(event, self._state, time.time())
                yield Step(event=event, state=self._state)
                self._act(event)

    def _next(self) -> list[Event]:
        """What happens next."""
        left = max(0.0, self._deadline - time.monotonic()) if self._busy else None
        try:
            message = self._inbox.get(timeout=left)
        except queue.Empty:
            return self._late()
        if isinstance(message, Look):
            return self._look()
        at_work = message.by is self._crew.worker
        message.by.heard = True
        if isinstance(message.words, Broken):
            self._crew.buried(message.by)
            return self._died(message.words) if at_work and self._busy else []
        return self._hear(json.loads(message.words)) if at_work else []

    def _hear(self, values: dict[str, object]) -> list[Event]:
        if values.pop("number") != self._number:
            return []  # of an older version
        event = events.read(values)
        self._letting_go = False
        self._deadline = time.monotonic() + (START_S if isinstance(event, Begun) else LIMIT_S)
        if isinstance(event, events.Unloadable) and event.again:
            return self._pass_on()
        return [event]

    def _died(self, how: Broken) -> list[Event]:
        """The worker has ended; over an older version, where it had not begun with this one."""
        return self._pass_on() if self._letting_go else [how]

    def _pass_on(self) -> list[Event]:
        """Have another worker try this version."""
        self._crew.replace()
        self._busy = False
        self._ask()
        return []

    def _late(self) -> list[Event]:
        """The worker has said nothing in time."""
        if not self._letting_go:
            return [Broken(reason=f"nothing was heard for {LIMIT_S:g} s")]
        if self._crew.has_spare:
            return self._pass_on()
        self._crew.prepare()
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
        gone = (file for file in files if file not in self._snapshot)
        return [Saved(files=tuple(map(_shown, files)), at=at, gone=tuple(map(_shown, gone)))]

    def _act(self, event: Event) -> None:
        """What an event calls for."""
        if isinstance(event, Saved):
            self._ask()
        elif isinstance(event, events.Watched):
            self._follow(map(Path, event.folders))
        elif isinstance(event, events.Refused):
            raise getattr(errors, event.kind)(event.message)
        elif isinstance(event, (events.Done, events.Unloadable, Broken)):
            self._rest(event)

    def _rest(self, event: Event) -> None:
        """Get ready for the next save."""
        self._busy = False
        if isinstance(event, Broken):
            self._crew.replace()
        else:
            self._crew.prepare()

    def _ask(self) -> None:
        """Have this version tried, whatever is under way."""
        self._number += 1
        self._asked_s = time.time()
        good = self._state.good.timings if self._state.good else ()
        request = Request(
            number=self._number, target=self._target, device=self._device, seed=self._seed, good=good
        )
        worker = self._crew.ask(request)
        self._letting_go = self._busy and worker.heard
        self._busy = True
        self._deadline = time.monotonic() + (GRACE_S if self._letting_go else START_S)

    def _follow(self, folders: Iterable[Path]) -> None:
        """Look at these folders too. What was saved in them since the worker was asked is a change."""
        new = {folder.resolve() for folder in folders} - self._folders
        self._folders |= new
        self._notices.follow(self._folders)  # also of those that have come to be
        if not new:
            return
        found = look(new, {})
        self._snapshot = {
            **self._snapshot,
            **{file: seen for file, seen in found.items() if seen.saved_s <= self._asked_s},
        }
        self._inbox.put(Look())


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)

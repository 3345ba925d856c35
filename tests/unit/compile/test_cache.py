"""The store: entries whole or not at all, one maker at a time, a bounded size, and no disk that can hurt."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dotcu import locks, settings
from dotcu.compile import ObjectCode, cache
from dotcu.compile.build import last_compile
from dotcu.compile.cache import CacheEntry, Store
from dotcu.errors import CacheError

Build = Callable[..., ObjectCode]
Python = Callable[[str], list[str]]

KERNEL = "__global__ void k(int* x) { *x = 1; }"
DIGEST = "ab" + "0" * 62


def size() -> int:
    return sum(listed["size_bytes"] for listed in cache.entries())


def entry(text: str = "ptx") -> CacheEntry:
    return CacheEntry(
        about={"source": "k.cu"}, lowered={"k": "_Z1kPi"}, ptx=text, cubin=b"\x7fELF", log="log"
    )


@pytest.fixture
def store(cache_dir: Path) -> Store:
    return Store(cache_dir)


def put(store: Store, digest: str = DIGEST, made: CacheEntry | None = None) -> bool:
    with store.lock(digest) as locked:
        return store.put(digest, (made or entry()).files(), locked=locked)


def test_an_entry_comes_back_as_it_was_put(store: Store) -> None:
    assert store.get(DIGEST, cache.read_entry) is None
    assert put(store)
    assert store.get(DIGEST, cache.read_entry) == entry()


def test_an_entry_is_a_directory_that_a_person_can_open(store: Store) -> None:
    put(store)
    folder = store.path(DIGEST)
    assert sorted(f.name for f in folder.iterdir()) == ["entry.json", "kernel.cubin", "kernel.ptx", "log.txt"]
    index = json.loads((folder / "entry.json").read_text())
    assert index["about"] == {"source": "k.cu"}
    assert set(index["sha256"]) == {"kernel.cubin", "kernel.ptx", "log.txt"}


@pytest.mark.parametrize("name", ["entry.json", "kernel.ptx", "kernel.cubin", "log.txt"])
@pytest.mark.parametrize("harm", ["cut", "changed", "removed", "empty"])
def test_a_damaged_entry_is_found_and_compiled_again(
    store: Store, name: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(store)
    file = store.path(DIGEST) / name
    data = file.read_bytes()
    if harm == "removed":
        file.unlink()
    else:
        changed = bytes([data[0] ^ 1]) + data[1:]
        file.write_bytes({"cut": data[:-1], "changed": changed, "empty": b""}[harm])
    assert store.get(DIGEST, cache.read_entry) is None
    assert "is damaged" in caplog.text
    assert put(store)
    assert store.get(DIGEST, cache.read_entry) == entry()


def test_a_symbol_changed_in_the_index_is_damage(store: Store) -> None:
    put(store)
    file = store.path(DIGEST) / "entry.json"
    file.write_text(file.read_text().replace("_Z1kPi", "_Z1kPf"))
    assert store.get(DIGEST, cache.read_entry) is None


def test_of_many_notes_about_sources_the_newest_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_NOTES", 8)
    for number in range(12):
        store.add_history(f"source{number}", {"number": number})
        noted = store.root / "recent" / f"source{number}"
        os.utime(noted, (number, number))
        assert len([*noted.parent.iterdir()]) <= 8
    assert store.history("source11") == [{"number": 11}]
    assert store.history("source0") == []
    store.add_history("source11", {"number": 12})
    assert store.history("source11") == [{"number": 12}, {"number": 11}]


def test_no_note_is_lost_where_two_write_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store(store.directory)

    def history(source: str) -> list[Mapping[str, Any]]:
        known = Store.history(store, source)
        other.add_history(source, {"number": 2})  # between what the first reads and writes
        return known

    store.add_history("source", {"number": 1})
    monkeypatch.setattr(store, "history", history)
    store.add_history("source", {"number": 3})
    assert {each["number"] for each in other.history("source")} == {1, 2, 3}


def test_a_long_file_of_notes_keeps_the_latest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_NOTE_BYTES", 500)
    for number in range(50):
        store.add_history("source", {"number": number})
    assert [each["number"] for each in store.history("source")] == [*range(49, 41, -1)]
    assert (store.root / "recent" / "source").stat().st_size < 600


def test_the_least_recently_used_go_first(store: Store) -> None:
    digests = [f"{i:02x}" + "0" * 62 for i in range(6)]
    for age, digest in enumerate(digests):
        put(store, digest, entry("x" * 10_000))
        os.utime(store.path(digest), (1000 + age, 1000 + age))
    assert store.get(digests[0], cache.read_entry) is not None  # its use makes it the newest
    store.trim(40_000)
    assert [store.get(digest, cache.read_entry) is not None for digest in digests] == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    assert size() <= 40_000


def test_putting_keeps_the_size_within_its_bound(store: Store) -> None:
    with settings.override(cache_bytes=60_000):
        for i in range(20):
            put(store, f"{i:02x}" + "0" * 62, entry("x" * 10_000))
        assert 0 < size() <= 60_000 + 11_000
    assert store.get("13" + "0" * 62, cache.read_entry) is not None


def test_what_a_killed_writer_left_is_swept_by_the_next(store: Store) -> None:
    left = store.root / "temporary" / "ab" / "left"
    left.mkdir(parents=True)
    (left / "kernel.ptx").write_text("half")
    put(store)
    assert not left.exists()


def test_old_leftovers_of_any_key_are_swept_when_the_size_is_looked_at(store: Store) -> None:
    old, fresh = store.root / "temporary" / "cd", store.root / "temporary" / "ef"
    for folder in (old, fresh):
        folder.mkdir(parents=True)
    os.utime(old, (1000, 1000))
    store.trim(1 << 30)
    assert not old.exists()
    assert fresh.exists()


def test_entries_are_listed_counted_and_cleared(make: Build, cache_dir: Path) -> None:
    assert (cache.location(), size(), cache.entries()) == (cache_dir, 0, [])
    made = make(KERNEL)
    (listed,) = cache.entries()
    assert listed["digest"] == made.build_digest
    assert listed["about"]["source"] == "inline.cu"
    assert listed["about"]["target"] == "sm_80"
    assert listed["size_bytes"] == size() > 0
    assert cache.clear() == 1
    assert (size(), cache.entries()) == (0, [])
    assert not make(KERNEL).cached


def test_the_default_location_is_the_users_cache_directory() -> None:
    with settings.override(cache_dir=None):
        assert cache.location().name == "dotcu"


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize(
    ("owner", "function", "fault", "said"),
    [(os, "fsync", full, "no space left"), (Path, "mkdir", read_only, "read-only file system")],
)
def test_a_disk_that_is_full_or_read_only_costs_one_warning_and_no_result(
    make: Build,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    function: str,
    fault: Callable[..., None],
    said: str,
) -> None:
    monkeypatch.setattr(owner, function, fault)
    first, other = make(KERNEL), make(KERNEL.replace("1", "2"))
    assert first.cubin is not None
    assert other.cubin is not None
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert said in warnings[0]
    assert "export DOTCU_CACHE_DIR=" in warnings[0]
    assert make(KERNEL).cached  # this process still remembers
    monkeypatch.undo()
    assert cache.entries() == []


def test_a_cache_directory_that_is_a_file_costs_one_warning_and_no_result(
    make: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("mine")
    with settings.override(cache_dir=tmp_path / "file"):
        assert make(KERNEL).cubin is not None
        assert make(KERNEL.replace("1", "2")).cubin is not None
    assert [r.levelno for r in caplog.records].count(logging.WARNING) == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_where_an_entry_should_be_is_replaced(make: Build, cache_dir: Path) -> None:
    digest = make(KERNEL).build_digest
    store = Store(cache_dir)
    cache.clear()
    store.path(digest).parent.mkdir(parents=True, exist_ok=True)
    store.path(digest).write_text("no entry")
    assert not make(KERNEL).cached
    cache.forget()
    assert make(KERNEL).cached


def test_memory_holds_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "MEMORY_BYTES", 3 * entry().size_bytes)
    cache.forget()
    digests = [f"{number:064x}" for number in range(4)]
    for digest in digests[:3]:
        cache.keep_in_memory(tmp_path, digest, entry())
    assert cache.get_from_memory(tmp_path, digests[0]) is not None  # so that the second is the last used
    cache.keep_in_memory(tmp_path, digests[3], entry())
    held = [digest for digest in digests if cache.get_from_memory(tmp_path, digest) is not None]
    assert held == [digests[0], digests[2], digests[3]]
    cache.keep_in_memory(tmp_path, digests[1], entry("large" * 100))  # the newest stays, however large
    assert cache.get_from_memory(tmp_path, digests[1]) is not None
    cache.forget()


def test_threads_may_put_and_take_entries_in_memory_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "MEMORY_BYTES", 4 * entry().size_bytes)
    cache.keep_in_memory(tmp_path, DIGEST, entry())
    errors: list[Exception] = []

    def put_and_take(thread: int) -> None:
        try:
            for number in range(2_000):
                cache.keep_in_memory(tmp_path, f"{thread}{number % 8}", entry())
                cache.get_from_memory(tmp_path, f"{(thread + 1) % 4}{number % 8}")
        except Exception as error:
            errors.append(error)

    in_threads(put_and_take, 4)
    assert not errors
    cache.forget()


def test_no_thread_misses_an_entry_in_memory_while_another_takes_it(tmp_path: Path) -> None:
    cache.keep_in_memory(tmp_path, DIGEST, entry())
    missed: list[int] = []

    def take(_: int) -> None:
        missed.extend(n for n in range(20_000) if cache.get_from_memory(tmp_path, DIGEST) is None)

    in_threads(take, 2)
    assert not missed
    cache.forget()


def in_threads(function: Callable[[int], None], count: int) -> None:
    """Run a function in threads that take turns as often as Python lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_memory_can_be_used_in_a_child_that_was_forked_while_it_was_locked(tmp_path: Path) -> None:
    with cache._guard:
        child = os.fork()
        if child == 0:
            cache.keep_in_memory(tmp_path, DIGEST, entry())
            os._exit(0 if cache.get_from_memory(tmp_path, DIGEST) is not None else 1)
    for _ in range(300):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child waits for a lock that nobody holds")
    assert os.waitstatus_to_exitcode(status) == 0


def test_two_threads_compile_once(make: Build, compiles: list[str]) -> None:
    ready = threading.Barrier(4)
    results: list[ObjectCode] = []

    def ask() -> None:
        ready.wait()
        results.append(make(KERNEL))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiles) == 1
    assert sorted(result.cached for result in results) == [False, True, True, True]
    assert len({result.cubin for result in results}) == 1


EIGHT = """
import os, pathlib
from dotcu import settings
from dotcu.compile import CompileOptions, Target, build, inline_source
source = inline_source("__global__ void k(float* x) {{ *x = 8; }}")
read, write = os.pipe()
with settings.override(cache_dir=pathlib.Path({cache!r})):
    for _ in range(8):
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)  # all begin when the parent closes its end
            made = build(source, options=CompileOptions(), target=Target.parse("sm_80"), names=["k"])
            os.write(1, b"compiled\\n" if not made.cached else b"taken\\n")
            os._exit(0)
    os.close(write)
    for _ in range(8):
        assert os.wait()[1] == 0
"""


def test_eight_processes_ask_for_one_kernel_and_it_is_compiled_once(python: Python, cache_dir: Path) -> None:
    done = subprocess.run(
        python(EIGHT.format(cache=str(cache_dir))), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == ["compiled"] + ["taken"] * 7


KILLS = """
import logging, os, pathlib, random, signal, time
logging.basicConfig(level=logging.WARNING)
from dotcu.compile import cache
from dotcu.compile.cache import Store
from dotcu.compile.cache import CacheEntry
store = Store(pathlib.Path({cache!r}))
digests = ["%02x" % i + "0" * 62 for i in range(8)]

def right(digest):
    code = digest * 500
    return CacheEntry(about={{"of": digest}}, lowered={{}}, ptx=code, cubin=code.encode(), log="")

def publish_for_ever(pipe):
    chance = random.Random(os.getpid())
    while True:
        digest = chance.choice(digests)
        with store.lock(digest) as locked:
            if chance.random() < 0.3:
                store.remove(store.path(digest))
            store.put(digest, right(digest).files(), locked=locked)
        os.write(pipe, b".")

chance, served = random.Random(0), 0
for _ in range(16):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        publish_for_ever(write)
    os.read(read, 1)  # it has published an entry, and is at another
    time.sleep(chance.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    for digest in digests:
        found = store.get(digest, cache.read_entry)
        assert found is None or found == right(digest), digest
        served += found is not None
for digest in digests:
    with store.lock(digest) as locked:
        assert locked and store.put(digest, right(digest).files(), locked=locked)
    assert store.get(digest, cache.read_entry) == right(digest)
groups = [group for group in (store.root / "temporary").iterdir() if len(group.name) == 2]
assert not [left for group in groups for left in group.iterdir()]
print("served", served)
"""


def test_kills_at_random_moments_leave_only_right_entries(python: Python, cache_dir: Path) -> None:
    done = subprocess.run(
        python(KILLS.format(cache=str(cache_dir))), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""  # not even a warning of a damaged entry
    word, served = done.stdout.split()
    assert word == "served"
    assert int(served) >= 8  # of 16 rounds, each of which had published an entry when it was killed


def test_a_size_of_files_is_what_was_written(tmp_path: Path) -> None:
    assert cache.write_files(tmp_path, entry().files()) == sum(f.stat().st_size for f in tmp_path.iterdir())


def test_a_layer_below_the_cache_is_read_and_never_written(
    make: Build, compiles: list[str], cache_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = tmp_path / "layer"
    with settings.override(cache_dir=layer):
        made = make(KERNEL)
    cache.forget()
    folder = Store(layer).path(made.build_digest)
    os.utime(folder, (1000, 1000))
    with settings.override(cache_dirs=(tmp_path / "absent", layer)), caplog.at_level(logging.INFO):
        for _ in range(2):
            assert make(KERNEL).cubin == made.cubin
            cache.forget()
    assert compiles == [compiles[0]]
    assert f"cache hit in the layer {layer}" in caplog.text
    assert not cache_dir.exists()
    assert folder.stat().st_mtime == 1000
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "absent, of DOTCU_CACHE_DIRS, has no folder v1" in warnings[0]


def test_a_child_that_was_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.lock("ab"):
        # a fork has every open file of its parent, as this child has that of the lock
        opened = {
            Path(os.path.realpath(each)).name: int(each.name) for each in Path("/proc/self/fd").iterdir()
        }
        program, file = [sys.executable, "-c", "input()"], opened["ab.lock"]
        child = subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[file])
    with store.lock("ab", lambda: True) as locked:
        assert locked
    child.communicate(b"")


def test_a_dead_holders_lock_is_free_though_its_child_lives(tmp_path: Path, python: Python) -> None:
    holder = f"""
import os, sys, threading, time
from pathlib import Path
from dotcu.compile.cache import Store

held = threading.Event()

def hold():
    with Store(Path({str(tmp_path)!r})).lock("ab"):
        held.set()
        time.sleep(600)

threading.Thread(target=hold, daemon=True).start()
held.wait()
if os.fork() == 0:
    print("forked", flush=True)
    os.read(0, 1)
    os._exit(0)
os.wait()
"""
    process = subprocess.Popen(python(holder), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as told:
        assert told.readline() == b"forked\n"
    process.kill()
    process.wait()
    with Store(tmp_path).lock("ab", lambda: True) as locked:
        assert locked
    assert process.stdin is not None
    process.stdin.close()


def test_a_layer_that_is_denied_costs_warnings_and_a_compile(
    make: Build,
    cache_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    layer, stat = tmp_path / "denied", Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if layer in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "is_dir", lambda path: bool(path.stat()))  # as Python up to 3.13 has it
    with settings.override(cache_dirs=(layer,)):
        assert not make(KERNEL).cached
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("denied, of DOTCU_CACHE_DIRS, has no folder v1 to read" in each for each in said)


def test_a_damaged_layer_costs_a_warning_and_a_compile(
    make: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = tmp_path / "layer"
    with settings.override(cache_dir=layer):
        digest = make(KERNEL).build_digest
    (Store(layer).path(digest) / "kernel.cubin").write_bytes(b"cut")
    cache.forget()
    with settings.override(cache_dirs=(layer,)):
        assert make(KERNEL).cubin
    assert "kernel.cubin is not what was written" in caplog.text
    assert (Store(layer).path(digest) / "kernel.cubin").read_bytes() == b"cut"


def test_an_entry_under_the_name_of_another_is_not_taken(
    make: Build, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(cache_dir)
    one, other = make(KERNEL), make(KERNEL.replace("1", "2"))
    cache.forget()
    store.remove(store.path(one.build_digest))
    store.path(one.build_digest).parent.mkdir(exist_ok=True)
    store.path(other.build_digest).rename(store.path(one.build_digest))
    assert make(KERNEL).cubin == one.cubin
    assert f"it is the entry {other.build_digest[:16]}" in caplog.text


def sealed(index: dict[str, object]) -> bytes:
    return json.dumps({**index, "itself": cache._index_digest(index)}).encode()


WRONG_INDICES = [
    b"[" * 100_000, b"[]", b"1", b"null", b'{"format": 1}', b"\xff", b"",
    sealed({"format": 1, "about": [], "sha256": {}}),
    sealed({"format": 1, "about": {}, "sha256": []}),
    sealed({"format": 1, "about": {}, "sha256": {}}),
    sealed({"format": 1, "about": {}, "lowered": {"k": 1}, "sha256": {}}),
    sealed({"format": 1, "about": {}, "lowered": {}, "sha256": {"../../secret": "0"}}),
    sealed({"format": 1, "about": {}, "lowered": {}, "sha256": {"kernel.ptx": 7}}),
]  # fmt: skip


@pytest.mark.parametrize("raw", WRONG_INDICES)
def test_an_index_that_is_none_is_damage_and_no_crash(store: Store, raw: bytes) -> None:
    put(store)
    (store.path(DIGEST) / "entry.json").write_bytes(raw)
    assert store.get(DIGEST, cache.read_entry) is None


def test_a_disk_that_is_full_while_a_compiler_writes_is_an_error_with_the_line_to_type(store: Store) -> None:
    says = r"cannot be written: No space left.*\n.*export DOTCU_CACHE_DIR="
    with pytest.raises(CacheError, match=says), store.scratch():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), store.scratch() as scratch:
        (scratch / "none").read_bytes()
    assert not list(store.directory.glob("v1/temporary/*"))


@pytest.fixture
def stopped(store: Store, python: Python) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stopped while it holds a lock of the store; it ends when it goes on."""
    text = f"""
import os, signal
from pathlib import Path
from dotcu.compile.cache import Store
with Store(Path({str(store.directory)!r})).lock("ab"):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    with subprocess.Popen(python(text)) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)


def test_a_stopped_holder_is_named_and_after_a_limit_nobody_waits_for_it(
    store: Store,
    stopped: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(locks, "_TELL_S", 0.1)
    monkeypatch.setitem(locks._LIMITS_S, "stopped", 0.3)
    with store.lock("ab") as locked:
        assert not locked
        assert store.put(DIGEST, entry().files(), locked=locked)
    holder = f"Process {stopped.pid} holds the lock {store.lock_file('ab')} and is stopped"
    remedy = f"(to let it go on: kill -CONT {stopped.pid})"
    assert [record.getMessage() for record in caplog.records] == [
        f"{holder} {remedy}: this process waits for it, at most 0.3 s.",
        f"{holder} {remedy} after 0 s: this process goes on without it.",
    ]


def test_a_stopped_holder_that_goes_on_is_waited_for(
    store: Store,
    stopped: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(locks, "_TELL_S", 0.1)

    def let_go_on() -> bool:
        if "kill -CONT" in caplog.text:
            stopped.send_signal(signal.SIGCONT)
        return False

    with store.lock("ab", let_go_on) as locked:
        assert locked


def test_a_lock_that_this_thread_holds_is_not_waited_for(store: Store) -> None:
    with store.lock(DIGEST) as outer, store.lock(DIGEST) as inner, store.lock("ab" + "1" * 62) as other:
        assert (outer, inner, other) == (True, False, False)
    with store.lock(DIGEST) as again:
        assert again


def test_a_lock_that_is_held_for_a_second_is_told_of_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "_TELL_S", 0.0)
    looks = iter(range(4))
    with store.lock("ab"):
        cache._thread_locks.clear()  # as another process
        cache._owners.clear()
        with caplog.at_level(logging.INFO), store.lock("ab", lambda: next(looks, None) is None) as locked:
            assert not locked
    (told,) = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert told[0] == "INFO"
    assert told[1].startswith(f"Process {os.getpid()} holds the lock {store.lock_file('ab')}: ")


@pytest.mark.parametrize(
    ("note", "name"),
    [
        (b"12 node-7.cluster", "Process 12 on node-7.cluster"),
        (b"", "Another process"),
        (b"12 \x1b[31m", "Another process"),
        (b"9" * 400, "Another process"),
    ],
)
def test_a_note_in_a_lock_of_another_machine_is_not_trusted(
    store: Store, tmp_path: Path, note: bytes, name: str
) -> None:
    (tmp_path / "a.holder").write_bytes(note)
    found = locks.holder(tmp_path / "a.lock")
    assert (found.process, found.state) == (name, "elsewhere")


def modes(folder: Path) -> set[str]:
    """Who may do what with a folder and all that is in it."""
    return {stat.filemode(path.stat().st_mode)[4:] for path in (folder, *folder.rglob("*"))}


def test_nobody_else_may_write_into_the_cache_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "new" / "cache")
        put(store)
        store.add_history("source", {"a": 1})
        with store.scratch() as scratch:
            assert "w" not in stat.filemode(scratch.stat().st_mode)[4:]
    finally:
        os.umask(before)
    assert not any("w" in mode for mode in modes(tmp_path / "new"))
    assert stat.filemode(store.root.stat().st_mode) == "drwx------"


def test_permissions_that_an_earlier_version_gave_are_taken_away(store: Store) -> None:
    put(store)
    store.root.chmod(0o777)
    assert store.get(DIGEST, cache.read_entry) == entry()
    assert stat.filemode(store.root.stat().st_mode) == "drwxr-xr-x"


@pytest.mark.parametrize("theirs", ["", "entries/ab/{}/kernel.cubin", "entries/ab/{}/entry.json"])
def test_what_another_user_has_put_into_the_cache_is_not_loaded(
    make: Build, cache_dir: Path, of_another_user: Callable[[Path], None], theirs: str,
    compiles: list[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    made = make(KERNEL)
    cache.forget()
    digest = made.build_digest
    of_another_user(cache_dir / "v1" / theirs.format(digest).replace("/ab/", f"/{digest[:2]}/"))
    assert not make(KERNEL).cached
    assert len(compiles) == 2
    cache.forget()
    make(KERNEL)
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "belongs to" in warning
    assert "DOTCU_CACHE_DIR" in warning


def test_a_cache_behind_another_users_link_is_not_used(
    store: Store, tmp_path: Path, of_another_user: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()  # its folder `temporary` would be emptied
    store.directory.mkdir(exist_ok=True)
    store.root.symlink_to(tmp_path / "mine")
    put(store)
    assert store.get(DIGEST, cache.read_entry) == entry()  # the link is mine, so far
    of_another_user(store.root)
    assert store.get(DIGEST, cache.read_entry) is None
    assert not store.put(DIGEST, entry().files(), locked=True)
    assert "v1 belongs to" in caplog.text


def replaced_by(harm: str, path: Path) -> None:
    """Put something else in place of a file or a folder."""
    if harm == "sparse":
        os.truncate(path, 10 << 30)
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if harm == "fifo":
        os.mkfifo(path)
    elif harm == "link":
        path.symlink_to(path)
    elif harm == "device":
        path.symlink_to("/dev/zero")
    elif harm == "folder":
        path.mkdir()


@pytest.mark.parametrize(
    ("harm", "name", "place"),
    [
        ("sparse", "kernel.cubin", "cache"),
        ("sparse", "entry.json", "layer"),
        ("fifo", "entry.json", "cache"),
        ("fifo", "kernel.ptx", "layer"),
        ("link", "log.txt", "cache"),
        ("device", "kernel.cubin", "cache"),
        ("folder", "entry.json", "cache"),
    ],
)
def test_what_is_no_file_of_an_entry_costs_a_warning_and_a_compile(
    make: Build, tmp_path: Path, harm: str, name: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with settings.override(cache_dir=tmp_path / place):
        made = make(KERNEL)
        replaced_by(harm, Store(tmp_path / place).path(made.build_digest) / name)
    cache.forget()
    with settings.override(cache_dir=tmp_path / "cache", cache_dirs=(tmp_path / "layer",)):
        caplog.clear()
        assert make(KERNEL).cubin == made.cubin
        assert "is damaged" in caplog.text
        cache.forget()
        assert make(KERNEL).cached  # an entry that was replaced stays so


@pytest.mark.parametrize("name", ["locks/{}.lock", "locks/{}.holder", "recent/last-compile", "temporary/{}"])
def test_a_fifo_anywhere_in_the_cache_stops_no_compile(make: Build, cache_dir: Path, name: str) -> None:
    made = make(KERNEL)
    cache.forget()
    shutil.rmtree(Store(cache_dir).path(made.build_digest))
    replaced_by("fifo", cache_dir / "v1" / name.format(made.build_digest[:2]))
    assert make(KERNEL).cubin == made.cubin


def resealed(store: Store, digest: str, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Change an entry, and make its digests right."""
    opened = cache.open_entry(store.path(digest))
    assert opened is not None
    index, files = dict(opened[0]), dict(opened[1])
    change(index, files)
    sealed_files = cache.with_index(files, about=index["about"], lowered=index["lowered"])
    store.put(digest, sealed_files, locked=True)


WRONG_CONTENTS: dict[str, Callable[[dict[str, Any], dict[str, bytes]], None]] = {
    "no names": lambda index, _: index["lowered"].clear(),
    "half a surrogate pair in a name": lambda index, _: index["lowered"].update(k="\ud800"),
    "half a surrogate pair in a description": lambda index, _: index["about"].update(source="\ud800"),
    "a description of numbers": lambda index, _: index["about"].update(source=1),
    "a cubin of text": lambda _, files: files.update({"kernel.cubin": b"text"}),
    "a cubin that is cut": lambda _, files: files.update({"kernel.cubin": files["kernel.cubin"][:200]}),
    "no cubin": lambda _, files: files.pop("kernel.cubin"),  # type: ignore[dict-item,return-value]
    "a log of too many digits": lambda _, files: files.update(
        {"log.txt": b"Compiling entry function '_Z1kPi' for 'sm_80'\nUsed " + b"9" * 5000 + b" registers"}
    ),
    "a log that is no text": lambda _, files: files.update({"log.txt": b"\xff"}),
    "layouts that lead nowhere": lambda _, files: files.update({"layouts.json": b'{"k": [{"to": 7}]}'}),
    "layouts in a circle": lambda _, files: files.update({"layouts.json": b'{"k": [{"to": 0}]}'}),
    "layouts of text": lambda _, files: files.update({"layouts.json": b'{"k": [{"size": "8"}]}'}),
}


@pytest.mark.parametrize("harm", WRONG_CONTENTS)
def test_wrong_contents_with_right_digests_are_damage_and_replaced(
    make: Build, cache_dir: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = make(KERNEL)
    cache.forget()
    resealed(Store(cache_dir), made.build_digest, WRONG_CONTENTS[harm])
    caplog.clear()
    assert make(KERNEL).cubin == made.cubin
    assert "is damaged" in caplog.text
    cache.forget()
    assert make(KERNEL).cached
    cache.entries()


def test_entries_dated_in_the_future_go_first_and_the_cache_serves_on(cache_dir: Path) -> None:
    one = sum(map(len, entry().files().values()))
    with settings.override(cache_bytes=10 * one):
        store = Store(cache_dir)
        digests = [f"{number:02x}" + "0" * 62 for number in range(14)]
        for digest in digests[:9]:
            put(store, digest)
        for folder, _ in store.folders():
            os.utime(folder, (time.time() + 1e8,) * 2)
        for digest in digests[9:]:
            put(store, digest)
        assert {each["digest"] for each in cache.entries()} >= set(digests[9:])


@pytest.mark.parametrize("harm", ["a bit", "another source's", "no UTF-8", "deep", "a fifo"])
def test_a_note_that_was_changed_is_thrown_away(store: Store, harm: str) -> None:
    store.add_history("source", {"text": "*x = 1;"})
    note = store.root / "recent" / "source"
    text = note.read_bytes()
    if harm == "another source's":
        note.rename(note.with_name("other"))
        assert store.history("other") == []
        return
    harmed = {"a bit": text.replace(b"= 1", b"= 3"), "no UTF-8": b"\xff\n", "deep": b"[" * 100_000}
    if harm == "a fifo":
        replaced_by("fifo", note)
        store.add_history("source", {"text": "*x = 2;"})
        assert store.history("source") == []
        return
    note.write_bytes(harmed[harm])
    assert store.history("source") == []
    store.add_history("source", {"text": "*x = 2;"})
    assert store.history("source")[0] == {"text": "*x = 2;"}


@pytest.mark.parametrize("change", [{"seconds": "1"}, {"kernels": [1]}, {"time": None}])
def test_a_noted_cause_of_another_type_is_no_cause(store: Store, change: dict[str, Any]) -> None:
    texts = dict.fromkeys(("file", "target", "arguments", "reason", "caller"), "")
    cause = {**texts, "kernels": ["k"], "looked_in": [], "seconds": 1.0, "time": 1.0}
    store.add_history("last-compile", cause)
    store.add_history("last-compile", {**cause, **change})
    assert last_compile() == cause


def test_without_a_home_the_cache_is_a_folder_of_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_home(*_: object, **__: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_cache_dir", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache._default_location.cache_clear()
    try:
        with settings.override(cache_dir=None):
            assert cache.location() == tmp_path / f"dotcu-{os.geteuid()}"
    finally:
        cache._default_location.cache_clear()

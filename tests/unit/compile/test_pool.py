"""Compiles in other processes: what they leave in the cache, and what fails there."""

from __future__ import annotations

import fcntl
import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dotcu
from dotcu import settings
from dotcu.compile import Target, cache, pool, sharing
from dotcu.compile.cache import Store
from dotcu.compile.plan import BuildInputs
from dotcu.errors import JitDisabled
from dotcu.tracebacks import file_line

_numbers = itertools.count()


def test_other_processes_compile_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = (
        f'template <int N> __global__ void f(float* x) {{ static_assert(N, "{next(_numbers)}"); *x = N; }}'
    )
    kernels, target = dotcu.load_inline(source), Target.parse("sm_80")
    units = [kernels.f[number].unit for number in range(3)]  # of 0 none compiles
    wanted = [unit.inputs(target) for unit in units]
    monkeypatch.setattr(pool.os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    before = dotcu.metrics()["dotcu_compiles_total"]
    with settings.override(jit="warn"):
        assert set(pool.compile_ahead(wanted, few=1)) == set(wanted)
    assert dotcu.metrics()["dotcu_compiles_total"] == before + 3  # one of no kernel: where is the fault?
    compiled = sorted(vars(record)["dotcu_compile"]["kernels"] for record in caplog.records)
    assert compiled == [[], ["f<1>"], ["f<2>"]]
    callers = {vars(record)["dotcu_compile"]["caller"] for record in caplog.records}
    assert [caller.partition(":")[0] for caller in callers] == [file_line(__file__, None)]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert [unit.code(target).object.cached for unit in units[1:]] == [True, True]
    with pytest.raises(dotcu.errors.CompileError):
        units[0].code(target)


def test_a_worker_says_no_more_than_the_process_that_started_it(caplog: pytest.LogCaptureFixture) -> None:
    records = [logging.makeLogRecord({"name": "dotcu", "levelno": level}) for level in (20, 30)]
    for record in records:
        record.dotcu_compile = {"seconds": 1.0}

    class Worker:
        replies = iter([pool.as_text(records), None])

        def send(self, request: str) -> None: ...

        def receive(self) -> str | None:
            return next(self.replies)

    kernels = dotcu.load_inline("__global__ void g() {}")
    with caplog.at_level(logging.WARNING, "dotcu"):
        list(pool._ask(Worker(), kernels.g.unit.inputs(Target.parse("sm_80")), caller=""))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_few_are_left_to_who_wants_them() -> None:
    kernels = dotcu.load_inline("__global__ void g() {}")
    assert list(pool.compile_ahead([kernels.g.unit.inputs(Target.parse("sm_80"))])) == []


@pytest.fixture
def wanted(cache_dir: Path) -> list[BuildInputs]:
    """Builds of which nothing is there."""
    kernels = dotcu.load_inline("template <int N> __global__ void f(int* x) { *x = N; }")
    return [kernels.f[number].unit.inputs(Target.parse("sm_80")) for number in range(4)]


def test_what_another_process_is_making_is_left_for_last(
    wanted: list[BuildInputs], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, keys = Store(cache_dir), {one: f"{number}0" * 32 for number, one in enumerate(wanted)}
    monkeypatch.setattr(pool.os, "getpid", lambda: 2)
    with store.lock("a0"):  # makes the folder
        pass
    with (store.root / "locks" / "20.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        order = pool._in_order(store, keys)
        assert [next(order), next(order), next(order)] == [wanted[3], wanted[0], wanted[1]]
    assert list(order) == [wanted[2]]


def test_workers_get_what_nobody_makes_already(
    wanted: list[BuildInputs], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes as long to start as some compiles: processes that start at once are workers enough."""
    store, keys = Store(cache_dir), {one: f"{number}0" * 32 for number, one in enumerate(wanted)}
    store.path(keys[wanted[1]]).mkdir(parents=True)
    with store.lock("20" * 32):  # makes the folder
        pass
    other = (store.root / "locks" / "20.lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    asked: list[BuildInputs] = []

    def ahead(left: list[BuildInputs]) -> Iterator[BuildInputs]:
        asked.extend(left)
        other.close()
        yield from ()

    monkeypatch.setattr(pool, "FEW", 1)
    monkeypatch.setattr(pool.os, "getpid", lambda: 0)  # wanted[0] is made first, here
    monkeypatch.setattr(pool, "_found", lambda *_: ({}, keys))
    monkeypatch.setattr(pool, "compile_ahead", ahead)
    pool.build_all(wanted)
    assert asked == [wanted[3]]


def test_a_store_is_asked_for_many_objects_at_once(
    wanted: list[BuildInputs], cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, read, together = f"file://{tmp_path}/store", sharing._read, threading.Barrier(4, timeout=20)

    def waiting(*asked: str) -> bytes | None:
        together.wait()  # fails where they come one after another
        return read(*asked)

    with settings.override(cache_dir=tmp_path / "first", cache_remote=url, cache_remote_write=True):
        made = pool.build_all(wanted)
    cache.forget()
    monkeypatch.setattr(sharing, "_read", waiting)
    seen: list[BuildInputs] = []
    with settings.override(cache_remote=url, cache_trust=url, jit="error"):
        again = pool.build_all(wanted, seen.append)
    assert [code.cubin for code in again.values()] == [code.cubin for code in made.values()]
    assert len(seen) == len(set(seen)) == 4


def test_a_store_is_asked_once_for_what_it_lacks(
    wanted: list[BuildInputs], cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = f"file://{tmp_path}/store", list[str]()
    monkeypatch.setattr(sharing, "_read", lambda _, name: asked.append(name))
    with settings.override(cache_remote=url, cache_trust=url):
        pool.build_all(wanted[:3])
        assert len(asked) == len(set(asked)) == 3
        with settings.override(jit="error"):
            for _ in range(2):  # where nothing may be compiled, it may have it by now
                with pytest.raises(JitDisabled):
                    pool._build(wanted[3])
    assert len(asked) == 5

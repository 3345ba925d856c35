"""The store that machines share: read through, verified by digests, able to cost time and nothing else."""

from __future__ import annotations

import base64
import contextlib
import http.server
import io
import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.compile import (
    CompileOptions,
    ObjectCode,
    Target,
    cache,
    inline_source,
    parameter_layouts,
    plan,
    read_source,
    sharing,
)
from dotcu.compile.cache import CacheEntry, Store
from dotcu.errors import JitDisabled

Build = Callable[..., ObjectCode]

KERNEL = "__global__ void k(int* x) { *x = 1; }"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    sharing._left_alone.clear()
    sharing._said.clear()


@pytest.fixture
def filled(make: Build, tmp_path: Path) -> str:
    """A store with a kernel that another machine has compiled."""
    url = f"file://{tmp_path}/store"
    with settings.override(cache_dir=tmp_path / "first", cache_remote=url, cache_remote_write=True):
        make(KERNEL)
    cache.forget()
    sharing._said.clear()
    return url


def files(url: str) -> list[Path]:
    return sorted(path for path in Path(url.removeprefix("file://")).rglob("*") if path.is_file())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_what_one_machine_compiled_another_reads_and_keeps(
    make: Build, cache_dir: Path, filled: str, compiles: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with settings.override(cache_remote=filled, cache_trust=filled):
        made = make(KERNEL)
        assert made.cached
        assert f"cache hit in the store {filled}" in caplog.text
        cache.forget()
        shutil.rmtree(filled.removeprefix("file://"))
        assert make(KERNEL).cubin == made.cubin
    assert compiles == []
    assert [entry["digest"] for entry in cache.entries()] == [made.build_digest]


def test_nothing_is_written_unless_that_is_asked_for(make: Build, cache_dir: Path, filled: str) -> None:
    before = files(filled)
    with settings.override(cache_remote=filled, cache_trust=filled):
        make(KERNEL.replace("1", "3"))
    assert files(filled) == before
    with settings.override(cache_remote=filled, cache_trust=filled, cache_remote_write=True):
        make(KERNEL.replace("1", "4"))
        make(KERNEL, debug=True)  # holds the working directory, so it stays here
    assert len(files(filled)) == len(before) + 1


@pytest.mark.parametrize("trust", [None, "s3://another", ""])
def test_without_a_lock_or_trust_no_store_is_asked(
    make: Build, cache_dir: Path, filled: str, trust: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with settings.override(cache_remote=filled, cache_trust=trust):
        assert not make(KERNEL).cached
        sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True)
    assert len(warnings(caplog)) == 1
    assert f"export DOTCU_CACHE_TRUST={filled}" in warnings(caplog)[0]


def test_the_members_of_a_struct_are_an_object_as_any_other(
    cache_dir: Path, tmp_path: Path, compiles: list[str]
) -> None:
    url = f"file://{tmp_path}/store"
    source = inline_source("struct P { float by; int* x; }; __global__ void k(P p) { *p.x = 1; }")
    ask = partial(parameter_layouts, source, CompileOptions(), Target.parse("sm_90a"), ["k"], simulated=False)
    with settings.override(cache_dir=tmp_path / "first", cache_remote=url, cache_remote_write=True):
        rows = ask()
    assert [(row["tag"], row.get("size")) for row in rows["k"]][:2] == [("function", None), ("struct", 16)]
    cache.forget()
    compiles.clear()
    with settings.override(cache_remote=url, cache_trust=url, jit="error"):
        assert ask() == rows
    with settings.override(jit="error"):
        cache.forget()
        assert ask() == rows
        layouts = next(cache_dir.rglob("layouts.json"))
        assert b"first" not in layouts.read_bytes()  # no path of the machine
        for wrong in (b"", b"[]", b'{"k": [1]}', b'{"k": 1}', b'{"k": [{}]}', b"[" * 10_000):
            files = {"kernel.ptx": b"", "log.txt": b"", "layouts.json": wrong}
            Store(cache_dir).put(
                layouts.parent.name, cache.with_index(files, about={}, lowered={"k": "k"}), locked=True
            )
            cache.forget()
            with pytest.raises(JitDisabled):
                ask()
    assert compiles == []


def with_lock(folder: Path, objects: dict[str, str]) -> None:
    (folder / "dotcu.lock").write_text(json.dumps({"sources": [{"objects": objects}, {}]}))


def test_what_the_lock_has_is_taken_from_a_store_that_nobody_trusts_and_nothing_else(
    make: Build, cache_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, source = f"file://{tmp_path}/store", tmp_path / "project" / "src" / "k.cu"
    source.parent.mkdir(parents=True)
    source.write_text(KERNEL)
    with settings.override(cache_dir=tmp_path / "first", cache_remote=url, cache_remote_write=True):
        made = make(read_source(source, []))
    index = json.loads((Store(tmp_path / "first").path(made.build_digest) / "entry.json").read_text())
    for digest, taken in ((index["itself"], True), ("0" * 64, False)):
        shutil.rmtree(cache_dir, ignore_errors=True)
        cache.forget()
        sharing._said.clear()
        caplog.clear()
        with_lock(tmp_path / "project", {made.build_digest: digest})
        plan._objects.cache_clear()
        with settings.override(cache_remote=url):
            assert make(read_source(source, [])).cached is taken
    assert "it is not the object that dotcu.lock has" in warnings(caplog)[0]


def evil(folder: Path, made: ObjectCode) -> dict[str, bytes]:
    """The files of another kernel's code under the key of an entry, with digests that are right."""
    opened = cache.open_entry(Store(folder).path(made.build_digest))
    assert opened is not None
    index, whole = opened
    changed = {**whole, "kernel.ptx": whole["kernel.ptx"] + b"// evil"}
    return cache.with_index(changed, about=index["about"], lowered=index["lowered"])


@pytest.mark.parametrize("place", ["layer", "pack", "cache", "memory"])
def test_what_the_lock_has_binds_a_layer_a_pack_the_cache_and_memory(
    make: Build, cache_dir: Path, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, layer = tmp_path / "project" / "k.cu", tmp_path / "layer"
    source.parent.mkdir()
    source.write_text(KERNEL)
    with settings.override(cache_dir=tmp_path / "first"):
        made = make(read_source(source))
    entry = cache.read_entry(Store(tmp_path / "first").path(made.build_digest))
    assert entry is not None
    files = evil(tmp_path / "first", made)
    if place == "pack":
        with (tmp_path / "evil.tar").open("wb") as out:
            sharing.write_pack(out, {made.build_digest: files})
        assert sharing.unpack(tmp_path / "evil.tar", cache_dir) == (1, 0)
    else:
        Store(layer if place == "layer" else cache_dir).put(made.build_digest, files, locked=True)
    layers = (layer,) if place == "layer" else ()
    with settings.override(cache_dirs=layers):
        if place == "memory":
            assert "evil" in make(read_source(source)).ptx  # no lock yet: a cache is trusted
        with_lock(source.parent, {made.build_digest: entry.digest})
        caplog.clear()
        assert "evil" not in make(read_source(source)).ptx
    if place != "memory":
        assert "it is not the object that dotcu.lock has" in warnings(caplog)[0]
    cache.forget()
    with settings.override(cache_dirs=layers):
        assert make(read_source(source)).cached  # what was compiled is what the lock has


def test_a_lock_of_another_object_than_the_compilers_is_said_and_does_not_stop_work(
    make: Build, cache_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "k.cu"
    source.write_text(KERNEL)
    made = make(read_source(source))
    with_lock(tmp_path, {made.build_digest: "0" * 64})
    for _ in range(2):
        cache.forget()
        caplog.clear()
        assert make(read_source(source)).ptx == made.ptx
        assert "Write the digests again: dotcu cache pack TARGET --lock" in caplog.text


@pytest.mark.parametrize("why", ["another user", "repository", "project", "shared folder"])
def test_a_lock_outside_of_the_users_own_project_gives_no_right(
    tmp_path: Path, why: str, of_another_user: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "shared" / "project" / "src" / "k.cu"
    source.parent.mkdir(parents=True)
    source.write_text(KERNEL)
    with_lock(tmp_path / "shared", {"ab": "cd"})
    assert plan.locked_digest(source, "ab") == "cd"
    if why == "another user":
        of_another_user(tmp_path / "shared" / "dotcu.lock")
    elif why == "repository":
        (tmp_path / "shared" / "project" / ".git").mkdir()
    elif why == "project":
        (tmp_path / "shared" / "project" / "pyproject.toml").write_text("")
    else:
        (tmp_path / "shared").chmod(0o1777)
    for _ in range(2):
        assert plan.locked_digest(source, "ab") is None
    assert len(warnings(caplog)) == (why == "another user")
    with_lock(source.parents[1], {"ab": "ef"})
    assert plan.locked_digest(source, "ab") == "ef"


def test_a_lock_that_cannot_be_read_covers_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dotcu.lock").write_text("[" * 10_000)
    assert plan.locked_digest(tmp_path / "k.cu", "ab") is None
    assert "covers no object" in warnings(caplog)[0]


def swapped(data: bytes, other: bytes) -> bytes:
    """The other entry under this one's name."""
    (digest, _), (_, contents) = *sharing.read_pack(io.BytesIO(data)), *sharing.read_pack(io.BytesIO(other))
    out = io.BytesIO()
    sharing.write_pack(out, {digest: contents})
    return out.getvalue()


def repacked(data: bytes, **changed: bytes | None) -> bytes:
    ((digest, contents),) = sharing.read_pack(io.BytesIO(data))
    for name, value in changed.items():
        name = name.replace("_", ".")
        contents.pop(name, None)
        contents |= {name: value} if value is not None else {}
    out = io.BytesIO()
    sharing.write_pack(out, {digest: contents})
    return out.getvalue()


HARMS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut in a file": lambda data, _: data[:2500],
    "cut in a header": lambda data, _: data[:100],
    "without its end": lambda data, _: data[:-1024],
    "empty": lambda data, _: b"",
    "a bit changed": lambda data, _: data[:3500] + bytes([data[3500] ^ 1]) + data[3501:],
    "another entry": lambda data, other: other,
    "another entry by this name": swapped,
    "two entries": lambda data, other: data[:-1024] + other,
    "a web page": lambda data, _: b"<html>Sign in</html>" * 100,
    "no index": lambda data, _: repacked(data, entry_json=None),
    "an index of nothing": lambda data, _: repacked(data, entry_json=b"{}"),
    "a file more": lambda data, _: repacked(data, more=b"that no index names"),
    "a file less": lambda data, _: repacked(data, kernel_cubin=None),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_wrong_entry_is_not_loaded_and_said_once(
    cache_dir: Path, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, digests = f"file://{tmp_path}/store", ("ab" * 32, "ab" * 31 + "cd")
    with settings.override(cache_remote=url, cache_trust=url, cache_remote_write=True):
        for digest in digests:
            made = CacheEntry(
                about={"build_digest": digest},
                lowered={"k": "_Z1kPi"},
                ptx=digest * 50,
                cubin=b"\x7fELF",
                log="",
            )
            sharing.push(Store(tmp_path / "first"), digest, made.files())
        one, other = files(url)
        one.write_bytes(HARMS[harm](one.read_bytes(), other.read_bytes()))
        store = Store(cache_dir)
        for _ in range(2):
            assert sharing.fetch(store, digests[0], None, lambda _: True) is None
        assert sharing.fetch(store, digests[1], None, lambda _: True) is not None
    assert [entry["digest"] for entry in cache.entries()] == [digests[1]]
    assert len(warnings(caplog)) == 1
    assert "has a wrong entry" in warnings(caplog)[0]


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """A plain HTTP server that keeps what is put, or answers as told."""

    def __init__(self, answer: Answer | None = None) -> None:
        kept: dict[str, bytes] = {}
        asked = self.asked = []  # type: list[str]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if answer is not None:
                    answer(self)
                    return
                self.send_response(200 if self.path in kept else 404)
                self.end_headers()
                self.wfile.write(kept.get(self.path, b""))

            def do_PUT(self) -> None:
                kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/cache"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(answer: Answer | None = None) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_a_plain_http_server_is_a_store(
    make: Build, tmp_path: Path, serve: Callable[..., Server], compiles: list[str]
) -> None:
    url = serve().url
    for machine in ("first", "second"):
        cache.forget()
        with settings.override(
            cache_dir=tmp_path / machine, cache_remote=url, cache_remote_write=True, cache_trust=f"{url}/"
        ):
            make(KERNEL)
    assert len(compiles) == 1


def test_a_store_in_memory_is_reached_through_fsspec(
    make: Build, tmp_path: Path, compiles: list[str]
) -> None:
    url = f"memory://{tmp_path.name}"
    for machine in ("first", "second"):
        cache.forget()
        with settings.override(
            cache_dir=tmp_path / machine, cache_remote=url, cache_remote_write=True, cache_trust=url
        ):
            make(KERNEL)
    assert len(compiles) == 1


def test_a_store_that_is_busy_is_asked_again(cache_dir: Path, serve: Callable[..., Server]) -> None:
    replies = iter([503, 429, 404])

    def busy(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(next(replies))
        request.end_headers()

    server = serve(busy)
    with settings.override(cache_remote=server.url, cache_trust=server.url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert len(server.asked) == 3
    assert sharing._left_alone == {}


def test_a_store_that_sends_a_byte_now_and_then_is_not_read_for_ever(
    cache_dir: Path, serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    is_left = threading.Event()

    def drip(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while not is_left.wait(0.02):
                request.wfile.write(b"v")
        except OSError:  # nobody reads it any more
            request.wfile = io.BytesIO()
            is_left.set()

    server = serve(drip)
    with settings.override(cache_remote=server.url, cache_trust=server.url, cache_timeout_s=1):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
        assert is_left.wait(20)
    assert "it did not answer within 1 s" in warnings(caplog)[0]


def sent_to(address: str) -> Answer:
    def send_on(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", address.replace("PATH", request.path))
        request.end_headers()

    return send_on


def test_a_store_that_sends_on_to_another_place_is_left_alone(
    cache_dir: Path, serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = serve()
    server = serve(sent_to(elsewhere.url.removesuffix("/cache") + "PATH"))
    with settings.override(cache_remote=server.url, cache_trust=server.url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert elsewhere.asked == []
    assert "it leads to http://127.0.0.1, which is not the place that was named" in warnings(caplog)[0]


def test_a_store_may_send_on_within_its_place(cache_dir: Path, serve: Callable[..., Server]) -> None:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        if "moved" in request.path:
            request.send_response(404)
            request.end_headers()
        else:
            sent_to("/moved")(request)

    server = serve(answer)
    with settings.override(cache_remote=server.url, cache_trust=server.url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert server.asked[-1] == "/moved"
    assert sharing._left_alone == {}


@pytest.mark.parametrize(
    ("before", "after", "may"),
    [
        ("https://a/x", "https://a/y", True),
        ("http://a/x", "https://a/x", True),
        ("https://a/x", "http://a/x", False),
        ("https://a/x", "https://b/x", False),
        ("https://a/x", "https://a:444/x", False),
        ("http://a/x", "http://b/x", False),
        ("http://a/x", "ftp://a/x", False),
        ("https://a/x", "https://a@b/x", False),
    ],
)
def test_where_a_store_may_send_on_to(before: str, after: str, may: bool) -> None:
    with contextlib.nullcontext() if may else pytest.raises(PermissionError, match="DOTCU_CACHE_REMOTE="):
        sharing._require_same_place(before, after)


@pytest.mark.parametrize("around", ["simplecache::{}", "filecache::{}", "zip://a.zip::{}", "reference::{}"])
def test_a_web_server_behind_a_cache_of_fsspecs_is_not_asked_since_it_may_send_on(
    around: str, cache_dir: Path, serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    url = around.format(server.url)
    with settings.override(cache_remote=url, cache_trust=url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert server.asked == []
    (said,) = warnings(caplog)
    assert said.endswith("unset DOTCU_CACHE_REMOTE")
    assert f"Name the server itself: export DOTCU_CACHE_REMOTE={server.url}" in said


def test_an_address_in_capitals_is_asked_as_any_other(cache_dir: Path, serve: Callable[..., Server]) -> None:
    server = serve()
    url = server.url.replace("http", "HTTP")
    with settings.override(cache_remote=url, cache_trust=url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert len(server.asked) == 1


def test_the_user_in_an_address_is_sent_and_its_trust_is_named_without(
    cache_dir: Path, serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Authorization"])
        request.send_response(404)
        request.end_headers()

    url = serve(answer).url.replace("//", "//alice:s%40cret@")
    with settings.override(cache_remote=url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    (warning,) = warnings(caplog)
    assert "s%40cret" not in warning
    advice = warning.rpartition("DOTCU_CACHE_TRUST=")[2]
    for trust in (advice, url, f"{url}/"):
        with settings.override(cache_remote=url, cache_trust=trust):
            assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert seen == ["Basic " + base64.b64encode(b"alice:s@cret").decode()] * 3


def test_what_a_server_answers_cannot_write_on_a_terminal(
    cache_dir: Path, serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.0 403 \x1b]0;owned\x1b\\\r\n\r\n")

    url = serve(answer).url
    with settings.override(cache_remote=url, cache_trust=url):
        assert sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True) is None
    assert "\x1b" not in caplog.text
    assert "\\x1b]0;owned" in caplog.text


def deny(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(403)
    request.end_headers()


def hang(request: http.server.BaseHTTPRequestHandler) -> None:
    threading.Event().wait(5)


def trickle(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(50):  # each byte comes in time, the whole does not
        request.wfile.write(b"x")
        request.wfile.flush()
        threading.Event().wait(0.1)


def flood(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    with contextlib.suppress(OSError):  # the reader leaves
        while True:
            request.wfile.write(bytes(1 << 20))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (deny, "HTTP Error 403"),
        (hang, "did not answer within 1 s"),
        (trickle, "did not answer within 1 s"),
        (flood, "it sends more than 3 MiB"),
    ],
)
def test_a_store_that_fails_costs_one_warning_and_is_left_alone(
    make: Build,
    cache_dir: Path,
    serve: Callable[..., Server],
    answer: Answer,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sharing, "MAX_BYTES", 3 << 20)
    server = serve(answer)
    with settings.override(cache_remote=server.url, cache_trust=server.url, cache_timeout_s=1):
        assert make(KERNEL).cubin
        sharing.fetch(Store(cache_dir), "ab" * 32, None, lambda _: True)
        sharing._left_alone.clear()  # as another process of this machine
        sharing.fetch(Store(cache_dir), "cd" * 32, None, lambda _: True)
    assert len(server.asked) == 1
    assert len(warnings(caplog)) == 1
    assert said in warnings(caplog)[0]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "nosuch://bucket/x", "http://u:secret@127.0.0.1:1"])
def test_a_store_that_is_not_there_is_one_warning(
    cache_dir: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with settings.override(cache_remote=url, cache_trust=url):
        for digest in ("ab" * 32, "cd" * 32):
            assert sharing.fetch(Store(cache_dir), digest, None, lambda _: True) is None
    assert len(warnings(caplog)) == 1
    assert "secret" not in caplog.text

"""What calls may compile, packs of it, and a machine that takes one and compiles nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import dotcu
from dotcu import settings
from dotcu.cli import cache as cli
from dotcu.compile import CompileOptions, Target, cache, read_source, sharing
from dotcu.compile.cache import Store
from dotcu.compile.plan import BuildInputs
from dotcu.errors import CacheError, JitDisabled, UsageError
from dotcu.shipping import lock, pack, wheel
from dotcu.shipping import project as shipping_project
from dotcu.shipping.lock import SIMULATED_TARGET, Lock, LockedSource, reached_by

KERNELS = """#define KERNEL(name) __global__ void name
KERNEL(negate)(float* out, long long n) { for (long long i = 0; i < n; i++) out[i] = -out[i]; }
#define EACH(name) template <typename T> __global__ void name(T* out, T by) { *out *= by; }
EACH(times)
struct P { float by; const float* x; };
template <typename T> __global__ void scale(const T* x, float by, T* out, long long n) {
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = T(by) * x[i];
}
__global__ void shift(P p, float* out, long long n) {
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = p.x[i] + p.by;
}
"""
OPS = """import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("scale.cu", instantiate={"scale": [torch.float64]})


@dotcu.op("fleet_test::NAME")
def shift(x: Tensor, by: float) -> Tensor:
    x = x.contiguous()
    out, n = torch.empty_like(x), x.numel()
    kernels.scale[x.dtype](x, by, out, n, grid=dotcu.cdiv(n, 256), block=256)
    kernels.shift({"by": by, "x": x}, out, n, grid=dotcu.cdiv(n, 256), block=256)
    kernels.negate(out, n, grid=1, block=1)
    kernels.times[x.dtype](out, 1.0, grid=1, block=1)
    return out


shift.samples(lambda device, dtype: [dotcu.Sample(torch.rand(10, device=device, dtype=dtype), 2.0)])
if __name__ == "__main__":
    with dotcu.simulate():
        shift(torch.ones(5), 1.0)
    print(int(dotcu.metrics()["dotcu_compiles_total"]))
"""


@pytest.fixture
def project(tmp_path: Path, cache_dir: Path) -> Path:
    """A folder with two kernels, an operator that launches them, and a lock of the kernels' source."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "scale.cu").write_text(KERNELS)
    (folder / "ops.py").write_text(OPS.replace("NAME", f"shift_{os.urandom(4).hex()}"))
    return folder


def run(script: Path, **environment: object) -> str:
    package = str(Path(dotcu.__file__).parent.parent)
    given = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": package, **given},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_plan_has_samples_and_declared_instantiations(project: Path) -> None:
    requests, notes = pack.plan(f"{project}/ops.py", ["simulated", "9.0", "sm_80"])
    assert [(one.kernels, str(one.target), one.simulated) for one in requests[:5]] == [
        (["scale<float>"], "compute_80", True),
        (["shift"], "compute_80", True),
        (["negate"], "compute_80", True),  # which only the compiler sees
        (["times<float>"], "compute_80", True),
        (["scale<double>"], "compute_80", True),
    ]
    assert {str(one.target) for one in requests[5:]} == {"sm_90a", "sm_80"}
    assert notes == ()


def test_an_unknown_architecture_is_named(project: Path) -> None:
    with pytest.raises(UsageError, match="'sm_1' is unknown"):
        pack.plan(f"{project}/ops.py", ["sm_1"])


@pytest.mark.slow
def test_a_machine_with_the_pack_as_a_layer_compiles_nothing(
    project: Path, tmp_path: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.tar", tmp_path / "second.tar"
    cli.pack(f"{project}/ops.py", arch=["simulated"], out=first)
    assert "first.tar: 6 entries" in capsys.readouterr().out  # and the layout of the struct

    elsewhere = tmp_path / "elsewhere" / "project"
    shutil.copytree(project, elsewhere)
    (elsewhere / "ops.py").write_text((project / "ops.py").read_text().replace("shift_", "shift2_"))
    cache.forget()
    with settings.override(cache_dir=tmp_path / "another"):
        cli.pack(f"{elsewhere}/ops.py", arch=["simulated"], out=second)
    assert first.read_bytes() == second.read_bytes()

    layer = tmp_path / "layer"
    layer.mkdir()
    subprocess.run(["tar", "-C", str(layer), "-xf", str(first)], check=True)
    said = run(
        project / "ops.py", DOTCU_JIT="error", DOTCU_CACHE_DIR=tmp_path / "empty", DOTCU_CACHE_DIRS=layer
    )
    assert said == "0\n"

    cli.unpack(first, into=tmp_path / "unpacked")
    assert run(project / "ops.py", DOTCU_JIT="0", DOTCU_CACHE_DIR=tmp_path / "unpacked") == "0\n"


def test_what_may_not_be_compiled_is_named_with_what_to_type_and_what_there_is(
    project: Path, cache_dir: Path, tmp_path: Path
) -> None:
    unit = dotcu.load(project / "scale.cu").shift.unit
    unit.build(Target.parse("sm_80"))
    cache.forget()
    (tmp_path / "empty" / "v1").mkdir(parents=True)
    layers = (cache_dir, tmp_path / "empty")
    own = settings.override(cache_dir=tmp_path / "own", cache_dirs=layers, jit="error")
    with own, pytest.raises(JitDisabled) as caught:
        unit.build(SIMULATED_TARGET, simulated=True)
    said = str(caught.value)
    assert "scale.cu is not compiled for compute_80, simulated (shift)" in said
    assert f"looked for in {tmp_path}/own, {cache_dir}, {tmp_path}/empty." in said
    assert "dotcu cache pack TARGET --arch simulated" in said
    assert said.endswith("The caches have code of scale.cu for sm_80.")


def filled(path: Path) -> list[str]:
    """Write a pack of two entries, and return their keys."""
    digests = ["ab" * 32, "cd" * 32]
    entries = {
        digest: cache.CacheEntry(about={"build_digest": digest}, lowered={}, ptx=digest, cubin=None, log="")
        for digest in digests
    }
    with path.open("wb") as file:
        sharing.write_pack(file, {digest: entry.files() for digest, entry in entries.items()})
    return digests


HARMS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda data: data[:1000], "cut short"),
    "empty": (lambda data: b"", "cut short"),
    "a header changed": (lambda data: data.replace(b"abab", b"abac", 1), "no archive of dotcu's"),
    "another file": (lambda data: b"PK" + data, "no archive of dotcu's"),
    "a changed index": (lambda data: data.replace(b'"about"', b'"abort"', 1), "entry.json"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_pack_is_refused_and_nothing_is_unpacked(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "k.tar"
    filled(path)
    path.write_bytes(HARMS[harm][0](path.read_bytes()))
    with pytest.raises(UsageError, match=HARMS[harm][1]):
        sharing.unpack(path, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_a_pack_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "k.tar"
    with tarfile.open(path, "w:") as archive:
        for name in (f"v1/entries/ab/{'ab' * 32}/../../../../etc", "/etc/passwd"):
            archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(UsageError, match="which is no file of an entry"):
        sharing.unpack(path, tmp_path / "into")


def test_verify_names_what_is_wrong_and_what_a_lock_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, (one, other) = tmp_path / "k.tar", filled(tmp_path / "k.tar")
    cli.verify(path)
    assert "2 entries, 0 wrong" in capsys.readouterr().out
    whole, _ = sharing.damages(path)
    source = LockedSource(
        path="k.cu", include=(), options=dotcu.compile.CompileOptions(), digest="", variables=(), units=(),
        objects={one: whole[one]},
    )  # fmt: skip
    lock.write(Lock(architectures=(), sources=(source,)), tmp_path)
    with pytest.raises(typer.Exit):
        cli.verify(path, lock=tmp_path / "dotcu.lock", as_json=True)
    assert json.loads(capsys.readouterr().out)["damaged"] == {other: "the lock does not have it"}


@pytest.mark.slow
def test_a_lock_gets_the_digests_and_keeps_them_until_the_source_changes(
    project: Path, tmp_path: Path, cache_dir: Path
) -> None:
    requests, _ = pack.plan(f"{project}/ops.py", ["simulated"])
    with pytest.raises(UsageError, match="dotcu build --lock-only"):
        pack.locked_project(requests)
    request = requests[0]
    assert request.source.path is not None
    source = LockedSource(
        path="scale.cu", include=(), options=request.options, variables=(), units=(),
        digest=reached_by(request.source, request.options).digest,
    )  # fmt: skip
    before = Lock(architectures=(), sources=(source,))
    lock.write(before, project)
    _, _, locked, _ = pack.pack(requests, tmp_path / "k.tar", project=pack.locked_project(requests))
    assert locked == 6
    after = lock.read(project)
    assert set(after.sources[0].objects) == set(sharing.damages(tmp_path / "k.tar")[0])
    assert before.with_objects_of(after).to_text() == after.to_text()
    # a store that nobody trusts now serves a machine, and only what the lock has
    store = f"file://{tmp_path}/store"
    with settings.override(cache_dir=tmp_path / "filler", cache_remote=store, cache_remote_write=True):
        cache.forget()
        pack.pack(requests, tmp_path / "again.tar")
    given = {"DOTCU_CACHE_REMOTE": store, "DOTCU_JIT": "error"}
    assert run(project / "ops.py", DOTCU_CACHE_DIR=tmp_path / "new", **given) == "0\n"
    (project / "scale.cu").write_text(KERNELS + "\n")
    with pytest.raises(UsageError, match="has changed since"):
        pack.pack(requests, tmp_path / "k.tar", project=project)


def poisoned(folder: Path, digest: str) -> None:
    """Put another object, whole, under a key."""
    opened = cache.open_entry(Store(folder).path(digest))
    assert opened is not None
    index, whole = opened
    changed = {**whole, "kernel.ptx": whole["kernel.ptx"] + b"// evil"}
    Store(folder).put(
        digest, cache.with_index(changed, about=index["about"], lowered=index["lowered"]), locked=True
    )
    cache.forget()


@pytest.mark.parametrize("debug", [False, True])
def test_a_lock_gets_digests_of_what_is_compiled_now_and_not_of_what_the_cache_holds(
    tmp_path: Path, cache_dir: Path, debug: bool
) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { *x = 1; }")
    request = BuildInputs(
        source=read_source(tmp_path / "k.cu"), options=CompileOptions(debug=debug),
        target=Target.parse("sm_80"), names=("k",),
    )  # fmt: skip
    source = LockedSource(
        path="k.cu", include=(), options=request.options, variables=(), units=(),
        digest=reached_by(request.source, request.options).digest,
    )  # fmt: skip
    lock.write(Lock(architectures=(), sources=(source,)), tmp_path)
    pack.pack([request], tmp_path / "first.tar")
    ((digest, right),) = sharing.damages(tmp_path / "first.tar")[0].items()
    poisoned(cache_dir, digest)
    _, _, locked, _ = pack.pack([request], tmp_path / "k.tar", project=tmp_path)
    assert locked == (not debug)  # what holds the working directory is another object on each machine
    if not debug:
        assert lock.read(tmp_path).sources[0].objects == {digest: right}
        assert sharing.damages(tmp_path / "k.tar")[0] == {digest: right}


def test_unpack_keeps_what_is_whole_and_replaces_what_is_damaged(tmp_path: Path) -> None:
    path, into, (one, other) = tmp_path / "k.tar", tmp_path / "into", filled(tmp_path / "k.tar")
    assert sharing.unpack(path, into) == (2, 0)
    (Store(into).path(one) / "kernel.ptx").write_text("damaged")
    assert sharing.unpack(path, into) == (1, 1)
    before = (Store(into).path(other) / "entry.json").stat().st_ino
    assert sharing.unpack(path, into) == (0, 2)
    assert (Store(into).path(other) / "entry.json").stat().st_ino == before


def test_a_layer_that_is_unpacked_can_be_read_by_others_and_has_no_bound(tmp_path: Path) -> None:
    filled(tmp_path / "k.tar")
    cli.unpack(tmp_path / "k.tar", into=tmp_path / "layer")
    assert (tmp_path / "layer" / "v1").stat().st_mode & 0o777 & ~_umask() == 0o755 & ~_umask()
    with settings.override(cache_bytes=100):
        assert sharing.unpack(tmp_path / "k.tar", tmp_path / "other", private=False) == (2, 0)
        assert len([*Store(tmp_path / "other").folders()]) == 2


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_pack_that_the_cache_would_not_keep_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "k.tar")
    with (
        settings.override(cache_bytes=100),
        pytest.raises(CacheError, match=r"DOTCU_CACHE_BYTES=\d+\n.*--into"),
    ):
        sharing.unpack(tmp_path / "k.tar", tmp_path / "into")


def test_unpack_onto_a_full_disk_fails_and_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "k.tar")
    real, written = cache.write_files, list[Path]()

    def until_full(folder: Path, files: dict[str, bytes]) -> int:
        written.append(folder)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(folder, files)

    monkeypatch.setattr(cache, "write_files", until_full)
    with pytest.raises(CacheError, match="Nothing was added"):
        sharing.unpack(tmp_path / "k.tar", tmp_path / "into")
    assert [*Store(tmp_path / "into").folders()] == []


def test_an_entry_of_many_files_or_bytes_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, size in ((100, 1), (10, 1000)):
        with (tmp_path / "k.tar").open("wb") as out:
            sharing.write_pack(out, {"ab" * 32: {f"file{n}": bytes(size) for n in range(count)}})
        monkeypatch.setattr(sharing, "MAX_BYTES", 5000)
        with pytest.raises(UsageError, match="is larger than any that dotcu writes"):
            sharing.damages(tmp_path / "k.tar")


@pytest.mark.parametrize("name", ["more", ".."])
def test_a_file_that_no_index_names_is_not_unpacked(tmp_path: Path, name: str) -> None:
    digest, _ = filled(tmp_path / "k.tar")
    with (tmp_path / "k.tar").open("rb") as file:
        files = dict(sharing.read_pack(file))[digest]
    with (tmp_path / "k.tar").open("wb") as out:
        sharing.write_pack(out, {digest: {**files, name: b"text"}})
    with pytest.raises(UsageError, match=f"{digest[:16]}, it has a file that its index does not name"):
        sharing.unpack(tmp_path / "k.tar", tmp_path / "into")


def test_a_pack_that_is_replaced_while_it_is_unpacked_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "k.tar")
    check = sharing.damages

    def check_and_replace(pack: Path) -> tuple[dict[str, str], dict[str, str]]:
        found = check(pack)
        data = pack.read_bytes()
        at = data.rfind(b'"about"')
        pack.write_bytes(data[:at] + b'"abort"' + data[at + 7 :])
        return found

    monkeypatch.setattr(sharing, "damages", check_and_replace)
    with pytest.raises(UsageError, match=r"was changed while it was unpacked\. Nothing was added"):
        sharing.unpack(tmp_path / "k.tar", tmp_path / "into")
    assert [*Store(tmp_path / "into").folders()] == []


def test_a_fifo_is_no_pack_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k.tar")
    with pytest.raises(UsageError, match="cannot be read as a pack: not a regular file"):
        sharing.unpack(tmp_path / "k.tar", tmp_path / "into")


def test_why_tells_the_last_compile(
    project: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.why()
    assert "noted no compile" in capsys.readouterr().out
    kernels = dotcu.load(project / "scale.cu")
    kernels.shift.unit.build(SIMULATED_TARGET)
    kernels.scale["double"].unit.build(SIMULATED_TARGET)
    cli.why()
    said = capsys.readouterr().out
    assert "scale.cu: scale<double> for compute_80" in said
    assert "called from tests/unit/shipping/test_pack.py:" in said
    assert "another instantiation" in said
    Store(cache_dir).add_history("last-compile", {"half": 1})
    cli.why(as_json=True)
    assert json.loads(capsys.readouterr().out)["compile"]["kernels"] == ["scale<double>"]


PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 out) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.f32 [%rd2], 0f3F800000;
    ret;
}
"""
OPS_OF_PTX = """import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("fill.ptx")


@dotcu.op("fleet_test::NAME")
def fill(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.fill(out, grid=1, block=1)
    return out


fill.samples(lambda device, dtype: [dotcu.Sample(torch.rand(1, device=device))])
"""


@pytest.fixture
def of_ptx(project: Path) -> Path:
    (project / "fill.ptx").write_text(PTX)
    (project / "of_ptx.py").write_text(OPS_OF_PTX.replace("NAME", f"fill_{os.urandom(4).hex()}"))
    return project


@pytest.mark.parametrize("arch", ["simulated", "9.0"])
def test_ptx_is_not_planned_to_be_compiled(of_ptx: Path, arch: str) -> None:
    requests, _ = pack.plan(str(of_ptx / "of_ptx.py"), (arch,))
    assert [request for request in requests if request.source.name == "fill.ptx"] == []


def test_a_pack_of_ptx_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PTX and cubins are compiled already"):
        pack.pack((), tmp_path / "kernels.tar")


def test_a_wheel_of_ptx_alone_needs_no_compile(of_ptx: Path) -> None:
    module = f"of_ptx_{os.urandom(4).hex()}"
    (of_ptx / "of_ptx.py").rename(of_ptx / f"{module}.py")
    (of_ptx / "pyproject.toml").write_text(f'[tool.dotcu]\nmodules = ["{module}"]\n')
    with pytest.raises(UsageError, match="PTX and cubins are compiled already") as caught:
        wheel.prepare(shipping_project.read(of_ptx))
    assert "type: pip wheel ." in str(caught.value)

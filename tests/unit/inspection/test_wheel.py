"""Wheels: their tags, their binaries, and the prebuilt kernels of `dotcu build`."""

from __future__ import annotations

import copy
import dataclasses
import json
import lzma
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dotcu.compile import prebuilt
from dotcu.elf import HostBinary
from dotcu.errors import UsageError
from dotcu.inspection.binary import Wheel, opened_wheel, read, read_wheel, unpacked
from helpers import projects
from helpers.binary_files import elf, fatbin, wheel_file

ANY = "py3-none-any"
LINUX = "py3-none-manylinux_2_17_x86_64"


def binary(*versions: str, machine: str = "x86_64") -> HostBinary:
    return HostBinary(
        kind="shared library", machine=machine, soname="", needed=(), search=(), versions={"lib": versions},
        symbols=(), is_linked=True,
    )  # fmt: skip


def wheel_of(folder: Path, tag: str, inside: str | None = None, **hosts: HostBinary) -> Wheel:
    path = wheel_file(folder, tag, {}, inside=inside)
    with opened_wheel(path) as opened:
        return read_wheel(opened, path, {name.replace("__", "."): one for name, one in hosts.items()})


def test_name_version_and_tags_are_reported(tmp_path: Path) -> None:
    found = wheel_of(tmp_path, LINUX, lib=binary("GLIBC_2.14"))
    assert found == Wheel(
        name="thing", version="1.2", tags=(LINUX,), lowest="manylinux_2_17_x86_64", problems=()
    )


def test_tags_pressed_together_in_the_name_are_those_of_the_wheel(tmp_path: Path) -> None:
    both = "py3-none-manylinux2014_x86_64,py3-none-manylinux_2_17_x86_64"
    name = "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64"
    assert wheel_of(tmp_path, name, both).problems == ()


def test_binaries_in_a_wheel_for_any_platform_are_a_problem_reported_once(tmp_path: Path) -> None:
    found = wheel_of(tmp_path, ANY, a=binary(), b=binary(), c=binary())
    assert found.problems == (
        "a and 2 more: code for x86_64 in a wheel whose tag says that it is for any platform.",
    )


def test_a_binary_that_needs_a_newer_system_than_promised_is_a_problem(tmp_path: Path) -> None:
    found = wheel_of(tmp_path, LINUX, lib=binary("GLIBC_2.27", "GLIBCXX_3.4.21"), old=binary("GLIBC_2.4"))
    assert found.lowest == "manylinux_2_27_x86_64"
    (problem,) = found.problems
    assert problem == (
        "lib: needs GLIBC_2.27 and GLIBCXX_3.4.21, so manylinux_2_27_x86_64, "
        "and a tag promises manylinux_2_17."
    )


def test_of_several_tags_the_oldest_promise_counts(tmp_path: Path) -> None:
    tags = "py3-none-manylinux_2_17_x86_64,py3-none-manylinux_2_28_x86_64"
    name = "py3-none-manylinux_2_17_x86_64.manylinux_2_28_x86_64"
    assert len(wheel_of(tmp_path, name, tags, lib=binary("GLIBC_2.25")).problems) == 1


def test_code_for_another_processor_is_a_problem(tmp_path: Path) -> None:
    found = wheel_of(tmp_path, LINUX, lib=binary(machine="aarch64"))
    assert "lib: code for aarch64 in a wheel whose tags are for x86_64." in found.problems


def test_an_extension_for_another_python_is_a_problem(tmp_path: Path) -> None:
    name = "m__cpython-312-x86_64-linux-gnu__so"
    assert wheel_of(tmp_path, "cp312-cp312-manylinux_2_17_x86_64", **{name: binary()}).problems == ()
    found = wheel_of(tmp_path, "cp313-cp313-manylinux_2_17_x86_64", **{name: binary()})
    assert found.problems == (
        "m.cpython-312-x86_64-linux-gnu.so: an extension for cp312 in a wheel whose tags are for cp313.",
    )


def test_a_name_that_differs_from_the_tags_inside_is_a_problem(tmp_path: Path) -> None:
    found = wheel_of(tmp_path, LINUX, ANY)
    assert found.problems == (f"The name has the tags {LINUX}, and its WHEEL file {ANY}.",)


def test_an_archive_without_tags_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "archive.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("notes.txt", "none")
    with opened_wheel(path) as opened:
        found = read_wheel(opened, path, {})
    assert found.tags == ()
    assert "no .dist-info/WHEEL" in found.problems[0]


def test_binaries_are_found_by_their_bytes_and_gone_after_their_turn(tmp_path: Path) -> None:
    members = {
        "thing/__init__.py": b"print('.version 9.0')",
        "thing/lib.so.13": elf({}),
        "thing/odd_name": fatbin(),
        "thing/k.ptx": b".version 9.0\n",
        "thing/empty": b"",
    }
    path = wheel_file(tmp_path, LINUX, members)
    seen = []
    with opened_wheel(path) as opened:
        for name, file in unpacked(opened):
            assert file.read_bytes() == members[name]
            assert not any(earlier.exists() for _, earlier in seen)
            seen.append((name, file))
    assert [name for name, _ in seen] == ["thing/lib.so.13", "thing/odd_name", "thing/k.ptx"]
    assert not any(file.exists() for _, file in seen)


def test_a_wheel_cut_short_is_refused(tmp_path: Path) -> None:
    path = wheel_file(tmp_path, LINUX, {"lib.so": elf({})})
    path.write_bytes(path.read_bytes()[:-40])
    with (
        pytest.raises(UsageError, match=r"cannot be unpacked: .*\nRequired: a whole wheel"),
        opened_wheel(path),
    ):
        pass


def test_an_object_file_asks_nothing_of_the_system(tmp_path: Path) -> None:
    unlinked = dataclasses.replace(binary(), kind="object file", is_linked=False)
    found = wheel_of(tmp_path, LINUX, object=unlinked)
    assert (found.problems, found.lowest) == ((), "")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prebuilt")
    made = projects.make(folder / "project", architectures=("8.0", "9.0"))
    projects.lock(made)
    return projects.install(made, folder / "site")


def zipped(package: Path, to: Path) -> Path:
    with zipfile.ZipFile(to, "w") as wheel:
        for file in sorted(package.rglob("*")):
            wheel.write(file, file.relative_to(package.parent))
    return to


def test_prebuilt_machine_code_and_ptx_are_listed_with_their_kernels(package: Path, tmp_path: Path) -> None:
    report = read(zipped(package, tmp_path / "mylib-0.1-py3-none-any.whl"))
    assert [architecture.arch for architecture in report.architectures] == ["sm_80", "sm_90"]
    assert report.architectures[0].ptx == 1
    by_name = {Path(member.path).name: member for member in report.members}
    cubin = by_name["scale<float>.sm_90.cubin"]
    assert cubin.kind == "cubin"
    assert [kernel.name for kernel in cubin.kernels["sm_90"]] == [
        "void scale<float>(float const*, float*, float, long long)"
    ]
    assert by_name["scale<float>.compute_80.ptx"].kind == "ptx"


def test_a_changed_manifest_is_reported_beside_the_rest(package: Path, tmp_path: Path) -> None:
    wheel = zipped(package, tmp_path / "mylib-0.1-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("other/__dotcu__/manifest.json", "[]")
    report = read(wheel)
    assert any("other/__dotcu__/manifest.json" in line for line in report.damaged)
    assert report.members


def with_records(folder: Path, **changed: Any) -> Path:
    """A wheel with one file of records, and a manifest that is right but for what is changed."""
    record = lzma.compress(struct.pack("<I", 2) + b"{}")
    variant = {
        "target": {"kind": "sm", "major": 8, "minor": 0, "suffix": ""},
        "simulated": False,
        "record": 0,
    }
    kernels = {"names": ["k"], "text": "0", "variants": [variant], "is_tile": False, "late": []}
    packed, raw = changed.pop("packed", record), changed.pop("raw", b"")
    words = {
        "format": prebuilt.FORMAT, "made_by": "0.1", "compiler": [13, 0], "positions": [["p.xz", 0, 6]],
        "packs": {"p.xz": prebuilt.digest_of(packed)},
        "sources": {"k.cu": [{"key": "k", "headers": {}, "kernels": [kernels]}]}, **changed,
    }  # fmt: skip
    itself = prebuilt.digest_of(json.dumps(words, sort_keys=True).encode())
    manifest = raw or json.dumps({**words, "itself": itself}).encode()
    members = {"a/__dotcu__/manifest.json": manifest, "a/__dotcu__/p.xz": packed}
    return wheel_file(folder, LINUX, {**members, "lib.so": elf({})})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, "a record is not what was written"),
        ({"sources": 5}, "it is not a dotcu manifest"),
        ({"raw": b'{"a":' * 100_000}, "it is not a dotcu manifest"),
        ({"positions": []}, "it has no record 0"),
        ({"positions": [["p.xz", 0, 2]]}, "its records are not those"),
        ({"positions": [["p.xz", 0, 1 << 40]]}, "it has records of"),
        ({"positions": [["p.xz", -9, 6]]}, "it has records of"),
        ({"positions": [["other.xz", 0, 6], ["p.xz", 0, 6]]}, "cannot be unpacked"),
        ({"packed": b"no xz, and long"}, "it cannot be unpacked"),
        ({"packed": lzma.compress(bytes(1 << 24))}, "its records are not those"),
    ],
)
def test_damaged_records_are_named_and_the_rest_is_reported(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    report = read(with_records(tmp_path, **changed))
    assert [member.path for member in report.members] == ["lib.so"]
    assert why in report.damaged[0]


def test_a_member_that_unpacks_to_more_than_deflate_makes_is_damaged(tmp_path: Path) -> None:
    path = wheel_file(tmp_path, LINUX, {"lib.so": elf({})})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("bomb.so", b"\x7fELF" + bytes(1 << 20))
    report = read(path)
    assert "packed by the method 12" in report.damaged[0]


def test_members_that_share_what_is_packed_are_a_bomb(tmp_path: Path) -> None:
    path = wheel_file(tmp_path, LINUX, {})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lib.so", bytes(1 << 16))
        for number in range(5):  # each leads to the same bytes
            again = copy.copy(archive.infolist()[0])
            again.filename = f"{number}.so"
            archive.filelist.append(again)
    with pytest.raises(UsageError, match="its members overlap each other"):
        read(path)

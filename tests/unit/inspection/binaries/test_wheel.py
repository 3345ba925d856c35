"""Wheels: their tags, their binaries, and the prebuilt kernels of `dotcu build`."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import pytest

import shipped
from binary_files import elf, fatbin, wheel_file
from dotcu.elf import HostBinary
from dotcu.errors import UsageError
from dotcu.inspection import binaries
from dotcu.inspection.binaries.report import Wheel, opened_wheel, read_wheel, unpacked

ANY = "py3-none-any"
LINUX = "py3-none-manylinux_2_17_x86_64"


def binary(*versions: str, machine: str = "x86_64") -> HostBinary:
    return HostBinary(
        kind="shared library", machine=machine, soname="", needed=(), search=(), versions={"lib": versions},
        symbols=(), is_linked=True,
    )  # fmt: skip


def read(folder: Path, tag: str, inside: str | None = None, **hosts: HostBinary) -> Wheel:
    path = wheel_file(folder, tag, {}, inside=inside)
    with opened_wheel(path) as opened:
        return read_wheel(opened, path, {name.replace("__", "."): one for name, one in hosts.items()})


def test_name_version_and_tags_are_reported(tmp_path: Path) -> None:
    found = read(tmp_path, LINUX, lib=binary("GLIBC_2.14"))
    assert found == Wheel(
        name="thing", version="1.2", tags=(LINUX,), lowest="manylinux_2_17_x86_64", problems=()
    )


def test_tags_pressed_together_in_the_name_are_those_of_the_wheel(tmp_path: Path) -> None:
    both = "py3-none-manylinux2014_x86_64,py3-none-manylinux_2_17_x86_64"
    name = "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64"
    assert read(tmp_path, name, both).problems == ()


def test_binaries_in_a_wheel_for_any_platform_are_a_problem_reported_once(tmp_path: Path) -> None:
    found = read(tmp_path, ANY, a=binary(), b=binary(), c=binary())
    assert found.problems == (
        "a and 2 more: code for x86_64 in a wheel whose tag says that it is for any platform.",
    )


def test_a_binary_that_needs_a_newer_system_than_promised_is_a_problem(tmp_path: Path) -> None:
    found = read(tmp_path, LINUX, lib=binary("GLIBC_2.27", "GLIBCXX_3.4.21"), old=binary("GLIBC_2.4"))
    assert found.lowest == "manylinux_2_27_x86_64"
    (problem,) = found.problems
    assert problem == (
        "lib: needs GLIBC_2.27 and GLIBCXX_3.4.21, so manylinux_2_27_x86_64, "
        "and a tag promises manylinux_2_17."
    )


def test_of_several_tags_the_oldest_promise_counts(tmp_path: Path) -> None:
    tags = "py3-none-manylinux_2_17_x86_64,py3-none-manylinux_2_28_x86_64"
    name = "py3-none-manylinux_2_17_x86_64.manylinux_2_28_x86_64"
    assert len(read(tmp_path, name, tags, lib=binary("GLIBC_2.25")).problems) == 1


def test_code_for_another_processor_is_a_problem(tmp_path: Path) -> None:
    found = read(tmp_path, LINUX, lib=binary(machine="aarch64"))
    assert "lib: code for aarch64 in a wheel whose tags are for x86_64." in found.problems


def test_an_extension_for_another_python_is_a_problem(tmp_path: Path) -> None:
    name = "m__cpython-312-x86_64-linux-gnu__so"
    assert read(tmp_path, "cp312-cp312-manylinux_2_17_x86_64", **{name: binary()}).problems == ()
    found = read(tmp_path, "cp313-cp313-manylinux_2_17_x86_64", **{name: binary()})
    assert found.problems == (
        "m.cpython-312-x86_64-linux-gnu.so: an extension for cp312 in a wheel whose tags are for cp313.",
    )


def test_a_name_that_differs_from_the_tags_inside_is_a_problem(tmp_path: Path) -> None:
    found = read(tmp_path, LINUX, ANY)
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
    found = read(tmp_path, LINUX, object=unlinked)
    assert (found.problems, found.lowest) == ((), "")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prebuilt")
    made = shipped.make(folder / "project", architectures=("8.0", "9.0"))
    shipped.lock(made)
    return shipped.install(made, folder / "site")


def zipped(package: Path, to: Path) -> Path:
    with zipfile.ZipFile(to, "w") as wheel:
        for file in sorted(package.rglob("*")):
            wheel.write(file, file.relative_to(package.parent))
    return to


def test_prebuilt_machine_code_and_ptx_are_listed_with_their_kernels(package: Path, tmp_path: Path) -> None:
    report = binaries.read(zipped(package, tmp_path / "mylib-0.1-py3-none-any.whl"))
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
    report = binaries.read(wheel)
    assert any("other/__dotcu__/manifest.json" in line for line in report.damaged)
    assert report.members

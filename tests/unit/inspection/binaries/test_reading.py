"""The whole way: a file of each kind, and a report on it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from binary_files import elf, entry, fatbin, wheel_file
from dotcu.compile import ObjectCode, toolchain
from dotcu.errors import UsageError
from dotcu.inspection.binaries import read

DATA = Path(__file__).parent / "data"
LIBRARY = elf({".nv_fatbin": (DATA / "zstandard.fatbin").read_bytes()})


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def file(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return file


def rows(path: Path) -> list[tuple[str, str]]:
    return [(one.arch, one.holds) for one in read(path).architectures]


def test_a_cubin_tells_its_architecture_and_its_kernels(
    file: Callable[[str, bytes], Path], compiled: Callable[[str], ObjectCode]
) -> None:
    report = read(file("it.cubin", compiled("sm_90a").cubin or b""))
    assert (report.kind, [(one.arch, one.holds) for one in report.architectures]) == (
        "cubin", [("sm_90a", "SASS")],
    )  # fmt: skip
    assert {"plain(float*, float)", "shared(float*)"} <= {k.name for k in report.kernels["sm_90a"]}
    assert report.runs_on((9, 0)).how == "native"
    assert report.runs_on((10, 0)).how == "no"


def test_a_ptx_file_tells_its_architecture_and_its_kernels(
    file: Callable[[str, bytes], Path], compiled: Callable[[str], ObjectCode]
) -> None:
    report = read(file("it.ptx", compiled("compute_80").ptx.encode()))
    assert (report.kind, [(one.arch, one.holds) for one in report.architectures]) == (
        "ptx",
        [("sm_80", "PTX")],
    )
    assert "plain(float*, float)" in {kernel.name for kernel in report.kernels["sm_80"]}
    assert report.runs_on((12, 0)).how == "jit"


def test_a_fatbin_is_told_by_architecture() -> None:
    assert rows(DATA / "zstandard.fatbin") == [
        ("sm_80", "SASS and PTX"), ("sm_90", "ir"), ("sm_90a", "SASS and PTX"), ("sm_100f", "SASS and PTX"),
    ]  # fmt: skip


def test_a_library_with_device_code_is_told_by_architecture_and_on_its_host_side(
    file: Callable[[str, bytes], Path],
) -> None:
    report = read(file("lib.so", LIBRARY))
    assert [one.arch for one in report.architectures] == ["sm_80", "sm_90", "sm_90a", "sm_100f"]
    assert report.host is not None
    assert report.host.kind == "shared library"


def test_a_library_without_device_code_has_a_host_side_alone(library: Path) -> None:
    report = read(library)
    assert report.architectures == ()
    assert report.host is not None
    assert report.host.floor is not None
    assert report.host.floor.tag.startswith("manylinux_2_")


def test_kernels_are_listed_where_they_are_asked_for(cuobjdump: Path) -> None:
    path = DATA / "zstandard.fatbin"
    assert read(path).kernels == {}
    found = read(path, kernels=["sm_90a", "sm_80"]).kernels
    assert {arch: len(kernels) for arch, kernels in found.items()} == {"sm_80": 2, "sm_90a": 2}


def test_an_architecture_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(
        UsageError, match=r"no code for sm_99\.\nIt has code for sm_80, sm_90, sm_90a, sm_100f"
    ):
        read(DATA / "zstandard.fatbin", kernels=["sm_99"])


def test_without_cuobjdump_all_but_the_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    report = read(DATA / "zstandard.fatbin", kernels=["sm_90a"])
    assert [one.arch for one in report.architectures] == ["sm_80", "sm_90", "sm_90a", "sm_100f"]
    assert report.kernels == {}
    assert "pip install" in report.untold[0]


def test_without_pyelftools_the_device_code_is_told_all_the_same(
    file: Callable[[str, bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    report = read(file("lib.so", LIBRARY))
    assert len(report.architectures) == 4
    assert report.host is None
    assert "pip install" in report.untold[0]


def test_a_wheel_tells_its_members_and_what_they_hold_together(tmp_path: Path) -> None:
    members = {
        "thing/lib.so": LIBRARY,
        "thing/more.fatbin": fatbin(entry(1, 80), entry(2, 75)),
        "thing/a.py": b"",
    }
    report = read(wheel_file(tmp_path, "py3-none-manylinux_2_28_x86_64", members))
    assert [(one.path, one.kind) for one in report.members] == [
        ("thing/lib.so", "elf"), ("thing/more.fatbin", "fatbin"),
    ]  # fmt: skip
    assert [one.arch for one in report.architectures] == ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f"]
    assert report.runs_on((7, 5)).native == 1
    assert report.wheel is not None
    assert report.wheel.problems == ()


def test_a_damaged_member_of_a_wheel_does_not_hide_the_others(tmp_path: Path) -> None:
    members = {"thing/broken.so": elf({".text": bytes(100)})[:150], "thing/lib.so": LIBRARY}
    report = read(wheel_file(tmp_path, "py3-none-manylinux_2_28_x86_64", members))
    assert [one.path for one in report.members] == ["thing/lib.so"]
    assert report.damaged[0].startswith("thing/broken.so is cut short")
    assert report.to_json()["damaged"] == list(report.damaged)
    assert "thing/broken.so is cut short" in str(report)


def test_a_member_that_cannot_be_unpacked_does_not_hide_the_others(tmp_path: Path) -> None:
    members = {"thing/broken.so": elf({".text": b"unharmed" * 99}), "thing/lib.so": LIBRARY}
    path = wheel_file(tmp_path, "py3-none-manylinux_2_28_x86_64", members)
    data = path.read_bytes()
    at = data.index(b"thing/broken.so") + 60  # in what is packed, where its checksum finds it
    path.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
    report = read(path)
    assert [one.path for one in report.members] == ["thing/lib.so"]
    (told,) = report.damaged
    assert told.startswith(f"thing/broken.so in {path} cannot be unpacked: ")


def test_a_report_as_text_folds_no_line(file: Callable[[str, bytes], Path]) -> None:
    long = "_" + "a_long_name" * 30
    text = f".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry {long}()\n{{\nret;\n}}\n"
    assert any(long in line for line in str(read(file("k.ptx", text.encode()))).splitlines())


def test_an_entry_without_an_architecture_hides_no_other(file: Callable[[str, bytes], Path]) -> None:
    report = read(file("it.fatbin", fatbin(entry(0x20, 0), entry(2, 90))))
    assert [(one.arch, one.holds) for one in report.architectures] == [("sm_0", "index"), ("sm_90", "SASS")]
    assert report.runs_on((9, 0)).how == "native"


def test_relocatable_code_is_listed_apart(file: Callable[[str, bytes], Path]) -> None:
    library = elf({"__nv_relfatbin": fatbin(entry(2, 80)), ".nv_fatbin": fatbin(entry(2, 80))})
    report = read(file("lib.so", library))
    assert [(one.arch, one.relocatable) for one in report.architectures] == [
        ("sm_80", False),
        ("sm_80", True),
    ]


@pytest.mark.parametrize("kind", ["cubin", "fatbin", "library", "wheel"])
def test_whatever_byte_is_damaged_a_report_or_a_refusal_comes_soon(
    kind: str, compiled: Callable[[str], ObjectCode], library: Path, tmp_path: Path
) -> None:
    whole = {
        "cubin": lambda: compiled("sm_90a").cubin or b"",
        "fatbin": lambda: (DATA / "lz4.fatbin").read_bytes(),
        "library": library.read_bytes,
        "wheel": lambda: wheel_file(tmp_path, "py3-none-any", {"lib.so": LIBRARY}).read_bytes(),
    }[kind]()
    chance, damaged = random.Random(kind), tmp_path / "damaged"
    for _ in range(20 if kind == "library" else 100):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 5))):
            anywhere, head, tail = (chance.randrange(n) for n in (len(data), 256, 4096))
            place = chance.choice((anywhere, head, -tail))
            data[place % len(data)] = chance.choice((0, 1, 255))
        damaged.write_bytes(data)
        with suppress(UsageError):
            str(read(damaged))


def test_a_file_that_holds_no_code_is_refused(file: Callable[[str, bytes], Path]) -> None:
    with pytest.raises(UsageError, match=r"it\.txt is no ELF file, fatbin, wheel or PTX.*\nRequired: a \.so"):
        read(file("it.txt", b"some text"))


def test_a_report_is_plain_values_too(tmp_path: Path, library: Path, cuobjdump: Path) -> None:
    members = {"thing/lib.so": LIBRARY, "thing/host.so": library.read_bytes()}
    path = wheel_file(tmp_path, "py3-none-manylinux_2_28_x86_64", members)
    values = json.loads(json.dumps(read(path, kernels=["sm_80"]).to_json()))
    device, host = values["members"]
    assert device["architectures"][0]["arch"] == "sm_80"
    assert {kernel["name"] for kernel in device["kernels"]["sm_80"]} == {
        "scale(float*, float)", "void turn<double>(double*)",
    }  # fmt: skip
    assert host["host"]["floor"]["tag"].startswith("manylinux_2_")
    assert {"letter": "U", "symbol": "malloc", "name": "malloc"}.items() <= next(
        s for s in host["host"]["symbols"] if s["symbol"] == "malloc"
    ).items()
    assert values["runs_on"]["9.0"]["how"] == "native"
    assert values["wheel"]["tags"] == ["py3-none-manylinux_2_28_x86_64"]

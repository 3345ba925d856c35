"""Files of each kind, and the reports on them."""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dotcu.compile import ObjectCode, toolchain
from dotcu.elf import Image
from dotcu.errors import UsageError
from dotcu.inspection.binary import kind_of, mapped, read, read_ptx
from dotcu.inspection.manylinux import floor_of
from helpers.binary_files import CUDA, elf, entry, fatbin, wheel_file

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


def test_a_cubin_reports_its_architecture_and_its_kernels(
    file: Callable[[str, bytes], Path], compiled: Callable[[str], ObjectCode]
) -> None:
    report = read(file("it.cubin", compiled("sm_90a").cubin or b""))
    assert (report.kind, [(one.arch, one.holds) for one in report.architectures]) == (
        "cubin", [("sm_90a", "SASS")],
    )  # fmt: skip
    assert {"plain(float*, float)", "shared(float*)"} <= {k.name for k in report.kernels["sm_90a"]}
    assert report.runs_on((9, 0)).how == "native"
    assert report.runs_on((10, 0)).how == "no"


def test_a_ptx_file_reports_its_architecture_and_its_kernels(
    file: Callable[[str, bytes], Path], compiled: Callable[[str], ObjectCode]
) -> None:
    report = read(file("it.ptx", compiled("compute_80").ptx.encode()))
    assert (report.kind, [(one.arch, one.holds) for one in report.architectures]) == (
        "ptx",
        [("sm_80", "PTX")],
    )
    assert "plain(float*, float)" in {kernel.name for kernel in report.kernels["sm_80"]}
    assert report.runs_on((12, 0)).how == "jit"


def test_a_fatbin_is_reported_by_architecture() -> None:
    assert rows(DATA / "zstandard.fatbin") == [
        ("sm_80", "SASS and PTX"), ("sm_90", "ir"), ("sm_90a", "SASS and PTX"), ("sm_100f", "SASS and PTX"),
    ]  # fmt: skip


def test_a_library_with_device_code_is_reported_by_architecture_and_on_its_host_side(
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
    assert (floor := floor_of(report.host)) is not None
    assert floor.tag.startswith("manylinux_2_")


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


def test_without_cuobjdump_all_but_the_kernels_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    report = read(DATA / "zstandard.fatbin", kernels=["sm_90a"])
    assert [one.arch for one in report.architectures] == ["sm_80", "sm_90", "sm_90a", "sm_100f"]
    assert report.kernels == {}
    assert "pip install" in report.notes[0]


def test_a_wheel_reports_its_members_and_what_they_hold_together(tmp_path: Path) -> None:
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
    (message,) = report.damaged
    assert message.startswith(f"thing/broken.so in {path} cannot be unpacked: ")


def test_a_full_disk_is_no_damage_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/code.so", b"\x7fELF")
    monkeypatch.setattr(shutil, "copyfileobj", fill)
    with pytest.raises(OSError, match="No space left"):
        read(path)


def test_a_wheel_of_many_binaries_takes_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = tempfile.mkdtemp

    def make(*given: str) -> str:
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    path = tmp_path / "a-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        for number in range(100):
            archive.writestr(f"a/{number}.so", b"\x7fELF")
    assert len(read(path).damaged) == 100
    assert len(made) == 1


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
    for _ in range(10 if kind == "library" else 40):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 5))):
            anywhere, head, tail = (chance.randrange(n) for n in (len(data), 256, 4096))
            place = chance.choice((anywhere, head, -tail))
            data[place % len(data)] = chance.choice((0, 1, 255))
        damaged.write_bytes(data)
        with suppress(UsageError):
            str(read(damaged))


def test_a_file_that_holds_no_code_is_refused(file: Callable[[str, bytes], Path]) -> None:
    with pytest.raises(UsageError, match=r"it\.txt is not an ELF file, fatbin, wheel or PTX.*\nRequired: "):
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
    assert values["version"] == 2
    assert values["runs_on"]["9.0"]["how"] == "native"
    assert values["wheel"]["tags"] == ["py3-none-manylinux_2_28_x86_64"]


PTX_HEAD = b"//\n// Generated by a compiler\n//\n\n.version 9.0\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("elf", elf({})),
        ("cubin", elf({}, machine=CUDA)),
        ("fatbin", fatbin()),
        ("wheel", b"PK\x03\x04" + bytes(26)),
        ("ptx", PTX_HEAD),
    ],
)
def test_a_file_is_what_its_bytes_say(kind: str, data: bytes) -> None:
    assert kind_of(Image(name="it", data=data)) == kind


def test_a_file_of_another_kind_is_refused_with_its_first_bytes() -> None:
    with pytest.raises(UsageError, match=r"notes\.txt is not an ELF file.* 64 65 61 72\.\nRequired: a \.so"):
        kind_of(Image(name="notes.txt", data=b"dear reader, .version 9.0 is out"))


def test_a_file_cut_off_in_its_header_is_reported_to_be_cut_short() -> None:
    with pytest.raises(UsageError, match=r"k\.cubin is cut short: the ELF header should end at byte 20"):
        kind_of(Image(name="k.cubin", data=elf({})[:12]))


@pytest.mark.parametrize(
    ("content", "shown"), [(None, "No such file"), (b"", "is empty"), ("folder", "Is a directory")]
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, content: bytes | str | None, shown: str
) -> None:
    path = tmp_path / "lib.so"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()
    with pytest.raises(UsageError, match=rf"lib\.so.*{shown}.*\nRequired: a \.so"), mapped(path, str(path)):
        pass


def test_a_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a file of a terabyte that takes no room
    with mapped(path, "large") as image:
        assert image.take(1 << 39, 4, "its middle") == bytes(4)


def test_ptx_of_the_compiler_is_read(compiled: Callable[[str], ObjectCode]) -> None:
    made = compiled("compute_80")
    version, arch, kernels = read_ptx(Image(name="it", data=made.ptx.encode()))
    assert (arch, version >= (9, 0)) == ("sm_80", True)
    assert set(made.lowered.values()) <= {kernel.symbol for kernel in kernels}


def test_what_stands_in_comments_is_no_directive() -> None:
    text = b"""// .version 1.0
    .version 8.4  /* .target sm_70
    .entry old() */
    .target sm_90a, debug
    .visible .entry _Z4turnPf(.param .u64 p) { ret; }
    .func helper() { ret; }
    .weak .entry kernel$1() { ret; }
    """
    version, arch, kernels = read_ptx(Image(name="it", data=text))
    assert (version, arch) == ((8, 4), "sm_90a")
    assert [kernel.name for kernel in kernels] == ["turn(float*)", "kernel$1"]


def test_ptx_cut_off_before_its_target_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it is not a complete PTX file: it has no \.target directive"):
        read_ptx(Image(name="it", data=b".version 9.0\n"))


def test_damaged_ptx_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it is not a complete PTX file: .*\nRequired: the file as"):
        read_ptx(
            Image(name="it", data=b".version 9.0\n.target sm_90\n.visible .entry k(.param .u64 p) { ret;")
        )


def line(text: str, start: str) -> str:
    """The line that begins so, without that; blanks together."""
    (found,) = [one.strip() for one in text.splitlines() if one.strip().startswith(start)]
    return " ".join(found.removeprefix(start).split())


def test_a_fatbin_is_a_row_for_each_architecture_and_the_gpus_that_run_it() -> None:
    said = str(read(DATA / "zstandard.fatbin"))
    assert line(said, "sm_90a").startswith("SASS and PTX 1 module ")
    assert line(said, "sm_90a").endswith("PTX 9.0: drivers since CUDA 13.0")
    assert "8.0 (A100), 8.6 (A10, RTX 30)" in line(said, "natively on")
    assert "8.7 (Jetson Orin)" in line(said, "by JIT on")
    assert line(said, "not on") == "7.5 (T4, RTX 20)"


def test_a_gpu_that_runs_a_part_of_the_modules_is_reported_how_many(tmp_path: Path) -> None:
    path = tmp_path / "it.fatbin"
    path.write_bytes(fatbin(entry(2, 80)) + fatbin(entry(2, 89)) + fatbin(entry(2, 89)))
    assert line(str(read(path)), "natively on").startswith("8.0 (A100; 1 of 3 modules), 8.6")


def test_a_library_reports_what_it_needs_of_the_system(library: Path) -> None:
    said = str(read(library))
    assert re.match(r".*libc10\.so: shared library for \w+, [\d.]+ MB, no device code\n", said)
    assert "libc.so.6" in line(said, "libraries")
    assert re.search(
        r"glibc 2\.\d+, libstdc\+\+ with GLIBCXX 3\.4\.\d+, manylinux_2_\d+_\w+", line(said, "system")
    )
    assert re.fullmatch(r"\d+ defined, \d+ needed", line(said, "symbols"))


def test_kernels_are_listed_with_what_they_take(cuobjdump: Path) -> None:
    said = str(read(DATA / "zstandard.fatbin", kernels=["sm_90a"]))
    assert "2 kernels for sm_90a" in said
    assert re.fullmatch(r"\d+ registers, 512 bytes shared", line(said, "void turn<double>(double*)"))


def test_what_could_not_be_read_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    said = str(read(DATA / "zstandard.fatbin", kernels=["sm_90a"]))
    assert 'Type: pip install "dotcu[tools]"' in said


def test_a_wheel_reports_its_problems_and_its_members(tmp_path: Path) -> None:
    members = {"a[b].so": elf({".nv_fatbin": fatbin(entry(2, 90))}), "c.so": elf({})}
    said = str(read(wheel_file(tmp_path, "py3-none-any", members)))
    assert (
        "a[b].so and 1 more: code for x86_64 in a wheel whose tag says that it is for any platform." in said
    )
    assert re.search(r"^  a\[b\]\.so: shared library for x86_64", said, re.MULTILINE)
    assert re.search(r"^  c\.so: .*, no device code$", said, re.MULTILINE)


def test_the_code_of_a_wheel_with_one_binary_is_reported_once(tmp_path: Path) -> None:
    members = {"lib.so": elf({".nv_fatbin": fatbin(entry(2, 90))})}
    said = str(read(wheel_file(tmp_path, "py3-none-manylinux_2_17_x86_64", members)))
    assert said.count("sm_90") == 1

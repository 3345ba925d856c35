"""Fatbins, made by fatbinary of CUDA 13.0 (see data/make.sh) and by hand; the GPUs that run them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from dotcu import process
from dotcu.compile import ObjectCode, Target, toolchain
from dotcu.compile.target import Version
from dotcu.elf import Image
from dotcu.errors import DotcuError, EnvironmentFault, UsageError
from dotcu.inspection import fatbin as fatbins
from dotcu.inspection.fatbin import (
    FAMILIES,
    PTX_SINCE,
    Fatbin,
    FatbinEntry,
    choose,
    gpu_support,
    in_elf,
    in_file,
    list_kernels,
)
from dotcu.process import Finished
from helpers.binary_files import archs, elf, entry, fatbin

DATA = Path(__file__).parent / "data"
ELF, PTX, IR = 2, 1, 8


def recorded(name: str) -> tuple[Fatbin, ...]:
    return in_file(Image(name=name, data=(DATA / name).read_bytes()))


def test_each_entry_of_a_compressed_fatbin_is_listed_with_its_suffix() -> None:
    assert archs(recorded("zstandard.fatbin")) == [
        ("elf", "sm_80"), ("ptx", "sm_80"), ("elf", "sm_90a"), ("ptx", "sm_90a"),
        ("elf", "sm_100f"), ("ptx", "sm_100f"), ("ir", "sm_90"),
    ]  # fmt: skip


def test_sizes_are_those_before_and_after_compression() -> None:
    machine_code, ptx = recorded("lz4.fatbin")[0].entries
    assert not machine_code.compressed
    assert machine_code.size == machine_code.uncompressed_size
    assert ptx.compressed
    assert ptx.size < ptx.uncompressed_size
    data = (DATA / "lz4.fatbin").read_bytes()
    assert data[machine_code.offset : machine_code.offset + 4] == b"\x7fELF"


def test_ptx_has_the_version_of_its_language() -> None:
    assert {e.version for e in recorded("zstandard.fatbin")[0].entries if e.kind == "ptx"} == {(9, 0)}


@pytest.mark.parametrize("name", ["zstandard.fatbin", "lz4.fatbin"])
def test_the_listing_is_that_of_cuobjdump(name: str, cuobjdump: Path) -> None:
    listed = process.run([cuobjdump, "-lelf", "-lptx", DATA / name]).stdout
    theirs = re.findall(r"\.(sm_\d+)([af]?)\.(cubin|ptx)$", listed, re.MULTILINE)
    ours = [e for e in archs(recorded(name)) if e[0] != "ir"]
    # cuobjdump 13.5 leaves the f out of a cubin's name, not of a PTX's
    assert [(kind, arch + suffix) for arch, suffix, kind in theirs] == [
        ("cubin", arch.removesuffix("f")) if kind == "elf" else ("ptx", arch) for kind, arch in ours
    ]


def test_fatbins_of_several_files_stand_padded_in_one_section() -> None:
    first, second = fatbin(entry(ELF, 80)), fatbin(entry(PTX, 90), entry(ELF, 90, flags=0x100011))
    found = in_elf(Image(name="it", data=elf({".nv_fatbin": first + bytes(24) + second + bytes(8)})))
    assert archs(found) == [("elf", "sm_80"), ("ptx", "sm_90"), ("elf", "sm_90a")]
    assert [len(module.entries) for module in found] == [1, 2]


def test_code_that_has_to_be_linked_differs_from_code_that_has_not() -> None:
    sections = {"__nv_relfatbin": fatbin(entry(ELF, 80)), ".nv_fatbin": fatbin(entry(ELF, 90))}
    found = in_elf(Image(name="it", data=elf(sections)))
    assert [(module.relocatable, archs([module])) for module in found] == [
        (True, [("elf", "sm_80")]), (False, [("elf", "sm_90")]),
    ]  # fmt: skip


def test_a_kind_that_no_one_knows_is_reported_by_its_number() -> None:
    found = in_file(Image(name="it", data=fatbin(entry(0x80, 100), entry(0x400, 100))))
    assert [e.kind for e in found[0].entries] == ["tile ir", "kind 0x400"]


def test_a_library_without_device_code_has_no_fatbin() -> None:
    assert in_elf(Image(name="it", data=elf({".text": b"code", ".nv_fatbin": 64}))) == ()


@pytest.mark.parametrize("cut", [8, 20, 90])
def test_a_fatbin_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(UsageError, match="it is cut short"):
        in_file(Image(name="it", data=fatbin(entry(ELF, 80))[:cut]))


def test_an_entry_that_leaves_its_container_is_refused_with_its_place() -> None:
    data = bytearray(fatbin(entry(ELF, 80)))
    data[24] = 0xFF  # the payload's size
    with pytest.raises(UsageError, match=r"it is damaged: the fatbin entry at byte 16 .* ends at byte 96"):
        in_file(Image(name="it", data=bytes(data)))


def test_a_container_that_ends_before_it_begins_is_refused() -> None:
    data = bytearray(fatbin())
    data[6] = 0  # the header's size
    with pytest.raises(UsageError, match=r"it is damaged: the fatbin at byte 0 has a header of 0 bytes"):
        in_file(Image(name="it", data=bytes(data)))


def test_bytes_that_are_no_fatbin_are_refused_with_their_place() -> None:
    data = elf({".nv_fatbin": fatbin(entry(ELF, 80)) + b"something else."})
    with pytest.raises(UsageError, match=r"it has no fatbin at byte \d+: 0x656d6f73 stands there"):
        in_elf(Image(name="it", data=data))


def recorded_entries(name: str, arch: str) -> tuple[Image, list[FatbinEntry]]:
    image = Image(name=name, data=(DATA / name).read_bytes())
    return image, [e for module in in_file(image) for e in module.entries if e.arch == arch]


def test_uncompressed_code_is_read_without_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = list_kernels(*recorded_entries("lz4.fatbin", "sm_80"))
    assert {k.name: k.smem_bytes for k in found} == {
        "scale(float*, float)": 0, "void turn<double>(double*)": 512,
    }  # fmt: skip
    assert {k.barriers for k in found} == {0, 1}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100f"])
def test_compressed_code_is_read_by_cuobjdump(arch: str, cuobjdump: Path) -> None:
    found = list_kernels(*recorded_entries("zstandard.fatbin", arch))
    assert {k.name: k.smem_bytes for k in found} == {
        "scale(float*, float)": 0, "void turn<double>(double*)": 512,
    }  # fmt: skip
    assert all(k.registers for k in found)
    assert {k.barriers for k in found} == {None}


def test_the_same_code_has_the_same_kernels_compressed_or_not(cuobjdump: Path) -> None:
    plain, packed = (
        list_kernels(*recorded_entries(f"{name}.fatbin", "sm_80")) for name in ("lz4", "zstandard")
    )
    assert {(k.symbol, k.registers, k.stack_bytes, k.smem_bytes, k.constant_bytes) for k in plain} == {
        (k.symbol, k.registers, k.stack_bytes, k.smem_bytes, k.constant_bytes) for k in packed
    }


def test_much_code_is_read_in_parts(cuobjdump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, entries = recorded_entries("zstandard.fatbin", "sm_80")
    runs: list[Sequence[str | Path]] = []
    real = process.run

    def counted(command: Sequence[str | Path], *, timeout_s: float) -> Finished:
        runs.append(command)
        return real(command, timeout_s=timeout_s)

    monkeypatch.setattr(process, "run", counted)
    whole = list_kernels(image, entries * 4)
    assert len(runs) == 1
    monkeypatch.setattr(fatbins, "PART_BYTES", 2 * entries[0].uncompressed_size)
    assert list_kernels(image, entries * 4) == whole
    assert len(runs) == 3
    assert len(whole) == 8


def test_ptx_has_no_kernels_in_machine_code(cuobjdump: Path) -> None:
    image, entries = recorded_entries("zstandard.fatbin", "sm_80")
    assert list_kernels(image, [e for e in entries if e.kind == "ptx"]) == ()


def test_without_cuobjdump_the_line_to_type_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r'sm_90a is compressed.*\nType: pip install "dotcu\[tools\]"'):
        list_kernels(*recorded_entries("zstandard.fatbin", "sm_90a"))


def test_what_cuobjdump_refuses_is_reported_in_its_words(
    cuobjdump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Finished(
        command=("cuobjdump",), status=1, stdout="", stderr="Support for 'sm_35' has been removed.\n"
    )
    monkeypatch.setattr(process, "run", lambda command, timeout_s: said)
    with pytest.raises(
        EnvironmentFault, match=r"cannot read the code for sm_90a: Support for 'sm_35' has been"
    ):
        list_kernels(*recorded_entries("zstandard.fatbin", "sm_90a"))


def test_padding_of_any_length_is_passed_over_at_once() -> None:
    head = struct.pack("<IHHQ", fatbins.MAGIC, 1, 16, 0)
    data = head + bytes(32 << 20) + head
    assert len(in_file(Image(name="it", data=data))) == 2


ELF, PTX, IR = 2, 1, 8
SUFFIXES = {"": 0x11, "a": 0x100011, "f": 0x200011}


def modules(*codes: str, version: Version = (9, 0)) -> tuple[Fatbin, ...]:
    """A module for each word: `sm_90a` is machine code, `compute_90` is PTX, with `+` several in one."""
    made = b""
    for code in codes:
        targets = [Target.parse(word) for word in code.split("+")]
        made += fatbin(
            *(entry(ELF if t.kind == "sm" else PTX, t.number, flags=SUFFIXES[t.suffix], version=version)
              for t in targets)
        )  # fmt: skip
    return in_file(Image(name="it", data=made))


def how(code: str, gpu: Version) -> str:
    return gpu_support(modules(code), gpu).how


@pytest.mark.parametrize(
    ("code", "gpu", "expected"),
    [
        ("sm_80", (8, 0), "native"),
        ("sm_80", (8, 6), "native"),  # a later minor
        ("sm_86", (8, 0), "no"),  # an earlier one
        ("sm_80", (9, 0), "no"),  # another major
        ("sm_80", (8, 7), "no"),  # Tegra takes its own alone
        ("sm_87", (8, 7), "native"),
        ("sm_87", (8, 9), "no"),  # and its own fits no other
        ("sm_90a", (9, 0), "native"),
        ("sm_100a", (10, 3), "no"),  # a: this GPU alone
        ("sm_100f", (10, 3), "native"),  # f: the family
        ("sm_103f", (10, 0), "no"),
        ("sm_100f", (12, 0), "no"),
        ("sm_120f", (12, 1), "native"),
        ("sm_100", (10, 3), "native"),
        ("compute_80", (9, 0), "jit"),
        ("compute_80", (12, 1), "jit"),
        ("compute_80", (8, 7), "jit"),  # which PTX does not mind
        ("compute_90", (8, 9), "no"),
        ("compute_90a", (9, 0), "jit"),
        ("compute_90a", (10, 0), "no"),
        ("compute_100f", (10, 3), "jit"),
        ("compute_100f", (11, 0), "no"),
        ("sm_80+compute_80", (8, 9), "native"),
        ("sm_80+compute_80", (9, 0), "jit"),
    ],
)
def test_code_runs_by_the_rules_of_cuda(code: str, gpu: Version, expected: str) -> None:
    assert how(code, gpu) == expected


def test_what_the_driver_must_have_for_the_ptx_is_reported() -> None:
    for version, since in (((8, 4), (12, 4)), ((8, 6), (12, 7)), ((7, 8), (11, 8)), ((9, 9), (13, 9))):
        assert gpu_support(modules("compute_80", version=version), (9, 0)).driver == since
    assert gpu_support(modules("sm_90"), (9, 0)).driver is None


def test_modules_are_counted_by_how_they_run() -> None:
    found = gpu_support(modules("sm_80", "sm_80+compute_80", "compute_80", "sm_90a"), (8, 6))
    assert (found.how, found.native, found.jit, found.none) == ("native", 2, 1, 1)
    assert "machine code for sm_90a runs on that GPU only" in found.why


def test_a_module_that_most_gpus_lack_does_not_hide_that_the_rest_is_compiled() -> None:
    assert gpu_support(modules("sm_90", "compute_80", "compute_80"), (9, 0)).how == "jit"


def test_where_there_are_many_architectures_the_reason_lists_what_there_is() -> None:
    why = gpu_support(modules("sm_80+sm_90+compute_90", "sm_100a"), (7, 5)).why
    assert why.endswith(": there is machine code for sm_80, sm_90, sm_100a; PTX for sm_90.")


def test_code_that_is_linked_counts_and_not_what_it_was_linked_from() -> None:
    linked, left = modules("sm_90", "sm_80")
    relocatable = Fatbin(relocatable=True, entries=left.entries)
    assert gpu_support([relocatable, linked], (9, 0)).none == 0
    assert gpu_support([relocatable], (8, 0)).how == "native"  # where nothing is linked yet


def test_without_device_code_nothing_runs() -> None:
    assert gpu_support([], (9, 0)).why == "There is no device code in it."
    assert gpu_support(modules(), (9, 0)).how == "no"


def test_code_for_link_time_optimization_alone_does_not_run() -> None:
    (found,) = in_file(Image(name="it", data=fatbin(entry(IR, 90))))
    assert "ir for sm_90 cannot be loaded without linking" in gpu_support([found], (9, 0)).why


def test_the_nearest_machine_code_is_chosen() -> None:
    (module,) = modules("sm_80+sm_86+compute_80+compute_86")
    chosen = choose(module.entries, (8, 9))
    assert chosen is not None
    assert (chosen.kind, chosen.arch) == ("elf", "sm_86")


def test_a_family_holds_its_first_member_and_no_earlier_one() -> None:
    for first, members in FAMILIES.items():
        assert members[0] == first
        assert list(members) == sorted(members)
        assert {member[0] for member in members} == {first[0]}


def test_newer_ptx_never_needs_an_older_driver() -> None:
    assert list(PTX_SINCE.values()) == sorted(PTX_SINCE.values())


@pytest.mark.gpu
@pytest.mark.parametrize(
    "target",
    ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_120",
     "compute_75", "compute_80", "compute_87", "compute_90", "compute_90a", "compute_100", "compute_120"],
)  # fmt: skip
def test_the_driver_loads_what_the_rules_say(target: str, compiled: Callable[[str], ObjectCode]) -> None:
    from cuda.bindings import driver as cuda

    try:
        made = compiled(target)
    except DotcuError as error:
        pytest.skip(f"this compiler makes no code for {target}: {error}")
    torch.zeros(1, device="cuda")  # makes the context current
    image = made.cubin if made.cubin is not None else made.ptx.encode() + b"\0"
    status, module = cuda.cuModuleLoadData(image)
    loaded = status == cuda.CUresult.CUDA_SUCCESS
    if loaded:
        cuda.cuModuleUnload(module)
    support = gpu_support(modules(target), torch.cuda.get_device_capability())
    assert loaded == (support.how != "no"), f"{status}, and the rules say {support.how}"

"""Kernels in fatbins, compressed or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault
from dotcu.inspection.binaries import kernels
from dotcu.inspection.binaries.fatbin import FatbinEntry, in_file
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.kernels import list_kernels
from dotcu.process import Finished

DATA = Path(__file__).parent / "data"


def recorded(name: str, arch: str) -> tuple[Image, list[FatbinEntry]]:
    image = Image(name=name, data=(DATA / name).read_bytes())
    return image, [e for module in in_file(image) for e in module.entries if e.arch == arch]


def test_uncompressed_code_is_read_without_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = list_kernels(*recorded("lz4.fatbin", "sm_80"))
    assert {k.name: k.smem_bytes for k in found} == {
        "scale(float*, float)": 0, "void turn<double>(double*)": 512,
    }  # fmt: skip
    assert {k.barriers for k in found} == {0, 1}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100f"])
def test_compressed_code_is_read_by_cuobjdump(arch: str, cuobjdump: Path) -> None:
    found = list_kernels(*recorded("zstandard.fatbin", arch))
    assert {k.name: k.smem_bytes for k in found} == {
        "scale(float*, float)": 0, "void turn<double>(double*)": 512,
    }  # fmt: skip
    assert all(k.registers > 0 for k in found)
    assert {k.barriers for k in found} == {None}


def test_the_same_code_has_the_same_kernels_compressed_or_not(cuobjdump: Path) -> None:
    plain, packed = (list_kernels(*recorded(f"{name}.fatbin", "sm_80")) for name in ("lz4", "zstandard"))
    assert {(k.symbol, k.registers, k.stack_bytes, k.smem_bytes, k.constant_bytes) for k in plain} == {
        (k.symbol, k.registers, k.stack_bytes, k.smem_bytes, k.constant_bytes) for k in packed
    }


def test_much_code_is_read_in_parts(cuobjdump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, entries = recorded("zstandard.fatbin", "sm_80")
    runs: list[Sequence[str | Path]] = []
    real = process.run

    def counted(command: Sequence[str | Path], *, timeout_s: float) -> Finished:
        runs.append(command)
        return real(command, timeout_s=timeout_s)

    monkeypatch.setattr(process, "run", counted)
    whole = list_kernels(image, entries * 4)
    assert len(runs) == 1
    monkeypatch.setattr(kernels, "PART_BYTES", 2 * entries[0].uncompressed_size)
    assert list_kernels(image, entries * 4) == whole
    assert len(runs) == 3
    assert len(whole) == 8


def test_ptx_has_no_kernels_in_machine_code(cuobjdump: Path) -> None:
    image, entries = recorded("zstandard.fatbin", "sm_80")
    assert list_kernels(image, [e for e in entries if e.kind == "ptx"]) == ()


def test_without_cuobjdump_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r'sm_90a is compressed.*\nType: pip install "dotcu\[tools\]"'):
        list_kernels(*recorded("zstandard.fatbin", "sm_90a"))


def test_what_cuobjdump_refuses_is_told_in_its_words(
    cuobjdump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Finished(
        command=("cuobjdump",), status=1, stdout="", stderr="Support for 'sm_35' has been removed.\n"
    )
    monkeypatch.setattr(process, "run", lambda command, timeout_s: said)
    with pytest.raises(
        EnvironmentFault, match=r"cannot read the code for sm_90a: Support for 'sm_35' has been"
    ):
        list_kernels(*recorded("zstandard.fatbin", "sm_90a"))

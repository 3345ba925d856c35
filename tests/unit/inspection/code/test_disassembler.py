from __future__ import annotations

import re
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.code import disassembler
from dotcu.inspection.code.disassembler import disassemble
from inspecting import everything, needs_cuobjdump, needs_nvdisasm

_PRINTED = re.compile(r"\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<guard>@\S+)\s+)?(?P<mnemonic>[\w.]+)")


def cubin(arch: str = "sm_90a") -> bytes:
    found = next(iter(everything(arch).values())).code.cubin
    assert found is not None
    return found


@needs_nvdisasm
@needs_cuobjdump
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_instructions_are_those_that_cuobjdump_prints(arch: str, tmp_path: Path) -> None:
    path, tool = tmp_path / "k.cubin", toolchain.find_tool("cuobjdump")
    path.write_bytes(cubin(arch))
    assert tool is not None
    printed: dict[str, list[str]] = {}
    for line in process.run([tool, "-sass", path]).stdout.splitlines():
        words, found = line.split(), _PRINTED.match(line)
        if words[:2] == ["Function", ":"]:
            current = printed.setdefault(words[2], [])
        elif found is not None:
            current.append(" ".join([found["address"], found["guard"] or "", found["mnemonic"]]))
    functions = disassemble(cubin(arch))
    assert functions.keys() == printed.keys()
    for symbol, function in functions.items():
        ours = [" ".join([f"{i.address:04x}", i.predicate, i.mnemonic]) for i in function.instructions]
        assert ours == printed[symbol][: len(ours)]
        rest = {line.split()[-1] for line in printed[symbol][len(ours) :]}
        assert rest <= {"BRA", "NOP"}


@needs_nvdisasm
@pytest.mark.parametrize("data", [b"", b"not an ELF", b"\x7fELF and no more"])
def test_bytes_that_are_no_cubin_are_refused_with_what_the_tool_says(data: bytes) -> None:
    with pytest.raises(UsageError, match=rf"cannot read these {len(data)} bytes as a cubin"):
        disassemble(data)


@needs_nvdisasm
def test_a_truncated_cubin_is_refused() -> None:
    with pytest.raises(UsageError, match="A whole cubin is required"):
        disassemble(cubin()[:2000])


def test_without_the_tool_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    assert not disassembler.available()
    with pytest.raises(EnvironmentFault, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"")

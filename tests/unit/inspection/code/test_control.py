from __future__ import annotations

import pytest

from dotcu.inspection.code.control import Control, decode
from dotcu.inspection.code.sass import Instruction
from inspecting import everything, needs_nvdisasm

# sm_90, ptxas of CUDA 13.0: S2R R2, SR_TID.X, and the IMAD.WIDE that waits for it.
S2R = 0x000E2E0000002100_0000000000027919
IMAD = 0x001FC6000F8E0002_0000000505087C25
REUSE = 0x040FE2000F8E00FF_0000000805067C25

ARCHITECTURES = ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]


def test_control_bits_are_read_as_published() -> None:
    assert decode(S2R) == Control(stall=7, yields=False, write=0, read=None, waits=())
    assert decode(IMAD) == Control(stall=3, yields=True, write=None, read=None, waits=(0,))


def test_control_bits_read_as_sass_people_write_them() -> None:
    assert str(decode(S2R)) == "B------:R-:W0:-:S07"
    assert str(decode(IMAD)) == "B0-----:R-:W-:Y:S03"


def test_flags_of_operand_reuse_are_not_taken_for_scoreboards() -> None:
    assert decode(REUSE).waits == ()


def _registers(operand: str) -> set[str]:
    return {
        word.split(".")[0] for word in operand.replace("[", " ").replace("]", " ").replace("-", " ").split()
    }


def _reader(after: list[Instruction], register: str) -> Instruction | None:
    """The first instruction that reads a register, if no branch comes before it."""
    for instruction in after:
        if instruction.labels or instruction.opcode in ("BRA", "EXIT", "CALL", "RET", "BSYNC"):
            return None
        sources = instruction.operands if instruction.opcode.startswith("ST") else instruction.operands[1:]
        if any(register in _registers(operand) for operand in sources):
            return instruction
    return None


@needs_nvdisasm
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_whoever_reads_what_a_load_brings_waits_for_its_scoreboard(arch: str) -> None:
    checked = 0
    for kernel in everything(arch).values():
        assert kernel.function is not None
        code = list(kernel.function.instructions)
        for index, load in enumerate(code):
            if load.opcode in ("LDG", "LDS") and load.predicate == "":
                assert load.control is not None
                assert load.control.write is not None
                reader = _reader(code[index + 1 :], load.operands[0])
                between = code[index + 1 : code.index(reader)] if reader is not None else []
                if reader is None or any(load.control.write in i.control.waits for i in between if i.control):
                    continue
                assert reader.control is not None
                assert load.control.write in reader.control.waits, (load.text, reader.text)
                checked += 1
    assert checked > 20

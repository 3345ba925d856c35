"""A cubin: its architecture, and the resources of its kernels, read from the ELF file's own tables.

Source: names of the attributes as `cuobjdump -elf` prints them; the bits of the architecture in e_flags as
in LLVM's BinaryFormat/ELF.h (EF_CUDA_SM). Compared with `cuobjdump -res-usage` on 18 000 kernels of CUDA 11.8
to 13.0, the barriers with nvdisasm and `ptxas -v`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dotcu import elf
from dotcu.demangler import demangle
from dotcu.elf import Header, Image, Section

_FUNCTION = 2
_RELOCATABLE = 1
_ENTRY_POINT = 0x10
"""A bit of a symbol's st_other: the function is a kernel."""

_PARAMETER_ROW = struct.Struct("<IHHI")
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED = 4
"""The format of an attribute whose value has a size (EIFMT_SVAL); of all others the value has two bytes."""
_REGISTER_COUNT = 0x2F
_PARAMETER = 0x17  # EIATTR_KPARAM_INFO: an index, a number, an offset in the block, and a size above flags
_SIZE_SHIFT = 18
_STACK_SIZE = 0x12  # EIATTR_MIN_STACK_SIZE: with all that the kernel calls
_BARRIER_COUNT = 0x4C
_REQUIRED_THREADS = 0x10  # EIATTR_REQNTID
_CLUSTER = 0x3D  # EIATTR_CTA_PER_CLUSTER
_ACCELERATED = 9  # EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET

_ABI_WITH_NEW_FLAGS = 8
_OLD_ACCELERATED = 0x800
_OLD_BARRIERS = 20, 0x7F
"""The shift and mask of the barrier count in the section flags of a kernel, before that ABI."""

_FIRST_RESERVING = 90
"""The first architecture whose cubins count the driver's shared memory as the kernel's."""
_RESERVED_SMEM_BYTES = 1024
"""Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 9.0: 1 KB of each block's."""

_ARCH_OPTION = re.compile(rb"-arch[ =]sm_(\d+)([af]?)\b")


@dataclass(frozen=True, kw_only=True)
class BinaryKernel:
    """A kernel in a binary.

    Attributes:
        symbol: The mangled name.
        registers: Per thread; None for PTX, as the fields below.
        stack_bytes: Per thread, with the functions that it calls, as far as they are known.
        smem_bytes: Static shared memory per block, as the source declares it: without the driver's own.
        constant_bytes: Of constant bank 0: parameters, and what the driver passes.
        barriers: Named barriers per block; None where cuobjdump, which does not print them, read the kernel.
        threads: The only number of threads that a block may have, as a tile kernel's; 0 where any is taken.
        cluster: The thread blocks of a cluster, where the code says it, else 1.
    """

    symbol: str
    registers: int | None = None
    stack_bytes: int | None = None
    smem_bytes: int | None = None
    constant_bytes: int | None = None
    barriers: int | None = None
    threads: int = field(default=0, compare=False)
    cluster: int = field(default=1, compare=False)

    @property
    def name(self) -> str:
        """The name as C++ spells it."""
        return demangle(self.symbol)

    @property
    def resources(self) -> str:
        """Its resources in words; empty of PTX."""
        parts = [f"{self.registers} registers"] if self.registers is not None else []
        parts += [f"{self.smem_bytes} bytes shared"] if self.smem_bytes else []
        parts += [f"{self.stack_bytes} bytes stack"] if self.stack_bytes else []
        parts += [f"{self.barriers} barrier{'s' if self.barriers > 1 else ''}"] if self.barriers else []
        return ", ".join(parts)


def read_cubin(image: Image) -> tuple[str, bool, tuple[BinaryKernel, ...]]:
    """Return a cubin's architecture, whether it has yet to be linked, and its kernels.

    Raises:
        UsageError: It is not an ELF file, or it is cut short.
    """
    header, sections = elf.read_header(image), elf.read_sections(image)
    arch = _architecture(image, header, sections)
    kernels = tuple(_kernels(image, header.abi_version, sections, arch))
    return arch, header.type == _RELOCATABLE, kernels


def parameter_sizes(image: Image) -> dict[str, tuple[int, ...]]:
    """Return the sizes in bytes of the parameters of each kernel of a cubin, by its symbol."""
    found = {}
    for section in elf.read_sections(image):
        if section.name.startswith(".nv.info."):
            sizes = {}
            for attribute, value in _attributes(image, section):
                if attribute == _PARAMETER and len(value) == _PARAMETER_ROW.size:
                    _, number, _, word = _PARAMETER_ROW.unpack(value)
                    sizes[number] = word >> _SIZE_SHIFT
            found[section.name.removeprefix(".nv.info.")] = tuple(sizes[number] for number in sorted(sizes))
    return found


def own_smem_bytes(arch: str, counted: int) -> int:
    """Return a kernel's own part of the shared memory that a cubin counts for it, in bytes."""
    reserves = int(arch[3:].rstrip("af")) >= _FIRST_RESERVING
    return max(0, counted - _RESERVED_SMEM_BYTES) if reserves else counted


def _architecture(image: Image, header: Header, sections: Sequence[Section]) -> str:
    """Read the number in the header, and the suffix in the assembler's options or compatibility notes."""
    if header.abi_version < _ABI_WITH_NEW_FLAGS:
        return f"sm_{header.flags & 0xFF}{'a' if header.flags & _OLD_ACCELERATED else ''}"
    number = header.flags >> 8 & 0xFF
    for section in sections:
        if section.name == ".note.nv.tkinfo":
            option = _ARCH_OPTION.search(image.data, section.offset, section.offset + section.size)
            if option and int(option[1]) == number:
                return f"sm_{number}{option[2].decode()}"
    compatible = [section for section in sections if section.name == ".nv.compat"]
    accelerated = any((_ACCELERATED, b"\1\0") in _attributes(image, section) for section in compatible)
    return f"sm_{number}{'a' if accelerated else ''}"


def _kernels(image: Image, abi: int, sections: Sequence[Section], arch: str) -> Iterator[BinaryKernel]:
    by_name = {section.name: section for section in sections}
    table = by_name.get(".symtab")
    if table is None or table.type != elf.SYMBOLS:
        return
    of_symbols = {
        (struct.unpack_from("<I", value)[0], attribute): struct.unpack_from("<I", value, 4)[0]
        for attribute, value in _attributes(image, by_name.get(".nv.info"))
        if len(value) == 8
    }
    text = elf.names_of(image, sections, table)
    of_kernels: dict[str, dict[int, bytes]] = {}
    for index, (name, info, other, _, _, _) in enumerate(elf.rows_of(image, table, elf.SYMBOL)):
        if info & 0xF != _FUNCTION or not other & _ENTRY_POINT:
            continue
        symbol = text.at(name)
        shared, constant = (by_name.get(f"{bank}.{symbol}") for bank in (".nv.shared", ".nv.constant0"))
        if symbol not in of_kernels:  # damage may have many symbols of one name
            of_kernels[symbol] = dict(_attributes(image, by_name.get(f".nv.info.{symbol}")))
        own = of_kernels[symbol]
        if abi < _ABI_WITH_NEW_FLAGS:
            code, (shift, mask) = by_name.get(f".text.{symbol}"), _OLD_BARRIERS
            barriers = code.flags >> shift & mask if code else 0
        else:
            barriers = (own.get(_BARRIER_COUNT) or b"\0")[0]
        yield BinaryKernel(
            symbol=symbol,
            registers=of_symbols.get((index, _REGISTER_COUNT), 0),
            stack_bytes=of_symbols.get((index, _STACK_SIZE), 0),
            smem_bytes=own_smem_bytes(arch, shared.size) if shared else 0,
            constant_bytes=constant.size if constant else 0,
            barriers=barriers,
            threads=_product(own.get(_REQUIRED_THREADS), 0),
            cluster=_product(own.get(_CLUSTER), 1),
        )


def _product(sizes: bytes | None, missing: int) -> int:
    return math.prod(struct.unpack("<3I", sizes)) if sizes and len(sizes) == 12 else missing


def _attributes(image: Image, section: Section | None) -> Iterator[tuple[int, bytes]]:
    if section is None:
        return
    position, end = section.offset, section.offset + section.size
    while position + _ATTRIBUTE.size <= end:
        form, attribute, size = image.unpack(_ATTRIBUTE, position, "an attribute")
        position += _ATTRIBUTE.size
        if form == _SIZED:
            yield attribute, image.take(position, size, "an attribute")
            position += size
        else:
            yield attribute, struct.pack("<H", size)

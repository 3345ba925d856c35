"""PTX or a cubin as the source of a module: its kernels, their parameters, and its object code.

PTX says of a parameter its size and kind, and not its C++ type. A 64-bit one is a pointer if it is declared
with `.ptr` or if the kernel uses it as an address. A cubin says sizes only: here it has a skeleton of PTX, in
which each parameter is as many bits.

Source: PTX ISA, "Kernel Function Parameters", "Kernel Function Parameter Attributes: .ptr".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dotcu.compile import ObjectCode, Source, Target
from dotcu.compile.cubin import parameter_sizes, read_cubin
from dotcu.compile.object_code import Resources
from dotcu.compile.plan import text_digest
from dotcu.compile.source.declarations import Declaration
from dotcu.demangler import demangle
from dotcu.elf import Image
from dotcu.errors import KernelNotFound, SimulationError, SourceError, UsageError, quoted
from dotcu.kernel.arguments.pack import WRAPPED, Addresses, MapPacker, Packer, PackingPlan, PointerPacker
from dotcu.kernel.arguments.signature import CType, KernelParameter
from dotcu.kernel.arguments.tensor_map import BYTES, MAP_ALIGNMENT
from dotcu.kernel.arguments.values import FloatPacker, IntPacker, StructPacker, WordPacker
from dotcu.kernel.declarations import ScannedDeclarations, overload_key
from dotcu.kernel.ptx_uses import ParameterUse, map_uses, parameter_is_written, parameter_uses
from dotcu.ptx.instructions import TYPE_BYTES, Variable
from dotcu.ptx.module import PtxModule, parse_module

_FLOATS = {
    "f16": ("__half", "<e"),
    "bf16": ("__nv_bfloat16", ""),
    "f32": ("float", "<f"),
    "f64": ("double", "<d"),
}
_OF_THE_DRIVER = re.compile(r"vprintf|malloc|free|__assertfail|cuda\w+|__cuda_syscall\w*")
"""Functions that the driver defines."""


@dataclass(frozen=True, kw_only=True)
class AddressPacker(PointerPacker):
    """Packs 64 bits that may be an address or a number: the code does not tell."""

    number: IntPacker | WordPacker

    @property
    def takes(self) -> str:
        return f"{super().takes}; or, if it is no pointer, {self.number.takes}"

    def pack(self, value: Any, addresses: Addresses, label: str = "") -> bytes:
        if value is None or isinstance(value, (Tensor, *WRAPPED)):
            return super().pack(value, addresses, label)
        return self.number.pack(value)


@functools.lru_cache(maxsize=256)
def outline(source: Source) -> PtxModule:
    """Return the top level of the PTX, or of a cubin's skeleton.

    Raises:
        SourceError: It is not well formed, or has no kernel.
    """
    if source.cubin:
        return parse_module(_skeleton(source))
    try:
        module = parse_module(source.text)
        Target.parse(module.target)
    except SimulationError as error:
        raise SourceError(f"{source.display}: {error}") from None
    except UsageError:
        raise SourceError(
            f"{source.display} has .target {module.target or 'of nothing'}, which is no architecture.\n"
            "A GPU's is required, such as sm_80 or sm_90a.\nCompile it again: nvcc --ptx -arch=sm_80"
        ) from None
    if not module.entries:
        functions = ", ".join(map(demangle, module.bodies)) or "no function at all"
        raise KernelNotFound(
            f"{source.display} has no kernel; it has {functions}.\n"
            "A kernel is an .entry with a body; a compiler makes one of each __global__ function that is no "
            "template, and of each instantiation of a template.\n"
            "Instantiate the templates in the source: template __global__ void scale<float>(float*);"
        )
    module.files.setdefault(0, source.display)  # for code that names no lines: those of the PTX itself
    return module


def _skeleton(source: Source) -> str:
    image = Image(name=source.display, data=source.cubin)
    arch, is_relocatable, kernels = read_cubin(image)
    if is_relocatable or not kernels:
        what = "has yet to be linked" if is_relocatable else "has no kernel"
        raise KernelNotFound(
            f"{source.display} {what}.\nA cubin with a kernel is required.\n"
            f"See what is in it: dotcu inspect {quoted(source.display)}"
        )
    found = parameter_sizes(image)
    lines = [".version 9.0", f".target {arch}", ".address_size 64"]
    for kernel in kernels:
        sizes = found[kernel.symbol]
        params = ", ".join(
            f".param .b{8 * size} p{index}"
            if size in (1, 2, 4, 8)
            else f".param .align 64 .b8 p{index}[{size}]"
            for index, size in enumerate(sizes)
        )
        lines.append(f".visible .entry {kernel.symbol}({params}) {{\n\tret;\n}}")
    return "\n".join(lines)


def declarations(source: Source) -> ScannedDeclarations:
    """Return the kernels and variables, by their names in C++; by their symbols, where two share a name."""
    module = outline(source)
    return ScannedDeclarations(
        kernels=tuple(Declaration(name, (), (), 0) for name in _names(tuple(module.entries))),
        overloads={},
        variables=tuple(_names(_variables(module))),
        constants=(),
        has_state=False,
        is_tile=False,
        is_pytorchs=False,
    )


def symbols(source: Source) -> Mapping[str, str]:
    """Return the symbols of the kernels, by their names."""
    return _names(tuple(outline(source).entries))


def _variables(module: PtxModule) -> tuple[str, ...]:
    return tuple(symbol for symbol in module.module_variables if not symbol.startswith(("$", "__unnamed_")))


@functools.lru_cache(maxsize=256)
def _names(symbols: tuple[str, ...]) -> Mapping[str, str]:
    """Return symbols by their names; by themselves where two would have one name."""
    shown = [shown_symbol(symbol) for symbol in symbols]
    return {
        name if shown.count(name) == 1 else symbol: symbol
        for name, symbol in zip(shown, symbols, strict=True)
    }


def shown_symbol(symbol: str) -> str:
    """Return a symbol as C++ has it, without result and parameters: `scale<float, 4>`."""
    full = demangle(symbol)
    depth, end = 0, len(full)
    for at, character in enumerate(full):
        depth += (character in "<") - (character in ">")
        if character == "(" and depth == 0 and not full.startswith("(anonymous", at):
            end = at
            break
    name, depth = full[:end], 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] in ">)") - (name[at] in "<(")
        if name[at] == " " and depth == 0:
            return name[at + 1 :]  # of a template, the result stands before it
    return name


def object_code(source: Source, target: Target, *, simulated: bool) -> ObjectCode:
    """Return the code for a target, which must be one that it runs on.

    Raises:
        SourceError: It is for another architecture, calls what is not there, or is a cubin to simulate.
    """
    module = outline(source)
    own = Target.parse(module.target)
    if source.cubin and simulated:
        raise SourceError(
            f"{source.display} is machine code for {own}, and the simulator executes PTX.\n"
            "Its tensors are on the CPU; a cubin runs on a GPU alone.\n"
            f'Take the PTX that it was assembled from: dotcu.load("{source.path and source.path.stem}.ptx")'
        )
    if not runs_on(own, target, is_ptx=not source.cubin):
        on = f"simulated {target.major}.{target.minor}" if simulated else f"a GPU of {target}"
        newer = (
            f'Type: with dotcu.simulate(arch="{own}"):'
            if simulated
            else f"Compile it for {target}: nvcc --ptx -arch={target}"
        )
        raise SourceError(
            f"{source.display} is for {own}, and was launched on {on}.\n"
            f"{_where(own, is_ptx=not source.cubin)}\n{newer}"
        )
    _require_functions(source, module)
    names = {**_names(tuple(module.entries)), **{f"&{n}": s for n, s in _names(_variables(module)).items()}}
    return ObjectCode(
        target=target, ptx=module.text, cubin=source.cubin or None, lowered=names, signatures={},
        resources=_resources(source), warnings=(), log="", command="", files={},
        build_digest=text_digest(module.text), cached=True, seconds=0.0,
    )  # fmt: skip


def own_target(source: Source, asked: Target) -> Target:
    """Return an architecture that the code runs on: the one asked for, or its own."""
    own = Target.parse(outline(source).target)
    return asked if runs_on(own, asked, is_ptx=not source.cubin) else own


def runs_on(own: Target, target: Target, *, is_ptx: bool) -> bool:
    """Return whether code for one architecture runs on another.

    Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility", "Feature Set Compiler
    Targets".
    """
    same_major = own.major == target.major
    if own.suffix == "a":
        return own.number == target.number
    if own.suffix == "f" or not is_ptx:
        return same_major and own.minor <= target.minor
    return own.number <= target.number


def _where(own: Target, *, is_ptx: bool) -> str:
    number = f"{own.major}.{own.minor}"
    if own.suffix == "a":
        return f"Code for {own} runs on compute capability {number} alone."
    if own.suffix == "f" or not is_ptx:
        return f"It runs on compute capability {number}, and later ones of {own.major}.x."
    return f"It runs on compute capability {number} and later."


def _require_functions(source: Source, module: PtxModule) -> None:
    missing = {name for name, h in module.headers.items() if not h.is_entry and name not in module.bodies}
    for name in sorted(name for name in missing if not _OF_THE_DRIVER.fullmatch(name)):
        used = re.compile(rf"(?<![\w$.%]){re.escape(name)}(?![\w$])")
        for span in module.bodies.values():
            at = used.search(module.text, *span)
            if at:
                line = module.text.count("\n", 0, at.start()) + 1
                raise SourceError(
                    f"{source.display}:{line}: it calls {demangle(name)}, which it declares and does not "
                    "define.\nPTX to load has the bodies of all functions that it calls.\n"
                    "Compile the source that defines it into the same PTX, without -rdc=true."
                )


def _resources(source: Source) -> dict[str, Resources]:
    if not source.cubin:
        return {}
    _, _, kernels = read_cubin(Image(name=source.display, data=source.cubin))
    return {
        one.symbol: Resources(
            registers=one.registers or 0, stack_bytes=one.stack_bytes or 0, smem_bytes=one.smem_bytes or 0,
            barriers=one.barriers or 0,
        )
        for one in kernels
    }  # fmt: skip


def plan_packing(module: PtxModule, name: str, symbol: str) -> PackingPlan:
    """Return how the arguments of a kernel are packed, as its PTX declares and uses its parameters."""
    params = module.entries[symbol].params
    try:
        uses = parameter_uses(module, symbol)
    except SimulationError:  # a body that only the driver can read
        uses = {}
    parameters: list[KernelParameter] = []
    packers: list[Packer] = []
    for index, param in enumerate(params):
        is_numbered = param.name in (f"{symbol}_param_{index}", f"p{index}")
        ctype, size = CType(kind="builtin", name=f".{param.type}"), TYPE_BYTES[param.type]
        if param.size != size:
            ctype = CType(kind="array", target=ctype, length=param.size // size)
        parameter = KernelParameter(
            index=index, name="" if is_numbered else param.name, ctype=ctype, size=param.size,
            ptx_type=param.type,
        )  # fmt: skip
        parameters.append(parameter)
        packers.append(_packer(module, symbol, param, parameter, uses.get(param.name, ParameterUse())))
    return PackingPlan(kernel=overload_key(name), parameters=tuple(parameters), packers=tuple(packers))


def _packer(
    module: PtxModule, symbol: str, param: Variable, parameter: KernelParameter, use: ParameterUse
) -> Packer:
    label, kind = parameter.label, param.type
    if parameter.ctype.kind == "array":
        if param.size == BYTES and param.align >= MAP_ALIGNMENT:
            (how,) = map_uses(module, symbol, [param.name])
            if how != "copied":
                return MapPacker(label=label, writes=how == "stored")
        return StructPacker(name=str(parameter.ctype), size=param.size, is_opaque=True)
    if kind in _FLOATS:
        name, code = _FLOATS[kind]
        return FloatPacker(name=name, code=code)
    if param.is_pointer or (param.size == 8 and use.address != "never" and not use.float_type):
        try:
            writes = parameter_is_written(module, symbol, param.name)
        except SimulationError:
            writes = True
        given: Any = {"element": None, "label": label, "writes": writes}
        if param.is_pointer or use.address == "always":
            return PointerPacker(**given)
        is_any = use.is_unknown and kind == "b64"
        number = (
            WordPacker(size=8) if is_any else IntPacker(name=f".{kind}", size=8, signed=False, either=True)
        )
        return AddressPacker(**given, number=number)
    if kind[0] == "b" and use.float_type in _FLOATS:
        name, code = _FLOATS[use.float_type]
        return FloatPacker(name=name, code=code)
    if kind[0] == "b" and param.size in (4, 8) and use.is_unknown:
        return WordPacker(size=param.size)
    return IntPacker(name=f".{kind}", size=param.size, signed=kind[0] == "s", either=kind[0] != "s")

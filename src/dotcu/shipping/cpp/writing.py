"""A plan's steps, allocations and launches, as lines of C++ on top of runtime.h."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import torch

from dotcu.__about__ import __version__
from dotcu.call_cache.arithmetic import INT_MIN
from dotcu.call_cache.record import (
    Field,
    FieldKind,
    Key,
    Launch,
    RecordedStep,
    StepOp,
    TensorKey,
)
from dotcu.compile import CompileOptions, ObjectCode, Source, Target
from dotcu.compile.object_code import without_probes
from dotcu.compile.prebuilt import load_key
from dotcu.operator import Overload
from dotcu.shipping.cpp.planning import DTYPES, TYPES, CppOperators, CppVariant, types_of

_COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_INFIX = {
    "AND": "&", "OR": "|", "XOR": "^", "FADD": "+", "FSUB": "-", "FMUL": "*", **_COMPARISONS,
    **{f"F{name}": sign for name, sign in _COMPARISONS.items()},
}  # fmt: skip
_STEPS: Mapping[StepOp, str] = {
    StepOp.SIZE: "{t}.sizes()[{b}]",
    StepOp.STRIDE: "{t}.strides()[{b}]",
    StepOp.NUMEL: "{t}.numel()",
    StepOp.OFFSET: "Call::offset({t})",
    StepOp.ADDRESS: "Call::address({t})",
    StepOp.CONTIGUOUS: "{t}.is_contiguous()",
    StepOp.INT_ARGUMENT: "{t}",
    StepOp.FLOAT_ARGUMENT: "{t}",
    StepOp.MULTIPROCESSORS: "call.multiprocessors()",
    **{
        op: f"exact.{op.name.lower()}({{x}}, {{y}})"
        for op in (StepOp.ADD, StepOp.SUB, StepOp.MUL, StepOp.FLOORDIV, StepOp.MOD, StepOp.FDIV)
    },
    StepOp.LSHIFT: "exact.shl({x}, {y})",
    StepOp.RSHIFT: "exact.shr({x}, {y})",
    StepOp.NEG: "exact.neg({x})",
    StepOp.ABS: "exact.abs({x})",
    StepOp.TO_FLOAT: "exact.to_float({x})",
    StepOp.FNEG: "-{x}",
    StepOp.FABS: "std::fabs({x})",
    StepOp.MIN: "{x} < {y} ? {x} : {y}",
    StepOp.MAX: "{x} > {y} ? {x} : {y}",
    **{StepOp[name]: f"{{x}} {sign} {{y}}" for name, sign in _INFIX.items()},
    StepOp.SAME: "same_bits({x}, {y})",
    StepOp.TRUNC: "exact.whole(std::trunc({x}))",
    StepOp.FLOOR: "exact.whole(std::floor({x}))",
    StepOp.CEIL: "exact.whole(std::ceil({x}))",
}
_DOUBLES = {
    StepOp.FLOAT, StepOp.FLOAT_ARGUMENT, StepOp.TO_FLOAT, StepOp.FADD, StepOp.FSUB, StepOp.FMUL,
    StepOp.FDIV, StepOp.FNEG, StepOp.FABS,
}  # fmt: skip

_WIDTHS: Mapping[FieldKind, str] = {
    FieldKind.INT8: "int8_t", FieldKind.INT16: "int16_t", FieldKind.INT32: "int32_t",
    FieldKind.INT64: "int64_t", FieldKind.UINT8: "uint8_t", FieldKind.UINT16: "uint16_t",
    FieldKind.UINT32: "uint32_t", FieldKind.UINT64: "uint64_t",
    FieldKind.FLOAT32: "float", FieldKind.FLOAT64: "double",
}  # fmt: skip
_ALWAYS_FIT = {FieldKind.INT64, FieldKind.FLOAT64}
_CHARACTERS = [
    chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in range(256)
]


def text(value: str | bytes) -> str:
    """Return a literal of these bytes, in lines."""
    data = value.encode() if isinstance(value, str) else value
    lines = ["".join(_CHARACTERS[byte] for byte in data[at : at + 64]) for at in range(0, len(data), 64)]
    return "\n    ".join(f'"{line}"' for line in lines or [""])


def _key_check(key: Key, value: str, *, optional: bool) -> str:
    """Return the condition under which an argument is of a key's kind; empty where C++'s types say so."""
    inner = f"*{value}" if optional else value
    given = f"{value}.has_value()" if optional else ""
    if isinstance(key, tuple):
        if key[0] is None:
            return f"!{value}.has_value()"
        rest = f"{inner} == {_constant(key[0])}"
    elif isinstance(key, TensorKey):
        rest = f"Call::is({inner}, ScalarType::{DTYPES[key.dtype]}, {key.dim})"
    else:
        rest = ""
    return " && ".join(filter(None, [given, rest]))


def _constant(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, torch.dtype):
        return f"ScalarType::{DTYPES[value]}"
    return text(str(value))


Steps = Sequence[RecordedStep]


def _value(steps: Steps, *numbers: int) -> str:
    """Return the names of the values of steps, as a list; of what never changes, the number itself."""
    return ", ".join(
        _double(float(step.value)) if step.op is StepOp.FLOAT
        else f"v{number}" if step.op is not StepOp.INT
        else "INT64_MIN" if step.value == INT_MIN else str(step.value)
        for number in numbers for step in (steps[number],)
    )  # fmt: skip


def _step_lines(steps: Steps, arguments: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that compute the steps, each with its number."""
    for number, step in enumerate(steps):
        if step.op in (StepOp.INT, StepOp.FLOAT):
            continue
        if step.op < StepOp.ADD:
            value = _STEPS[step.op].format(t=arguments[step.a], b=step.b)
        else:
            value = _STEPS[step.op].format(x=_value(steps, step.a), y=_value(steps, step.b))
        kind = "double" if step.op in _DOUBLES else "int64_t"
        yield number, f"const {kind} v{number} = {value};"


def _double(value: float) -> str:
    if math.isnan(value):
        return f"std::copysign(NAN, {math.copysign(1, value)})"
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return repr(value) if value else "-0.0" if math.copysign(1, value) < 0 else "0.0"


def _demands(launch: Launch, steps: Steps) -> Iterator[str]:
    """Yield the conditions on the steps under which a launch fits."""
    yield f"fits_grid({_value(steps, *launch.grid)})"
    if launch.cluster is not None:
        for size, each in zip(launch.grid, launch.cluster, strict=True):
            if each > 1:
                yield f"{_value(steps, size)} % {each} == 0"
    for part in launch.fields:
        if part.kind is FieldKind.FLOAT32:
            yield f"fits_float({_value(steps, part.step)})"
        elif part.kind in _WIDTHS and part.kind not in _ALWAYS_FIT:
            yield f"fits<{_WIDTHS[part.kind]}>({_value(steps, part.step)})"


def _launch_lines(
    name: str, launch: Launch, kernel: str, arguments: Sequence[str], steps: Steps
) -> Iterator[str]:
    """Yield the lines that fill in a launch's parameters, called `name` in C++, and launch."""
    yield f"// {launch.kernel}"
    constant = f"({text(launch.parameters)})" if any(launch.parameters) else ""
    yield f"Parameters<{len(launch.parameters)}> {name}{constant};"
    yield from (_field(name, field, arguments, steps) for field in launch.fields)
    pointers = ", ".join(f"{name}.data + {offset}" for offset in launch.offsets)
    yield f"void* {name}_at[] = {{{pointers or 'nullptr'}}};"
    x, y, z = launch.cluster or (0, 0, 0)
    block = ", ".join(map(str, launch.block))
    flags = ", ".join(str(flag).lower() for flag in (launch.cooperative, launch.programmatic))
    shape = f"{{{{{block}}}, {launch.smem_bytes}, {{{x}, {y}, {z}}}, {flags}}}"
    yield f"call.launch({kernel}, {shape}, {_value(steps, *launch.grid)}, {name}_at);"


def _field(name: str, field: Field, arguments: Sequence[str], steps: Steps) -> str:
    if field.kind in _WIDTHS:
        width = _WIDTHS[field.kind]
        return f"{name}.put({field.offset}, static_cast<{width}>({_value(steps, field.step)}));"
    is_given = field.kind is FieldKind.ARGUMENT_ADDRESS
    source = arguments[field.source] if is_given else f"call.made[{field.source}]"
    more = f", {_value(steps, field.step)}" if field.step >= 0 else ""
    return f"{name}.put_address({field.offset}, {source}{more});"


# The C++ of a project's operators: one function an operator, one a plan, and the code of every kernel.


SOURCE = "operators.cpp"
HEADER = "dotcu.h"

Place = tuple[tuple[str, ...], str, str]
"""A unit: the names in it, the path of its source, and its options."""

Codes = dict[tuple[Place, Target], ObjectCode]
"""What was compiled, by unit and target."""


def place(names: Sequence[str], source: Source, options: CompileOptions) -> Place:
    return tuple(sorted(names)), str(source.path), load_key(source, options)


@dataclass(frozen=True, kw_only=True)
class _Kernels:
    """The kernels that launches name, and the code that they are in, each once."""

    targets: Sequence[Target]
    codes: Codes
    texts: dict[bytes, str] = field(default_factory=dict)
    tables: dict[tuple[str, Place], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def name(self, launch: Launch, variant: CppVariant, number: int) -> str:
        """Return the C++ name of a launch's kernel; its table is written at its first launch."""
        unit = variant.units[number]
        key = launch.kernel, place(unit.names, unit.source, unit.options)
        if key not in self.tables:
            self.tables[key] = f"kernel_{len(self.tables)}"
            rows = ", ".join(self._variant(*key, target) for target in self.targets)
            table = f"{self.tables[key]}_variants"
            self.lines.append(f"const Variant {table}[] = {{{rows}}};")
            self.lines.append(f"const Kernel {self.tables[key]} = {{{text(launch.kernel)}, {table}}};")
        return self.tables[key]

    def _variant(self, kernel: str, unit: Place, target: Target) -> str:
        code = self.codes.get((unit, target))
        if code is None or kernel not in code.lowered:
            return "{nullptr, nullptr}"
        data = code.cubin if code.cubin is not None else without_probes(code.ptx).encode()
        if data not in self.texts:
            self.texts[data] = f"code_{len(self.texts)}"
            self.lines.append(f"alignas(16) const char {self.texts[data]}[] = {text(data)};")
        return f'{{{self.texts[data]}, "{code.lowered[kernel]}"}}'


def write(package: str, planned: CppOperators, targets: Sequence[Target], codes: Codes) -> dict[str, str]:
    """Write the files, by name.

    Args:
        package: The name of the project's package.
        planned: The overloads to write, with their plans.
        targets: The architectures that the wheel has code for.
        codes: The code of each unit and target.
    """
    kernels = _Kernels(targets=targets, codes=codes)
    functions = [
        line for number, one in enumerate(planned.items()) for line in _operator(number, *one, kernels)
    ]
    rows = [
        f"{{\"{one}\", {one.major}, {one.minor}, {str(one.kind == 'sm').lower()}, '{one.suffix or ' '}'}}"
        for one in targets
    ]
    lines = [
        f"// The operators of {package} for C++ and AOTInductor, as dotcu {__version__} wrote them.",
        "//",
        "// To write them again, type: dotcu build --cpp",
        "// A call does what its sample did in Python; one that is like none of the samples is refused.",
        "",
        f'#include "{HEADER}"',
        "",
        "namespace {",
        "",
        "using namespace dotcu;",
        "",
        f"constexpr int target_count = {len(targets)};",
        f"const Target targets[] = {{{', '.join(rows)}}};",
        "",
        *kernels.lines,
        "",
        *functions,
        "}  // namespace",
        "",
        *_registrations(planned),
    ]
    header = files(__package__).joinpath("runtime.h").read_text(encoding="utf-8")
    return {SOURCE: "\n".join(lines) + "\n", HEADER: header}


def _operator(
    number: int, overload: Overload, variants: Sequence[CppVariant], kernels: _Kernels
) -> Iterator[str]:
    """Yield the functions of the plans, and the one that torch calls."""
    signature, returns = overload.signature, overload.signature.returns
    names = [f"{name}_" for name in signature.arguments]
    pairs = list(zip(types_of(overload), names, strict=True))
    parameters = ", ".join(f"{_parameter(kind)} {name}" for kind, name in pairs)
    for index, variant in enumerate(variants):
        yield from _plan(f"plan_{number}_{index}", overload, variant, parameters, kernels)
    returned = "Tensor" if returns else "void"
    results = ", ".join(f"call.result({i})" for i in range(returns))
    if returns > 1:
        returned, results = f"std::tuple<{', '.join(['Tensor'] * returns)}>", f"{{{results}}}"
    tensors = ", ".join(f"&{name}" for kind, name in pairs if kind == "Tensor")
    yield f"// {signature}"
    yield f"{returned} operator_{number}({parameters}) {{"
    yield f'    Call call("{signature.qualified_name}", targets, target_count, {{{tensors}}});'
    yield from (
        f"    if ({name}.has_value()) call.take(*{name});" for kind, name in pairs if kind == "Tensor?"
    )
    arguments, answer = ", ".join(["call", *names]), f"return {results}" if returns else "return"
    yield from (f"    if (plan_{number}_{i}({arguments})) {answer};" for i in range(len(variants)))
    exactly = "true" if any(variant.exactly for variant in variants) else "false"
    yield f"    call.refuse({text(_followed(variants))}, {exactly});"
    yield "}"
    yield ""


def _parameter(kind: str) -> str:
    plain = TYPES[kind.removesuffix("?")]
    if kind.endswith("?"):
        return f"const std::optional<{plain}>&"
    return f"const {plain}&" if plain in ("Tensor", "std::string") else plain


def _followed(variants: Sequence[CppVariant]) -> str:
    kinds: dict[str, None] = {}
    for variant in variants:
        keys = [key for key in variant.plan.keys if isinstance(key, TensorKey)]
        shown = ", ".join(f"{str(key.dtype).removeprefix('torch.')}[{key.dim}d]" for key in keys)
        kinds[f"({shown})"] = None
    return " ".join(kinds)


def _plan(
    name: str, overload: Overload, variant: CppVariant, parameters: str, kernels: _Kernels
) -> Iterator[str]:
    plan = variant.plan
    names = [f"{one}_" for one in overload.signature.arguments]
    optional = [kind.endswith("?") for kind in types_of(overload)]
    held = [f"(*{one})" if may else one for one, may in zip(names, optional, strict=True)]
    mask = sum(1 << target for target in variant.targets)
    checks = [f"call.is_for({mask:#x})", *(["call.is_exact()"] if variant.exactly else [])]
    for key, one, may in zip(plan.keys, names, optional, strict=True):
        checks.append(_key_check(key, one, optional=may))
    checks += ["call.distinct()"] if plan.distinct else []
    yield f"// On {', '.join(str(kernels.targets[target]) for target in variant.targets)}."
    yield f"bool {name}(Call& call, {parameters}) {{"
    yield from (f"    if (!({check})) return false;" for check in checks if check)
    yield "    Exact exact;"
    steps, guards = plan.steps, dict(plan.guards)
    for number, line in _step_lines(steps, held):
        yield f"    {line}"
        if number in guards:
            yield f"    if (v{number} != {guards[number]}) return false;"
    demands = dict.fromkeys(one for launch in plan.launches for one in _demands(launch, steps))
    yield f"    if (!({' && '.join(['exact.holds', *demands])})) return false;"
    for allocation in plan.allocations:
        sizes, strides = (_value(steps, *each) for each in (allocation.sizes, allocation.strides))
        form = f"{{{sizes}}}, {{{strides}}}, {str(allocation.zeroed).lower()}"
        yield f"    call.allocate(ScalarType::{DTYPES[allocation.dtype]}, {form});"
    for number, launch in enumerate(plan.launches):
        kernel = kernels.name(launch, variant, number)
        lines = _launch_lines(f"p{number}", launch, kernel, held, steps)
        yield from (f"    {line}" for line in lines)
    yield f"    call.results = {{{', '.join(map(str, plan.results))}}};"
    yield "    return true;"
    yield "}"
    yield ""


def _registrations(planned: Iterable[Overload]) -> Iterator[str]:
    by_namespace: dict[str, list[tuple[int, Overload]]] = {}
    for number, one in enumerate(planned):
        by_namespace.setdefault(one.signature.namespace, []).append((number, one))
    for namespace, some in by_namespace.items():
        yield f"STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{"
        for _, one in some:
            yield f"    m.def({text(_defined(one) + one.signature.text)});"
        yield "}"
        yield f"STABLE_TORCH_LIBRARY_IMPL({namespace}, DOTCU_DEVICE, m) {{"
        for number, one in some:
            yield f"    m.impl({text(_defined(one))}, TORCH_BOX(&operator_{number}));"
        yield "}"


def _defined(overload: Overload) -> str:
    signature = overload.signature
    return f"{signature.name}.{signature.overload}" if signature.overload else signature.name

"""A plan's guards, allocations and launches, as lines of C++ on top of runtime.h."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from dotcu.__about__ import __version__
from dotcu.compile import CompileOptions, ObjectCode, Source, Target
from dotcu.compile.object_code import without_probes
from dotcu.compile.prebuilt import load_key
from dotcu.operator import Overload
from dotcu.shipping.cpp.expressions import Expr, Values
from dotcu.shipping.cpp.planning import DTYPES, TYPES, CppOperators, CppVariant, types_of
from dotcu.shipping.cpp.recording import Field, Key, Launch, Layout, Pointer, RecordedCall, TensorKey

_ALWAYS_FIT = ("int64_t", "double")
_CHARACTERS = [
    chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in range(256)
]


def text(value: str | bytes) -> str:
    """Return a literal of these bytes, in lines."""
    data = value.encode() if isinstance(value, str) else value
    lines = ["".join(_CHARACTERS[byte] for byte in data[at : at + 64]) for at in range(0, len(data), 64)]
    return "\n    ".join(f'"{line}"' for line in lines or [""])


def _double(value: float) -> str:
    """Return the C++ of a double."""
    if math.isnan(value):
        return f"std::copysign(NAN, {math.copysign(1, value)})"
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return repr(value)


def _key_check(key: Key, value: str, *, optional: bool) -> str:
    """Return the condition under which an argument is of a key's kind; empty where C++'s types say so."""
    inner = f"*{value}" if optional else value
    given = f"{value}.has_value()" if optional else ""
    if isinstance(key, tuple):
        (constant,) = key
        if constant is None:
            return f"!{value}.has_value()"
        rest = f"{inner} == {text(str(constant))}"
        if isinstance(constant, bool):
            rest = f"{inner} == {str(constant).lower()}"
        elif isinstance(constant, float):  # infinite, or not a number
            rest = f"same_bits({inner}, {_double(constant)})"
    elif isinstance(key, TensorKey):
        form = f"ScalarType::{DTYPES[key.dtype]}, {key.dim}, {str(key.contiguous).lower()}"
        rest = f"Call::is({inner}, {form})"
    else:
        rest = ""
    return " && ".join(filter(None, [given, rest]))


def _numbers(values: Values, exprs: Iterable[Expr]) -> str:
    return ", ".join(map(values.number, exprs))


def _demands(launch: Launch, values: Values) -> Iterator[str]:
    """Yield the conditions under which a launch fits."""
    yield f"fits_grid({_numbers(values, launch.grid)})"
    if launch.config.cluster is not None:
        for size, each in zip(launch.grid, launch.config.cluster, strict=True):
            if each > 1:
                yield f"{values.number(size)} % {each} == 0"
    for part in launch.fields:
        if part.kind == "float":
            yield f"fits_float({values.number(part.value, double=True)})"
        elif part.kind and part.kind not in _ALWAYS_FIT:
            yield f"fits<{part.kind}>({values.number(part.value)})"


def _launch_lines(
    name: str, launch: Launch, kernel: str, arguments: Sequence[str], values: Values
) -> Iterator[str]:
    """Yield the lines that fill in a launch's parameters, called `name` in C++, and launch."""
    config = launch.config
    yield f"// {launch.kernel}"
    constant = f"({text(launch.parameters)})" if any(launch.parameters) else ""
    yield f"Parameters<{len(launch.parameters)}> {name}{constant};"
    yield from (_field(name, field, arguments, values) for field in launch.fields)
    pointers = ", ".join(f"{name}.data + {offset}" for offset in launch.offsets)
    yield f"void* {name}_at[] = {{{pointers or 'nullptr'}}};"
    x, y, z = config.cluster or (0, 0, 0)
    block = ", ".join(map(str, config.block))
    flags = ", ".join(str(flag).lower() for flag in (config.cooperative, config.programmatic))
    shape = f"{{{{{block}}}, {config.smem_bytes}, {{{x}, {y}, {z}}}, {flags}}}"
    yield f"call.launch({kernel}, {shape}, {_numbers(values, launch.grid)}, {name}_at);"


def _field(name: str, field: Field, arguments: Sequence[str], values: Values) -> str:
    place = field.value
    if not isinstance(place, Pointer):
        number = values.number(place, double=field.kind in ("float", "double"))
        return f"{name}.put({field.offset}, static_cast<{field.kind}>({number}));"
    source = arguments[place.source] if place.argument else f"call.made[{place.source}]"
    more = f", {values.number(place.offset)}" if place.offset != 0 else ""
    return f"{name}.put_address({field.offset}, {source}{more});"


def _layout(layout: Layout, values: Values) -> str:
    return f"{{{_numbers(values, layout.sizes)}}}, {{{_numbers(values, layout.strides)}}}"


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
    results = ", ".join(f"call.results[{i}]" for i in range(returns))
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
    yield f"// On {', '.join(str(kernels.targets[target]) for target in variant.targets)}."
    yield f"bool {name}(Call& call, {parameters}) {{"
    yield from (f"    if (!({check})) return false;" for check in checks if check)
    yield "    Exact exact;"
    yield from (f"    {line}" for line in _plan_lines(plan, held, variant, kernels))
    yield "    return true;"
    yield "}"
    yield ""


def _plan_lines(
    plan: RecordedCall, held: Sequence[str], variant: CppVariant, kernels: _Kernels
) -> Iterator[str]:
    """Yield the lines that check the guards, allocate and launch."""
    values, written = Values(held), 0
    for guard in plan.guards:
        condition = values.condition(guard)
        yield from values.lines[written:]
        written = len(values.lines)
        yield f"if (!({condition})) return false;"
    demands = dict.fromkeys(one for launch in plan.launches for one in _demands(launch, values))
    makes = [
        f"call.allocate(ScalarType::{DTYPES[made.dtype]}, {_layout(made.layout, values)}, "
        f"{str(made.zeroed).lower()});"
        for made in plan.allocations
    ]
    launches = [
        line
        for number, launch in enumerate(plan.launches)
        for line in _launch_lines(f"p{number}", launch, kernels.name(launch, variant, number), held, values)
    ]
    gives = [
        f"call.give({source});" if layout == plan.allocations[source].layout
        else f"call.give({source}, {_layout(layout, values)}, {values.number(layout.offset)});"
        for source, layout in plan.results
    ]  # fmt: skip
    yield from values.lines[written:]
    yield f"if (!({' && '.join(['exact.holds', *demands])})) return false;"
    yield from (*makes, *launches, *gives)


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

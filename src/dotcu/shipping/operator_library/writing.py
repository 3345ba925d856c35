"""A plan's guards, allocations and launches, as lines of C++ on top of runtime.h."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from dotcu.__about__ import __version__
from dotcu.compile import CompileOptions, ObjectCode, Source, Target
from dotcu.compile.object_code import without_probes
from dotcu.compile.prebuilt import load_key
from dotcu.cpp import build, tools
from dotcu.cpp.plan import CppRequest, CppTools
from dotcu.errors import ToolchainError, UsageError
from dotcu.kernel.compiled import CompilationUnit
from dotcu.operator import Operator, Overload
from dotcu.shipping.assembling import Job, replacing
from dotcu.shipping.audit import audited_wheel
from dotcu.shipping.operator_library.expressions import Expr, Values
from dotcu.shipping.operator_library.recording import (
    DTYPES,
    MAX_TARGETS,
    TYPES,
    Argument,
    Calls,
    Field,
    Pointer,
    RecordedCall,
    RecordedLaunch,
    TensorArgument,
    TensorLayout,
    record_all,
    types_of,
)  # fmt: skip
from dotcu.shipping.wheel import Contents, WheelPlan, contents

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
    if math.isnan(value):
        return f"std::copysign(NAN, {math.copysign(1, value)})"
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return repr(value)


def _argument_check(argument: Argument, value: str, *, optional: bool) -> str:
    """Return the condition under which a value is such an argument; empty where C++'s types say so."""
    inner = f"*{value}" if optional else value
    given = f"{value}.has_value()" if optional else ""
    if isinstance(argument, tuple):
        (constant,) = argument
        if constant is None:
            return f"!{value}.has_value()"
        rest = f"{inner} == {text(str(constant))}"
        if isinstance(constant, bool):
            rest = f"{inner} == {str(constant).lower()}"
        elif isinstance(constant, float):  # infinite, or not a number
            rest = f"same_bits({inner}, {_double(constant)})"
    elif isinstance(argument, TensorArgument):
        form = f"ScalarType::{DTYPES[argument.dtype]}, {argument.dim}, {str(argument.contiguous).lower()}"
        rest = f"Call::is({inner}, {form})"
    else:
        rest = ""
    return " && ".join(filter(None, [given, rest]))


def _numbers(values: Values, exprs: Iterable[Expr]) -> str:
    return ", ".join(map(values.number, exprs))


def _demands(launch: RecordedLaunch, values: Values) -> Iterator[str]:
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
    name: str, launch: RecordedLaunch, kernel: str, arguments: Sequence[str], values: Values
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


def _layout(layout: TensorLayout, values: Values) -> str:
    return f"{{{_numbers(values, layout.sizes)}}}, {{{_numbers(values, layout.strides)}}}"


# The C++ of a project's operators: one function an operator, one a plan, and the code of every kernel.


SOURCE = "operators.cpp"
HEADER = "dotcu.h"

UnitKey = tuple[tuple[str, ...], str, str]
"""A unit: the names in it, the path of its source, and its options."""

Codes = dict[tuple[UnitKey, Target], ObjectCode]
"""What was compiled, by unit and target."""


def unit_key(names: Sequence[str], source: Source, options: CompileOptions) -> UnitKey:
    return tuple(sorted(names)), str(source.path), load_key(source, options)


@dataclass(frozen=True, kw_only=True)
class _Kernels:
    """The kernels that launches name, and the code that they are in, each once."""

    targets: Sequence[Target]
    codes: Codes
    texts: dict[bytes, str] = field(default_factory=dict)
    tables: dict[tuple[str, UnitKey], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def name(self, launch: RecordedLaunch, unit: CompilationUnit) -> str:
        """Return the C++ name of a launch's kernel; its table is written at its first launch."""
        key = launch.kernel, unit_key(unit.names, unit.source, unit.options)
        if key not in self.tables:
            self.tables[key] = f"kernel_{len(self.tables)}"
            rows = ", ".join(self._variant(*key, target) for target in self.targets)
            table = f"{self.tables[key]}_variants"
            self.lines.append(f"const Variant {table}[] = {{{rows}}};")
            self.lines.append(f"const Kernel {self.tables[key]} = {{{text(launch.kernel)}, {table}}};")
        return self.tables[key]

    def _variant(self, kernel: str, unit: UnitKey, target: Target) -> str:
        code = self.codes.get((unit, target))
        if code is None or kernel not in code.lowered:
            return "{nullptr, nullptr}"
        data = code.cubin if code.cubin is not None else without_probes(code.ptx).encode()
        if data not in self.texts:
            self.texts[data] = f"code_{len(self.texts)}"
            self.lines.append(f"alignas(16) const char {self.texts[data]}[] = {text(data)};")
        return f'{{{self.texts[data]}, "{code.lowered[kernel]}"}}'


def write(
    package: str, recorded: Mapping[Overload, Calls], targets: Sequence[Target], codes: Codes
) -> dict[str, str]:
    """Return the files, by name: the C++ of some overloads, with their code for each unit and target."""
    kernels = _Kernels(targets=targets, codes=codes)
    functions = [
        line for number, one in enumerate(recorded.items()) for line in _operator(number, *one, kernels)
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
        *_registrations(recorded),
    ]
    header = files(__package__).joinpath("runtime.h").read_text(encoding="utf-8")
    return {SOURCE: "\n".join(lines) + "\n", HEADER: header}


def _operator(number: int, overload: Overload, calls: Calls, kernels: _Kernels) -> Iterator[str]:
    """Yield a function for each recorded call, and the one that torch calls."""
    signature, returns = overload.signature, overload.signature.returns
    names = [f"{name}_" for name in signature.arguments]
    pairs = list(zip(types_of(overload), names, strict=True))
    parameters = ", ".join(f"{_parameter(kind)} {name}" for kind, name in pairs)
    for index, (call, targets) in enumerate(calls.items()):
        yield from _call(f"call_{number}_{index}", overload, call, targets, parameters, kernels)
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
    yield from (f"    if (call_{number}_{i}({arguments})) {answer};" for i in range(len(calls)))
    exactly = "true" if any(call.exactly for call in calls) else "false"
    yield f"    call.refuse({text(_recorded_for(calls))}, {exactly});"
    yield "}"
    yield ""


def _parameter(kind: str) -> str:
    plain = TYPES[kind.removesuffix("?")]
    if kind.endswith("?"):
        return f"const std::optional<{plain}>&"
    return f"const {plain}&" if plain in ("Tensor", "std::string") else plain


def _recorded_for(calls: Iterable[RecordedCall]) -> str:
    kinds: dict[str, None] = {}
    for call in calls:
        tensors = [each for each in call.arguments if isinstance(each, TensorArgument)]
        shown = ", ".join(f"{str(each.dtype).removeprefix('torch.')}[{each.dim}d]" for each in tensors)
        kinds[f"({shown})"] = None
    return " ".join(kinds)


def _call(
    name: str,
    overload: Overload,
    call: RecordedCall,
    targets: Sequence[int],
    parameters: str,
    kernels: _Kernels,
) -> Iterator[str]:
    names = [f"{one}_" for one in overload.signature.arguments]
    optional = [kind.endswith("?") for kind in types_of(overload)]
    held = [f"(*{one})" if may else one for one, may in zip(names, optional, strict=True)]
    mask = sum(1 << target for target in targets)
    checks = [f"call.is_for({mask:#x})", *(["call.is_exact()"] if call.exactly else [])]
    for argument, one, may in zip(call.arguments, names, optional, strict=True):
        checks.append(_argument_check(argument, one, optional=may))
    yield f"// On {', '.join(str(kernels.targets[target]) for target in targets)}."
    yield f"bool {name}(Call& call, {parameters}) {{"
    yield from (f"    if (!({check})) return false;" for check in checks if check)
    yield "    Exact exact;"
    yield from (f"    {line}" for line in _call_lines(call, held, kernels))
    yield "    return true;"
    yield "}"
    yield ""


def _call_lines(call: RecordedCall, held: Sequence[str], kernels: _Kernels) -> Iterator[str]:
    """Yield the lines that check the guards, allocate and launch."""
    values, written = Values(held), 0
    for guard in call.guards:
        condition = values.condition(guard)
        yield from values.lines[written:]
        written = len(values.lines)
        yield f"if (!({condition})) return false;"
    demands = dict.fromkeys(one for launch in call.launches for one in _demands(launch, values))
    makes = [
        f"call.allocate(ScalarType::{DTYPES[made.dtype]}, {_layout(made.layout, values)}, "
        f"{str(made.zeroed).lower()});"
        for made in call.allocations
    ]
    launches = [
        line
        for number, (launch, unit) in enumerate(zip(call.launches, call.units, strict=True))
        for line in _launch_lines(f"p{number}", launch, kernels.name(launch, unit), held, values)
    ]
    gives = [
        f"call.give({source});" if layout == call.allocations[source].layout
        else f"call.give({source}, {_layout(layout, values)}, {values.number(layout.offset)});"
        for source, layout in call.results
    ]  # fmt: skip
    yield from values.lines[written:]
    yield f"if (!({' && '.join(['exact.holds', *demands])})) return false;"
    yield from (*makes, *launches, *gives)


def _registrations(overloads: Iterable[Overload]) -> Iterator[str]:
    by_namespace: dict[str, list[tuple[int, Overload]]] = {}
    for number, one in enumerate(overloads):
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


# The source of a project in a folder, the library made of it, and the wheel that has both.


def write_source(
    folder: Path,
    package: str,
    operators: Sequence[Operator],
    compiled: Mapping[Job, ObjectCode],
    targets: Sequence[Target],
) -> tuple[str, ...]:
    """Write the C++ of a project's operators, with their code, into a folder, whole or not at all.

    Returns:
        The calls that C++ cannot run, and why.

    Raises:
        UsageError: C++ can run none of the operators, or there is something else in the folder's place.
    """
    chosen = targets[:MAX_TARGETS]
    once = {operator.qualified_name: operator for operator in operators}  # a name may be imported twice
    codes = {
        (unit_key(job.unit.names, job.source, job.locked.options), job.target): code
        for job, code in compiled.items()
        if not job.simulated
    }

    def has_code(unit: CompilationUnit, target: Target) -> bool:
        return (unit_key(unit.names, unit.source, unit.options), target) in codes

    recorded, notes = record_all(list(once.values()), chosen, has_code)
    if not recorded:
        reasons = "\n".join(notes)
        raise UsageError(
            f"No operator of {package} can be in C++: none has a plan.\n{reasons}\n"
            "A body that only allocates and launches has one; so has its sample's call."
        )
    files = write(package, recorded, chosen, codes)
    with replacing(folder, SOURCE, "Remove it.") as new:
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
    return notes


def library(folder: Path, package: str, *, flags: Sequence[str] = ()) -> Path:
    """Compile the C++ that `write_source` has written, for every torch; return the library, in the cache."""
    torch = tools.find_torch()
    here = [f"-ffile-prefix-map={path}/=" for path in (folder, torch.include[0])]
    request = CppRequest(
        name=f"lib{package}_operators", sources=(folder / SOURCE,), portable=True,
        flags=("-fvisibility=hidden", "-ffp-contract=off", *here, *flags),
        link_flags=("-Xlinker", "--strip-all"),
    )  # fmt: skip
    return build.build_request(request, CppTools(host=tools.host(), nvcc=None, torch=torch)).path


# A wheel that has its operators in C++ and its kernels: for Linux, tagged by auditwheel, audited.


def write_library(planned: WheelPlan, compiled: Mapping[Job, ObjectCode]) -> tuple[Path, tuple[str, ...]]:
    """Write a project's operators into its build/cpp, and compile them there.

    Returns:
        The folder with their source and library; the calls that C++ cannot run, and why.
    """
    package = planned.project.modules[0].split(".")[0]
    folder = planned.project.root / "build" / "cpp"
    notes = write_source(folder, package, planned.operators, compiled, planned.targets)
    shutil.copy(library(folder, package), folder)
    return folder, notes


def make_wheel(planned: WheelPlan, written: Path, out: Path, *, isolated: bool = True) -> Contents:
    """Let pip build the wheel, with the operators of a folder, and tag it for the systems it runs on."""
    result = audited_wheel(
        planned.project.root, out, {"DOTCU_OPERATOR_LIBRARY": str(written)}, {}, isolated=isolated
    )
    if not result.passed:
        raise ToolchainError(f"The wheel would not run where its tags say:\n{result}")
    return contents(result.wheel)

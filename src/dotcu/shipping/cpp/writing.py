"""The C++ of a project's operators: one function an operator, one a plan, and the code of every kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain

from dotcu.__about__ import __version__
from dotcu.call_cache.plan import Launch, TensorKey
from dotcu.compile import CompileOptions, ObjectCode, Source, Target
from dotcu.compile.manifest import load_key
from dotcu.compile.skeleton import without_probes
from dotcu.shipping.cpp import steps
from dotcu.shipping.cpp.planning import TYPES, Planned, Variant

SOURCE = "operators.cpp"
HEADER = "dotcu.h"

Place = tuple[tuple[str, ...], str, str]
"""A unit: the names in it, the path of its source, and its options."""

Codes = dict[tuple[Place, Target], ObjectCode]
"""What was compiled, by unit and target."""


def place(names: Sequence[str], source: Source, options: CompileOptions) -> Place:
    """Tell a unit from all others."""
    return tuple(sorted(names)), str(source.path), load_key(source, options)


@dataclass(frozen=True, kw_only=True)
class _Kernels:
    """The kernels that launches name, and the code that they lie in, each once."""

    targets: Sequence[Target]
    codes: Codes
    texts: dict[bytes, str] = field(default_factory=dict)
    tables: dict[tuple[str, Place], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def name(self, launch: Launch, variant: Variant, number: int) -> str:
        """The C++ name of a launch's kernel; its table is written at its first launch."""
        unit = variant.units[number]
        key = launch.kernel, place(unit.names, unit.source, unit.options)
        if key not in self.tables:
            self.tables[key] = f"kernel_{len(self.tables)}"
            rows = ", ".join(self._variant(*key, target) for target in self.targets)
            table = f"{self.tables[key]}_variants"
            self.lines.append(f"const Variant {table}[] = {{{rows}}};")
            self.lines.append(f"const Kernel {self.tables[key]} = {{{steps.text(launch.kernel)}, {table}}};")
        return self.tables[key]

    def _variant(self, kernel: str, unit: Place, target: Target) -> str:
        code = self.codes.get((unit, target))
        if code is None or kernel not in code.lowered:
            return "{nullptr, nullptr}"
        data = code.cubin if code.cubin is not None else without_probes(code.ptx).encode()
        if data not in self.texts:
            self.texts[data] = f"code_{len(self.texts)}"
            self.lines.append(f"alignas(16) const char {self.texts[data]}[] = {steps.text(data)};")
        return f'{{{self.texts[data]}, "{code.lowered[kernel]}"}}'


def write(
    package: str, planned: Sequence[Planned], targets: Sequence[Target], codes: Codes
) -> dict[str, str]:
    """The files, by name."""
    kernels = _Kernels(targets=targets, codes=codes)
    functions = list(
        chain.from_iterable(_operator(number, one, kernels) for number, one in enumerate(planned))
    )
    lines = [
        f"// The operators of {package} for C++ and AOTInductor, as dotcu {__version__} wrote them.",
        "//",
        "// To write them anew, type: dotcu build --cpp",
        "// A call does what its sample did in Python; one that is like none of the samples is refused.",
        "",
        f'#include "{HEADER}"',
        "",
        "namespace {",
        "",
        "using namespace dotcu;",
        "",
        f"constexpr int target_count = {len(targets)};",
        f"const Target targets[] = {{{', '.join(map(_target, targets))}}};",
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


def _target(target: Target) -> str:
    machine = str(target.kind == "sm").lower()
    return f"{{\"{target}\", {target.major}, {target.minor}, {machine}, '{target.suffix or ' '}'}}"


def _operator(number: int, planned: Planned, kernels: _Kernels) -> Iterator[str]:
    """The functions of the plans, and the one that torch calls."""
    signature = planned.overload.signature
    parameters = [
        f"{_parameter(kind)} {name}_" for name, kind in zip(signature.arguments, planned.types, strict=True)
    ]
    for index, variant in enumerate(planned.variants):
        yield from _plan(f"plan_{number}_{index}", planned, variant, parameters, kernels)
    names = [f"{name}_" for name in signature.arguments]
    plans = [f"plan_{number}_{i}({', '.join(['call', *names])})" for i in range(len(planned.variants))]
    yield f"// {signature}"
    yield f"{_returned(planned)} operator_{number}({', '.join(parameters)}) {{"
    yield f'    Call call("{signature.qualified_name}", targets, target_count, {{{_tensors(planned)}}});'
    for kind, name in zip(planned.types, names, strict=True):
        if kind == "Tensor?":
            yield f"    if ({name}.has_value()) call.take(*{name});"
    for plan in plans:
        yield f"    if ({plan}) {_return(planned)}"
    exactly = "true" if any(variant.exactly for variant in planned.variants) else "false"
    yield f"    call.refuse({steps.text(_followed(planned))}, {exactly});"
    yield "}"
    yield ""


def _parameter(kind: str) -> str:
    plain = TYPES[kind.removesuffix("?")]
    if kind.endswith("?"):
        return f"const std::optional<{plain}>&"
    return f"const {plain}&" if plain in ("Tensor", "std::string") else plain


def _tensors(planned: Planned) -> str:
    pairs = zip(planned.overload.signature.arguments, planned.types, strict=True)
    return ", ".join(f"&{name}_" for name, kind in pairs if kind == "Tensor")


def _returned(planned: Planned) -> str:
    returns = planned.overload.signature.returns
    if not returns:
        return "void"
    return "Tensor" if returns == 1 else f"std::tuple<{', '.join(['Tensor'] * returns)}>"


def _return(planned: Planned) -> str:
    returns = planned.overload.signature.returns
    if not returns:
        return "return;"
    results = ", ".join(f"call.result({number})" for number in range(returns))
    return f"return {results};" if returns == 1 else f"return {{{results}}};"


def _followed(planned: Planned) -> str:
    kinds: dict[str, None] = {}
    for variant in planned.variants:
        keys = [key for key in variant.plan.keys if isinstance(key, TensorKey)]
        shown = ", ".join(f"{str(key.dtype).removeprefix('torch.')}[{key.dim}d]" for key in keys)
        kinds[f"({shown})"] = None
    return " ".join(kinds)


def _plan(
    name: str, planned: Planned, variant: Variant, parameters: Sequence[str], kernels: _Kernels
) -> Iterator[str]:
    plan = variant.plan
    names = [f"{one}_" for one in planned.overload.signature.arguments]
    optional = [kind.endswith("?") for kind in planned.types]
    held = [f"(*{one})" if may else one for one, may in zip(names, optional, strict=True)]
    mask = sum(1 << target for target in variant.targets)
    checks = [f"call.is_for({mask:#x})", *(["call.is_exact()"] if variant.exactly else [])]
    for key, one, may in zip(plan.keys, names, optional, strict=True):
        checks.append(steps.key_check(key, one, optional=may))
    checks += ["call.distinct()"] if plan.distinct else []
    yield f"// On {', '.join(str(kernels.targets[target]) for target in variant.targets)}."
    yield f"bool {name}(Call& call, {', '.join(parameters)}) {{"
    yield from (f"    if (!({check})) return false;" for check in checks if check)
    yield "    Exact exact;"
    named, guards = steps.Names(plan.steps), dict(plan.guards)
    for number, line in named.lines(held):
        yield f"    {line}"
        if number in guards:
            yield f"    if (v{number} != {guards[number]}) return false;"
    asked = dict.fromkeys(one for launch in plan.launches for one in steps.demands(launch, named))
    yield f"    if (!({' && '.join(['exact.holds', *asked])})) return false;"
    yield from (f"    {steps.allocation(made, named)}" for made in plan.allocations)
    for number, launch in enumerate(plan.launches):
        kernel = kernels.name(launch, variant, number)
        lines = steps.launch_lines(f"p{number}", launch, kernel, held, named)
        yield from (f"    {line}" for line in lines)
    yield f"    call.results = {{{', '.join(map(str, plan.results))}}};"
    yield "    return true;"
    yield "}"
    yield ""


def _registrations(planned: Sequence[Planned]) -> Iterator[str]:
    by_namespace: dict[str, list[tuple[int, Planned]]] = {}
    for number, one in enumerate(planned):
        by_namespace.setdefault(one.overload.signature.namespace, []).append((number, one))
    for namespace, some in by_namespace.items():
        yield f"STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{"
        for _, one in some:
            yield f"    m.def({steps.text(_defined(one) + one.overload.signature.text)});"
        yield "}"
        yield f"STABLE_TORCH_LIBRARY_IMPL({namespace}, DOTCU_DEVICE, m) {{"
        for number, one in some:
            yield f"    m.impl({steps.text(_defined(one))}, TORCH_BOX(&operator_{number}));"
        yield "}"


def _defined(planned: Planned) -> str:
    signature = planned.overload.signature
    return f"{signature.name}.{signature.overload}" if signature.overload else signature.name

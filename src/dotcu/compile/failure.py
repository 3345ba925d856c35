"""What the compiler refused, as the error that helps most."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from dotcu.compile import toolchain, undefined
from dotcu.compile.declarations import kernels, variables
from dotcu.compile.diagnostics import AT_END, NAME_MAP, Diagnostic, count
from dotcu.compile.host_code import HOW, HostLine, explain, explain_unclear, host_code, is_host_header
from dotcu.compile.objects import PROBE, is_kernel, probe_of
from dotcu.compile.plan import BuildPlan
from dotcu.errors import CompileError, DotcuError, HostCodeError, KernelNotFound, ToolchainError

_PROBE_REFUSED = re.compile(rf'^(a template declaration|"template") is not allowed.*{AT_END}$')
"""What the compiler says of dotcu's own text when the source before it has no end."""

_ASSEMBLER = "[ptxas]"
_HEX = re.compile(r"\b0x[0-9a-f]+\b")
_SYMBOL = re.compile(r"'([A-Za-z_]\w*)'")
_NO_BODY = re.compile(r'function ".*" was referenced but not defined')
_HOST_FUNCTION = "is considered a host function"
_CANNOT_OPEN = re.compile(
    r"(?m)^(?P<file>[^\s(][^(\n]*)\(\d+\): catastrophic error: "
    r'(?:cannot|could not) open source file "(?P<header>[^"]+)"'
)
# Which pip package brings a header of the toolkit: under CUDA 13 and later, and under CUDA 12.
PACKAGES = (
    (r"crt/", "nvidia-cuda-crt", "nvidia-cuda-nvcc-cu12"),
    (r"(cub|cuda|nv|thrust)/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    (r"(cuda_\w+|mma|cooperative_groups|cuComplex)\.h", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
)

_UNCHOSEN = "cannot determine which instance of function template"
_UNKNOWN_TARGET = "invalid value for --gpu-architecture"
_SHOWN = 20


def explain_failure(plan: BuildPlan, log: str, found: Sequence[Diagnostic]) -> DotcuError:
    """Choose and word the error for a compile that failed."""
    for explanation in (_unknown_target, _unclear, _host_code, _not_found):
        error = explanation(plan, found)
        if error is not None:
            return error
    return CompileError(_message(plan, log, found), diagnostics=found, log=log, command=plan.command)


def unopened(log: str) -> tuple[str, str] | None:
    """The file, by its virtual name, and the header that it could not open, if that stopped a compile."""
    match = _CANNOT_OPEN.search(log)
    return (match["file"], match["header"]) if match else None


def is_unchosen(error: CompileError) -> bool:
    """Whether what was asked for is a template without its arguments."""
    return any(_UNCHOSEN in diagnostic.message for diagnostic in error.diagnostics)


def _defined(plan: BuildPlan) -> set[str]:
    return set(plan.options.defined)


def _unknown_target(plan: BuildPlan, found: Sequence[Diagnostic]) -> ToolchainError | None:
    if not any(_UNKNOWN_TARGET in diagnostic.message for diagnostic in found):
        return None
    known = ", ".join(f"sm_{number}" for number in toolchain.supported(plan.compiler))
    major, minor = plan.compiler.version
    return ToolchainError(
        f"The compiler of CUDA {major}.{minor} makes no code for {plan.target}.\n"
        f"It knows {known}, and compute_ for each.\n"
        f'For a newer GPU: pip install -U "dotcu[cu{major}]"\n'
        f'For an older one: pip install "dotcu[cu{major - 1}]"'
    )


def _unclear(plan: BuildPlan, found: Sequence[Diagnostic]) -> HostCodeError | None:
    """Lines that kept the host part of a file from being told."""
    shown = {file.virtual: str(file.path or plan.display) for file in plan.closure.files}
    lines = [(shown[virtual], line) for virtual, line in plan.closure.unclear]
    return HostCodeError(explain_unclear(plan.display, lines)) if lines else None


def _host_code(plan: BuildPlan, found: Sequence[Diagnostic]) -> HostCodeError | None:
    """Host code in the source, by what the compiler says and by what it would say next."""
    by_line = {line.line: line for line in host_code(plan.closure.main.text, _defined(plan))}
    for diagnostic in found:
        if _HOST_FUNCTION in diagnostic.message and diagnostic.file == plan.display:
            by_line.setdefault(
                diagnostic.line, HostLine(diagnostic.line, diagnostic.source, "a function without __device__")
            )
    lines = tuple(by_line[line] for line in sorted(by_line))
    is_parted = plan.closure.main.text != plan.closure.main.whole
    return HostCodeError(explain(plan.display, lines, is_parted=is_parted)) if lines else None


def _not_found(plan: BuildPlan, found: Sequence[Diagnostic]) -> KernelNotFound | None:
    """A name that the compiler does not know and that no file declares."""
    errors = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    if any(diagnostic.file != NAME_MAP for diagnostic in errors):
        return None
    refused = [
        name
        for name in plan.names
        if any(is_about(name, d) for d in errors)
        and not any(is_about(name, d) and _UNCHOSEN in d.message for d in errors)
    ]
    known_kernels, known_variables = declared(plan)
    for name in refused:
        known = known_kernels if is_kernel(name) else known_variables
        if base(name) not in known:
            return KernelNotFound(not_found(plan.display, name, known))
    return None


def declared(plan: BuildPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the kernels and of the variables in a source and its user headers."""
    texts, defined = [file.text for file in plan.closure.files], _defined(plan)
    return (
        tuple(dict.fromkeys(kernel.name for text in texts for kernel in kernels(text, defined))),
        tuple(dict.fromkeys(name for text in texts for name in variables(text, defined))),
    )


def base(name: str) -> str:
    """`ns::k` of `ns::k<float>`, `table` of `&table`."""
    return name.lstrip("&").split("<")[0].strip().removeprefix("::")


def not_found(display: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is not there: the names that are, the nearest first."""
    what = "kernel" if is_kernel(name) else "__constant__ or __device__ variable"
    if not known:
        return f"{display} has no {what} {base(name)!r}: it has none at all.\nDeclare one there."
    wanted = base(name)
    ranked = sorted(known, key=lambda other: -_likeness(wanted, other))
    listed = "\n".join(f"    {other}" for other in ranked)
    return f"{display} has no {what} {wanted!r}.\nIt has, the nearest first:\n{listed}"


def _likeness(wanted: str, other: str) -> float:
    """How near two names are, with and without their namespaces."""
    ratio: Callable[[str, str], float] = lambda a, b: difflib.SequenceMatcher(None, a, b).ratio()  # noqa: E731
    return max(ratio(wanted, other), ratio(wanted.split("::")[-1], other.split("::")[-1]))


def is_about(name: str, diagnostic: Diagnostic) -> bool:
    """Whether a diagnostic is about a name that was asked for, and not about the source."""
    expression = diagnostic.source.partition("nv_mangled_name")[2].strip()
    return expression in (name, probe_of(name))


def _message(plan: BuildPlan, log: str, found: Sequence[Diagnostic]) -> str:
    errors = _without_echoes([diagnostic for diagnostic in found if diagnostic.severity == "error"])
    if not errors:
        return f"{plan.display} does not compile for {plan.target}:\n{log.strip()}\n{_tail(plan)}"
    what = f"{count(len(errors))}{_instantiated(plan, errors)}"
    headline = f"{plan.display} does not compile for {plan.target}: {what}."
    shown = [str(_readable(plan, error)) for error in undefined.first(errors)[:_SHOWN]]
    rest = [f"... and {len(errors) - _SHOWN} more, in the exception's .log"] if len(errors) > _SHOWN else []
    return "\n\n".join([headline, *shown, *rest, _advice(plan, log, errors) or _tail(plan)])


def _without_echoes(errors: list[Diagnostic]) -> list[Diagnostic]:
    """Leave out what only repeats, about a name expression, what another error has said."""
    real = [error for error in errors if error.file != NAME_MAP]
    if real:
        return [error for error in real if not _PROBE_REFUSED.search(error.message)] or real[:1]
    first: dict[str, Diagnostic] = {}
    for error in errors:
        expression = error.source.partition("nv_mangled_name")[2].strip()
        plain = expression.removeprefix(f"{PROBE}<decltype(&").removesuffix(")>")
        first.setdefault(plain, error)
    return list(first.values())


def _readable(plan: BuildPlan, error: Diagnostic) -> Diagnostic:
    """An error in a name expression, told of the name and not of NVRTC's own file."""
    if error.message.endswith(_ASSEMBLER):
        return _assembled(plan, error)
    if error.file != NAME_MAP:
        hint = undefined.hint(error.message) or _left_out(plan, error)
        return replace(error, notes=(*error.notes, hint)) if hint else error
    name = next((name for name in plan.names if is_about(name, error)), "")
    return Diagnostic(
        severity="error", file=plan.display, line=0, column=0,
        message=f"{name} cannot be instantiated: {error.message}", notes=error.notes,
    )  # fmt: skip


def _left_out(plan: BuildPlan, error: Diagnostic) -> str:
    """That a name is not known since its declaration was taken for host code; "" where it was not."""
    name, is_called = undefined.name(error.message), bool(_NO_BODY.search(error.message))
    shown = {file.virtual: str(file.path or plan.display) for file in plan.closure.files}
    for virtual, one in plan.closure.left_out:
        is_it = one.line == error.line and one.name in error.message if is_called else one.name == name
        if is_it and (name or is_called):
            name = one.name or "It"
            return (
                f"{name}, at line {one.line} of {shown[virtual]}, was left out as host code: {one.what}.\n"
                f"  If device code needs it, write there: {one.remedy}"
            )
    return ""


def _assembled(plan: BuildPlan, error: Diagnostic) -> Diagnostic:
    """What ptxas refused, by the kernel's name, and sizes as they are written."""
    text = _HEX.sub(lambda match: str(int(match[0], 16)), error.message)
    text = _SYMBOL.sub(lambda match: f"'{_name_of(plan, match[1])}'", text)
    return replace(error, file=plan.display, message=text)


def _name_of(plan: BuildPlan, symbol: str) -> str:
    """The name that was asked for and that a symbol must be of; the symbol where there are several."""
    fits = [name for name in plan.names if _may_be(base(name).split("::")[-1], symbol)]
    return fits[0] if len(fits) == 1 else symbol


def _may_be(plain: str, symbol: str) -> bool:
    return symbol == plain or (symbol.startswith("_Z") and f"{len(plain)}{plain}" in symbol)


def _instantiated(plan: BuildPlan, errors: Sequence[Diagnostic]) -> str:
    """Which of the names asked for brought the errors about, where the context says it."""
    context = "\n".join(note for error in errors for note in error.notes)
    blamed = [
        name
        for name in plan.names
        if any(is_about(name, error) or _is_assembled(plan, name, error) for error in errors)
        or re.search(rf"instantiation of \"[^\"]*\b{re.escape(base(name))}\(", context)
    ]
    return f", instantiating {', '.join(blamed)}" if blamed else ""


def _is_assembled(plan: BuildPlan, name: str, error: Diagnostic) -> bool:
    """Whether ptxas says it of a template's instantiation; a plain kernel is named in the message."""
    symbols = _SYMBOL.findall(error.message) if error.message.endswith(_ASSEMBLER) else []
    return "<" in name and any(_name_of(plan, symbol) == name for symbol in symbols)


def _advice(plan: BuildPlan, log: str, errors: Sequence[Diagnostic]) -> str:
    if any("includes itself" in error.message for error in errors):
        return "Write at the top of each header: #pragma once"
    if any("uses too much shared data" in error.message for error in errors):
        return (
            "Arrays of a fixed size in shared memory have 49152 bytes together.\n"
            "Write for a larger one: extern __shared__ float s[]; and pass smem_bytes=BYTES at the launch."
        )
    missing = unopened(log)
    if missing is None:
        return ""
    not_found = (
        f"The header {missing[1]!r} was not found: not beside the file that names it, not in "
        "include=[...], not among the headers of dotcu and of the toolkit.\n"
    )
    major, minor = plan.compiler.version
    for pattern, cuda_13, cuda_12 in PACKAGES:
        if re.match(pattern, missing[1]):
            package = cuda_13 if major >= 13 else cuda_12
            return f'{not_found}It comes with: pip install "{package}=={major}.{minor}.*"'
    if is_host_header(missing[1]) or plan.closure.left_out:
        return f"{not_found}If it is yours: load(..., include=[FOLDER])\nIf it is for the host: {HOW}"
    return f"{not_found}If it is yours: load(..., include=[FOLDER])"


def _tail(plan: BuildPlan) -> str:
    return f"Options, as for nvcc: {plan.command.removeprefix('nvcc ')}"

"""The compiler's log as values, and the error that explains it best, with the user's own line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dotcu.compile import toolchain
from dotcu.compile.host_split.detect import (
    GUARD_REMEDY,
    NOT_FOUND,
    WORD,
    HostLine,
    host_code,
    host_code_message,
    is_host_include,
    unclear_message,
)
from dotcu.compile.host_split.select import headers_of
from dotcu.compile.object_code import PROBE, is_kernel, probe_of
from dotcu.compile.plan import BuildPlan
from dotcu.compile.source.declarations import base_name, kernels, variables
from dotcu.compile.source.source import printable
from dotcu.errors import (
    CompileError,
    Diagnostic,
    DotcuError,
    HostCodeError,
    KernelNotFound,
    ToolchainError,
    line_window,
)

Shown = Callable[[str], str]
"""Returns the name to show for a file's virtual name."""

Lines = Callable[[str], Sequence[str]]
"""Returns the lines of a file by its virtual name, as the user wrote them; none where unknown."""

# cuda/crt front end: `file(line): error: text` and `file(line): warning #177-D: text`.
_HEAD = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<severity>catastrophic error|error|warning|remark|note)(?: #(?P<number>\d+(?:-D)?))?: (?P<text>.*)$"
)
_TOOL = re.compile(
    r"^\s*(?P<tool>ptxas|nvrtc):? (?P<where>.*?)?(?P<severity>warning|error|fatal) *: (?P<text>.*)$"
)
_END = re.compile(
    r"^At end of source: (?P<severity>error|warning)(?: #(?P<number>\d+(?:-D)?))?: (?P<text>.*)$"
)
_QUOTED = re.compile(r'"(/[^"\n]+)"')
_SUMMARY = re.compile(
    r"^\d+ (?:catastrophic )?errors? detected|^Compilation terminated|^Remark: The warnings"
)
_CARET = re.compile(r"^[ \t]*\^[ \t]*$")
_AT_LINE = re.compile(r"(?P<before>.*\bat line )(?P<line>\d+)(?: of (?P<file>\S+))?(?P<after>.*)")


AT_END = "at the end of the file"
NAME_MAP = "__nv_name_map"
"""The file that NVRTC says errors in name expressions are in. Source: seen with CUDA 12.8 and 13.0."""

_PROBE_REFUSED = re.compile(rf'^(a template declaration|"template") is not allowed.*{AT_END}$')
"""The message for dotcu's own text when the source before it has no end."""

_ASSEMBLER = "[ptxas]"
_HEX = re.compile(r"\b0x[0-9a-f]+\b")
_SYMBOL = re.compile(r"'([A-Za-z_]\w*)'")
_NO_BODY = re.compile(r'function ".*" was referenced but not defined')
_NOT_ITS_OWN = re.compile(rf"{_NO_BODY.pattern}|static assertion failed")
_HOST_FUNCTION = "is considered a host function"
_HOST_CODE = re.compile("is considered a host |explicitly marked as a __host__")
_DEVICE = re.compile(r"\b__(?:global|device)__\b")
_CANNOT_OPEN = re.compile(
    r"(?m)^(?P<file>[^\s(][^(\n]*)\(\d+\): catastrophic error: "
    r'(?:cannot|could not) open source file "(?P<header>[^"]+)"'
)
_NOT_FOUND = re.compile(
    rf"(?m)^([^\s(][^(\n]*)\(\d+\): warning(?: #[\w-]+)?: #warning directive: {re.escape(NOT_FOUND)}"
)
# The pip package that has a header of the toolkit: under CUDA 13 and later, and under CUDA 12.
PACKAGES = (
    (r"crt/", "nvidia-cuda-crt", "nvidia-cuda-nvcc-cu12"),
    (r"(cub|cuda|nv|thrust)/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    (r"(cuda_\w+|mma|cooperative_groups|cuComplex)\.h", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    (r"curand\w*\.h", "dotcu[curand]", "nvidia-curand-cu12"),
)

_UNCHOSEN = "cannot determine which instance of function template"
_OVERLOADED = "cannot determine which instance of overloaded function"
_UNKNOWN_TARGET = "invalid value for --gpu-architecture"
_SHOWN_ERRORS = 20
_LAST_WORD = re.compile(r'(\w+)"')

_UNDEFINED = re.compile(r'^identifier "(\w+)" is undefined|(?:has no member) "(\w+)"')
_UNDEFINED_IN_LOG = re.compile(r'identifier "(\w+)" is undefined|namespace "\w+" has no member "(\w+)"')


def parse_log(log: str, shown: Shown, lines: Lines, *, main: str = "") -> tuple[Diagnostic, ...]:
    """Read a compile's log.

    A diagnostic of lines after a file's last, where dotcu's own text stands, is reported at
    the file's end; a note joins the diagnostic that it belongs to.
    """
    diagnostics: list[Diagnostic] = []
    for chunk in _chunks(log):
        tool, end = _TOOL.match(chunk[0]), _END.match(chunk[0])
        if tool:
            where = (tool["where"] or "").strip(" ,;")
            message = tool["text"].strip() + (f" ({where})" if where else "") + f" [{tool['tool']}]"
            severity = "warning" if tool["severity"] == "warning" else "error"
            diagnostics.append(Diagnostic(severity=severity, file="", line=0, column=0, message=message))
            continue
        if end:
            message = end["text"] + (f" [#{end['number']}]" if end["number"] else "")
            diagnostic = Diagnostic(
                severity=end["severity"], file=shown(main), line=0, column=0, message=message
            )
            diagnostics.append(_at_end(diagnostic, lines(main)))
            continue
        diagnostic = _front_end(chunk, shown, lines)
        if diagnostic.severity == "note" and diagnostics:
            last = diagnostics[-1]
            diagnostics[-1] = replace(last, notes=(*last.notes, _joined(diagnostic)))
        else:
            diagnostics.append(diagnostic)
    return tuple(diagnostics)


def _joined(note: Diagnostic) -> str:
    """`to match this "{", at line 1 of k.cu: ...`, of a note that stood by itself."""
    message = re.sub(r" \[#[^]]*\]$", "", note.message)
    source = f": {line_window(note.source.strip(), 0)[0]}" if note.source.strip() else ""
    return f"{message}, at line {note.line} of {note.file}{source}"


def _at_end(diagnostic: Diagnostic, lines: Sequence[str]) -> Diagnostic:
    """Attach a diagnostic to the last line that has something in it, after which it stands."""
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    source = lines[last - 1].rstrip() if last else ""
    column = len(source) + 1 if last else 0
    message = f"{diagnostic.message}, {AT_END}"
    return replace(diagnostic, line=last, column=column, source=source, message=message)


def _chunks(log: str) -> list[list[str]]:
    """Split a log at the first line of each diagnostic; lines that belong to none are dropped."""
    chunks: list[list[str]] = []
    open_chunk = False
    for line in log.splitlines():
        if _HEAD.match(line) or _TOOL.match(line) or _END.match(line):
            chunks.append([line])
            open_chunk = True
        elif _SUMMARY.match(line) or line.lstrip().startswith("ptxas "):
            open_chunk = False
        elif open_chunk and line.strip():
            chunks[-1].append(line)
    return chunks


def _front_end(chunk: list[str], shown: Shown, lines: Lines) -> Diagnostic:
    head = _HEAD.match(chunk[0])
    assert head is not None
    caret = next((index for index, line in enumerate(chunk) if _CARET.match(line)), 0)
    source, column = "", 0
    if caret:  # the compiler indents by two, and counts bytes; a \ufffd is one that is not UTF-8
        source = chunk[caret - 1][2:]
        seen = chunk[caret - 1].replace("\ufffd", "?").encode("utf-8", "surrogateescape")
        column = len(seen[: chunk[caret].index("^")].decode("utf-8", "ignore")) - 1
    message = " ".join([head["text"], *(line.strip() for line in chunk[1 : max(caret - 1, 1)])])
    message = _QUOTED.sub(lambda match: f'"{shown(match[1])}"', message)
    diagnostic = Diagnostic(
        severity="error" if "error" in head["severity"] else head["severity"],
        file=shown(head["file"]),
        line=int(head["line"]),
        column=column,
        message=message + (f" [#{head['number']}]" if head["number"] else ""),
        notes=tuple(_note(note, shown, shown(head["file"])) for note in chunk[caret + 1 :]),
    )
    return _with_source(diagnostic, lines(head["file"]), source)


def _with_source(diagnostic: Diagnostic, lines: Sequence[str], shown: str) -> Diagnostic:
    """Put the user's own line in; where the compiler saw another text, its column is not the user's."""
    if lines and diagnostic.line > len(lines):
        return _at_end(diagnostic, lines)
    if not 0 < diagnostic.line <= len(lines):
        return replace(diagnostic, source=shown)
    source, seen = lines[diagnostic.line - 1], shown.rstrip()
    # the compiler may have seen some of the line blanked
    is_part = len(seen) <= len(source) and all(a in (b, " ") for a, b in zip(seen, source, strict=False))
    if is_part and (seen or not source.strip()):
        return replace(diagnostic, source=source)
    quote = min((i for i in (source.find('"'), source.find("<")) if i >= 0), default=0)
    return replace(diagnostic, source=source, column=quote + 1 if "#" in source else 0)


def _note(text: str, shown: Shown, here: str) -> str:
    match = _AT_LINE.match(text.strip())
    if match is None:
        return text.strip() if text.strip().endswith(":") else f"  {text.strip()}"
    file = match["file"].strip('"') if match["file"] else here
    if file == NAME_MAP:
        return f"  {match['before'].removesuffix(' at line ')}{match['after']}"
    return f"  {match['before']}{match['line']} of {shown(file)}{match['after']}"


def count(errors: int) -> str:
    """Return `1 error`, `3 errors`."""
    return f"{errors} error" if errors == 1 else f"{errors} errors"


def of_plan(plan: BuildPlan, log: str) -> tuple[Diagnostic, ...]:
    if not log:
        return ()
    files = {file.virtual: file for file in plan.includes.files}

    def lines(name: str) -> list[str]:
        """Return the user's lines, as many as were compiled."""
        file = files.get(name)
        return _lines(file.original)[: len(_lines(file.text))] if file else []

    def shown(name: str) -> str:
        return plan.shown_files.get(name) or str(plan.system_headers.path(name) or name)

    found = parse_log(log, shown, lines, main=plan.includes.main.virtual)
    return tuple(one for one in found if NOT_FOUND not in one.message)


def _lines(text: str) -> list[str]:
    """Return a text's lines as the compiler counts them: a form feed ends none."""
    return [line.rstrip("\r") for line in printable(text).removesuffix("\n").split("\n")] if text else []


def explain_failure(plan: BuildPlan, log: str, diagnostics: Sequence[Diagnostic]) -> DotcuError:
    """Return the error that explains a failed compile best."""
    if any(_UNKNOWN_TARGET in diagnostic.message for diagnostic in diagnostics):
        known = ", ".join(f"sm_{number}" for number in toolchain.supported(plan.compiler))
        major, minor = plan.compiler.version
        return ToolchainError(
            f"The compiler of CUDA {major}.{minor} cannot compile for {plan.target}.\n"
            f"It knows {known}, and compute_ for each.\n"
            f'For a newer GPU: pip install -U "dotcu[cu{major}]"\n'
            f'For an older one: pip install "dotcu[cu{major - 1}]"'
        )
    errors = [(one.file, one.line) for one in diagnostics if one.severity == "error"]
    unclear = [
        replace(line, file=plan.shown_files[line.file])
        for line in plan.includes.parts.unclear
        if line.file in plan.shown_files  # host code alone may include a file
    ]
    blamed = [
        one for one in unclear if any(one.file == file and one.line <= at <= one.last for file, at in errors)
    ]
    if blamed:
        return HostCodeError(unclear_message(plan.display, blamed))
    return (
        _host_code_error(plan, diagnostics)
        or _not_found_error(plan, diagnostics)
        or CompileError(
            _message(plan, log, diagnostics), diagnostics=diagnostics, log=log, command=plan.command
        )
    )


def explain_assembler(
    plan: BuildPlan, log: str, diagnostics: Sequence[Diagnostic], command: str
) -> CompileError:
    """Return the error for Tile IR that tileiras refuses."""
    headline = f"The tile kernels of {plan.display} cannot be assembled for {plan.target}"
    errors = [one for one in diagnostics if one.severity == "error"]
    shown = [str(error) for error in errors[:_SHOWN_ERRORS]] or [log.strip() or "tileiras printed nothing"]
    text = "\n\n".join([f"{headline}: {count(len(errors) or 1)}.", *shown, f"Called as: {command}"])
    return CompileError(text, diagnostics=diagnostics, log=log, command=command)


def unopened(log: str) -> tuple[str, str] | None:
    """Return the file (its virtual name) and the header that it could not open, if that was the fault."""
    match = _CANNOT_OPEN.search(log)
    return (match["file"], match["header"]) if match else None


def refused_lines(log: str, plan: BuildPlan) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the lines that the compiler refuses, and those of functions without a body that are called.

    Each has the virtual name of its file. Where some of the former have host functions or variables on them,
    only those: the rest may follow from them. Of a function without a body, its call is at fault; and an
    assertion that is false is not refused: the compiler understood it.
    """
    found = parse_log(log, lambda name: name, lambda _: (), main=plan.includes.main.virtual)
    errors = [one for one in found if one.severity == "error" and not _NOT_ITS_OWN.search(one.message)]
    certain = [one for one in errors if _HOST_CODE.search(one.message)]
    called = [one for one in found if _NO_BODY.search(one.message)]
    refused, bodiless = (
        dict.fromkeys((one.file, one.line) for one in each) for each in (certain or errors, called)
    )
    return list(refused), list(bodiless)


def left_out_headers(log: str) -> tuple[str, ...]:
    """Return the headers that were not found, and that the compiler got stand-ins for."""
    return tuple(dict.fromkeys(_NOT_FOUND.findall(log)))


def package_of(header: str) -> tuple[str, str] | None:
    """Return the pip packages, under CUDA 13 and 12, that have a header of the toolkit; None for others."""
    return next((row[1:] for row in PACKAGES if re.match(row[0], header)), None)


def is_unchosen(error: CompileError) -> bool:
    """Return whether a template was requested without its arguments."""
    return any(_UNCHOSEN in diagnostic.message for diagnostic in error.diagnostics)


def is_overloaded(error: CompileError) -> bool:
    """Return whether a kernel was requested by a name that is another function's too."""
    return any(_OVERLOADED in diagnostic.message for diagnostic in error.diagnostics)


def _host_code_error(plan: BuildPlan, diagnostics: Sequence[Diagnostic]) -> HostCodeError | None:
    """Return the error for host code in the source, by its text and by the compiler's messages."""
    signs = host_code(plan.includes.main.text, plan.options.defined)
    refused = {one.line for one in diagnostics if one.severity == "error" and one.file == plan.display}
    is_refused = any(one.line in refused for one in signs)
    by_line = {one.line: replace(one, file=plan.display) for one in signs if is_refused}
    for diagnostic in diagnostics:
        is_host = _HOST_FUNCTION in diagnostic.message and diagnostic.file == plan.display
        if is_host and not _DEVICE.search(diagnostic.source):  # else an error before it hides its __device__
            line, what = diagnostic.line, "a function without __device__"
            by_line.setdefault(line, HostLine(line, diagnostic.source, what, file=plan.display))
    lines = [by_line[line] for line in sorted(by_line)]
    is_split = plan.includes.main.text != plan.includes.main.original
    return HostCodeError(host_code_message(plan.display, lines, is_split=is_split)) if lines else None


def _not_found_error(plan: BuildPlan, diagnostics: Sequence[Diagnostic]) -> KernelNotFound | None:
    """Return the error for a name that the compiler does not know and that no file declares."""
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if any(diagnostic.file != NAME_MAP for diagnostic in errors):
        return None
    refused = [
        name
        for name in plan.names
        if any(is_about(name, d) for d in errors)
        and not any(is_about(name, d) and _UNCHOSEN in d.message for d in errors)
    ]
    for name in refused:
        texts, defined = [file.text for file in plan.includes.files], plan.options.defined
        known = dict.fromkeys(one for text in texts for one in variables(text, defined))
        if is_kernel(name):
            known = dict.fromkeys(kernel.name for text in texts for kernel in kernels(text, defined))
        if base_name(name) not in known:
            return KernelNotFound(_not_found_message(plan.display, name, known))
    return None


def _not_found_message(display: str, name: str, known: Collection[str]) -> str:
    kind = "kernel" if is_kernel(name) else "__constant__ or __device__ variable"
    wanted = base_name(name)
    if not known:
        return f"{display} has no {kind} {wanted!r}: it declares none.\nDeclare one there."

    def likeness(other: str) -> float:
        """Return how similar two names are, with and without their namespaces, from 0 to 1."""
        pairs = ((wanted, other), (wanted.split("::")[-1], other.split("::")[-1]))
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    listed = "\n".join(f"    {other}" for other in sorted(known, key=likeness, reverse=True))
    return f"{display} has no {kind} {wanted!r}.\nIt has, the nearest first:\n{listed}"


def is_about(name: str, diagnostic: Diagnostic) -> bool:
    """Return whether a diagnostic is about a requested name, and not about the source."""
    expression = diagnostic.source.partition("nv_mangled_name")[2].strip()
    return expression in (name, probe_of(name))


def _message(plan: BuildPlan, log: str, diagnostics: Sequence[Diagnostic]) -> str:
    options = f"Options, as for nvcc: {plan.command.removeprefix('nvcc ')}"
    errors = _without_echoes([diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"])
    if not errors:
        printed = f"\n{_ON_STDERR}" if "processing Tile code" in log else ""
        return f"{plan.display} does not compile for {plan.target}:\n{log.strip()}{printed}\n{options}"
    amount = f"{count(len(errors))}{_instantiated(plan, errors)}"
    headline = f"{plan.display} does not compile for {plan.target}: {amount}."
    shown = [str(_readable(plan, error)) for error in _in_order(errors)[:_SHOWN_ERRORS]]
    if len(errors) > _SHOWN_ERRORS:
        shown.append(f"... and {len(errors) - _SHOWN_ERRORS} more, in the exception's .log")
    return "\n\n".join([headline, *shown, _advice(plan, log, errors) or options])


_ON_STDERR = (
    "NVRTC has printed the reason, with its line, on this process's stderr. "
    "Tile functions are inlined, so none may call itself."
)


_ECHOES = re.compile("<error-type>|user-defined literal operator not found")
"""In what has no type, or in tile code has another error, NVRTC 13.5 finds no `1_ic` either (seen)."""


def _without_echoes(errors: list[Diagnostic]) -> list[Diagnostic]:
    """Leave out errors that only repeat another: about name expressions, or about what has no type."""
    real = [error for error in errors if error.file != NAME_MAP]
    if real:
        own = [error for error in real if not _PROBE_REFUSED.search(error.message)] or real[:1]
        return [error for error in own if not _ECHOES.search("\n".join([error.message, *error.notes]))] or own
    first: dict[str, Diagnostic] = {}
    for error in errors:
        expression = error.source.partition("nv_mangled_name")[2].strip()
        plain = expression.removeprefix(f"{PROBE}<decltype(").removesuffix(")>").removeprefix("&")
        first.setdefault(plain, error)
    return list(first.values())


def _readable(plan: BuildPlan, error: Diagnostic) -> Diagnostic:
    """Report an error at the name that was requested, not in NVRTC's own file, and a size in decimal."""
    if error.message.endswith(_ASSEMBLER):
        text = _HEX.sub(lambda match: str(int(match[0], 16)), error.message)
        text = _SYMBOL.sub(lambda match: f"'{_name_of(plan, match[1])}'", text)
        return replace(error, file=plan.display, message=text)
    if error.file != NAME_MAP:
        hint = (
            _new_header(plan, error)
            or _left_out_note(plan, error)
            or _launching_note(error)
            or _note_of(_NOTES, error)
            or _note_of(_TILE_NOTES, error)
        )
        notes = error.notes if plan.tile is None else _without_candidates(error.notes)
        return replace(error, notes=(*notes, hint) if hint else notes)
    name = next((name for name in plan.names if is_about(name, error)), "")
    rename = "CUDA, or this source, has another function of that name. Rename the kernel."
    order = (
        "Template arguments have the order of the template's parameters: a torch dtype stands for a type, as "
        "in module.k[torch.float32, 256], and text for C++."
    )
    notes = (rename,) if _OVERLOADED in error.message else (order,) if "<" in name else ()
    return Diagnostic(
        severity="error", file=plan.display, line=0, column=0,
        message=f"{name} cannot be instantiated: {error.message}",
        notes=(*error.notes, *notes),
    )  # fmt: skip


_OF_HOSTS = (
    ("function", "write there: __host__ __device__"),
    ("variable", "write there: const, or __device__"),
    ("", "move out of it what is of the host's library or of PyTorch, members too: into another type."),
)
"""What makes device code of a declaration, by a word in what it is."""


_OF_TEXTURE = re.compile(r"\b(texture|surface)\s*<")
_COMPUTED = re.compile(r"=[^;]*\w\s*\(")


def _declared_at(plan: BuildPlan, removed: Any) -> str:
    """Return a declaration that was left out, from its line to a semicolon; "" if its file is not at hand."""
    text = next((file.original for file in plan.includes.files if file.virtual == removed.file), "")
    return "\n".join(text.splitlines()[removed.line - 1 :]).partition(";")[0]


def _left_out_note(plan: BuildPlan, error: Diagnostic) -> str:
    """Say that a name is unknown because its declaration is host code; "" if that is not so."""
    name, is_called = undefined_name(error.message), bool(_NO_BODY.search(error.message))
    at_caret = WORD.match(error.source, max(error.column - 1, 0))
    # the stand-in for a type that was left out is an incomplete type
    named = {name} if name else {*_LAST_WORD.findall(error.message), at_caret[0] if at_caret else ""}
    for one in plan.includes.parts.removed:
        is_it = one.line == error.line and one.name in error.message if is_called else one.name in named
        if is_it and (one.name or is_called):
            name = one.name or "It"
            file = plan.shown_files.get(one.file, one.file.rpartition("/")[2])
            where = f"at line {one.line} of {file}"
            text = _declared_at(plan, one)
            if _OF_TEXTURE.search(text):
                return f"{name}, {where}, is a texture reference.\n  {_TEXTURES}"
            if "variable" in one.what and _COMPUTED.search(text):
                return (
                    f"{name}, {where}, was left out as host code: its value is computed by a call.\n"
                    "  If device code needs it, write its value as a number, or compute it in the kernel."
                )
            remedy = next(remedy for kind, remedy in _OF_HOSTS if kind in one.what)
            return (
                f"{name}, {where}, was left out as host code: {one.what}.\n"
                f"  If device code needs it, {remedy}"
            )
    return ""


def _launching_note(error: Diagnostic) -> str:
    """Explain that a name of CUB in the line launches kernels itself; "" if the line has none."""
    match = re.search(r"\bcub::Device\w+", error.source)
    return (
        f"{match[0]} launches kernels: it is for host code.\n"
        "  In a kernel use cub::Block... or cub::Warp..., or call an operator of torch's before the launch."
        if match
        else ""
    )


_CANDIDATE = re.compile(
    r" *(?:number of parameters of function template|substitut|concept|atomic constraint|candidate function"
    r"|built-in operator)"
)
_SHOWN_CANDIDATES = 2


def _without_candidates(notes: Sequence[str]) -> tuple[str, ...]:
    """Leave out all but the first notes on why none of the dozens of functions of the tile header fits."""
    candidates = [note for note in notes if _CANDIDATE.match(note)]
    if len(candidates) <= _SHOWN_CANDIDATES:
        return tuple(notes)
    others = [note for note in notes if not _CANDIDATE.match(note)]
    left = f"  ... and {len(candidates) - _SHOWN_CANDIDATES} more like these, in the exception's .log"
    return (*candidates[:_SHOWN_CANDIDATES], left, *others)


# What NVRTC 13.5 refuses in tile code, and what to write instead.
_TILE_NOTES = (
    (
        r"accessing gridDim/blockDim/blockIdx/threadIdx",
        "A tile kernel has no threads: ct::bid() is the index of its block, ct::num_blocks() the grid.",
    ),
    (
        r'unsupported type ".*" for __tile_global__ function parameter',
        "Declare a pointer, and an integer for each extent: dotcu.extents(t) passes them all.",
    ),
    (
        r"calling a __tile__ function\(.*\) from a __global__ function",
        "Declare the kernel __tile_global__, or the function __device__ __tile__ if both are to call it.",
    ),
    (
        r"calling a __device__ function\(.*\) from a __tile",
        "Declare the function __device__ __tile__, so that tile code may call it, too.",
    ),
    (
        r"a non-__tile__ variable",
        "Tile code reads no __device__ or __constant__ variable: pass a pointer, or a value.",
    ),
    (r"tile functions cannot access __shared__", "The compiler places tiles in shared memory by itself."),
    (
        r"__launch_bounds__ is only allowed",
        "Write [[cutile::hint(0, num_worker_warps_per_cta = 8)]] instead.",
    ),
    (
        r"is_tile_compatible_shape",
        "The extents of a tile are powers of two: take the next one, and load_masked and store_masked.",
    ),
    (
        r'no instance of function template "[\w:]*::atomic_\w+"',
        "An atomic takes its memory order last: ct::atomic_add(p, x, ct::memory_order_relaxed_t{}).",
    ),
    (
        r'no operator ".*" matches these operands.*\btile<',
        "A number has to convert to the tile's element type without narrowing: write int(ct::bid().x).",
    ),
)


_TEXTURES = "CUDA 12 removed texture references. Take a pointer, const float* t, and read t[i]."

# What NVRTC refuses in other code, and what to write instead.
_NOTES = (
    (r"annotation on lambda requires", "Leave the annotation out: a lambda in device code is device code."),
    (
        r"dynamic initialization is not supported",
        "Give it a value that the compiler computes, such as a number, or compute it in the kernel.",
    ),
    (r"^(texture|surface) is not a template", _TEXTURES),
)


def _note_of(notes: Sequence[tuple[str, str]], error: Diagnostic) -> str:
    """Return what to write instead of what the compiler does not take; "" for another error."""
    text = "\n".join([error.message, *error.notes])
    return next((note for pattern, note in notes if re.search(pattern, text)), "")


def _new_header(plan: BuildPlan, error: Diagnostic) -> str:
    """Return `header_hint` of an error, unless the header is included."""
    hint = header_hint(error.message)
    match = re.search(r"<([^>]+)>", hint)
    return "" if match is not None and _included_at(plan, match[1]) else hint


def _name_of(plan: BuildPlan, symbol: str) -> str:
    """Return the requested name that a symbol must be of; the symbol where there are several."""
    plain = {name: base_name(name).split("::")[-1] for name in plan.names}
    fits = [
        name for name, end in plain.items()
        if symbol == end or (symbol.startswith("_Z") and f"{len(end)}{end}" in symbol)
    ]  # fmt: skip
    return fits[0] if len(fits) == 1 else symbol


def _instantiated(plan: BuildPlan, errors: Sequence[Diagnostic]) -> str:
    """Name the requested instantiations that caused the errors, where the context says it."""
    context = "\n".join(note for error in errors for note in error.notes)
    # of what ptxas refuses, a plain kernel is named in the message
    symbols = [
        symbol for error in errors if error.message.endswith(_ASSEMBLER)
        for symbol in _SYMBOL.findall(error.message)
    ]  # fmt: skip
    assembled = {_name_of(plan, symbol) for symbol in symbols}
    blamed = [
        name
        for name in plan.names
        if any(is_about(name, error) for error in errors)
        or ("<" in name and name in assembled)
        or re.search(rf"instantiation of \"[^\"]*\b{re.escape(base_name(name))}\(", context)
    ]
    return f", instantiating {', '.join(blamed)}" if blamed else ""


_UNKNOWN_OPTION = re.compile(r"unrecognized option (\S+) found")


def _advice(plan: BuildPlan, log: str, errors: Sequence[Diagnostic]) -> str:
    for error in errors:
        if match := _UNKNOWN_OPTION.search(error.message):
            return f"Leave {match[1]} out of options. NVRTC has no such option."
        if "invalid value for --std" in error.message:
            return 'Write std="c++20" or std="c++17": this NVRTC has no such standard.'
    if any("includes itself" in error.message for error in errors):
        if any("include_next" in file.original for file in plan.includes.files):
            return (
                "#include_next is read as #include. Include the other header by a path that no other folder "
                'of include=[...] has: #include "FOLDER/NAME"'
            )
        return "Write at the top of each header: #pragma once"
    if any("uses too much shared data" in error.message for error in errors):
        return (
            "Arrays of a fixed size in shared memory are limited to 49152 bytes together.\n"
            "Write for a larger one: extern __shared__ float s[]; and pass smem_bytes=BYTES at the launch."
        )
    missing = unopened(log)
    names = (missing[1],) if missing else left_out_headers(log)
    if not names:
        return ""
    placed = ", ".join(f"{name!r}{_included_at(plan, name)}" for name in names)
    which = f"The header {placed} was" if len(names) == 1 else f"The headers {placed} were"
    not_found = (
        f"{which} not found: not next to the file that includes it, not in include=[...], not among the "
        "headers of dotcu and of the toolkit.\n"
    )
    major, minor = plan.compiler.version
    package = package_of(names[0])
    if package is not None:
        name = package[major < 13]
        version = "" if "curand" in name else f"=={major}.{minor}.*"  # which has versions of its own
        return f'{not_found}It comes with: pip install "{name}{version}"'
    remedy = f"{not_found}If device code needs it: load(..., include=[FOLDER])"
    is_hosts = any("." not in name or is_host_include(name, quoted=False, device=()) for name in names)
    if is_hosts or plan.includes.parts.removed:
        return f"{remedy}\nIf it is for the host: {GUARD_REMEDY}"
    return remedy


def _included_at(plan: BuildPlan, header: str) -> str:
    """Return where the first `#include` of a header is, in brackets; "" where macros make the name."""
    pattern = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*["<]{re.escape(header)}[">]', re.MULTILINE)
    for file in plan.includes.files:
        match = pattern.search(file.text)
        if match:
            line = file.text.count("\n", 0, match.start()) + 1
            return f" ({plan.shown_files[file.virtual]}:{line})"
    return ""


def header_hint(message: str) -> str:
    """Return the `#include` that declares the name in a message; "" if none is known."""
    name = undefined_name(message)
    header = next(iter(headers_of([name])), "")
    return f"{name} comes with: #include {header}" if header else ""


def undefined_name(message: str) -> str:
    """Return the name that a message says is not known; "" where it is about something else."""
    match = _UNDEFINED.search(message)
    return (match[1] or match[2]) if match else ""


def undefined_names(log: str) -> frozenset[str]:
    """Return the names that the compiler's log says are not known."""
    return frozenset(first or second for first, second in _UNDEFINED_IN_LOG.findall(log))


def _in_order(errors: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return errors in the compiler's order; of one line, names whose header is missing before the others."""
    lines: dict[tuple[str, int], list[Diagnostic]] = {}
    for error in errors:
        lines.setdefault((error.file, error.line), []).append(error)
    return [
        error for line in lines.values() for error in sorted(line, key=lambda e: not header_hint(e.message))
    ]

"""Calls of the compiler until it takes a source, or nothing more can be left out or added."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dotcu.compile import nvrtc
from dotcu.compile.cache import CacheEntry
from dotcu.compile.host_split.detect import FOR_NVRTC_TOO, NOT_FOUND, Refusal
from dotcu.compile.include_graph import VIRTUAL_ROOT
from dotcu.compile.object_code import with_probe, with_probes
from dotcu.compile.plan import BuildPlan, plan_of
from dotcu.compile.source.declarations import device_arrays, offset_in_tile_code
from dotcu.errors import DotcuError

_RETRIES = 16
"""The number of headers with macro-made names that a source may include."""


def compile_plan(plan: BuildPlan) -> tuple[CacheEntry, bool]:
    """Call the compiler until it takes the source, or nothing more can be left out.

    Left out are headers that are nowhere, and host code that only the compiler recognises: what it refuses
    and no annotation claims for the device. A header that no scan can see, since macros put its name
    together, is added when the compiler asks for it.

    Returns:
        The result; False where a user's header came in that the plan's digest does not cover.
    """
    key = (plan.includes.digest, repr(plan.options.key))
    attempt = plan_of(plan, *_found_out[key]) if key in _found_out else plan
    failures: list[tuple[BuildPlan, str]] = []
    for _ in range(_RETRIES):
        reply = _call(attempt)
        if isinstance(reply, CacheEntry):
            if failures and _EXTERN.search(reply.ptx):  # of PTX nothing is linked
                break
            return _with_tiles(plan, _entry(plan, reply)), not attempt.found.get("extra")
        failures.append((attempt, reply))
        following = _following(attempt, reply)
        if following is None:
            break
        attempt = following
        # another target or instantiation may take what this one refuses
        kept = {name: value for name, value in attempt.found.items() if name != "refused"}
        _found_out[key] = kept, attempt.before, attempt.aliases
        if len(_found_out) > _MAX_FOUND_OUT:
            _found_out.pop(next(iter(_found_out)), None)
    raise _explained(failures)


def _explained(failures: Sequence[tuple[BuildPlan, str]]) -> DotcuError:
    """Return the last failure; if it only names what was left out because of an error, that error."""
    from dotcu.compile import diagnostics

    if _UNRESOLVED in failures[-1][1] and len(failures) > 1:  # it names no line
        failures = failures[:-1]
    undefined = set(_UNDEFINED.findall(failures[-1][1]))
    for failed, log in reversed(failures):
        plan, shown = failed, log
        if undefined.isdisjoint(one.name for one in failed.includes.parts.removed):
            break
    else:
        plan, shown = failures[-1]
    return diagnostics.explain_failure(plan, shown, diagnostics.of_plan(plan, shown))


# What the host's compiler and its headers give nvcc, and NVRTC lacks; by the message that shows the need.
_FROM_THE_HOST = (
    (r"#error directive", "#define __linux__ 1\n#define __x86_64__ 1\n#define __GNUC__ 11\n"),
    (r"\b__extension__\b", "#define __extension__\n"),
    (r'"__(asm|volatile)__" is undefined', "#define __asm__ asm\n#define __volatile__ volatile\n"),
    (r'"CLOCKS_PER_SEC" is undefined', "#define CLOCKS_PER_SEC 1000000\n"),
    (r'use of the "register" storage class specifier', "#define register\n"),
)

# What builds of PyTorch's extensions define, where CUDA's half types and PyTorch's are ambiguous otherwise.
# Source: COMMON_NVCC_FLAGS in torch/utils/cpp_extension.py.
_OF_PYTORCHS_BUILDS = (
    (
        (
            r"more than one (?:operator|user-defined|conversion|instance|constructor)[^$]{0,2000}?"
            r"\b__(?:half|nv_bfloat16)\b|operator[^\n]*__half[^\n]*has already been defined"
        ),
        (
            "#define __CUDA_NO_HALF_OPERATORS__ 1\n#define __CUDA_NO_HALF_CONVERSIONS__ 1\n"
            "#define __CUDA_NO_HALF2_OPERATORS__ 1\n#define __CUDA_NO_BFLOAT16_CONVERSIONS__ 1\n"
        ),
    ),
    # some undefine those of operators
    (
        r'no operator "[^"]+" matches these operands[^$]{0,200}?\b__half2?\b',
        "#undef __CUDA_NO_HALF_OPERATORS__\n#undef __CUDA_NO_HALF2_OPERATORS__\n",
    ),
)

_BEFORE_THE_FIRST_LINE = (
    "algorithm",
    "climits",
    "cmath",
    "cstddef",
    "cstdint",
    "cstdlib",
    "limits",
    "type_traits",
    "utility",
)
"""Headers that nvcc includes before a source's first line: by `cuda_runtime.h`, directly or through
the host's library. Source: cuda_runtime.h and driver_types.h of CUDA 13.0; <cmath> of GCC 13."""
_UNRESOLVED = "Unresolved extern function"
_EXTERN = re.compile(r"^\.extern \.func[^;]*\b_Z\w+", re.MULTILINE)
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_FOR_LAMBDAS = re.compile(
    r"inferred to be __host__ \(based on context\)"
    r"|is considered a host function[^\n]*\n[^\n]*\]\s*(?:<[^\n]*>)?\s*\([^\n]*\bauto\b"
)
"""A lambda outside of functions, or a generic one, which NVRTC takes with an option alone."""
_IN_FILE = re.compile(r"(?m)^([^\s(]+)\(\d+\): error: A function without execution space annotations")
_NO_MEMBER = re.compile(r'namespace "std" has no member "(\w+)"')
_DECLARED = re.compile(r"(?:\busing (?:::)?|\bstruct |#define )(\w+)|\b(\w+)\(")
_FROM_THE_HOST_NAME = f"{VIRTUAL_ROOT}/@host"


def _call(plan: BuildPlan) -> CacheEntry | str:
    """Call the compiler once; return its log where it refuses the source."""
    main, user = plan.includes.main, plan.includes.headers.values()
    crash = "" if plan.tile is None else _crash(plan)
    if crash:
        return crash
    headers = {
        **plan.system_headers.reachable(plan.includes.system),
        **{file.virtual: file.rewritten.encode("utf-8", "surrogateescape") for file in user},
        **plan.aliases,
        _FROM_THE_HOST_NAME: plan.before.encode(),
    }
    before = (f"--pre-include={_FROM_THE_HOST_NAME}",) if plan.before else ()
    return nvrtc.compile(
        plan.compiler.path,
        main.virtual,
        with_probe(main.rewritten) if plan.probed else main.rewritten,
        headers=headers,
        arguments=(*plan.arguments, *before),
        expressions=with_probes(plan.names) if plan.probed else plan.names,
    )


def _crash(plan: BuildPlan) -> str:
    """Return the error that NVRTC should report where it ends the process; "" if there is no such place.

    Source: seen with NVRTC 13.5: an array of the device's that tile code adds a tile to.
    """
    files, defined = plan.includes.files, plan.options.defined
    names = frozenset(name for file in files for name in device_arrays(file.text, defined))
    for file in files if names else ():
        use = offset_in_tile_code(file.text, names, defined)
        if use is not None:
            what = f'a non-__tile__ variable ("{use[0]}") cannot be used in tile code'
            return f"{file.virtual}({use[1]}): error: {what}\n"
    return ""


def _following(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Return what to try after a failure; None if nothing is left to try."""
    from dotcu.compile import diagnostics

    missing = diagnostics.unopened(log)
    if missing is None:
        return _with_hosts(plan, log) or _with_wanted(plan, log) or _without_refused(plan, log)
    return None if missing[1] in plan.aliases else _with_header(plan, *missing)


def _with_hosts(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Give the compiler what nvcc has from the host's compiler and by its own options, if it lacks that."""
    from dotcu.compile import diagnostics

    is_of_library = any(FOR_NVRTC_TOO.search(name) for name in _IN_FILE.findall(log))
    if (is_of_library or _FOR_LAMBDAS.search(log)) and "implicit" not in plan.found:
        names = (file.virtual for file in plan.includes.files)
        files = frozenset(name for name in names if not FOR_NVRTC_TOO.search(name))
        return _with(plan, implicit=True, suspects=plan.found.get("suspects", frozenset()) | files)
    seen = "\n".join([log, *(file.text for file in plan.includes.files)])
    before = [text for pattern, text in _FROM_THE_HOST if re.search(pattern, seen)]
    if any(name.endswith(("left_out/torch", "left_out/float8")) for name in plan.includes.system):
        before += [text for pattern, text in _OF_PYTORCHS_BUILDS if re.search(pattern, log)]
    named = [plan.system_headers.find(header) for header in _BEFORE_THE_FIRST_LINE]
    headers = plan.system_headers.reachable([name for name in named if name])
    declared = itertools.chain.from_iterable(_DECLARED.findall(text.decode()) for text in headers.values())
    if diagnostics.undefined_names(log).intersection(itertools.chain.from_iterable(declared)):
        before.append("".join(f'#include "{name}"\n' for name in named))
    new = "".join(text for text in before if text not in plan.before)
    if not new:
        return None
    return replace(plan, before=plan.before + new, aliases={**plan.aliases, **headers})


def _with_wanted(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Keep what was left out since no device code names it, and a template argument does."""
    from dotcu.compile import diagnostics

    known = plan.found.get("wanted", frozenset())
    removed = {one.name for one in plan.includes.parts.removed if "__device__" not in one.what}
    wanted = removed.intersection(diagnostics.undefined_names(log)) - known
    return _with(plan, wanted=known | wanted) if wanted else None


def _with(plan: BuildPlan, **found: Any) -> BuildPlan:
    return plan_of(plan, {**plan.found, **found}, plan.before, plan.aliases)


def _with_header(plan: BuildPlan, including: str, spelled: str) -> BuildPlan | None:
    """Give the compiler a header that no scan saw, or stand-ins for all that are nowhere."""
    from dotcu.compile import diagnostics

    after, virtual, headers = plan, "system", plan.system_headers
    if including in plan.shown_files:
        extra = plan.found.get("extra", {})
        after = _with(plan, extra={**extra, including: (*extra.get(including, ()), spelled)})
        edges = {(file, name): leads_to for file, name, leads_to in after.includes.edges}
        virtual = edges[including, spelled]
    found = headers.find(spelled) if virtual == "system" else virtual
    if found is not None:
        aliases = {**plan.aliases, spelled: f'#include "{found}"\n'.encode("utf-8", "surrogateescape")}
        if found not in after.includes.headers:
            aliases |= headers.reachable([found])
        return replace(after, aliases=aliases)
    absent = {spelled, *plan.includes.missing} - plan.includes.optional
    if including not in plan.shown_files or diagnostics.package_of(spelled):
        return None
    stand_in = headers.find("left_out/std")
    assert stand_in is not None
    text = f'#warning {NOT_FOUND}\n#include "{stand_in}"\n'.encode()
    named = {name: text for name in absent if not diagnostics.package_of(name)}
    return replace(after, aliases={**plan.aliases, **named, **headers.reachable([stand_in])})


def _without_refused(plan: BuildPlan, log: str) -> BuildPlan | None:
    """Leave out what the compiler refused, if it is host code or may be."""
    from dotcu.compile import diagnostics

    if plan.options.all_is_device:
        return None
    lines, called = diagnostics.refused_lines(log, plan)
    suspects = {virtual for virtual, _ in lines if virtual in plan.shown_files}
    lacking = set(_NO_MEMBER.findall(log))  # the compiler stops at a hundred errors: where else are they?
    suspects |= {one.virtual for one in plan.includes.files if any(name in one.text for name in lacking)}
    after = plan
    if suspects - plan.includes.parts.looked:
        after = _with(plan, suspects=plan.found.get("suspects", frozenset()) | suspects)
        if after.includes.digest != plan.includes.digest:
            return after
    pieces, known = after.includes.parts.pieces, plan.found.get("refused", frozenset())
    refused: set[Refusal] = set()
    for file, line in lines:
        on_it = (key for key, first, last in pieces if key[0] == file and first <= line <= last)
        refused.update(itertools.islice(on_it, 1))
    for file, line in called:
        on_it = (key for key, first, last in pieces if key[0] == file and first <= line <= last)
        refused.update((*key[:2], "inline") for key in on_it if key[2] == "head")
    if any(key[2] == "assert" for key in refused) and "Error limit reached" in log:
        refused.update(key for key, _, _ in pieces if key[2] == "assert")  # the host's to check, too
    return _with(after, refused=known | refused) if refused - known else None


_MAX_FOUND_OUT = 16
_found_out: dict[tuple[str, str], tuple[Mapping[str, Any], str, Mapping[str, bytes]]] = {}
"""By source and options, what was found out: other names, and other architectures, begin with it."""


def _entry(plan: BuildPlan, reply: CacheEntry) -> CacheEntry:
    """Return what a compile has made as the cache keeps it."""
    about = {
        "source": plan.source.name,
        "target": str(plan.target),
        "names": ", ".join(plan.names),
        "compiler": "NVRTC {}.{}".format(*plan.compiler.version),
        "arguments": " ".join(plan.arguments),
        "build_digest": plan.build_digest,
    }
    if plan.layouts:
        from dotcu.ptx.debug_info import parameter_types  # few kernels take structs

        types = {name: parameter_types(reply.ptx, reply.lowered[name]) for name in plan.kernels}
        return replace(reply, about=about, ptx="", cubin=None, tile_ir=b"", layouts=types)
    if not reply.tile_ir:
        return replace(reply, about=about)
    from dotcu.compile import tile

    return replace(reply, about=about, tile_ir=tile.without_folder(reply.tile_ir))


def _with_tiles(plan: BuildPlan, entry: CacheEntry) -> CacheEntry:
    """Return an entry with the machine code of its tile kernels, if it has such and they are to run here."""
    if not entry.tile_ir or not plan.is_assembled:
        return entry
    from dotcu.compile import diagnostics, tile

    assert plan.tile is not None
    cubin, log, command = tile.assemble(
        plan.tile, entry.tile_ir, plan.target, processor=tile.host(), lines=plan.lines,
        debug=plan.options.debug,
    )  # fmt: skip
    if cubin is None:
        raise diagnostics.explain_assembler(plan, log, diagnostics.of_plan(plan, log), command)
    return replace(entry, tile_cubin=cubin, log=f"{entry.log}\n{log}" if log else entry.log)

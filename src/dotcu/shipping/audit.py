"""A wheel of C++: pip builds it around the library, auditwheel finds its tag, and an audit decides
whether it is kept. Every rule is held against what is in it, and none of it is loaded.

A rule is a function that yields a sentence for each problem; `RULES` lists them. Which of torch's functions
a library may use, and since which torch each is there, is at the end.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
import shutil
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu import process, report_base
from dotcu.compile.target import Version, dotted
from dotcu.cpp.build import CppBuild
from dotcu.elf import ElfSymbol, HostBinary, undefined_symbols
from dotcu.errors import ToolchainError, UsageError
from dotcu.inspection import binary
from dotcu.inspection.binary import BinaryReport
from dotcu.inspection.manylinux import floor_of, is_provided
from dotcu.shipping.project import OLDEST_TORCH
from dotcu.shipping.wheel import PYPI_BYTES, pip_wheel, size_line

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

TOOLS = ("auditwheel", "abi3audit", "twine")
"""What pip has in `dotcu[build]`, and a wheel of C++ is made and audited with."""

_TOOL_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Audit(report_base.Report):
    """The result of an audit.

    Attributes:
        problems: By rule, a sentence for each; of every rule, in their order.
        notes: What its users should know.
    """

    wheel: Path
    report: BinaryReport
    problems: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not any(self.problems.values())

    @property
    def upload(self) -> str:
        return f"python -m twine upload {self.wheel}"

    def __rich__(self) -> RenderableType:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for rule, problems in self.problems.items():
            for number, problem in enumerate(problems or ("passed",)):
                style = "red" if problems else ""
                table.add_row("" if number else rule, Text(problem, style=style, overflow="fold"))
        head = size_line(self.wheel, self.report.size)
        code = ", ".join(f"{one.holds} for {one.arch}" for one in self.report.architectures)
        holds = f"code for the CPU{'; ' if code else ', none for a GPU'}{code}"
        return Group(Text(head), Text(holds), table, *map(Text, self.notes))

    def to_json(self) -> dict[str, Any]:
        return {
            "wheel": str(self.wheel),
            "passed": self.passed,
            "size_bytes": self.report.size,
            "tags": list(self.report.wheel.tags) if self.report.wheel else [],
            "architectures": {one.arch: one.holds for one in self.report.architectures},
            "problems": {rule: list(problems) for rule, problems in self.problems.items()},
            "notes": list(self.notes),
            "upload": self.upload,
        }


def require_tools() -> None:
    """Check, before anything is compiled, that the tools are installed."""
    missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        raise ToolchainError(
            f"A wheel of C++ is repaired and audited by {', '.join(TOOLS)}; not installed: "
            f'{", ".join(missing)}.\nType: pip install "dotcu[build,tools]"'
        )


def audit(wheel: Path, sources: Mapping[str, tuple[str, ...]] | None = None) -> Audit:
    """Check a wheel of any project against every rule.

    Args:
        sources: By symbol, the sources whose objects use it, where they are known.
    """
    require_tools()
    report = binary.read(wheel)
    if report.wheel is None:
        raise UsageError(f"{wheel} is not a wheel.\nRequired: a file that pip installs, *.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = tuple(name for name in opened.namelist() if not name.endswith("/"))
        about = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
        text = opened.read(about).decode("utf-8", "replace") if about else ""
    facts = WheelFacts(
        report=report,
        names=names,
        requires=tuple(Parser().parsestr(text).get_all("Requires-Dist") or ()),
        python_abi=_python_abi(wheel),
        metadata=metadata_complaint(wheel),
        sources=sources or {},
    )
    notes = []
    for name, host in facts.hosts:
        needs_cuda = [symbol.name for symbol in host.undefined if is_of_cuda(symbol)]
        if needs_cuda:
            notes.append(
                f"{name} needs torch with CUDA, since it uses {needs_cuda[0]}. "
                f"With #pragma weak {needs_cuda[0]} one without CUDA loads it, too."
            )
    problems = {name: tuple(rule(facts)) for name, rule in RULES.items()}
    return Audit(wheel=wheel, report=report, problems=problems, notes=tuple(notes))


def _python_abi(wheel: Path) -> dict[str, Mapping[str, Any]]:
    """Return abi3audit's report, by the name of each extension."""
    command = (*process.module_command("abi3audit"), "--report", "--assume-minimum-abi3", "3.10")
    done = process.run([*command, wheel], timeout_s=_TOOL_S)
    try:
        specs = json.loads(done.stdout)["specs"]
    except (ValueError, KeyError) as error:
        raise ToolchainError(
            f"{done.line} failed with status {done.status}:\n{(done.stderr or done.stdout).strip()}"
        ) from error
    return {one["name"]: one["result"] for spec in specs.values() for one in spec["wheel"]}


def metadata_complaint(wheel: Path) -> str:
    """Return what `twine check` complains of; "" where it does not."""
    done = process.run([*process.module_command("twine"), "check", "--strict", wheel], timeout_s=_TOOL_S)
    return " ".join(done.stdout.split()) if done.status else ""


# -------------------------------------------------------------------- wheels that an audit decides on


def make_wheel(
    root: Path, sources: Sequence[Path], built: CppBuild, out: Path, *, isolated: bool = True
) -> Audit:
    """Make the wheel of a library, and put it into its place if the audit passes; else there is none."""
    host = binary.read(built.path).host
    floor = floor_of(host) if host else None
    lacking = [name for name in (floor.outside if floor else ()) if not is_one_of(name, (*TORCHS, *CUDAS))]
    if lacking:
        raise UsageError(
            f"The library needs {', '.join(lacking)}, which neither the system, torch nor CUDA provides.\n"
            "Link it statically, in [tool.dotcu.cpp]: link-flags = ['/path/to/libNAME.a']"
        )
    users: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for source, data in zip(sources, built.objects, strict=True):
        for name in undefined_symbols(data):
            users[name] += (source.name,)
    given = {"DOTCU_CPP_LIBRARY": str(built.path)}
    return audited_wheel(root, out, given, users, isolated=isolated)


def audited_wheel(
    root: Path, out: Path, given: Mapping[str, str], users: Mapping[str, tuple[str, ...]], *, isolated: bool
) -> Audit:
    """Let pip build a wheel for Linux, tag and audit it; put it into `out` if the audit passes.

    Args:
        given: Variables for the hook.
        users: By symbol, the sources whose objects use it, where they are known.
    """
    with tempfile.TemporaryDirectory(prefix=".dotcu-", dir=out) as folder:
        built = pip_wheel(root, Path(folder), isolated=isolated, given=given)
        repaired = repair(built, Path(folder) / "repaired")
        result = audit(repaired, users)
        if not result.passed:
            return result
        place = out / repaired.name
        shutil.move(repaired, place)
        return replace(result, wheel=place)


def repair(wheel: Path, folder: Path) -> Path:
    """Let auditwheel find the oldest system that a wheel runs on, and tag it so. It bundles nothing."""
    excluded = [word for pattern in (*TORCHS, *CUDAS) for word in ("--exclude", pattern)]
    done = process.run(
        [
            *process.module_command("auditwheel"), "repair", "--patcher", "none", *excluded,
            "--wheel-dir", folder, wheel,
        ],
        timeout_s=_TOOL_S,
    )  # fmt: skip
    repaired = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.status or not repaired:
        raise ToolchainError(
            f"auditwheel could not determine the systems of {wheel.name}:\n"
            f"{(done.stderr or done.stdout).strip()}\nThe command: {done.line}"
        )
    return repaired[0]


# -------------------------------------------------------------------- rules

SHOWN = 5
"""How many symbols or files of one kind a sentence names."""

# Libraries that torch and CUDA's own wheels contain: none is bundled, all are in the process before.
TORCHS = ("libtorch*.so*", "libc10*.so*", "libcaffe2*.so*", "libshm.so*")
CUDAS = ("libcu*.so*", "libnv*.so*", "libnccl*.so*", "libnpp*.so*")

_FOR_ONE_PYTHON = re.compile(r"\.(?:cpython-\d+\w*|pypy\d+\w*)-")
_PYTHONS_LIBRARIES = ("libpython3*.so*", "libtorch_python.so*")
_FUTURE = "2.999"
"""A future release of torch 2."""
_LOWER_BOUNDS = (">=", "~=", "==", "===", ">")


@dataclass(frozen=True, kw_only=True)
class WheelFacts:
    """A wheel as the rules see it.

    Attributes:
        names: Of every file in it.
        requires: What its METADATA requires, a line each.
        python_abi: abi3audit's report on each extension, by its file's name.
        metadata: What `twine check` complains of, "" where it does not.
        sources: By symbol, the sources whose objects use it, where it was built here.
    """

    report: BinaryReport
    names: tuple[str, ...]
    requires: tuple[str, ...]
    python_abi: Mapping[str, Mapping[str, Any]]
    metadata: str
    sources: Mapping[str, tuple[str, ...]]

    @property
    def tags(self) -> tuple[str, ...]:
        return self.report.wheel.tags if self.report.wheel else ()

    @property
    def hosts(self) -> Iterator[tuple[str, HostBinary]]:
        """The libraries in it, by name."""
        for member in self.report.members:
            if member.host is not None:
                yield member.path, member.host


def listed(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    rest = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + rest


def is_one_of(library: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(library, pattern) for pattern in patterns)


def tag(facts: WheelFacts) -> Iterator[str]:
    """Check that its tags are for every Python, and for a system that they name."""
    for each in facts.tags:
        _, abi, platform = each.split("-", 2)
        if abi != "abi3":
            yield f"The tag {each} is for one Python: a library that any may load is tagged abi3."
        if not platform.startswith(("manylinux", "musllinux")):
            yield f"The tag {each} does not name the oldest system it needs; PyPI accepts manylinux tags."


def tag_against_contents(facts: WheelFacts) -> Iterator[str]:
    """Check that every file keeps what the tags promise."""
    yield from facts.report.wheel.problems if facts.report.wheel else ()
    yield from facts.report.damaged
    modules = [name for name in facts.names if _FOR_ONE_PYTHON.search(PurePosixPath(name).name)]
    if modules and any("-abi3-" in each for each in facts.tags):
        yield f"The tag abi3 promises every Python, and this module is for one only: {listed(modules)}."
    if not list(facts.hosts):
        yield "There is no library in it."


def limited_api(facts: WheelFacts) -> Iterator[str]:
    """Check that it uses only those of Python's functions that every later Python has."""
    for name, result in facts.python_abi.items():
        if not result["is_abi3"]:
            yield f"{name} uses what is not in Python's limited API: {listed(result['non_abi3_symbols'])}."
        if not result["is_abi3_baseline_compatible"]:
            yield (
                f"{name} uses Python {result['computed']}'s API, and its tag promises {result['baseline']}: "
                f"{listed(result['future_abi3_objects'])}."
            )


def stable_abi(facts: WheelFacts) -> Iterator[str]:
    """Check that it uses only those of torch's functions that every later torch has."""
    for name, host in facts.hosts:
        unstable = []
        for symbol in filter(is_unstable, host.undefined):
            sources = facts.sources.get(symbol.symbol, ())
            unstable.append(f"{symbol.name}{f' (in {listed(sources)})' if sources else ''}")
        if unstable:
            yield f"{name} uses what is not in torch's stable ABI: {listed(unstable)}."
        for library in host.needed:
            if is_one_of(library, _PYTHONS_LIBRARIES):
                yield f"{name} needs {library}, which differs between Python versions."
        needs_torch = any(symbol.symbol.startswith(("aoti_torch_", "torch_")) for symbol in host.undefined)
        if needs_torch and not any(is_one_of(library, TORCHS) for library in host.needed):
            yield f"{name} uses torch's functions and needs none of its libraries, so none is searched."


def oldest_torch(facts: WheelFacts) -> Iterator[str]:
    """Check that it requires the torch it uses, and shuts no later torch out."""
    from packaging.version import Version as Release

    required = list(_required_torch(facts))
    bounds = [each for specifiers in required for each in specifiers if each.operator in _LOWER_BOUNDS]
    lowest = [Release(each.version.removesuffix(".*")) for each in bounds]
    floor = max([OLDEST_TORCH, *((release.major, release.minor) for release in lowest)])
    for specifiers in required:
        if not specifiers.contains(_FUTURE, prereleases=True):
            text = f"METADATA requires torch{specifiers}, which excludes others"
            yield f"{text}; torch>={dotted(floor)} does not."
    for name, host in facts.hosts:
        later = [symbol for symbol in host.undefined if since(symbol) > floor]
        if later:
            newest = dotted(max(map(since, later)))
            yield (
                f"{name} uses functions of torch {newest}, and METADATA allows {dotted(floor)}: "
                f"{listed(symbol.name for symbol in later)}. Require torch>={newest}, or define "
                f"TORCH_TARGET_VERSION for {dotted(floor)} before torch's headers."
            )


def _required_torch(facts: WheelFacts) -> Iterator[SpecifierSet]:
    """Yield the version specifiers of each requirement of torch that no extra makes."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    for line in facts.requires:
        with suppress(InvalidRequirement):  # `metadata` reports it
            requirement = Requirement(line)
            if canonicalize_name(requirement.name) == "torch" and "extra" not in str(requirement.marker):
                yield requirement.specifier


def libraries(facts: WheelFacts) -> Iterator[str]:
    """Check that it bundles none of torch's or CUDA's libraries, and that each it needs is provided."""
    inside = {PurePosixPath(name).name for name in facts.names}
    # auditwheel names what it bundles `libcudart-1f0c55e1.so.13`.
    plain = {name: re.sub(r"-[0-9a-f]{8}(?=\.)", "", name) for name in inside}
    bundled = [name for name in inside if is_one_of(plain[name], (*TORCHS, *CUDAS))]
    if bundled:
        yield f"It bundles what torch and CUDA provide: {listed(sorted(bundled))}."
    for name, host in facts.hosts:
        others = [library for library in host.needed if library not in inside and not is_provided(library)]
        lacking = [library for library in others if not is_one_of(library, (*TORCHS, *CUDAS))]
        if lacking:
            yield f"{name} needs {listed(lacking)}, which neither the system, torch nor CUDA provides."
        places = [folder for folder in host.search if folder.startswith("/")]
        if places:
            yield f"{name} looks for libraries in {listed(places)}, folders of the machine it was built on."


def size(facts: WheelFacts) -> Iterator[str]:
    if facts.report.size > PYPI_BYTES:
        text = f"It has {facts.report.size:,} bytes, and PyPI accepts {PYPI_BYTES:,}"
        yield f"{text}: name fewer architectures, or ask PyPI for more."


def metadata(facts: WheelFacts) -> Iterator[str]:
    if facts.metadata:
        yield facts.metadata


RULES: Mapping[str, Callable[[WheelFacts], Iterator[str]]] = {
    "tag": tag,
    "tag against contents, glibc": tag_against_contents,
    "Python's limited API": limited_api,
    "torch's stable ABI": stable_abi,
    "torch's version": oldest_torch,
    "libraries": libraries,
    "size": size,
    "metadata": metadata,
}
"""Every rule by its name, in the order in which an audit reports them."""


# -------------------------------------------------------------------- torch's functions

# Functions of C++ (at::, c10::, torch::) change with each release, in their names or silently in what they
# mean. The stable ABI is C: aoti_torch_* and torch_*, which are added and never taken away.

_CPP = re.compile(r"(?<![\w:])(?:at|c10|torch|caffe2)::")
_MANGLED = re.compile(r"_ZT?[NISVH]*[KVRO]*(?:2at|3c10|5torch|6caffe2)\d")  # where nothing can demangle
_PYTHONS = re.compile(r"_?THP[A-Z]\w*")

_DTYPES = ("float8_e8m0fnu", "float4_e2m1fn_x2")
_TAGS = (
    "core", "cudagraph_unsafe", "data_dependent_output", "dynamic_output_shape", "flexible_layout",
    "generated", "inplace_view", "maybe_aliasing_or_mutating", "needs_contiguous_strides",
    "needs_exact_strides", "needs_fixed_stride_order", "nondeterministic_bitwise", "nondeterministic_seeded",
    "out_variant", "pointwise", "pt2_compliant_tag", "reduction", "view_copy",
)  # fmt: skip

# Source: TORCH_FEATURE_VERSION in torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h of
# torch 2.13. What is not here is of 2.10 or before.
SINCE: dict[str, Version] = {
    **dict.fromkeys([*(f"torch_dtype_{name}" for name in _DTYPES), "torch_from_blob"], (2, 11)),
    **dict.fromkeys([f"aoti_torch_dtype_{name}" for name in _DTYPES], (2, 12)),
    **dict.fromkeys([*(f"torch_tag_{name}" for name in _TAGS), "torch_library_def_with_tags"], (2, 12)),
    **dict.fromkeys(
        [
            "torch_library_set_python_module", "torch_exception_get_what",
            "torch_exception_get_what_without_backtrace", "torch_new_stable_ivalue",
            "torch_delete_stable_ivalue", "torch_stream_native_handle", "torch_new_generator_handle",
            "torch_delete_generator", "torch_generator_get_device",
        ],
        (2, 13),
    ),
}  # fmt: skip

# Functions that a torch without CUDA lacks. Source: the libraries of torch 2.13 without CUDA, of 2.10 with.
_OF_CUDA = re.compile(r"(?:aoti_torch|torch)_(?!device_type|tag_)\w*cuda\w*")


def is_unstable(symbol: ElfSymbol) -> bool:
    """Return whether an undefined symbol is torch's, and not of its stable ABI."""
    if _PYTHONS.fullmatch(symbol.symbol):
        return True
    return bool(_CPP.search(symbol.name) if symbol.name != symbol.symbol else _MANGLED.match(symbol.symbol))


def since(symbol: ElfSymbol) -> Version:
    return SINCE.get(symbol.symbol, OLDEST_TORCH)


def is_of_cuda(symbol: ElfSymbol) -> bool:
    """Return whether a torch without CUDA cannot load what uses it: weak symbols may be missing."""
    return symbol.letter == "U" and _OF_CUDA.fullmatch(symbol.symbol) is not None

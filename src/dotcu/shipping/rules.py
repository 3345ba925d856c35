"""What a wheel of native code must keep to, so that it runs where its tags say: a rule is a function.

Each takes what is known of a wheel and gives a sentence for each thing that is wrong.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from dotcu.inspection.binaries import Binary, BinaryReport, Symbol
from dotcu.inspection.binaries.manylinux import PROVIDED
from dotcu.shipping import torch_symbols
from dotcu.shipping.contents import PYPI_BYTES
from dotcu.shipping.torch_symbols import Version

SHOWN = 5
"""How many symbols or files of one kind a sentence names."""

# Libraries that torch and CUDA's own wheels bring: none is bundled, all are in the process before.
TORCHS = ("libtorch*.so*", "libc10*.so*", "libcaffe2*.so*", "libshm.so*")
CUDAS = ("libcu*.so*", "libnv*.so*", "libnccl*.so*", "libnpp*.so*")

_FOR_ONE_PYTHON = re.compile(r"\.(?:cpython-\d+\w*|pypy\d+\w*)-")
_PYTHONS_LIBRARIES = ("libpython3*.so*", "libtorch_python.so*")
_REQUIRES = re.compile(r"torch\s*(?:\[.*?\])?\s*\(?\s*([^;)]*)\)?\s*(?:;(.*))?")
_CLAUSE = re.compile(r"\s*(===|==|~=|!=|>=|<=|>|<)\s*(\d+)(?:\.(\d+|\*))?(.*)")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a wheel.

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
    def hosts(self) -> Iterator[tuple[str, Binary]]:
        """The libraries in it, by name."""
        for member in self.report.members:
            if member.host is not None:
                yield member.path, member.host


Rule = Callable[[Facts], Iterator[str]]


def listed(names: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    every = list(dict.fromkeys(names))
    rest = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + rest


def is_one_of(library: str, patterns: Iterable[str]) -> bool:
    """Whether a library's file name is of those."""
    return any(fnmatch.fnmatch(library, pattern) for pattern in patterns)


def is_any(patterns: Iterable[str], libraries: Iterable[str]) -> bool:
    """Whether some library's file name is of those."""
    return any(is_one_of(library, patterns) for library in libraries)


def tag(facts: Facts) -> Iterator[str]:
    """One wheel for every Python, and for a system that is named."""
    for each in facts.tags:
        _, abi, platform = each.split("-", 2)
        if abi != "abi3":
            yield f"The tag {each} is for one Python: a library that any may load is tagged abi3."
        if not platform.startswith(("manylinux", "musllinux")):
            yield f"The tag {each} says of no system that it is old enough; PyPI takes manylinux tags."


def tag_against_contents(facts: Facts) -> Iterator[str]:
    """Every file keeps what the tags promise."""
    yield from facts.report.wheel.problems if facts.report.wheel else ()
    yield from facts.report.damaged
    modules = [name for name in facts.names if _FOR_ONE_PYTHON.search(PurePosixPath(name).name)]
    if modules and any("-abi3-" in each for each in facts.tags):
        yield f"The tag abi3 promises every Python, and this is a module for one alone: {listed(modules)}."
    if not list(facts.hosts):
        yield "There is no library in it."


def limited_api(facts: Facts) -> Iterator[str]:
    """Of Python's functions, only those that every later Python has."""
    for name, result in facts.python_abi.items():
        if not result["is_abi3"]:
            yield f"{name} uses what is not in Python's limited API: {listed(result['non_abi3_symbols'])}."
        if not result["is_abi3_baseline_compatible"]:
            yield (
                f"{name} uses Python {result['computed']}'s API, and its tag promises {result['baseline']}: "
                f"{listed(result['future_abi3_objects'])}."
            )


def stable_abi(facts: Facts) -> Iterator[str]:
    """Of torch's functions, only those that every later torch has."""
    for name, host in facts.hosts:
        found = [symbol for symbol in host.undefined if torch_symbols.is_unstable(symbol)]
        if found:
            yield f"{name} uses what is not in torch's stable ABI: {listed(_told(found, facts))}."
        for library in host.needed:
            if is_one_of(library, _PYTHONS_LIBRARIES):
                yield f"{name} needs {library}, which is another for each Python."
        if not is_any(TORCHS, host.needed) and any(map(torch_symbols.is_torchs, host.undefined)):
            yield f"{name} uses torch's functions and needs none of its libraries, so none is searched."


def _told(symbols: Iterable[Symbol], facts: Facts) -> Iterator[str]:
    for symbol in symbols:
        sources = facts.sources.get(symbol.symbol, ())
        yield f"{symbol.name}{f' (in {listed(sources)})' if sources else ''}"


def oldest_torch(facts: Facts) -> Iterator[str]:
    """What it requires of torch is what it uses, and no later torch is shut out."""
    floor = floor_of(facts)
    for text in _required(facts):
        if shuts_out(text):
            yield f"METADATA requires torch{text}, which shuts others out; torch>={_dotted(floor)} does not."
    for name, host in facts.hosts:
        later = [symbol for symbol in host.undefined if torch_symbols.since(symbol) > floor]
        if later:
            newest = _dotted(max(map(torch_symbols.since, later)))
            yield (
                f"{name} uses functions of torch {newest}, and METADATA lets {_dotted(floor)} through: "
                f"{listed(symbol.name for symbol in later)}. Require torch>={newest}, or define "
                f"TORCH_TARGET_VERSION for {_dotted(floor)} before torch's headers."
            )


def floor_of(facts: Facts) -> Version:
    """The oldest torch that METADATA lets through; where it says nothing, the first that counts here."""
    found = [_version(match) for match in _clauses(facts) if match[1] in (">=", "~=", "==", "===", ">")]
    return max([torch_symbols.FIRST, *found])


def shuts_out(clauses: str) -> bool:
    """Whether a requirement is for some later releases of torch 2 only."""
    for match in filter(None, map(_CLAUSE.fullmatch, clauses.split(","))):
        exact = match[1] in ("==", "===") and match[3] not in (None, "*")
        patched = match[1] == "~=" and bool(re.match(r"\.\d", match[4]))
        if exact or patched or (match[1] in ("<", "<=") and _version(match) < (3, 0)):
            return True
    return False


def _clauses(facts: Facts) -> Iterator[re.Match[str]]:
    for text in _required(facts):
        yield from filter(None, map(_CLAUSE.fullmatch, text.split(",")))


def _required(facts: Facts) -> Iterator[str]:
    """What is said of torch's version; not what an extra says."""
    for line in facts.requires:
        match = _REQUIRES.fullmatch(line.strip())
        if match and "extra" not in (match[2] or ""):
            yield match[1].strip()


def _version(match: re.Match[str]) -> Version:
    minor = match[3]
    return int(match[2]), int(minor) if minor and minor.isdecimal() else 0


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def libraries(facts: Facts) -> Iterator[str]:
    """None of torch's or CUDA's is bundled, and none is needed that nobody brings."""
    inside = {PurePosixPath(name).name for name in facts.names}
    bundled = [name for name in inside if is_one_of(_unhashed(name), (*TORCHS, *CUDAS))]
    if bundled:
        yield f"It bundles what torch and CUDA bring themselves: {listed(sorted(bundled))}."
    for name, host in facts.hosts:
        lacking = [library for library in host.needed if not _is_brought(library, inside)]
        if lacking:
            yield f"{name} needs {listed(lacking)}, which neither the system, torch nor CUDA brings."
        places = [folder for folder in host.search if folder.startswith("/")]
        if places:
            yield f"{name} looks for libraries in {listed(places)}, folders of the machine it was built on."


def _unhashed(name: str) -> str:
    """`libcudart.so.13` of `libcudart-1f0c55e1.so.13`, as auditwheel names what it bundles."""
    return re.sub(r"-[0-9a-f]{8}(?=\.)", "", name)


def _is_brought(library: str, inside: set[str]) -> bool:
    loader = re.fullmatch(r"ld-linux.*|ld64\.so\..*", library) is not None
    return loader or library in PROVIDED or library in inside or is_one_of(library, (*TORCHS, *CUDAS))


def size(facts: Facts) -> Iterator[str]:
    """It fits what PyPI takes."""
    if facts.report.size > PYPI_BYTES:
        yield (
            f"It has {facts.report.size:,} bytes, and PyPI takes {PYPI_BYTES:,}: name fewer architectures, "
            "or ask PyPI for more."
        )


def metadata(facts: Facts) -> Iterator[str]:
    """PyPI takes its metadata."""
    if facts.metadata:
        yield facts.metadata


RULES: Mapping[str, Rule] = {
    "tag": tag,
    "tag against contents, glibc": tag_against_contents,
    "Python's limited API": limited_api,
    "torch's stable ABI": stable_abi,
    "torch's version": oldest_torch,
    "libraries": libraries,
    "size": size,
    "metadata": metadata,
}
"""In the order in which they are told."""

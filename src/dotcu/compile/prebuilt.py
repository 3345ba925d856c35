"""Compiled code that a wheel contains next to its sources: how it is stored and found.

    mylib/scale.cu
    mylib/__dotcu__/manifest.json    sources with digests, what was compiled of them, for what
    mylib/__dotcu__/sm_8x.0.xz ...   records, some to a file, compressed together

A record is the result of a compile for one target: names, symbols, resources, PTX and machine code.
Two that are equal are one, and each has a number. Without machine code the PTX is whole, for the driver or
the simulator; next to machine code it is a skeleton, which has what launches need.

Before anything is compiled, prebuilt code is looked up next to the source. It is used if it was made of this
very source, with these options, for these kernels, and if the GPU and its driver can load it. Otherwise each
variant has its reason.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dotcu.compile.object_code import ObjectCode, Resources
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.source import Source
from dotcu.compile.target import Target, Version, dotted
from dotcu.errors import PrebuiltCodeError

FORMAT = 3
FOLDER = "__dotcu__"
INDEX = "manifest.json"
PACK_BYTES = 1 << 21
"""The bytes of records that are compressed together: more save space, and delay opening the first."""

RecordPosition = tuple[str, int, int]
"""The file of a record, its offset and its length in the open file, both in bytes."""

_HEAD = struct.Struct("<I")
_log = logging.getLogger("dotcu")


@dataclass(frozen=True, kw_only=True)
class PrebuiltCode:
    """The result of a compile for one target.

    Attributes:
        lowered: Symbol of each name expression.
        signatures: For each kernel's name expression the symbol of its probe.
        resources: By kernel symbol; empty without machine code.
        files: For each file name in the PTX, the path from the folder of the source, or a name to show.
    """

    lowered: Mapping[str, str]
    signatures: Mapping[str, str]
    resources: Mapping[str, Resources]
    files: Mapping[str, str]
    ptx: str
    cubin: bytes | None

    def to_bytes(self) -> bytes:
        """Return the record as it is stored."""
        words = asdict(self)
        cubin = words.pop("cubin")
        text = json.dumps(words, sort_keys=True, separators=(",", ":")).encode()
        return _HEAD.pack(len(text)) + text + (cubin or b"")

    @classmethod
    def from_bytes(cls, data: bytes) -> PrebuiltCode:
        """Return the record that `to_bytes` has stored."""
        end = _HEAD.size + _HEAD.unpack_from(data)[0]
        words = json.loads(data[_HEAD.size : end])
        resources = {symbol: Resources(**row) for symbol, row in words.pop("resources").items()}
        return cls(**words, resources=resources, cubin=data[end:] or None)


@dataclass(frozen=True, kw_only=True)
class PrebuiltVariant:
    """Code for one target.

    Attributes:
        simulated: It is for the simulator.
        record: The number of its record.
    """

    target: Target
    simulated: bool
    record: int

    def __str__(self) -> str:
        return f"{self.target}, simulated" if self.simulated else str(self.target)


@dataclass(frozen=True, kw_only=True)
class PrebuiltKernels:
    """Kernels that were compiled together.

    Attributes:
        names: The kernels' name expressions, sorted.
        text: The digest of the source's text, with the headers that template arguments folder.
    """

    names: tuple[str, ...]
    text: str
    variants: tuple[PrebuiltVariant, ...]


@dataclass(frozen=True, kw_only=True)
class PrebuiltSource:
    """A source as one `load()` has it.

    Attributes:
        key: What of `load()`'s arguments decides the code: see `load_key`.
        headers: The digest of each header that it reaches, by the path from the source's folder; those
            that the wheel does not hold are not among them.
    """

    key: str
    headers: Mapping[str, str]
    kernels: tuple[PrebuiltKernels, ...]


def load_key(source: Source, options: CompileOptions) -> str:
    """Return what distinguishes one `load()` of a file from another: options and include folders."""
    assert source.path is not None
    folders = [Path(os.path.relpath(folder, source.path.parent)).as_posix() for folder in source.include]
    return repr((options.key, folders))


def text_digest(source: Source) -> str:
    """Return the digest of a source's text."""
    return digest_of(source.text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, kw_only=True)
class PrebuiltManifest:
    """The description of the code that a wheel contains for the sources of one folder.

    Attributes:
        made_by: dotcu's version.
        compiler: The NVRTC's CUDA version: a driver of its major version loads the machine code, one no
            older than itself reads the PTX.
        sources: By the source's file name, each `load()` of it.
        positions: By record's number.
        packs: The digest of each file of records.
    """

    made_by: str
    compiler: Version
    sources: Mapping[str, tuple[PrebuiltSource, ...]] = field(default_factory=dict)
    positions: Sequence[RecordPosition] = ()
    packs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the manifest as text, with a digest of itself."""
        driver = {"cubin": f"{self.compiler[0]}.0", "ptx": "{}.{}".format(*self.compiler)}
        from dotcu import serialize  # msgspec: a launch without prebuilt code does not import it

        words = {"format": FORMAT, "minimum_driver": driver, **serialize.plain(self)}
        return json.dumps({**words, "itself": _words_digest(words)}, indent=1, sort_keys=True) + "\n"


def _words_digest(words: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def digest_of(data: bytes) -> str:
    """Return the digest by which files and records are compared."""
    return hashlib.sha256(data).hexdigest()


def compress_records(
    groups: Mapping[str, Sequence[bytes]],
) -> tuple[dict[str, RecordPosition], dict[str, bytes]]:
    """Compress records, a group's together and equal ones once; return positions by digest, files by name."""
    import lzma  # not every Python has it, and only wheels need it

    positions: dict[str, RecordPosition] = {}
    files: dict[str, bytes] = {}
    for group, records in groups.items():
        new = {digest_of(data): data for data in records if digest_of(data) not in positions}
        for number, some in enumerate(_filled(new)):
            name = f"{group}.{number}.xz"
            start = 0
            for digest, data in some.items():
                positions[digest] = (name, start, len(data))
                start += len(data)
            files[name] = lzma.compress(b"".join(some.values()), preset=9 | lzma.PRESET_EXTREME)
    return positions, files


def _filled(records: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yield records in groups that fit into a pack."""
    some: dict[str, bytes] = {}
    for digest, data in records.items():
        if some and sum(map(len, some.values())) + len(data) > PACK_BYTES:
            yield some
            some = {}
        some[digest] = data
    if some:
        yield some


def read_manifest(folder: Path) -> PrebuiltManifest | None:
    """Read the manifest in a `__dotcu__` folder; None if there is none.

    Raises:
        PrebuiltCodeError: It is not what was written, or of a format that this dotcu does not know.
    """
    try:
        raw = (folder / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise damaged_package(folder / INDEX, (error.strerror or str(error)).lower()) from error
    return parse_manifest(raw, folder / INDEX)


def parse_manifest(raw: bytes, path: Path) -> PrebuiltManifest:
    """Read a manifest.

    Args:
        path: What to call it.

    Raises:
        PrebuiltCodeError: It is not what was written, or of a format that this dotcu does not know.
    """
    from dotcu import serialize

    try:
        words = json.loads(raw)
        itself, form = words.pop("itself"), words.get("format")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged_package(path, "it is not a dotcu manifest") from error
    if form != FORMAT:
        raise PrebuiltCodeError(
            f"{path} has format {form!r}, and this dotcu reads format {FORMAT}.\n"
            f"It was made by dotcu {words.get('made_by', '?')}. Type: pip install -U dotcu"
        )
    if itself != _words_digest(words):
        raise damaged_package(path, "its digest is not the one that was written")
    return serialize.from_plain(PrebuiltManifest, words)


def open_pack(folder: Path, manifest: PrebuiltManifest, name: str) -> bytes:
    """Return the records of a file, one after the other.

    Args:
        folder: The folder of code.
        manifest: Its manifest.
        name: The file.

    Raises:
        PrebuiltCodeError: It is missing, or not what was written.
    """
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise damaged_package(folder / name, (error.strerror or str(error)).lower()) from error
    return decompress_records(data, folder / name, manifest)


def decompress_records(data: bytes, path: Path, manifest: PrebuiltManifest) -> bytes:
    """Return the records in a file's bytes.

    Args:
        path: What to call it; its name is the pack's.

    Raises:
        PrebuiltCodeError: They are not what was written.
    """
    import lzma

    if digest_of(data) != manifest.packs.get(path.name):
        raise damaged_package(path, "its digest is not the one in manifest.json")
    return lzma.decompress(data)


def damaged_package(path: Path, why: str) -> PrebuiltCodeError:
    """Return the error for code that differs from the file in its wheel."""
    return PrebuiltCodeError(
        f"{path} differs from the file in its wheel: {why}.\n"
        "Code that was changed after it was built is not run. Install the package again: "
        f"pip install --force-reinstall --no-deps {package_of(path)}"
    )


def package_of(path: Path) -> str:
    """Return the top package that a file in a `__dotcu__` folder belongs to, by the folders alone."""
    folder = path.parent.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder.name


@dataclass(frozen=True, kw_only=True)
class CodeRequirements:
    """The requirements on prebuilt code.

    Attributes:
        capability: Of the GPU, or of the one that the simulator stands for.
        driver: The driver's CUDA version; None if there is none, so that nothing will be loaded.
        simulated: The simulator is to run it.
        assembled: Only machine code will do, since registers are requested.
    """

    capability: Version
    driver: Version | None = None
    simulated: bool = False
    assembled: bool = False


@dataclass(frozen=True, kw_only=True)
class NoPrebuilt:
    """No prebuilt code can be used.

    Attributes:
        reasons: A line each; empty if there is no prebuilt code.
    """

    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join(f"\n    {reason}" for reason in self.reasons)


NO_PREBUILT = NoPrebuilt()


def find_prebuilt(
    source: Source, options: CompileOptions, names: Sequence[str], wanted: CodeRequirements
) -> ObjectCode | NoPrebuilt:
    """Find the prebuilt code for some kernels of a source.

    Args:
        source: The source.
        options: What the user asks of the compiler.
        names: The kernels' name expressions, without those of variables.
        wanted: What is required of the code.

    Raises:
        PrebuiltCodeError: There is some, and it differs from the file in the wheel.
    """
    folder = _prebuilt_folder(source.path.parent) if source.path is not None else None
    if folder is None or source.name not in folder.manifest.sources:
        return NO_PREBUILT
    key, wanted_names = load_key(source, options), tuple(sorted(names))
    load = next((one for one in folder.manifest.sources[source.name] if one.key == key), None)
    built = next((one for one in load.kernels if one.names == wanted_names), None) if load else None
    if load is None or built is None:
        return NoPrebuilt(reasons=(f"{folder.folder} has no code for {', '.join(wanted_names)}",))
    changed = folder.changed(source, load, built)
    if changed:
        return NoPrebuilt(reasons=(f"{changed} is not what {folder.folder} was compiled from",))
    return folder.choose(source, built, wanted)


def is_prebuilt(path: Path) -> bool:
    """Return whether a wheel holds code for a source: then headers that it lacks are not missed yet."""
    folder = _prebuilt_folder(path.parent)
    return folder is not None and path.name in folder.manifest.sources


@functools.cache
def _prebuilt_folder(folder: Path) -> _PrebuiltFolder | None:
    found = read_manifest(folder / FOLDER)
    return _PrebuiltFolder(folder / FOLDER, found) if found is not None else None


class _PrebuiltFolder:
    """A folder of prebuilt code, and the files of it that were opened."""

    def __init__(self, folder: Path, found: PrebuiltManifest) -> None:
        self.folder = folder
        self.manifest = found
        self._packs: dict[str, bytes] = {}

    def changed(self, source: Source, load: PrebuiltSource, built: PrebuiltKernels) -> str:
        """Return the first file of a source that is not what was compiled; "" where all are."""
        if text_digest(source) != built.text:
            return source.name
        for name, digest in load.headers.items():
            path = self.folder.parent / name
            if not (path.is_file() and digest_of(path.read_bytes()) == digest):
                return name
        return ""

    def choose(
        self, source: Source, built: PrebuiltKernels, wanted: CodeRequirements
    ) -> ObjectCode | NoPrebuilt:
        """Return the best variant that can be used, else why none can."""
        some = [variant for variant in built.variants if variant.simulated == wanted.simulated]
        judged = {variant: refuse_variant(variant, wanted, self.manifest.compiler) for variant in some}
        fit = [variant for variant, reason in judged.items() if not reason]
        if not fit:
            reasons = [f"{variant}: {reason}" for variant, reason in judged.items()]
            what = "for the simulator" if wanted.simulated else "that fits"
            return NoPrebuilt(reasons=(f"{self.folder} has no {', '.join(built.names)} {what}", *reasons))
        best = max(fit, key=lambda v: (v.target.kind == "sm", v.target.number, v.target.suffix))
        _log.info("%s for %s: prebuilt (%s)", source.name, best, self.folder)
        return self._object_code(best)

    def _data(self, number: int) -> bytes:
        name, start, length = self.manifest.positions[number]
        if name not in self._packs:
            self._packs[name] = open_pack(self.folder, self.manifest, name)
        return self._packs[name][start : start + length]

    def _object_code(self, variant: PrebuiltVariant) -> ObjectCode:
        data, inside = self._data(variant.record), self.folder.parent
        record = PrebuiltCode.from_bytes(data)
        files = {name: str(inside / path) if path else name for name, path in record.files.items()}
        return ObjectCode(
            target=variant.target, ptx=record.ptx, cubin=record.cubin, lowered=record.lowered,
            signatures=record.signatures, resources=record.resources, warnings=(), log="",
            command=f"prebuilt, in {self.folder}", files=files,
            build_digest=digest_of(data), cached=True, seconds=0.0,
        )  # fmt: skip


def refuse_variant(variant: PrebuiltVariant, wanted: CodeRequirements, compiler: Version) -> str:
    """Return why a variant cannot be used; "" where it can.

    Args:
        variant: The code.
        wanted: What is required of it.
        compiler: The CUDA version of the NVRTC that made it.

    Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility"; CUDA
    Compatibility guide, "Minor version compatibility".
    """
    target, capability = variant.target, wanted.capability
    if wanted.simulated:
        same = (target.major, target.minor) == capability
        return "" if same else f"the simulator stands for compute capability {dotted(capability)}"
    if wanted.assembled and target.kind != "sm":
        return "it is not machine code, which alone has register counts"
    if not _runs_on(target, capability):
        return f"the GPU's compute capability is {dotted(capability)}"
    needed = (compiler[0], 0) if target.kind == "sm" else compiler
    if wanted.driver is not None and wanted.driver < needed:
        return f"it needs a driver of CUDA {dotted(needed)}, and this one has CUDA {dotted(wanted.driver)}"
    return ""


def _runs_on(target: Target, capability: Version) -> bool:
    if target.suffix == "a":
        return (target.major, target.minor) == capability
    if target.kind == "sm" or target.suffix == "f":
        return target.major == capability[0] and target.minor <= capability[1]
    return target.number <= capability[0] * 10 + capability[1]

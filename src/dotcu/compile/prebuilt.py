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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dotcu.compile.object_code import ObjectCode, Resources
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.source import PREBUILT, Source
from dotcu.compile.target import Target, Version, dotted
from dotcu.errors import PrebuiltCodeError
from dotcu.files import MAX_BYTES, is_file, read_file

FORMAT = 3
FOLDER = PREBUILT
INDEX = "manifest.json"
PACK_BYTES = 1 << 21
"""The bytes of records that are compressed together: more save space, and delay opening the first."""

_MEMORY_BYTES = 128 << 20
"""What opening a file of records may take. Source: xz(1): at preset 9 it takes 65 MiB."""

RecordPosition = tuple[str, int, int]
"""The file of a record, its offset and its length in the open file, both in bytes."""

_HEAD = struct.Struct("<I")
_TILE_IR = "tile_ir"
_FIRST_SPECIFIC_TILES = 90
"""The first architecture whose tile kernels use instructions of that one alone, as `sm_90a` code does."""
_log = logging.getLogger("dotcu")


def record_bytes(code: ObjectCode) -> bytes:
    """Return the record of some code: a description, and behind it each piece of code.

    Its `files` are by name in the PTX the path from the folder of the source, or "" for others.
    """
    words: dict[str, Any] = {name: getattr(code, name) for name in ("lowered", "signatures", "files", "ptx")}
    words["resources"] = {symbol: asdict(one) for symbol, one in code.resources.items()}
    pieces = {_TILE_IR: code.tile_ir, **code.tile_cubins} if code.tile_ir else {}
    if code.layouts:  # which few kernels need
        words["layouts"] = code.layouts
    if pieces:  # as few have tile kernels
        words["tiles"] = {name: len(data) for name, data in pieces.items()}
    text = json.dumps(words, sort_keys=True, separators=(",", ":")).encode()
    ordered = [pieces[name] for name in sorted(pieces)]
    return b"".join([_HEAD.pack(len(text)), text, *ordered, code.cubin or b""])


def read_record(data: bytes, target: Target, folder: Path, name: str = INDEX) -> ObjectCode:
    """Return the code that `record_bytes` has stored.

    Raises:
        PrebuiltCodeError: It is no such record.
    """
    try:
        return _read_record(data, target, folder)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise damaged_package(folder / name, "a record is not what was written") from error


def _read_record(data: bytes, target: Target, folder: Path) -> ObjectCode:
    end = _HEAD.size + _HEAD.unpack_from(data)[0]
    words = json.loads(data[_HEAD.size : end])
    pieces = {}
    for name, length in sorted(words.pop("tiles", {}).items()):
        pieces[name], end = data[end : end + length], end + length
    words["resources"] = {symbol: Resources(**row) for symbol, row in words["resources"].items()}
    words["files"] = {
        name: str(folder.parent / path) if path else name for name, path in words["files"].items()
    }
    return ObjectCode(
        **words, target=target, cubin=data[end:] or None, tile_ir=pieces.pop(_TILE_IR, b""),
        tile_cubins=pieces, warnings=(), log="", command=f"prebuilt, in {folder}",
        build_digest=digest_of(data), cached=True, seconds=0.0,
    )  # fmt: skip


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
        is_tile: There are tile kernels among them.
        late: Kernels that only the compiler sees, which the code holds as well.
    """

    names: tuple[str, ...]
    text: str
    variants: tuple[PrebuiltVariant, ...]
    is_tile: bool = False
    late: tuple[str, ...] = ()


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

    def record_in(self, pack: Callable[[str], bytes], number: int, folder: Path) -> tuple[str, bytes]:
        """Return the file that a record is in, and the record.

        Raises:
            PrebuiltCodeError: There is no such record.
        """
        try:
            name, start, length = self.positions[number] if number >= 0 else ("", 0, 0)
            return name, pack(name)[start : start + length]
        except LookupError as error:
            raise damaged_package(folder / INDEX, f"it has no record {number}") from error

    def to_json(self) -> str:
        """Return the manifest as text, with a digest of itself."""
        driver = {"cubin": f"{self.compiler[0]}.0", "ptx": "{}.{}".format(*self.compiler)}
        from dotcu import serialize  # msgspec: a launch without prebuilt code does not import it

        words = {"format": FORMAT, "minimum_driver": driver, **serialize.plain(self)}
        return json.dumps({**words, "itself": _words_digest(words)}, indent=1, sort_keys=True) + "\n"


def _words_digest(words: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(words, sort_keys=True).encode())


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
        packs: list[bytes] = []
        for data in records:
            digest = digest_of(data)
            if digest in positions:
                continue
            if not packs or len(packs[-1]) + len(data) > PACK_BYTES:
                packs.append(b"")
            positions[digest] = (f"{group}.{len(packs) - 1}.xz", len(packs[-1]), len(data))
            packs[-1] += data
        for number, pack in enumerate(packs):
            files[f"{group}.{number}.xz"] = lzma.compress(pack, preset=9 | lzma.PRESET_EXTREME)
    return positions, files


def parse_manifest(raw: bytes, path: Path) -> PrebuiltManifest:
    """Read a manifest; `path` is for messages.

    Raises:
        PrebuiltCodeError: It is not what was written, or of a format that this dotcu does not know.
    """
    from dotcu import serialize

    try:
        words = json.loads(raw)
        itself, form = words.pop("itself"), words.get("format")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise damaged_package(path, "it is not a dotcu manifest") from error
    if form != FORMAT:
        raise PrebuiltCodeError(
            f"{path} has format {form!r}, and this dotcu reads format {FORMAT}.\n"
            f"It was made by dotcu {words.get('made_by', '?')}. Type: pip install -U dotcu"
        )
    if itself != _words_digest(words):
        raise damaged_package(path, "its digest is not the one that was written")
    try:
        return serialize.from_plain(PrebuiltManifest, words)
    except serialize.Misfit as error:
        raise damaged_package(path, f"it is not a dotcu manifest: {error}") from error


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
    records = [place for place in manifest.positions if place[0] == path.name]
    size = max((start + length for _, start, length in records), default=0)
    if not 0 <= size <= MAX_BYTES:
        raise damaged_package(path, f"it has records of {size} bytes")
    try:
        opened = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)
        found = opened.decompress(data, max_length=size + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise damaged_package(path, f"it cannot be unpacked: {error}") from error
    if len(found) != size:
        raise damaged_package(path, "its records are not those of manifest.json")
    return found


def damaged_package(path: Path, why: str) -> PrebuiltCodeError:
    """Return the error for code that differs from the file in its wheel."""
    package = path.parent.parent
    while is_file(package.parent / "__init__.py"):
        package = package.parent
    return PrebuiltCodeError(
        f"{path} differs from the file in its wheel: {why}.\n"
        "Code that was changed after it was built is not run. Install the package again: "
        f"pip install --force-reinstall --no-deps {package.name}"
    )


def find_prebuilt(
    source: Source,
    options: CompileOptions,
    names: Sequence[str],
    *,
    capability: Version,
    driver: Version | None = None,
    simulated: bool = False,
    assembled: bool = False,
) -> ObjectCode | tuple[str, ...]:
    """Find the prebuilt code for some kernels of a source; return it, or the reasons why none can be used.

    Args:
        capability: Of the GPU, or of the one that the simulator stands for.
        driver: The driver's CUDA version; None if there is none, so that nothing will be loaded.
        assembled: Only machine code will do, since registers are requested.

    Returns:
        The code; or a line for each reason, without any if there is no prebuilt code.

    Raises:
        PrebuiltCodeError: There is some, and it differs from the file in the wheel.
    """
    folder = source.path.parent / FOLDER if source.path is not None else None
    manifest = _manifest(folder) if folder is not None else None
    if folder is None or manifest is None or source.name not in manifest.sources:
        return ()
    load, wanted_names = _load(manifest, source, options), tuple(sorted(names))
    built = next((one for one in load.kernels if one.names == wanted_names), None) if load else None
    if load is None or built is None:
        return (f"{folder} has no code for {_shown(wanted_names)}",)
    changed = [source.name] * (text_digest(source) != built.text)
    for name, digest in load.headers.items():
        header = folder.parent / name
        if not changed and not (is_file(header) and digest_of(read_file(header)) == digest):
            changed = [name]
    if changed:
        return (f"{changed[0]} is not what {folder} was compiled from",)
    judge = functools.partial(
        _refuse_variant, capability=capability, driver=driver, compiler=manifest.compiler,
        is_tile=built.is_tile, assembled=assembled,
    )  # fmt: skip
    judged = {variant: judge(variant) for variant in built.variants if variant.simulated == simulated}
    fit = [variant for variant, reason in judged.items() if not reason]
    if not fit:
        reasons = [f"{variant}: {reason}" for variant, reason in judged.items()]
        what = "for the simulator" if simulated else "that fits"
        return (f"{folder} has no {_shown(built.names)} {what}", *reasons)
    best = max(fit, key=lambda v: (v.target.kind == "sm", v.target.number, v.target.suffix))
    _log.info("%s for %s: prebuilt (%s)", source.name, best, folder)
    name, data = manifest.record_in(functools.partial(_pack, folder), best.record, folder)
    return read_record(data, best.target, folder, name)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) or "kernels that macros make"


def _load(manifest: PrebuiltManifest, source: Source, options: CompileOptions) -> PrebuiltSource | None:
    key = load_key(source, options)
    return next((one for one in manifest.sources.get(source.name, ()) if one.key == key), None)


def templates(source: Source, options: CompileOptions) -> list[str]:
    """Return the templates of which a wheel holds instantiations of a source."""
    manifest = _manifest(source.path.parent / FOLDER) if source.path is not None else None
    load = _load(manifest, source, options) if manifest is not None else None
    names = (name for unit in load.kernels for name in unit.names) if load is not None else ()
    return list(dict.fromkeys(name.partition("<")[0] for name in names if "<" in name))


def is_prebuilt(path: Path) -> bool:
    """Return whether a wheel holds code for a source: then headers that it lacks are not missed yet."""
    manifest = _manifest(path.parent / FOLDER)
    return manifest is not None and path.name in manifest.sources


@functools.cache
def _manifest(folder: Path) -> PrebuiltManifest | None:
    """Return the manifest of a folder of code, read once; None if there is none."""
    try:
        raw = read_file(folder / INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise damaged_package(folder / INDEX, (error.strerror or str(error)).lower()) from error
    return parse_manifest(raw, folder / INDEX)


@functools.cache
def _pack(folder: Path, name: str) -> bytes:
    """Return the records of a file, one after the other, read once."""
    manifest = _manifest(folder)
    assert manifest is not None, folder
    try:
        data = read_file(folder / name)
    except OSError as error:
        raise damaged_package(folder / name, (error.strerror or str(error)).lower()) from error
    return decompress_records(data, folder / name, manifest)


def _refuse_variant(
    variant: PrebuiltVariant,
    *,
    capability: Version,
    driver: Version | None,
    compiler: Version,
    is_tile: bool,
    assembled: bool = False,
) -> str:
    """Return why a variant that NVRTC of a CUDA version has compiled cannot be used; "" where it can.

    Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility"; CUDA
    Compatibility guide, "Minor version compatibility".
    """
    target = variant.target
    is_same = (target.major, target.minor) == capability
    if variant.simulated:
        return "" if is_same else f"the simulator stands for compute capability {dotted(capability)}"
    if assembled and target.kind != "sm":
        return "it is not machine code, which alone has register counts"
    is_later_minor = target.major == capability[0] and target.minor <= capability[1]
    if target.suffix == "a" or (is_tile and target.number >= _FIRST_SPECIFIC_TILES):
        runs = is_same
    elif target.kind == "sm" or target.suffix == "f":
        runs = is_later_minor
    else:
        runs = target.number <= capability[0] * 10 + capability[1]
    if not runs:
        return f"the GPU's compute capability is {dotted(capability)}"
    needed = (compiler[0], 0) if target.kind == "sm" else compiler
    if driver is not None and driver < needed:
        return f"it needs a driver of CUDA {dotted(needed)}, and this one has CUDA {dotted(driver)}"
    return ""

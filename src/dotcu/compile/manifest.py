"""The folder of compiled code that a wheel brings beside its sources, and how it is written down.

    mylib/scale.cu
    mylib/__dotcu__/manifest.json    sources with digests, what was compiled of them, for what
    mylib/__dotcu__/sm_8x.0.xz ...   records, some to a file, compressed together

A record is what a compile gave for one target: names, symbols, resources, PTX and machine code.
Two that are equal are one, and each has a number. Without machine code the
PTX is whole, for the driver or the simulator; beside machine code it is a skeleton, which has what
launches ask of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dotcu.compile.objects import Resources
from dotcu.compile.options import CompileOptions
from dotcu.compile.source import Source
from dotcu.compile.target import Target, Version
from dotcu.errors import BroughtCodeError

FORMAT = 2
FOLDER = "__dotcu__"
INDEX = "manifest.json"
PACK_BYTES = 1 << 21
"""Of records that are compressed together: more of them take less room, and longer to open the first."""

Place = tuple[str, int, int]
"""Of a record: its pack, offset and length in it when it is open."""

_HEAD = struct.Struct("<I")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a compile gave for one target.

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
        """The record as it is stored."""
        words = {
            "lowered": dict(self.lowered),
            "signatures": dict(self.signatures),
            "resources": {symbol: dataclasses.asdict(row) for symbol, row in self.resources.items()},
            "files": dict(self.files),
            "ptx": self.ptx,
        }
        text = json.dumps(words, sort_keys=True, separators=(",", ":")).encode()
        return _HEAD.pack(len(text)) + text + (self.cubin or b"")

    @classmethod
    def from_bytes(cls, data: bytes) -> Record:
        """Read what `to_bytes` made."""
        end = _HEAD.size + _HEAD.unpack_from(data)[0]
        words = json.loads(data[_HEAD.size : end])
        resources = {symbol: Resources(**row) for symbol, row in words.pop("resources").items()}
        return cls(**words, resources=resources, cubin=data[end:] or None)


@dataclass(frozen=True, kw_only=True)
class Variant:
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
class Built:
    """What was compiled together.

    Attributes:
        names: The kernels' name expressions, sorted.
        text: The digest of the source's text, with the headers that template arguments brought.
    """

    names: tuple[str, ...]
    text: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True, kw_only=True)
class Load:
    """A source as one `load()` has it.

    Attributes:
        key: What of `load()`'s arguments decides the code: see `load_key`.
        headers: The digest of each header that it reaches, by the path from the source's folder; those
            that the wheel does not hold are not among them.
    """

    key: str
    headers: Mapping[str, str]
    built: tuple[Built, ...]


def load_key(source: Source, options: CompileOptions) -> str:
    """What tells one `load()` of a file from another: options, and include folders from where it lies."""
    assert source.path is not None
    folders = [Path(os.path.relpath(folder, source.path.parent)).as_posix() for folder in source.include]
    return repr((options.key, folders))


def text_digest(source: Source) -> str:
    """The digest of a source's text."""
    return digest_of(source.text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a wheel brings beside the sources of one folder.

    Attributes:
        made_by: dotcu's version.
        compiler: The NVRTC's CUDA version: a driver of its major version loads the machine code, one no
            older than itself reads the PTX.
        loads: By the source's file name, each `load()` of it.
        places: By record's number.
        packs: The digest of each file of records.
    """

    made_by: str
    compiler: Version
    loads: Mapping[str, tuple[Load, ...]] = field(default_factory=dict)
    places: Sequence[Place] = ()
    packs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The manifest as text, with a digest of itself."""
        words = {
            "format": FORMAT,
            "made_by": self.made_by,
            "compiler": list(self.compiler),
            "minimum_driver": {"cubin": f"{self.compiler[0]}.0", "ptx": "{}.{}".format(*self.compiler)},
            "loads": {source: [_load_words(one) for one in rows] for source, rows in self.loads.items()},
            "places": self.places,
            "packs": self.packs,
        }
        return json.dumps({**words, "itself": _digest(words)}, indent=1, sort_keys=True) + "\n"


def _load_words(load: Load) -> dict[str, Any]:
    rows = [_built_words(built) for built in load.built]
    return {"key": load.key, "headers": dict(load.headers), "built": rows}


def _built_words(built: Built) -> dict[str, Any]:
    rows = [[str(v.target), v.simulated, v.record] for v in built.variants]
    return {"names": list(built.names), "text": built.text, "variants": rows}


def _digest(words: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def digest_of(data: bytes) -> str:
    """How files are told from what they were, and records from each other."""
    return hashlib.sha256(data).hexdigest()


def pack(groups: Mapping[str, Sequence[bytes]]) -> tuple[dict[str, Place], dict[str, bytes]]:
    """Compress records, a group's together and equal ones once: places by digest, files by name."""
    import lzma  # not every Python has it, and only wheels need it

    places: dict[str, Place] = {}
    files: dict[str, bytes] = {}
    for group, records in groups.items():
        new = {digest_of(data): data for data in records if digest_of(data) not in places}
        for number, some in enumerate(_filled(new)):
            name = f"{group}.{number}.xz"
            start = 0
            for digest, data in some.items():
                places[digest] = (name, start, len(data))
                start += len(data)
            files[name] = lzma.compress(b"".join(some.values()), preset=9 | lzma.PRESET_EXTREME)
    return places, files


def _filled(records: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Some records after others, as many as fit into a pack."""
    some: dict[str, bytes] = {}
    for digest, data in records.items():
        if some and sum(map(len, some.values())) + len(data) > PACK_BYTES:
            yield some
            some = {}
        some[digest] = data
    if some:
        yield some


def read(folder: Path) -> Manifest | None:
    """Read the manifest in a `__dotcu__` folder; None where there is none.

    Raises:
        BroughtCodeError: It is not what was written, or of a format that this dotcu does not know.
    """
    try:
        raw = (folder / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise spoilt(folder / INDEX, (error.strerror or str(error)).lower()) from error
    return parse(raw, folder / INDEX)


def parse(raw: bytes, path: Path) -> Manifest:
    """Read a manifest.

    Args:
        path: What to call it.

    Raises:
        BroughtCodeError: It is not what was written, or of a format that this dotcu does not know.
    """
    try:
        words = json.loads(raw)
        itself, form = words.pop("itself"), words.get("format")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise spoilt(path, "it is no manifest of dotcu's") from error
    if form != FORMAT:
        raise BroughtCodeError(
            f"{path} has format {form!r}, and this dotcu reads format {FORMAT}.\n"
            f"It was made by dotcu {words.get('made_by', '?')}. Type: pip install -U dotcu"
        )
    if itself != _digest(words):
        raise spoilt(path, "its digest is not the one that was written")
    return _manifest(words)


def _manifest(words: Mapping[str, Any]) -> Manifest:
    return Manifest(
        made_by=words["made_by"],
        compiler=(words["compiler"][0], words["compiler"][1]),
        loads={source: tuple(map(_read_load, rows)) for source, rows in words["loads"].items()},
        places=tuple((pack, start, length) for pack, start, length in words["places"]),
        packs=words["packs"],
    )


def _read_load(words: Mapping[str, Any]) -> Load:
    return Load(key=words["key"], headers=words["headers"], built=tuple(map(_read_built, words["built"])))


def _read_built(words: Mapping[str, Any]) -> Built:
    variants = tuple(
        Variant(target=Target.parse(target), simulated=simulated, record=record)
        for target, simulated, record in words["variants"]
    )
    return Built(names=tuple(words["names"]), text=words["text"], variants=variants)


def open_pack(folder: Path, manifest: Manifest, name: str) -> bytes:
    """The records of a file, one after the other.

    Raises:
        BroughtCodeError: It is missing, or not what was written.
    """
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise spoilt(folder / name, (error.strerror or str(error)).lower()) from error
    return unpack(data, folder / name, manifest)


def unpack(data: bytes, path: Path, manifest: Manifest) -> bytes:
    """The records in a file's bytes.

    Args:
        path: What to call it; its name is the pack's.

    Raises:
        BroughtCodeError: They are not what was written.
    """
    import lzma

    if digest_of(data) != manifest.packs.get(path.name):
        raise spoilt(path, "its digest is not the one in manifest.json")
    return lzma.decompress(data)


def spoilt(path: Path, why: str) -> BroughtCodeError:
    """The error for code that is not as its wheel held it."""
    return BroughtCodeError(
        f"{path} is not what its wheel held: {why}.\n"
        "Code that was changed after it was built is not run. Install the package again: "
        f"pip install --force-reinstall --no-deps {package_of(path)}"
    )


def package_of(path: Path) -> str:
    """The name of the top package that a file in a `__dotcu__` folder belongs to, as far as folders tell."""
    folder = path.parent.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder.name

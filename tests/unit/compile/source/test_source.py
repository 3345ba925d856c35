"""Reading a source."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dotcu.compile import CompileOptions, inline_source, read_source
from dotcu.compile.include_graph import include_graph, system_headers
from dotcu.errors import SourceNotFound, UsageError


def test_a_source_is_read_with_its_name_and_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cu").write_text("text")
    monkeypatch.chdir(tmp_path)
    source = read_source("a.cu", include=["."])
    assert (source.name, source.text, source.path) == ("a.cu", "text", tmp_path / "a.cu")
    assert source.include == (tmp_path,)
    assert repr(source) == f"Source('{tmp_path}/a.cu', 1 lines)"


def test_a_missing_file_is_reported_with_the_nearest_names(tmp_path: Path) -> None:
    for name in ("scale_add.cu", "softmax.cu", "other.py"):
        (tmp_path / name).touch()
    with pytest.raises(SourceNotFound, match="There is no file") as error:
        read_source(tmp_path / "scale_ad.cu")
    named = [line.strip() for line in str(error.value).splitlines()[2:]]
    assert named[0] == str(tmp_path / "scale_add.cu")
    assert not any("other.py" in name for name in named)
    assert isinstance(error.value, OSError)


def test_a_missing_file_beside_no_other_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        SourceNotFound, match=rf"no \.cu file in {tmp_path}\.\n.* a command from where you are"
    ):
        read_source(tmp_path / "not" / "there.cu")


def test_a_folder_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="cannot be read: is a directory"):
        read_source(tmp_path)


def test_a_file_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.cu").touch()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceNotFound, match="permission denied"):
        read_source(tmp_path / "a.cu")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes("__global__".encode("utf-16"))
    with pytest.raises(SourceNotFound, match="iconv -f UTF-16"):
        read_source(tmp_path / "a.cu")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"\xef\xbb\xbfint x;")
    assert read_source(tmp_path / "a.cu").text == "int x;"


def test_an_include_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"include=\[\.\.\.\]"):
        inline_source("", include=[tmp_path / "none"])


@pytest.mark.parametrize(
    ("include", "line"),
    [("inc", r"include=\['inc'\]"), (Path("inc"), r"include=\['inc'\]"), (5, r"include=\['include'\]")],
)
def test_folders_that_are_no_list_are_refused_with_the_list(include: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        inline_source("", include=include)


@pytest.mark.parametrize("path", [None, 5, b"a.cu", "a\0.cu"])
def test_a_path_that_is_none_is_refused_with_one_to_write(path: Any) -> None:
    with pytest.raises(UsageError, match=r"For example: load\(\"kernels.cu\"\)"):
        read_source(path)
    with pytest.raises(UsageError, match=r"For example: include=\["):
        inline_source("", include=[path])


def test_a_home_that_is_not_there_is_reported() -> None:
    with pytest.raises(SourceNotFound, match="no home folder"):
        read_source("~no_such_user_of_dotcu/k.cu")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, r"load_inline\(\"__global__"),
        (5, r"load_inline\(\"__global__"),
        (b"int x;", r"source.decode\(\)"),
        (Path("k.cu"), r"load\('k.cu'\)"),
        ("// \ud800", "half of a surrogate pair"),
    ],
)
def test_what_is_no_text_is_refused_with_the_line_to_write(text: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        inline_source(text)


def test_relative_paths_count_from_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("text")
    (tmp_path / "inc").mkdir()
    source = read_source("a.cu", ["inc"], base=tmp_path)
    assert (source.path, source.include) == (tmp_path / "a.cu", (tmp_path / "inc",))
    assert inline_source("", include=["inc"], base=tmp_path).include == (tmp_path / "inc",)


def test_a_missing_include_folder_counts_from_the_file_that_loads(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="from the folder of the file that calls it"):
        inline_source("", include=["none"], base=tmp_path)


def test_a_source_and_its_headers_may_be_in_a_zip_archive(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("package/k.cu", '#include "sub/../own.cuh"\n#include "shared.cuh"\n')
        members.writestr("package/own.cuh", "#define N 3\n")
        members.writestr("include/shared.cuh", "#define M 4\n")
    source = read_source(archive / "package" / "k.cu", [archive / "include"])
    graph = include_graph(source, system_headers(()), options=CompileOptions())
    assert {file.text for file in graph.headers.values()} == {"#define N 3\n", "#define M 4\n"}
    with pytest.raises(SourceNotFound, match=r"There is no file .*nothere\.cu"):
        read_source(archive / "package" / "nothere.cu")


def test_a_file_in_a_damaged_archive_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("k.cu", "the text")
        members.writestr("shared.cuh", "the text")
    archive.write_bytes(archive.read_bytes().replace(b"the text", b"any text"))
    with pytest.raises(SourceNotFound, match=r"k\.cu cannot be read: the archive is damaged .*CRC"):
        read_source(archive / "k.cu")
    source = inline_source('#include "shared.cuh"', include=[archive])
    with pytest.raises(SourceNotFound, match=r"shared\.cuh cannot be read: the archive is damaged .*CRC"):
        include_graph(source, system_headers(()), options=CompileOptions())


def test_a_small_archive_does_not_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotcu.compile.source.source.MAX_BYTES", 10_000)
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("k.cu", " " * 10_001)
    with pytest.raises(SourceNotFound, match=r"k\.cu cannot be read: it has more than 10,000 bytes"):
        read_source(archive / "k.cu")

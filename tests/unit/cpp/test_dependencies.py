"""What a compile read, as the depfile tells, and what it would have read."""

from __future__ import annotations

from pathlib import Path

from dotcu.cpp.build import Dependencies, gather, read_depfile
from dotcu.serialize import from_json, to_json


def test_a_depfile_is_read_with_its_escapes() -> None:
    text = "out/a.o: a.cpp \\\n  /x/one.h /x/with\\ blank.h \\\n  /x/dollar$$.h /x/hash\\#.h\n"
    assert read_depfile(text) == ("a.cpp", "/x/one.h", "/x/with blank.h", "/x/dollar$.h", "/x/hash#.h")


def test_a_depfile_of_nvcc_is_read() -> None:
    assert read_depfile("main.o : main.cu \\\n    /x/cuda_runtime.h\n") == ("main.cu", "/x/cuda_runtime.h")


def test_the_rules_that_follow_the_first_are_no_dependencies() -> None:
    assert read_depfile("a.o: a.cpp b.h\n\nb.h:\n") == ("a.cpp", "b.h")


def gathered(tmp_path: Path) -> Dependencies:
    for name in ("user/a.cpp", "inc/a.h", "torch/t.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#if __has_include(<extra/e.h>)\n")
    (tmp_path / "first").mkdir()
    files = [str(tmp_path / name) for name in ("user/a.cpp", "inc/a.h", "torch/t.h")]
    folders = (tmp_path / "first", tmp_path / "inc")
    return gather(files, folders=folders, toolkits=(tmp_path / "torch",))


def test_the_users_files_go_by_content_and_a_toolkits_by_size_and_time(tmp_path: Path) -> None:
    found = gathered(tmp_path)
    assert [Path(path).name for path in found.user] == ["a.cpp", "a.h"]
    assert [Path(path).name for path in found.system] == ["t.h"]
    (tmp_path / "torch" / "t.h").touch()
    assert found.changed() == str(tmp_path / "torch" / "t.h")


def test_what_is_absent_is_what_would_be_found_earlier_or_was_asked_for(tmp_path: Path) -> None:
    absent = {str(Path(path).relative_to(tmp_path)) for path in gathered(tmp_path).absent}
    assert absent == {
        "first/a.h", "user/a.h",
        "first/extra/e.h", "inc/extra/e.h", "user/extra/e.h",
    }  # fmt: skip


def test_a_file_that_is_gone_is_a_change(tmp_path: Path) -> None:
    found = gathered(tmp_path)
    assert found.changed() == ""
    (tmp_path / "inc" / "a.h").unlink()
    assert found.changed() == str(tmp_path / "inc" / "a.h")


def test_it_comes_back_from_json(tmp_path: Path) -> None:
    found = gathered(tmp_path)
    assert from_json(Dependencies, to_json(found)) == found

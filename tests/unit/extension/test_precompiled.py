"""`torch/extension.h` is compiled in advance once, for the files that begin with it."""

from __future__ import annotations

from pathlib import Path

from dotcu.compile import cache
from native_projects import Project

SOURCE = "#include <torch/extension.h>\nint a;\n"


def test_files_that_begin_with_the_header_read_it_in_its_precompiled_form(
    project: Project, cache_dir: Path
) -> None:
    project.write("a.cpp", SOURCE)
    project.write("b.cpp", SOURCE + "int b;\n")
    project.write("c.cpp", "int c;\n")
    project.build("a.cpp", "b.cpp", "c.cpp")
    assert len(project.fake.lines("c++-header")) == 1
    with_header = project.fake.lines("-include")
    assert sorted(line.split(" -c ")[1].split()[0][-5:] for line in with_header) == ["a.cpp", "b.cpp"]
    (header,) = cache_dir.rglob("extension.h.gch")
    assert all(str(header.with_suffix("")) in line for line in with_header)
    assert "TORCH_EXTENSION_NAME" not in project.fake.lines("c++-header")[0]  # or it fits one library


def test_an_edit_uses_the_header_that_is_there(project: Project) -> None:
    project.write("a.cpp", SOURCE)
    project.build("a.cpp")
    project.write("a.cpp", SOURCE + "int more;\n")
    project.build("a.cpp")
    assert len(project.fake.lines("c++-header")) == 1
    assert project.fake.compiled() == 2


def test_a_flag_of_the_language_makes_another_header_and_a_macro_does_not(project: Project) -> None:
    project.write("a.cpp", SOURCE)
    project.build("a.cpp")
    project.build("a.cpp", flags=("-DA",))
    assert len(project.fake.lines("c++-header")) == 1
    project.build("a.cpp", flags=("-fopenmp",))
    assert len(project.fake.lines("c++-header")) == 2


def test_a_damaged_header_is_made_again(project: Project, cache_dir: Path) -> None:
    project.write("a.cpp", SOURCE)
    project.build("a.cpp")
    (header,) = cache_dir.rglob("extension.h.gch")
    header.write_bytes(b"")
    project.write("a.cpp", SOURCE + "int more;\n")
    project.build("a.cpp")
    assert len(project.fake.lines("c++-header")) == 2


def test_it_lies_apart_and_goes_with_the_rest(project: Project) -> None:
    project.write("a.cpp", SOURCE)
    project.build("a.cpp")
    kinds = sorted(entry.about["target"] for entry in cache.entries())
    assert kinds == ["library", "object", "precompiled"]
    assert cache.clear() == 3
    assert cache.entries() == []

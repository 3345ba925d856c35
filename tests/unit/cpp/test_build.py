"""A library is never stale, is compiled once, and leaves nothing half-written."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.compile import cache
from dotcu.cpp import build
from dotcu.cpp.plan import link_inputs
from dotcu.errors import CacheError, CompileError, JitDisabled
from helpers.cpp_projects import Project, write_fake


def test_a_second_build_compiles_nothing(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    assert project.build("a.cpp") == project.build("a.cpp") == b"int a;\n"
    assert project.fake.compiled() == 1


def test_an_edited_source_is_compiled_again_and_the_others_are_not(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    project.write("b.cpp", "int b;\n")
    project.build("a.cpp", "b.cpp")
    project.write("b.cpp", "int c;\n")
    assert project.build("a.cpp", "b.cpp") == b"int a;\nint c;\n"
    assert project.fake.compiled() == 3


def test_an_edited_header_deep_in_the_tree_is_seen(project: Project) -> None:
    project.write("a.cpp", '#include "x/y/z.h"\n')
    project.write("inc/x/y/z.h", "int old;\n")
    assert b"old" in project.build("a.cpp", include=("inc",))
    project.write("inc/x/y/z.h", "int new;\n")
    assert b"new" in project.build("a.cpp", include=("inc",))


def test_an_edit_that_keeps_size_and_time_is_seen(project: Project) -> None:
    project.write("a.cpp", '#include "a.h"\n')
    header = project.write("a.h", "int old;\n")
    stat = header.stat()
    project.build("a.cpp")
    header.write_text("int new;\n")
    os.utime(header, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert b"new" in project.build("a.cpp")


def test_a_touched_header_costs_no_compile(project: Project) -> None:
    project.write("a.cpp", '#include "a.h"\n')
    header = project.write("a.h", "int a;\n")
    project.build("a.cpp")
    header.touch()
    project.build("a.cpp")
    assert project.fake.compiled() == 1


def test_a_header_that_appears_in_an_earlier_folder_is_seen(project: Project) -> None:
    project.write("a.cpp", '#include "a.h"\n')
    project.write("second/a.h", "int second;\n")
    (project.folder / "first").mkdir()
    assert b"second" in project.build("a.cpp", include=("first", "second"))
    project.write("first/a.h", "int first;\n")
    assert b"first" in project.build("a.cpp", include=("first", "second"))


def test_a_header_that_appears_in_an_earlier_folder_of_the_flags_is_seen(project: Project) -> None:
    project.write("a.cpp", '#include "a.h"\n')
    project.write("second/a.h", "int second;\n")
    (project.folder / "first").mkdir()
    flags = (f"-I{project.folder}/first", f"-I{project.folder}/second")
    assert b"second" in project.build("a.cpp", flags=flags)
    project.write("first/a.h", "int first;\n")
    assert b"first" in project.build("a.cpp", flags=flags)


def test_a_library_that_the_linker_is_given_counts_by_its_content(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    extra = project.write("extra.o", "old\n")
    assert project.build("a.cpp", link_flags=(str(extra),)) == b"int a;\nold\n"
    extra.write_text("new\n")
    assert project.build("a.cpp", link_flags=(str(extra),)) == b"int a;\nnew\n"
    assert project.fake.compiled() == 1


def test_a_library_in_a_folder_of_the_linkers_counts_too(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    archive = project.write("libextra.a", "old\n")
    flags = (f"-L{project.folder}", "-lextra")
    assert link_inputs(project.request("a.cpp", link_flags=flags)) == (archive,)


def test_a_header_that_has_include_did_not_find_is_seen_when_it_appears(project: Project) -> None:
    project.write("a.cpp", '#if __has_include("later.h")\n#endif\n')
    project.build("a.cpp")
    project.build("a.cpp")
    assert project.fake.compiled() == 1
    project.write("later.h", "")
    project.build("a.cpp")
    assert project.fake.compiled() == 2


def test_a_changed_flag_is_another_build(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    project.build("a.cpp", flags=("-DA=1",))
    project.build("a.cpp", flags=("-DA=2",))
    assert project.fake.compiled() == 3


def test_another_compiler_is_another_build(project: Project, tmp_path: Path) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    project.fake = write_fake(tmp_path / "later", version="1.1")
    project.build("a.cpp")
    assert project.fake.compiled() == 1


def test_another_torch_is_another_build(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    project.torch = dataclasses.replace(project.torch, identity="torch 2.14.0")
    project.build("a.cpp")
    assert project.fake.compiled() == 2


def test_a_variable_that_compilers_read_is_another_build(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/elsewhere")
    project.build("a.cpp")
    assert project.fake.compiled() == 2


def test_a_source_that_is_written_while_it_is_compiled_is_not_cached(
    project: Project, tmp_path: Path
) -> None:
    project.fake = write_fake(tmp_path / "slow", seconds=0.3)
    source = project.write("a.cpp", "int a;\n")
    timer = threading.Timer(0.1, lambda: source.write_text("int a;\n"))
    timer.start()
    project.build("a.cpp")
    timer.join()
    project.build("a.cpp")
    assert project.fake.compiled() == 2


def test_a_refused_source_shows_its_line_and_leaves_a_log_and_nothing_else(
    project: Project, cache_dir: Path
) -> None:
    source = project.write("a.cpp", "int a;\n    BROKEN here;\n")
    with pytest.raises(CompileError) as caught:
        project.build("a.cpp")
    message = str(caught.value).splitlines()
    assert message[:4] == [
        "a.cpp: 1 error:",
        f"{source}:2:5: error: this is broken",
        "        BROKEN here;",
        "        ^",
    ]
    log = Path(message[-1].removeprefix("The whole output: "))
    assert "this is broken" in log.read_text()
    left = [path for path in cache_dir.rglob("*") if path.is_file() and path.parent.name != "locks"]
    assert left == [log]


def test_what_is_refused_once_is_compiled_when_it_is_right(project: Project) -> None:
    project.write("a.cpp", "BROKEN\n")
    with pytest.raises(CompileError):
        project.build("a.cpp")
    project.write("a.cpp", "int a;\n")
    assert project.build("a.cpp") == b"int a;\n"


def test_a_damaged_object_is_compiled_again(project: Project, cache_dir: Path) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    (damaged,) = cache_dir.rglob("unit.o")
    damaged.write_bytes(b"int b;\n")
    assert project.build("a.cpp") == b"int a;\n"


def test_a_damaged_library_is_linked_again(project: Project, cache_dir: Path) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    (damaged,) = cache_dir.rglob("lib.so")
    damaged.write_bytes(b"")
    assert project.build("a.cpp") == b"int a;\n"
    assert project.fake.compiled() == 1


def test_without_jit_what_is_there_is_taken_and_what_is_not_is_an_error(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    project.build("a.cpp")
    with settings.override(jit="error"):
        assert project.build("a.cpp") == b"int a;\n"
        project.write("a.cpp", "int b;\n")
        with pytest.raises(JitDisabled, match=r"a\.cpp is not built"):
            project.build("a.cpp")


def test_a_cache_that_cannot_be_written_is_an_error_with_the_line_to_type(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    project.write("a.cpp", "int a;\n")
    with settings.override(cache_dir=tmp_path / "file"), pytest.raises(CacheError, match="DOTCU_CACHE_DIR="):
        project.build("a.cpp")


TWICE = """
import sys
from pathlib import Path
from dotcu import settings
from dotcu.cpp import build
from dotcu.cpp.plan import link_inputs
from dotcu.cpp.tools import host
from dotcu.cpp.tools import TorchInstall
from dotcu.cpp.plan import CppRequest, CppTools
folder, fake, cache = map(Path, sys.argv[1:])
torch = TorchInstall(version="2.13.0", cuda=None, folder=folder / "torch", identity="torch")
with settings.override(cxx=str(fake), cache_dir=cache):
    request = CppRequest(name="lib", sources=(folder / "a.cpp",))
    print(build.build_request(request, CppTools(host=host(), nvcc=None, torch=torch)).path)
"""


def test_two_processes_compile_once(project: Project, tmp_path: Path, cache_dir: Path) -> None:
    fake = write_fake(tmp_path / "slow", seconds=0.2)
    project.write("a.cpp", "int a;\n")
    words = [sys.executable, "-c", TWICE, str(project.folder), str(fake.path), str(cache_dir)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = {process.communicate()[0] for process in running}
    assert len(printed) == 1
    assert printed.pop().strip().endswith("lib.so")
    assert fake.compiled() == 1


def test_what_was_compiled_now_is_reported(project: Project) -> None:
    project.write("a.cpp", "int a;\n")
    request = project.request("a.cpp")
    assert build.build_request(request, project.tools()).compiled == ("a.cpp",)
    assert build.build_request(request, project.tools()).compiled == ()


GB = 1 << 30


@pytest.mark.parametrize(
    ("count", "cores", "free", "expected"),
    [(8, 4, 64 * GB, 4), (3, 16, 64 * GB, 3), (8, 16, 5 * GB, 2), (8, 16, GB // 2, 1), (8, 2, None, 2)],
)
def test_the_bound(count: int, cores: int, free: int | None, expected: int) -> None:
    assert build.job_count(count, cores=cores, free_bytes=free) == expected


def test_the_free_memory_of_this_machine_is_known_and_positive() -> None:
    assert (build.free_bytes() or 0) > 0


def test_results_come_in_the_order_of_the_items() -> None:
    assert build.run_jobs(lambda item: item * 2, [3, 1, 2]) == [6, 2, 4]


def test_the_first_error_is_raised() -> None:
    def work(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        return item

    with pytest.raises(ValueError, match="one"):
        build.run_jobs(work, [0, 1, 2])


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


def test_a_damaged_header_is_compiled_again(project: Project, cache_dir: Path) -> None:
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
    kinds = sorted(entry["about"]["target"] for entry in cache.entries())
    assert kinds == ["library", "object", "precompiled"]
    assert cache.clear() == 3
    assert cache.entries() == []

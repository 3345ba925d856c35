"""What a source reaches, and what of it is in the digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.compile import CompileOptions, inline_source, read_source
from dotcu.compile.include_graph import IncludeGraph, SystemHeaders, include_graph


def write(folder: Path, **files: str) -> Path:
    """Files by name, `__` for a slash and `_h` for the suffix."""
    for name, text in files.items():
        path = folder / (
            name.replace("__", "/").removesuffix("_h") + (".h" if name.endswith("_h") else ".cu")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def headers(tmp_path: Path) -> SystemHeaders:
    write(tmp_path / "toolkit", half_h='#include "detail/half.h"\n', detail__half_h="", config_h="")
    write(tmp_path / "own", stand_h="", shared_h="")
    return SystemHeaders({"/dotcu/@dotcu": tmp_path / "own", "/dotcu/@cuda": tmp_path / "toolkit"})


def reach(folder: Path, headers: SystemHeaders, include: tuple[Path, ...] = ()) -> IncludeGraph:
    return include_graph(read_source(folder / "main.cu", include), headers, options=CompileOptions())


def test_quoted_names_are_looked_for_beside_the_file_that_has_them(
    tmp_path: Path, headers: SystemHeaders
) -> None:
    write(
        tmp_path,
        main='#include "a/x.h"\n',
        a__x_h='#include "y.h"\n#include "../z.h"\n',
        a__y_h="",
        z_h="",
        y_h="no",
    )
    found = reach(tmp_path, headers)
    assert list(found.headers) == ["/dotcu/a/x.h", "/dotcu/a/y.h", "/dotcu/z.h"]
    assert found.headers["/dotcu/a/x.h"].rewritten == '#include "/dotcu/a/y.h"\n#include "/dotcu/z.h"\n'


def test_then_in_include_folders_in_order(tmp_path: Path, headers: SystemHeaders) -> None:
    write(tmp_path / "src", main='#include "x.h"\n#include <y.h>\n')
    one, two = write(tmp_path / "one", x_h="1"), write(tmp_path / "two", x_h="2", y_h="2")
    found = reach(tmp_path / "src", headers, (one, two))
    assert {name: file.text for name, file in found.headers.items()} == {
        "/dotcu/@include0/x.h": "1",
        "/dotcu/@include1/y.h": "2",
    }


def test_angles_do_not_look_beside_the_file(tmp_path: Path, headers: SystemHeaders) -> None:
    found = reach(write(tmp_path, main="#include <x.h>\n", x_h=""), headers)
    assert (found.headers, found.missing) == ({}, ("x.h",))


def test_dotcus_headers_come_before_include_folders_and_those_before_the_toolkit(
    tmp_path: Path, headers: SystemHeaders
) -> None:
    write(tmp_path / "src", main="#include <stand.h>\n#include <config.h>\n#include <half.h>\n")
    mine = write(tmp_path / "mine", stand_h="mine", config_h="mine")
    found = reach(tmp_path / "src", headers, (mine,))
    assert found.system == ("/dotcu/@cuda/half.h", "/dotcu/@dotcu/stand.h")
    assert list(found.headers) == ["/dotcu/@include0/config.h"]


def test_every_branch_is_followed(tmp_path: Path, headers: SystemHeaders) -> None:
    text = '#if X\n#include "a.h"\n#else\n  #  include "b.h"\n#endif\n#if __has_include("c.h")\n#endif\n'
    found = reach(write(tmp_path, main=text, a_h="", b_h="", c_h=""), headers)
    assert list(found.headers) == ["/dotcu/a.h", "/dotcu/b.h", "/dotcu/c.h"]


def test_what_stands_in_comments_and_strings_is_no_include(tmp_path: Path, headers: SystemHeaders) -> None:
    text = '// #include "a.h"\n/*\n#include "a.h"\n*/\n'
    assert not reach(write(tmp_path, main=text, a_h=""), headers).headers


def test_a_name_behind_a_macro_is_found_where_the_text_has_it(tmp_path: Path, headers: SystemHeaders) -> None:
    one = '#define HDR "a.h"\n#include HDR\n'
    assert list(reach(write(tmp_path, main=one, a_h="", b_h=""), headers).headers) == ["/dotcu/a.h"]
    two = '#if X\n#define HDR "a.h"\n#else\n#define HDR "b.h"\n#endif\n#include HDR\n'
    assert list(reach(write(tmp_path, main=two), headers).headers) == ["/dotcu/a.h", "/dotcu/b.h"]
    assert not reach(write(tmp_path, main='#define NAME "a.h"\n'), headers).headers


def test_a_header_is_one_however_it_is_reached(tmp_path: Path, headers: SystemHeaders) -> None:
    write(tmp_path, main='#include "x.h"\n#include "sub/../x.h"\n#include <x.h>\n', x_h="#pragma once\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.h").symlink_to(tmp_path / "x.h")
    assert list(reach(tmp_path, headers, (tmp_path,)).headers) == ["/dotcu/x.h"]


def test_headers_that_include_each_other_end(tmp_path: Path, headers: SystemHeaders) -> None:
    write(tmp_path, main='#include "a.h"\n', a_h='#include "b.h"\n', b_h='#include "a.h"\n')
    assert len(reach(tmp_path, headers).headers) == 2


def test_a_toolkit_header_brings_what_it_reaches_rewritten(headers: SystemHeaders) -> None:
    assert headers.reachable(["/dotcu/@cuda/half.h"]) == {
        "/dotcu/@cuda/half.h": b'#include "/dotcu/@cuda/detail/half.h"\n',
        "/dotcu/@cuda/detail/half.h": b"",
    }


def test_the_digest_holds_no_path_of_the_machine(tmp_path: Path, headers: SystemHeaders) -> None:
    digests = set()
    for folder in (tmp_path / "here", tmp_path / "over" / "there"):
        write(
            folder,
            src__main='#include "../x.h"\n#include "y.h"\n#include <z.h>\n',
            x_h="",
            src__y_h="",
            inc__z_h="",
        )
        digests.add(reach(folder / "src", headers, (folder / "inc",)).digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"main": '#include "a.h"\n//'},
        {"a_h": '#include "b.h"\n#if __has_include("c.h")\n#endif\n//'},
        {"b_h": "//"},  # nested
        {"c_h": ""},  # looked for by __has_include and absent before
    ],
)
def test_the_digest_changes_with_everything_that_is_reached(
    tmp_path: Path, headers: SystemHeaders, change: dict[str, str]
) -> None:
    write(tmp_path, main='#include "a.h"\n', a_h='#include "b.h"\n#if __has_include("c.h")\n#endif\n', b_h="")
    before = reach(tmp_path, headers).digest
    write(tmp_path, other_h="not reached")
    assert reach(tmp_path, headers).digest == before
    write(tmp_path, **change)
    assert reach(tmp_path, headers).digest != before


def test_an_inline_source_has_include_folders_alone(tmp_path: Path, headers: SystemHeaders) -> None:
    write(tmp_path, x_h="")
    source = inline_source('#include "x.h"\n', include=[tmp_path])
    assert list(include_graph(source, headers, options=CompileOptions()).headers) == ["/dotcu/@include0/x.h"]


KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


def test_a_hosts_header_is_not_read_where_its_include_is_left_out(
    tmp_path: Path, headers: SystemHeaders
) -> None:
    write(tmp_path / "src", main=f"#include <torch/extension.h>\n{KERNEL}")
    theirs = write(tmp_path / "theirs", torch__extension_h="int main() { return 0; }\n")
    found = reach(tmp_path / "src", headers, (theirs,))
    assert found.main.text.strip() == KERNEL.strip()
    assert not found.headers
    assert found.parts.looked == {"/dotcu/main.cu"}


@pytest.mark.parametrize("main", ['#include "mine.h"\n', '#include "mine.h"\nint main() { return 0; }\n'])
def test_a_hosts_header_is_read_for_a_file_that_stays_as_it_is(
    tmp_path: Path, headers: SystemHeaders, main: str
) -> None:
    write(tmp_path / "src", main=main + KERNEL, mine_h="#include <GL/gl.h>\n")
    theirs = write(tmp_path / "theirs", GL__gl_h="typedef int GLint;\nint main() { return 1; }\n")
    found = reach(tmp_path / "src", headers, (theirs,))
    gl = found.headers["/dotcu/@include0/GL/gl.h"]
    assert "GLint" in gl.original
    assert "main" not in gl.text

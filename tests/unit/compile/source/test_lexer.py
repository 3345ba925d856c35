"""Comments, literals and branches that are not compiled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dotcu.compile.source.lexer import (
    active_code,
    code_only,
    rewrite_includes,
    scan_includes,
    variants,
    without_comments,
)

PIECES = [
    "//",
    "/*",
    "*/",
    '"',
    "'",
    "\\",
    "\n",
    "#if 0",
    "#endif",
    "#else",
    "x",
    " ",
    'R"(',
    ')"',
    "#ifdef A",
]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_positions_and_lines_stay_where_they_are(text: str) -> None:
    for result in (without_comments(text), code_only(text), active_code(text)):
        assert len(result) == len(text)
        assert [i for i, c in enumerate(result) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]


def test_comments_go_and_literals_stay() -> None:
    assert without_comments('a; // "b"\n"// c" /* d */ e') == 'a;       \n"// c"         e'


def test_literals_of_every_kind_are_no_code() -> None:
    text = 'a = "b\\"c" + \'d\' + R"x(e)")x" + 1\'000\'000; f'
    assert set(code_only(text).split()) == {"a", "=", "+", "1'000'000;", "f"}


def test_a_continued_comment_and_directive_are_blanked_whole() -> None:
    assert code_only("// a \\\n b\nc\n#define D \\\n e\nf").split() == ["c", "f"]


def test_host_branches_are_inactive() -> None:
    text = "#ifndef __CUDACC_RTC__\nhost\n#else\ndevice\n#endif\nboth"
    assert code_only(active_code(text)).split() == ["device", "both"]
    text = "#if !defined(__CUDACC_RTC__)\nhost\n#endif\n#if defined __CUDACC_RTC__\ndevice\n#endif\n"
    text += "#if 0\nno\n#endif"
    assert code_only(active_code(text)).split() == ["device"]


def test_branches_that_cannot_be_decided_all_stand() -> None:
    text = "#if __CUDA_ARCH__ >= 800\na\n#elif X\nb\n#else\nc\n#endif"
    assert code_only(active_code(text)).split() == ["a", "b", "c"]


def test_what_follows_a_taken_branch_is_inactive() -> None:
    text = "#if 1\na\n#elif X\nb\n#else\nc\n#endif\n#if 0\nd\n#elif 1\ne\n#else\nf\n#endif"
    assert code_only(active_code(text)).split() == ["a", "e"]


def test_inner_branches_of_an_inactive_one_are_inactive() -> None:
    text = "#if 0\n#if 1\na\n#endif\nb\n#endif\nc"
    assert code_only(active_code(text)).split() == ["c"]


def test_macros_can_be_said_to_be_defined_or_not() -> None:
    text = "#ifdef A\na\n#else\nb\n#endif"
    assert code_only(active_code(text, {"A"})).split() == ["a"]
    assert code_only(active_code(text, (), undefined={"A"})).split() == ["b"]
    assert code_only(active_code(text)).split() == ["a", "b"]


def words(text: str, *defined: str) -> list[str]:
    return [
        " ".join(word for word in variant.split() if not word.startswith("#") and word.isupper())
        for variant in variants(text.replace(";", "\n"), set(defined))
    ]


def test_a_text_without_branches_is_its_only_variant() -> None:
    assert list(variants("a\nb\n")) == ["a\nb\n"]


def test_each_branch_is_seen_once_with_neighbours_in_step() -> None:
    text = "#if a;A1;#elif b;A2;#else;A3;#endif;ALWAYS;#if c;B1;#else;B2;#endif"
    assert words(text) == ["A1 ALWAYS B1", "A2 ALWAYS B2", "A3 ALWAYS B1"]


def test_branches_within_branches_are_all_seen() -> None:
    text = "#if a;A;#if b;AB;#else;AC;#endif;#else;#if d;D;#else;E;#endif;#endif"
    assert words(text) == ["A AB", "A AC", "D", "E"]


def test_a_branch_without_an_else_is_always_seen() -> None:
    assert words("#if a;A;#endif;#if b;B1;#else;B2;#endif") == ["A B1", "A B2"]


def test_decided_branches_are_in_every_variant_or_in_none() -> None:
    text = "#ifdef k;KNOWN;#else;NEVER;#endif;#if a;A1;#else;A2;#endif"
    assert words(text, "k") == ["KNOWN A1", "KNOWN A2"]


def test_positions_stay() -> None:
    text = "#if a\nx\n#else\ny\n#endif\nz"
    assert all(len(variant) == len(text) and variant[-1] == "z" for variant in variants(text))


def test_a_header_that_text_of_several_lines_names_is_not_included() -> None:
    text = 'auto a = R"x(\n#include "a.h"\n)x";\nauto b = "\\\n#include <b.h>\\\n";\n#include "c.h"\n'
    assert [include.spelled for include in scan_includes(text)] == ["c.h"]
    assert len(without_comments(text)) == len(text)


def test_the_headers_that_cutlass_names_by_a_macro_are_those_of_the_device() -> None:
    text = "#include CUDA_STD_HEADER(type_traits)\n#  include CUDA_STD_HEADER( limits )\n"
    assert [include.spelled for include in scan_includes(text)] == ["cuda/std/type_traits", "cuda/std/limits"]
    assert rewrite_includes(text, {scan_includes(text)[0]: "/v"}).startswith('#include "/v"\n')

"""The compiler's log as values, and as a message."""

from __future__ import annotations

import pytest

from dotcu.compile.diagnostics import header_hint, parse_log
from dotcu.errors import Diagnostic

LOG = """/dotcu/k.cu(3): error: identifier "y" is undefined
  \t\tx[0] =\ty;
  \t\t      \t^

/dotcu/k.cu(4): warning #177-D: variable "z" was declared but never referenced
   int z;
       ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

/dotcu/h.cuh(1): error: expression must have class type but it has type "int"
  template <class T> T f(T x) { return x.foo; }
                                         ^
          detected during:
            instantiation of "T f(T) [with T=int]" at line 5 of /dotcu/k.cu
            instantiation of "void k(T *) [with T=int]"

2 errors detected in the compilation of "/dotcu/k.cu".
"""
TEXTS = {
    "/dotcu/k.cu": ["", "", "\t\tx[0] =\ty;", " int z;", "f(x);"],
    "/dotcu/h.cuh": ["template <class T> T f(T x) { return x.foo; }"],
}
FILES = {"/dotcu/k.cu": "/home/me/k.cu", "/dotcu/h.cuh": "/home/me/h.cuh"}


def shown(name: str) -> str:
    return FILES.get(name, name)


def read(log: str) -> tuple[Diagnostic, ...]:
    return parse_log(log, shown, lambda name: TEXTS.get(name, ()))


def test_each_has_file_line_column_and_severity_under_the_users_path() -> None:
    places = [(d.severity, d.file, d.line, d.column) for d in read(LOG)]
    assert places == [
        ("error", "/home/me/k.cu", 3, 10),
        ("warning", "/home/me/k.cu", 4, 6),
        ("error", "/home/me/h.cuh", 1, 40),
    ]


def test_the_caret_stands_under_the_users_line_whose_tabs_are_kept() -> None:
    text = str(read(LOG)[0]).splitlines()
    assert text == [
        '/home/me/k.cu:3:10: error: identifier "y" is undefined',
        "    \t\tx[0] =\ty;",
        "    \t\t      \t^",
    ]


def test_the_instantiation_context_names_the_users_files() -> None:
    assert read(LOG)[2].notes == (
        "detected during:",
        '  instantiation of "T f(T) [with T=int]" at line 5 of /home/me/k.cu',
        '  instantiation of "void k(T *) [with T=int]"',
    )


def test_a_column_counts_characters_where_the_compiler_counts_bytes() -> None:
    texts = ["int é = z;"]
    log = '/dotcu/k.cu(1): error: identifier "z" is undefined\n  int é = z;\n           ^\n'
    (found,) = parse_log(log, str, lambda name: texts)
    assert texts[0][found.column - 1] == "z"


def test_a_line_that_the_compiler_saw_rewritten_is_shown_as_written() -> None:
    texts = ['#include "x.h"']
    log = (
        '/dotcu/k.cu(1): catastrophic error: bad header\n  #include "/dotcu/x.h"\n                       ^\n'
    )
    (found,) = parse_log(log, str, lambda name: texts)
    assert (found.severity, found.source, found.column) == ("error", '#include "x.h"', 10)


def test_the_assemblers_output_stays() -> None:
    log = (
        "ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores\n"
        "ptxas application ptx input, line 28; error   : Not a name of any known instruction: 'bogus'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
        "ptxas info    : 0 bytes gmem\n"
        "nvrtc: error: unrecognized option -foo found\n"
    )
    assert [(d.severity, d.message) for d in read(log)] == [
        ("warning", "Registers are spilled to local memory in function 'k', 8 bytes spill stores [ptxas]"),
        ("error", "Not a name of any known instruction: 'bogus' (application ptx input, line 28) [ptxas]"),
        ("error", "Ptx assembly aborted due to errors [ptxas]"),
        ("error", "unrecognized option -foo found [nvrtc]"),
    ]


def test_a_log_without_diagnostics_has_none() -> None:
    assert read("") == ()
    assert read("ptxas info    : Used 8 registers, used 0 barriers\n") == ()


def test_an_error_of_the_assembler_is_read_wherever_it_starts() -> None:
    (found,) = read(" ptxas error   : Entry function 'k' uses too much shared data\n")
    assert (found.severity, found.message) == (
        "error",
        "Entry function 'k' uses too much shared data [ptxas]",
    )


def test_what_stands_after_the_users_last_line_is_reported_at_the_end_of_the_file() -> None:
    log = """/dotcu/k.cu(4): error: expected a "{"
  template <typename F> __global__ void __dotcu_probe() {}
  ^
"""
    (found,) = parse_log(log, shown, lambda name: ["int f()", ""])
    assert str(found).splitlines() == [
        '/home/me/k.cu:1:8: error: expected a "{", at the end of the file',
        "    int f()",
        "           ^",
    ]


def test_an_error_at_the_end_of_the_source_is_read_with_the_note_that_goes_with_it() -> None:
    log = """At end of source: error: expected a "}"
/dotcu/k.cu(1): note #3196-D: to match this "{"
  void f() {
           ^
"""
    (found,) = parse_log(log, shown, lambda name: ["void f() {", "  g();"], main="/dotcu/k.cu")
    assert (found.file, found.line, found.column) == ("/home/me/k.cu", 2, 7)
    assert found.message == 'expected a "}", at the end of the file'
    assert found.notes == ('to match this "{", at line 1 of /home/me/k.cu: void f() {',)


def test_an_error_at_the_end_of_a_source_without_text_has_no_line() -> None:
    (found,) = parse_log("At end of source: error #7: bad\n", shown, lambda name: [], main="/dotcu/k.cu")
    assert str(found) == "/home/me/k.cu: error: bad [#7], at the end of the file"


def test_files_in_a_message_have_the_users_names() -> None:
    log = '/dotcu/k.cu(5): catastrophic error: #include file "/dotcu/h.cuh" includes itself\n'
    assert read(log)[0].message == '#include file "/home/me/h.cuh" includes itself'


@pytest.mark.parametrize("column", [1, 81, 300, 521, 600])
def test_of_a_long_line_what_is_around_the_caret_is_shown(column: int) -> None:
    source = "".join(f"{index:05d}\t" for index in range(100))
    text = Diagnostic(severity="error", file="k.cu", line=1, column=column, message="bad", source=source)
    _, shown, caret = str(text).splitlines()
    assert len(shown) < 180
    assert shown[caret.index("^")] == source[column - 1]
    assert ("..." in shown[:8]) == (column > 81)


def test_a_long_line_without_a_caret_is_cut() -> None:
    text = Diagnostic(severity="error", file="k.cu", line=1, column=0, message="bad", source="x" * 500)
    assert str(text).splitlines()[1:] == ["    " + "x" * 160 + " ..."]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("int64_t", "<cstdint>"),
        ("UINT32_MAX", "<cstdint>"),
        ("INT_MAX", "<climits>"),
        ("FLT_MAX", "<cfloat>"),
        ("M_PI", "<cmath>"),
        ("half2", "<cuda_fp16.h>"),
        ("__float2half_rn", "<cuda_fp16.h>"),
        ("__nv_bfloat16", "<cuda_bf16.h>"),
        ("__nv_fp8_e4m3", "<cuda_fp8.h>"),
        ("cooperative_groups", "<cooperative_groups.h>"),
        ("nvcuda", "<mma.h>"),
        ("cudaGridDependencySynchronize", "<cuda_runtime.h>"),
        ("c10", "<torch/extension.h>"),
        ("gpuAtomicAdd", "<torch/extension.h>"),
    ],
)
def test_a_known_name_has_its_header(name: str, header: str) -> None:
    assert header_hint(f'identifier "{name}" is undefined') == f"{name} comes with: #include {header}"


def test_a_member_of_a_namespace_has_its_header() -> None:
    assert "#include <cstdint>" in header_hint('namespace "std" has no member "uint8_t"')


@pytest.mark.parametrize("message", ['identifier "my_half" is undefined', 'expected a ";"'])
def test_another_message_has_no_hint(message: str) -> None:
    assert header_hint(message) == ""

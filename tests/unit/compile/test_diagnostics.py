"""The compiler's log as values, and as a message."""

from __future__ import annotations

from dotcu.compile import Diagnostic
from dotcu.compile.diagnostics import parse

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


def read(log: str) -> tuple[Diagnostic, ...]:
    return parse(log, FILES, lambda name: TEXTS.get(name, ()))


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
    (found,) = parse(log, {}, lambda name: texts)
    assert texts[0][found.column - 1] == "z"


def test_a_line_that_the_compiler_saw_rewritten_is_shown_as_written() -> None:
    texts = ['#include "x.h"']
    log = (
        '/dotcu/k.cu(1): catastrophic error: bad header\n  #include "/dotcu/x.h"\n                       ^\n'
    )
    (found,) = parse(log, {}, lambda name: texts)
    assert (found.severity, found.source, found.column) == ("error", '#include "x.h"', 10)


def test_what_the_assembler_says_is_kept() -> None:
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

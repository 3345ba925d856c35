"""What compilers and the linker say, as one first error with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.compile.cache import Store
from dotcu.cpp import build
from dotcu.process import Finished


def explained(tmp_path: Path, stderr: str, what: str = "a.cpp") -> list[str]:
    done = Finished(command=("g++", "a.cpp"), status=1, stdout="", stderr=stderr)
    return str(build.explain(what, done, Store(tmp_path / "cache"), "ab" * 32)).splitlines()


def test_an_error_of_gcc_has_the_line_and_a_caret(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text("int f()\n{ return x; }\n")
    log = f"{source}: In function 'int f()':\n{source}:2:10: error: 'x' was not declared in this scope\n"
    assert explained(tmp_path, log)[:4] == [
        "a.cpp: 1 error:",
        f"{source}:2:10: error: 'x' was not declared in this scope",
        "    { return x; }",
        "             ^",
    ]


def test_an_error_of_nvcc_has_the_line_as_the_user_wrote_it(tmp_path: Path) -> None:
    source = tmp_path / "a.cu"
    source.write_text("__global__ void k() { x; }\n")
    log = (
        f'{source}(1): error: identifier "x" is undefined\n'
        "  __attribute__((global)) void k() { x; }\n"
        "                                     ^\n\n"
        "1 error detected\n"
    )
    assert explained(tmp_path, log, "a.cu")[:4] == [
        "a.cu: 1 error:",
        f'{source}:1:23: error: identifier "x" is undefined',
        "    __global__ void k() { x; }",
        "                          ^",
    ]


def test_an_error_of_the_linker_is_reported(tmp_path: Path) -> None:
    log = "/usr/bin/ld: a.o: in function `main':\na.cpp:(.text+0x5): undefined reference to `missing(int)'\n"
    shown = explained(tmp_path, log + "collect2: error: ld returned 1 exit status\n", "linking a")
    assert shown[:2] == ["linking a: 1 error:", "error: undefined reference to `missing(int)'"]


def test_what_cannot_be_parsed_is_shown_as_it_is(tmp_path: Path) -> None:
    assert explained(tmp_path, "no idea\n")[:2] == ["a.cpp: status 1:", "no idea"]


@pytest.mark.parametrize(
    ("log", "remedy"),
    [
        ("/x/python.h:3:10: fatal error: Python.h: No such file or directory", "apt install python3-dev"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_20'", "arch='sm_80'"),
        ("error: #error -- unsupported GNU version! gcc versions later than 15 are", "export CXX=g++-12"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "Memory ran out"),
    ],
)
def test_a_known_remedy_is_reported(tmp_path: Path, log: str, remedy: str) -> None:
    assert any(remedy in line for line in explained(tmp_path, log))


def test_the_newest_logs_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = [build.keep_log(store, f"{index:064d}"[::-1], "log") for index in range(build.LOGS + 3)]
    assert len({path for path in kept if path and path.exists()}) == build.LOGS
    assert kept[-1] is not None
    assert kept[-1].exists()

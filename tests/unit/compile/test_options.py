"""Options, and what they are for NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dotcu.compile import CompileOptions, ObjectCode, Target
from dotcu.compile.options import arguments, command_line
from dotcu.errors import CompileError, UsageError

Build = Callable[..., ObjectCode]
SM, PTX = Target.parse("sm_90a"), Target.parse("compute_80")


def test_line_information_is_always_asked_for() -> None:
    assert "-lineinfo" in arguments(CompileOptions(), SM)
    assert "-lineinfo" in arguments(CompileOptions(), PTX)


def test_debug_builds_for_cuda_gdb_instead() -> None:
    given = arguments(CompileOptions(debug=True), SM)
    assert "-G" in given
    assert "-lineinfo" not in given  # -G brings it, and ptxas warns of both


def test_the_assembler_is_asked_for_resources_where_it_runs() -> None:
    assert "--ptxas-options=-v" in arguments(CompileOptions(), SM)
    assert "--ptxas-options=-v" not in arguments(CompileOptions(), PTX)


def test_macros_and_own_options_are_passed_on() -> None:
    options = CompileOptions(define={"A": 1, "B": "x", "C": None}, options=("-fmad=false",), std="c++20")
    given = arguments(options, SM)
    assert {"-DA=1", "-DB=x", "-DC=1", "-std=c++20"} <= set(given)
    assert given[-1] == "-fmad=false"


def test_a_build_for_the_simulator_says_so_to_the_source() -> None:
    assert "-DDOTCU_SIMULATED=1" in arguments(CompileOptions(), PTX, simulated=True)
    assert "-DDOTCU_SIMULATED=1" not in arguments(CompileOptions(), PTX)


def test_options_are_values() -> None:
    one, other = CompileOptions(define={"A": 1, "B": 2}), CompileOptions(define={"B": 2, "A": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one.key == other.key
    assert CompileOptions(define={"A": 1}).key != CompileOptions(define={"A": "1 "}).key
    assert repr(one) == "CompileOptions(std='c++17', define={'A': 1, 'B': 2}, options=(), debug=False)"


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("-I/somewhere", "include="),
        ("-I", "include="),
        ("--include-path=x", "include="),
        ("--pre-include=x.h", "#include"),
        ("-arch=sm_80", "module.compile"),
        ("-std=c++20", "std="),
        ("-pch", "dotcu caches"),
        ("--create-pch=k.pch", "dotcu caches"),
        ("-use-pch=k.pch", "dotcu caches"),
        *(
            (option, "one source file")
            for option in (
                "-rdc=true",
                "--relocatable-device-code=true",
                "-dc",
                "--device-c",
                "-dlto",
                "--dlink-time-opt",
                "--gen-opt-lto",
            )
        ),
        ("--optix-ir", "machine code and PTX"),
        ("--fdevice-time-trace=trace.json", "dotcu -v"),
    ],
)
def test_an_option_that_would_go_behind_the_keys_back_is_refused_with_another_way(
    option: str, instead: str
) -> None:
    with pytest.raises(UsageError, match=instead):
        CompileOptions(options=(option,))


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (["-std=c++20"], 'load(..., std="c++20")'),
        (["-isystem", "theirs"], 'load(..., include=["theirs"])'),
        (["-I", "theirs"], 'load(..., include=["theirs"])'),
        (["-gencode=arch=compute_80,code=sm_80"], 'module.compile("compute_80")'),
        (["-gencode", "arch=compute_90a,code=sm_90a"], 'module.compile("compute_90a")'),
        (["-arch", "sm_80"], 'module.compile("sm_80")'),
    ],
)
def test_what_to_write_instead_has_the_value_that_was_passed(options: list[str], instead: str) -> None:
    with pytest.raises(UsageError) as error:
        CompileOptions(options=options)
    assert instead in str(error.value)


def test_flags_of_a_build_by_nvcc_are_left_out_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dotcu")
    flags = (
        "-O3 -g --expt-relaxed-constexpr --expt-extended-lambda -Xcompiler -fPIC --compiler-options=-Wall "
        "--threads 4 -t=2 -v -allow-unsupported-compiler -lcuda -Xfatbin -compress-all -ccbin g++ -Wall "
        "-m64 --machine 64 -t8 --optimize 3 --optimize=2 --debug --compile"
    )
    kept = ["-lineinfo", "-use_fast_math", "-fmad=false", "-Xptxas", "-v", "-maxrregcount=64", "-UNDEBUG"]
    left_out = [word for word in flags.split() if word != "-v"]
    assert list(CompileOptions(options=[*left_out, *kept]).options) == kept
    assert CompileOptions(options=flags.split()).options == ()
    assert "-Xcompiler -fPIC" in caplog.text
    assert CompileOptions(options=flags.split()) == CompileOptions()


@pytest.mark.parametrize(
    "option", ["-rdc=false", "--relocatable-device-code=false", "--device-w", "-fmad=false"]
)
def test_an_option_that_leaves_whole_code_is_passed_on(option: str) -> None:
    assert option in arguments(CompileOptions(options=(option,)), SM)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["--fmad", "false", "-ftz", "true"], ("--fmad=false", "-ftz=true")),
        (["--ptxas-options=--verbose,-dlcm=ca"], ("--ptxas-options=--verbose", "--ptxas-options=-dlcm=ca")),
        (["-Xptxas", "-v,-O2", "-lineinfo"], ("-Xptxas", "-v", "-Xptxas", "-O2", "-lineinfo")),
        (["-static-global-template-stub=false"], ()),
    ],
)
def test_what_nvcc_takes_in_one_word_or_in_two_is_spelled_for_nvrtc(
    given: list[str], taken: tuple[str, ...], make: Build
) -> None:
    assert CompileOptions(options=given).options == taken
    assert make("__global__ void k(int* x) { *x = 1; }", options=given).cubin


@pytest.mark.parametrize("std", ["gnu++17", "gnu++20"])
def test_a_standard_with_extensions_is_taken_without_them(std: str) -> None:
    assert f"-std=c{std.removeprefix('gnu')}" in arguments(CompileOptions(std=std), SM)


def test_a_standard_that_the_compiler_lacks_is_answered_with_those_that_it_has(make: Build) -> None:
    with pytest.raises(CompileError, match=r'Write std="c\+\+20"'):
        make("__global__ void k(int* x) { *x = 1; }", std="c++98")


def test_a_macro_whose_name_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'A B'"):
        CompileOptions(define={"A B": 1})


def test_the_command_line_is_one_that_nvcc_takes() -> None:
    options = CompileOptions(define={"NAME": "a b"})
    line = command_line("/x/my kernel.cu", arguments(options, SM), ("/x/include",))
    assert line.startswith("nvcc -arch=sm_90a -std=c++17 -lineinfo -Xptxas=-v")
    assert line.endswith("'-DNAME=a b' -I/x/include -cubin '/x/my kernel.cu'")
    assert "-no-source-include" not in line
    assert command_line("k.cu", arguments(options, PTX), ()).endswith("-ptx k.cu")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"define": ["A", "B=2"]}, r"Write define={'A': None, 'B': '2'}"),
        ({"define": "A"}, r"Write define={'A': None}"),
        ({"define": 5}, r"Write define={\"NAME\": 1}"),
        ({"define": {"a b": 1}}, r"Write define={'a_b': 1}"),
        ({"define": {5: 1}}, r"Write define={'NAME': 1}"),
        ({"define": {"A": [1]}}, r"Write define={'A': '\[1\]'}"),
        ({"define": {"A": "1\0"}}, r"Write define={'A': '1'}"),
        ({"options": (5,)}, r"got 5 in it.\nFor example: options=\["),
        ({"options": ("-a\0",)}, r"For example: options=\["),
        ({"options": "-fmad=false"}, r"Write options=\['-fmad=false'\]"),
        ({"options": 5}, r"options is a list"),
        ({"std": 17}, r"For example: std=\"c\+\+17\""),
    ],
)
def test_what_is_no_option_is_refused_with_the_line_to_write(given: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        CompileOptions(**given)


def test_macros_have_numbers_of_any_kind() -> None:
    assert "-DEPS=0.5" in arguments(CompileOptions(define={"EPS": 0.5}), SM)  # type: ignore[dict-item]

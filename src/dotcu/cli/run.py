"""`dotcu run main.cu`: a program of its own, compiled by nvcc, kept, and run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dotcu.cli import Files, Strings, Word, console


def command(
    source: Annotated[Path, typer.Argument(metavar="MAIN.cu", help="a .cu file with a main")],
    arguments: Annotated[
        Strings, typer.Argument(metavar="[-- ARGUMENTS]", help="the program's arguments")
    ] = None,
    arch: Annotated[
        Word, typer.Option(metavar="LIST", help="sm_80,sm_90a; by default the GPUs of this machine")
    ] = None,
    include: Annotated[
        Files,
        typer.Option("--include", "-I", metavar="FOLDER", help="a folder for headers; may be repeated"),
    ] = None,
    flag: Annotated[
        Strings, typer.Option(metavar="FLAG", help="a flag for nvcc, --flag=-lcublas; may be repeated")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="compile for cuda-gdb")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print as JSON what was compiled, and do not run it")
    ] = False,
) -> None:
    """Compile a program with nvcc, without torch, if that is not done yet, and run it.

    The exit code is the program's; 3 if it needs a GPU and there is none.
    """
    from dotcu.cpp import compile_program, run_program

    words = arguments or []
    program, uses_cuda, compiled = compile_program(
        source, include=include or (), flags=flag or (), arch=arch, debug=debug
    )
    if as_json:
        console.as_json({"program": str(program), "uses_cuda": uses_cuda, "compiled": compiled})
        return
    if debug:
        console.err().print(f"cuda-gdb --args {shlex.join([str(program), *words])}", soft_wrap=True)
    raise typer.Exit(run_program(program, words, uses_cuda=uses_cuda))

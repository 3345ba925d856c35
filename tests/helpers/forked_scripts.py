"""Scripts in processes of their own that have imported torch already: each a fork, not a start of seconds.

Not for what a test is about: which modules are imported, or what happens while they are. `here` runs the
command line in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_SERVER = """
import gc
gc.disable()
import atexit, json, os, sys, traceback
import torch
gc.freeze()  # a fork shares what no collection touches
gc.enable()

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, path in ((1, request["out"]), (2, request["err"])):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
os.environ.clear()
os.environ.update(request["environment"])
os.chdir(request["folder"])
sys.argv[:] = ["-c"]
sys.path[:] = ["", *[path for path in request["path"] if path]]
code = 0
try:
    exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
except SystemExit as end:
    code = end.code or 0
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
except BaseException:
    traceback.print_exc()
    code = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # torch takes a third of a second to come down, which no test looks at
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _SERVER]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def here(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `dotcu` with some words in this process, and return its exit code and what it printed."""
    from dotcu.cli import main

    before = Path.cwd()
    os.chdir(folder or before)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            main.main(words)
    except SystemExit as end:
        return subprocess.CompletedProcess(
            ["dotcu", *words], int(end.code or 0), out.getvalue(), err.getvalue()
        )
    finally:
        os.chdir(before)
    raise AssertionError("the command did not end its process")


def command(*words: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `dotcu` with some words and variables, as `run` does."""
    script = f"import sys; sys.argv = {['dotcu', *words]}\nfrom dotcu.cli.main import main; main()"
    return run(script, environment={**os.environ, **variables}, folder=folder)


def run(
    script: str, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script with torch imported, and return its exit code and what it printed.

    Args:
        script: A program in Python.
        environment: Its variables; this process's own where left out.
        folder: Where it runs; here where left out.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as printed:
        out, err = Path(printed, "out"), Path(printed, "err")
        request = {
            "script": script,
            "out": str(out),
            "err": str(err),
            "environment": dict(os.environ if environment is None else environment),
            "folder": str(folder or Path.cwd()),
            "path": sys.path,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(["python"], code, out.read_text(), err.read_text())

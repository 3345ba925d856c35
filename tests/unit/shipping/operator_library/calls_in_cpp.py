"""Calls operators of a library that dotcu has written in C++, and says what became of each, as JSON.

The driver is driver.c's, and another one for each set of calls: a process that has imported torch is forked
for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def call(name: str, args: list[Any]) -> dict[str, Any]:
    """Call an operator; return what it asked of the driver, what it returned, and where its tensors are."""
    log = Path(os.environ["DRIVER_LOG"])
    log.write_text("")
    namespace, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short.split(".")[0])
    overload = getattr(packet, (*short.split("."), "default")[1])
    named = {a.name: v for a, v in zip(overload._schema.arguments, args, strict=True) if a.kwarg_only}
    try:
        given = overload(*args[: len(args) - len(named)], **named)
    except RuntimeError as error:
        return {"error": str(error)}
    results = [] if given is None else [given] if isinstance(given, Tensor) else list(given)
    return {
        "asked": [json.loads(line) for line in log.read_text().splitlines()],
        "layouts": [[list(t.shape), list(t.stride()), str(t.dtype)] for t in results],
        "addresses": [t.data_ptr() if isinstance(t, Tensor) else 0 for t in (*args, *results)],
    }


def main(driver: str, library: str, file: str) -> None:
    """Make each set of calls, whose arguments are Python text, on a GPU of its own."""
    replies = []
    for environment, calls in json.loads(Path(file).read_text()):
        with tempfile.NamedTemporaryFile("w+") as answer:
            child = os.fork()
            if child == 0:
                os.environ.update(environment)
                ctypes.CDLL(driver)  # what asks for libcuda.so.1 gets this one
                torch.ops.load_library(library)
                json.dump([call(name, eval(text)) for name, text in calls], answer)
                answer.flush()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            replies.append(json.loads(Path(answer.name).read_text()))
    sys.stdout.write(json.dumps(replies))

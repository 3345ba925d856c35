"""Calls operators of a library that dotcu has written in C++, and says what became of each, as JSON.

The plans are those that the library was written of. The driver is driver.c's, and another one for each set of
calls: a process that has imported torch is forked for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.evaluate import Effects, evaluate, matches
from dotcu.call_cache.record import FieldKind
from dotcu.kernel import simulate


def expected(effects: Effects, args: list[Any], results: list[Tensor]) -> list[dict[str, Any]]:
    """What the driver should have been asked."""
    made = dict(zip(effects.results, results, strict=False))
    found = []
    for ran in effects.launches:
        data = bytearray(ran.parameters)
        for at in ran.fields:
            memory = args[at.source] if at.kind is FieldKind.ARGUMENT_ADDRESS else made[at.source]
            data[at.offset : at.offset + 8] = struct.pack("<q", memory.data_ptr() + at.step)
        whole = {"grid": list(ran.grid), "block": list(ran.block), "smem_bytes": ran.smem_bytes}
        found.append({**whole, "parameters": data.hex()})
    return [one for one in found if all(one["grid"])]


def call(name: str, plans: list[Any], args: list[Any]) -> dict[str, Any]:
    """Call an operator, and hold what it asked of the driver against its plans."""
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
    for plan in plans:
        effects = evaluate(plan, args) if matches(plan, args) else None
        if effects is not None:
            made = [effects.allocations[number] for number in effects.results]
            return {
                "asked": [json.loads(line) for line in log.read_text().splitlines()],
                "expected": expected(effects, args, results),
                "shapes": [[list(t.shape), list(t.stride()), str(t.dtype)] for t in results],
                "planned": [[list(m.sizes), list(m.strides), str(m.dtype)] for m in made],
            }
    return {"error": "no plan of Python's fits"}


def main(driver: str, library: str, file: str) -> None:
    """Make each set of calls, whose arguments are Python text, on a GPU of its own."""
    plans, sets = pickle.loads(Path(file).read_bytes())
    replies = []
    for arch, environment, calls in sets:
        with tempfile.NamedTemporaryFile("w+") as answer:
            child = os.fork()
            if child == 0:
                os.environ.update(environment)
                ctypes.CDLL(driver)  # what asks for libcuda.so.1 gets this one
                torch.ops.load_library(library)
                with simulate(arch=arch):
                    made = [call(name, plans[name], eval(text)) for name, text in calls]
                json.dump(made, answer)
                answer.flush()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            replies.append(json.loads(Path(answer.name).read_text()))
    sys.stdout.write(json.dumps(replies))

"""Functions that workers run in tests, without torch: what a request's words ask for happens."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from dotcu.errors import JitDisabled, OperatorError
from dotcu.workers import Channel, WorkerCrash


def end(how: str) -> None:
    """End this process, or the request, as a word says; return where it says nothing of the kind."""
    if how == "segfault":
        sys.stderr.write("the last words\n")
        sys.stderr.flush()
        os.kill(os.getpid(), 11)
    if how == "exit":
        os._exit(0)
    if how == "hang":
        time.sleep(60)
    if how == "unusable":
        raise WorkerCrash("a kernel trapped")
    if how == "unplannable":
        raise OperatorError("its samples fail\nMend them.")
    if how == "raise":
        raise JitDisabled("no code is there")


def echo(request: Any, channel: Channel) -> None:
    """Reply with each word of a request, and do as it says."""
    for word in request:
        sys.stdout.write("printed\n")
        with channel.step(word, limit_s=30.0):
            end(word)
        channel.reply([word, os.getpid(), sys.stdin.read()])


def until_superseded(request: Any, channel: Channel) -> None:
    """Reply with the request; if it says so, wait for the next one."""
    channel.reply(request)
    while request == "wait" and not channel.superseded:
        time.sleep(0.01)


def trials(request: Any, channel: Channel) -> None:
    """Run trials whose kinds say what becomes of them; note each request in the file that is the target."""
    with Path(request["target"]).open("a") as log:
        log.write("asked\n")
    for trial in request["trials"]:
        kind = trial["kind"]
        if kind == "unknown":
            continue
        if kind not in ("raise", "unplannable"):
            channel.reply({"begin": trial})
        outcome = {"outcome": "failed", "reason": "it raises"} if kind == "fault" else {"outcome": "passed"}
        result = {"check": "numerics", "trial": trial, "seconds": 1.0, **outcome}
        if kind == "fault":
            channel.reply({"result": result})
        if kind == "silent":
            channel.reply({"end": trial})
            continue
        end("unusable" if kind == "fault" else kind)
        channel.reply({"result": result})
        channel.reply({"end": trial})


_loads = 0


def watched(request: Any, channel: Channel) -> None:
    """Say what comes of a version of a target, as its text asks for."""
    global _loads
    target, loads = Path(request["target"]), _loads
    _loads += 1

    def say(event: str, **values: Any) -> None:
        channel.reply({"number": request["number"], "event": event, **values})

    say("begun")
    text = target.read_text()
    end("segfault" if "die" in text else "raise" if "refuse" in text else "")
    if "hang" in text:
        say("trying", trial="hanging")
        end("hang")
    if "broken" in text:
        say("watched", folders=[str(target.parent)])
        say("unloadable", message=f"broken in process {os.getpid()}", again=loads > 0)
        return
    say("planned", device="simulator", overloads=["ns::op"], trials=1)
    say("tried", trial=f"ns::op/call/{text.strip()}", results=[])
    say("watched", folders=[str(target.parent / "kernels")])
    say("checked", passed=True, not_tried=[], seconds=0.1)
    say("done")

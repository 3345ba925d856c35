"""A worker of `dotcu watch` that needs no torch: it says what the target's text asks for."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until stdin ends."""
    say(0, event="ready")
    for loads, line in enumerate(sys.stdin):
        request = json.loads(line)
        serve(request["number"], Path(request["target"]), loads)


def serve(number: int, target: Path, loads: int) -> None:
    """Say what comes of a version."""
    say(number, event="begun")
    text = target.read_text()
    if "die" in text:
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os.abort()
    if "hang" in text:
        say(number, event="trying", trial="hanging")
        time.sleep(600)
    if "broken" in text:
        say(number, event="watched", folders=[str(target.parent)])
        say(number, event="unloadable", message=f"broken in process {os.getpid()}", again=loads > 0)
        return
    say(number, event="planned", device="simulator", overloads=["ns::op"], trials=1)
    say(number, event="tried", trial=f"ns::op/call/{text.strip()}", results=[])
    say(number, event="watched", folders=[str(target.parent / "kernels")])
    say(number, event="checked", held=True, untried=[], seconds=0.1)
    say(number, event="done")


def say(number: int, **event: Any) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"number": number, **event}) + "\n")
    sys.stdout.flush()

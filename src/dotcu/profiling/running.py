"""Running the process that makes the call, under ncu or alone, and asking ncu for a report's pages."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dotcu import errors, process
from dotcu.checking.last_words import shortened
from dotcu.errors import DotcuError, OperatorError, ToolchainError
from dotcu.profiling import pages, permission
from dotcu.profiling.catalogue import SECTIONS
from dotcu.profiling.order import Answer, Order, command

LIMIT_S = 600.0
"""Within which a call is profiled: its kernels run some forty times, and files may compile before."""

PAGE_S = 300.0
"""Within which ncu prints a page of a report."""

MOST_KERNELS = 32
"""Of one call; what it launches beyond them is not profiled."""

_SHOWN = 5
_ERROR, _NOTHING = "==ERROR==", "No kernels were profiled"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why there are no counters.

    Attributes:
        why: `refused`, the system does not permit them; `missing`, there is no ncu; `failed`, it failed.
        what: In words.
        ways: What to do, each in a line or more.
    """

    why: Literal["refused", "missing", "failed"]
    what: str
    ways: tuple[str, ...] = ()


def under_ncu(ncu: Path, report: Path, words: Sequence[str]) -> list[str]:
    """The command that has ncu watch another one. Pure.

    Clocks are left alone, so that times are those of a run without ncu, and so are the caches: a call finds
    what the warm-up left there.
    """
    sections = [word for section in SECTIONS for word in ("--section", section)]
    return [
        str(ncu), "--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none",
        "--cache-control", "none", "--launch-count", str(MOST_KERNELS), *sections,
        "--force-overwrite", "--export", str(report), *words,
    ]  # fmt: skip


def collect(ncu: Path, report: Path, order: Order) -> Answer | Refusal:
    """Have ncu write a report on a call.

    Returns:
        What was called; or why there is no report. Then the call may have failed for ncu's sake.

    Raises:
        OperatorError: The call ended its process, or launches no kernel.
        DotcuError: Whatever else the call raises.
    """
    said, answer = _run(under_ncu(ncu, report, command(order)), order)
    if report.is_file():
        return _required(answer, order, said)
    if _ERROR in said:
        return refusal_of(said)
    found = _required(answer, order, said)
    if _NOTHING in said:
        raise OperatorError(
            f"{found.operator} launches no kernel on {found.sample}, so there is nothing to profile.\n"
            f"Give a call that does: dotcu profile {order.target} --shapes 4096"
        )
    return refusal_of(said)


def alone(order: Order) -> Answer:
    """Have the call made without ncu.

    Raises:
        OperatorError: The call ended its process.
        DotcuError: Whatever else the call raises.
    """
    said, answer = _run(command(order), order)
    return _required(answer, order, said)


def _required(answer: Answer | DotcuError | None, order: Order, said: str) -> Answer:
    if answer is None:
        raise _ended(order, said)
    if isinstance(answer, DotcuError):
        raise answer
    return answer


def refusal_of(said: str) -> Refusal:
    """What ncu's words mean, where it wrote no report. Pure."""
    if permission.REFUSED in said:
        return Refusal(why="refused", what=permission.REFUSED)
    told = [line.removeprefix(_ERROR).strip() for line in said.splitlines() if line.startswith(_ERROR)]
    if told:
        return Refusal(why="failed", what="\n".join(told[:_SHOWN]))
    last = "\n".join(said.strip().splitlines()[-_SHOWN:])
    return Refusal(why="failed", what=f"ncu wrote no report{': ' if last else ''}{last}")


def raw(ncu: Path, report: Path) -> list[pages.Launched]:
    """The launches of a report, with their metrics in base units."""
    return pages.raw(_page(ncu, report, "raw", "--print-units", "base"))


def source(ncu: Path, report: Path, view: Literal["sass", "cuda,sass"] = "sass") -> list[pages.Listing]:
    """The instructions of a report, launch by launch; none where ncu does not print them."""
    try:
        return pages.source(_page(ncu, report, "source", "--print-source", view))
    except ToolchainError:
        return []


def _page(ncu: Path, report: Path, page: str, *options: str) -> str:
    words = [str(ncu), "--import", str(report), "--csv", "--page", page, *options]
    done = process.run(words, timeout_s=PAGE_S)
    if done.status != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing was said"]
        raise ToolchainError(
            f"{done.line} ended with status {done.status}: {last[0]}\n"
            f"ncu is to read the report that it wrote, which is kept.\nOpen it: ncu-ui {report}"
        )
    return done.stdout


def _run(words: Sequence[str], order: Order) -> tuple[str, Answer | DotcuError | None]:
    """What was printed, and the answer, or what it says that was raised; None where none was written."""
    path, until = Path(order.answer), time.monotonic() + LIMIT_S
    path.unlink(missing_ok=True)
    said: list[str] = []
    with process.started(words) as child:
        child.hush()
        try:
            while (line := child.line(max(0.0, until - time.monotonic()))) is not None:
                said.append(line)
        except TimeoutError:
            raise OperatorError(
                f"profiling {order.target} did not end within {LIMIT_S:g} s.\n"
                "A call is made some forty times, with its memory put back each time.\n"
                f"Give a smaller call: dotcu profile {order.target} --shapes 4096"
            ) from None
        child.status()
        said.append(shortened(child.last_words()))
    return "\n".join(said), _read(path)


def _read(path: Path) -> Answer | DotcuError | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if "raise" in values:
        name, message = values["raise"]
        kind: type[DotcuError] = getattr(errors, name, DotcuError)
        return kind(message)
    return Answer.from_json(values)


def _ended(order: Order, said: str) -> OperatorError:
    own = [line for line in said.splitlines() if line and not line.startswith(pages.LOG)]
    words = "".join(f"\n    {line}" for line in own[-_SHOWN:])
    return OperatorError(
        f"the process that calls {order.target} died.{words}\nOnly a call that gives a result is profiled.\n"
        f"See what is wrong: dotcu check {order.target}"
    )

"""What the page and the lines say alike."""

from __future__ import annotations

from collections.abc import Sequence

from dotcu.checking.outcome import Result
from dotcu.watching.events import Needs, Saved, Timing
from dotcu.watching.state import State

_SHOWN = 3
"""How many shortfalls are shown, each of another check: `dotcu check` shows more."""

_NEEDS = (
    ("registers", "registers"),
    ("smem_bytes", "B shared"),
    ("stack_bytes", "B stack"),
    ("spill_bytes", "B spilled"),
)


def distinct(failures: Sequence[Result]) -> list[Result]:
    """The first shortfall of each check of each overload, of the first few."""
    unlike: dict[tuple[str, str], Result] = {}
    for result in failures:
        unlike.setdefault((result.overload, result.check), result)
    return list(unlike.values())[:_SHOWN]


def saved_words(saved: Saved) -> str:
    """What happened to which files: `a.cu, ops.py saved; b.cuh gone`."""
    written = [file for file in saved.files if file not in saved.gone]
    parts = ((written, "saved"), (saved.gone, "gone"))
    return "; ".join(f"{', '.join(files)} {what}" for files, what in parts if files)


def verdict(state: State) -> str:
    """What came of the check, or how far it is."""
    short = len({result.trial for result in state.failures})
    fell = f"{short} fell short" if short else ""
    trials = f"{state.trials} trial{'' if state.trials == 1 else 's'}"
    if state.held is None:
        return ", ".join(filter(None, (f"{state.tried} of {trials}", fell)))
    word = "held" if state.held else "FELL SHORT" if short else "UNTRIED"
    of = f"{short} of {trials}" if short else trials
    return f"quick check {word}: {of}, {state.seconds:.1f} s"


def kernel_words(kernel: Needs, before: Needs | None) -> str:
    """What a kernel takes, and what it took before where that is another number."""
    parts = []
    for field, unit in _NEEDS:
        now = getattr(kernel, field)
        then = now if before is None else getattr(before, field)
        if now or then or field == "registers":
            parts.append(f"{now} {unit}" + (f" ({then} before)" if then != now else ""))
    return f"{kernel.kernel} on {kernel.arch}: {', '.join(parts)}"


def timing_words(timing: Timing) -> str:
    """The time of an operator, and what became of it."""
    took = f"{timing.median_us:.2f} us" if timing.measured else ""
    change = ""
    if timing.change is not None:
        ratio = timing.change.ratio
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        change = f"{timing.change.verdict}: {ratio.value:.3f} times the last good one ({interval})"
    notes = timing.note, timing.change.note if timing.change else ""
    return f"{timing.op} {timing.case}: {'; '.join(filter(None, (took, change, *notes)))}"

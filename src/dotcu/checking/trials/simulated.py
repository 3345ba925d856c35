"""On a machine with a GPU: the simulator's sanitizers, on the smallest calls.

On the CPU each call runs in the simulator anyway, and trials/call.py says what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from dotcu.checking.cases.case import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import NAN_BYTE
from dotcu.checking.outcome import Held, Skipped, Verdict
from dotcu.checking.subject import NO_BODY, Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.call import SANITIZERS, call, finding
from dotcu.errors import EnvironmentFault, FindingError, UsageError


def plan(subject: Subject) -> Iterator[Trial]:
    """The smallest call of the first dtype; at the full level, of each. None of what a library computes."""
    if not subject.has_body:
        yield from (skipped(subject, check, NO_BODY) for check in SANITIZERS)
        return
    if not subject.on_gpu:
        return
    twin = Subject(
        overload=subject.overload, device=torch.device("cpu"), level=subject.level, seed=subject.seed
    )
    dtypes = subject.overload.dtypes
    for dtype in dtypes if subject.level >= Level.FULL else dtypes[:1]:
        case = twin.smallest(dtype)
        if case is not None:
            run = partial(look, twin, case)
            yield Trial(overload=subject.name, kind="simulated", case=case.name, checks=SANITIZERS, run=run)


def look(twin: Subject, case: Case) -> Iterator[Verdict]:
    """Call in the simulator, and pass on what it finds. Values are the GPU's to be judged by."""
    try:
        call(twin, case, NAN_BYTE)
    except FindingError as error:
        yield finding(error)
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:  # clusters, say, or code that is only for newer GPUs
        why = f"the simulator cannot run it: {str(error).strip().splitlines()[0]}"
        yield from ((name, Skipped(why=why)) for name in SANITIZERS)
    else:
        yield from ((name, Held()) for name in SANITIZERS)

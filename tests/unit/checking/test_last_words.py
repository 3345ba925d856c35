"""Of what a dead process wrote, its last trial's words are shown, and the user's own frames."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import dotcu
from dotcu.checking.last_words import MARK, shortened

CRASH = f"""from the first trial
{MARK}a::b/call/x
printed by the body
Fatal Python error: Segmentation fault

Thread 0x00007f6c8817c6c0 (most recent call first):
  File "{sysconfig.get_path("stdlib")}/threading.py", line 982 in run

Current thread 0x00007f6caba8bb80 (most recent call first):
  File "{sysconfig.get_path("stdlib")}/ctypes/__init__.py", line 519 in string_at
  File "/home/me/ops.py", line 27 in dies
  File "{Path(dotcu.__file__).parent}/operator/execution.py", line 80 in compute
  File "{sysconfig.get_path("purelib")}/torch/_ops.py", line 875 in __call__
  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 30)"""


def test_a_crash_is_told_by_the_users_frames() -> None:
    assert shortened(CRASH).splitlines() == [
        "printed by the body",
        "Fatal Python error: Segmentation fault",
        '  File "/home/me/ops.py", line 27 in dies',
    ]


def test_without_a_mark_everything_is_of_the_trial() -> None:
    assert shortened("one\ntwo") == "one\ntwo"

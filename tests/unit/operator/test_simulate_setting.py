"""`DOTCU_SIMULATE=1` makes a whole script simulate."""

from __future__ import annotations

import os

import pytest

from helpers import forked_scripts

SCRIPT = """
import sys, torch, dotcu
from dotcu.gallery.square.op import square
from dotcu.kernel.scope import watching_launches

with watching_launches() as launches:
    assert square(torch.ones(3)).tolist() == [1.0] * 3
print([launch.where for launch in launches], "simulator" in repr(square))
assert "torch._dynamo" not in sys.modules, "seconds of imports that no call here needs"
"""


@pytest.mark.parametrize(("value", "printed"), [("1", "['simulator'] True"), ("0", "[] False")])
def test_the_variable_decides_for_the_process(value: str, printed: str) -> None:
    environment = dict(os.environ) | {"DOTCU_SIMULATE": value}
    done = forked_scripts.run(SCRIPT, environment=environment)
    assert done.stdout.strip() == printed, done.stderr

"""Where torch keeps what a guarded call must see."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dotcu.replay import layout, native

pytestmark = pytest.mark.skipif(bool(native.missing()), reason=native.missing() or "the native part is there")


def test_it_is_found_the_same_wherever_it_is_looked_for() -> None:
    expected = native._found().values
    assert not native.missing()
    for mode in (torch.inference_mode, torch._C._AutoDispatchBelowAutograd, torch.no_grad):
        with mode():
            found = layout.in_a_calm_thread(lambda: layout.locate(native._library().tls_words))
        assert found == {name: expected[name] for name in found}


def test_the_first_look_may_come_from_below_autograd() -> None:
    script = """
import torch
from dotcu.replay import native
with torch._C._AutoDispatchBelowAutograd(), torch.inference_mode():
    assert not native.missing()
assert native._found().values["calm_words"][:2] == list(native._library().tls_words())
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_ordinary_and_inference_tensors_are_told_apart_from_others() -> None:
    ordinary, inference = layout.plain_keys(torch.device("cpu"))
    assert ordinary != inference
    assert layout._keys(torch.nn.Parameter(torch.empty(2))) == ordinary
    assert layout._keys(torch.empty(2, dtype=torch.complex64).conj()) not in (ordinary, inference)


def test_what_is_not_in_one_place_is_no_layout() -> None:
    with pytest.raises(layout.NoLayout, match="dispatch keys"):
        layout._key_set_place([])  # every place would do
    with pytest.raises(layout.NoLayout, match="dispatch state"):
        layout._calm_words(lambda: (0, 0))  # a state that never changes cannot be it

"""The names of architectures, as people write them."""

from __future__ import annotations

import pytest

from dotcu.errors import UsageError
from dotcu.shipping.project import DEFAULT, split_architectures, targets_of

KNOWN = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("8.0",), "sm_80 compute_80"),
        (("8.6", "8.0"), "sm_80 sm_86 compute_80"),
        (("Ampere",), "sm_80 sm_86 compute_80"),
        (("hopper", "Ada"), "sm_89 sm_90 compute_89"),
        (("9.0a",), "sm_90a"),
        (("9.0a+PTX",), "sm_90a compute_90a"),
        (("9.0a", "10.0"), "sm_90a sm_100 compute_100"),
        (("sm_90a", "80"), "sm_80 sm_90a compute_80"),
        (("8.0", "9.0+PTX"), "sm_80 sm_90 compute_90"),
        (("Ampere+PTX",), "sm_80 sm_86 compute_86"),
        (("12.0", "10.0"), "sm_100 sm_120 compute_100"),
        (("8.0", "8.0"), "sm_80 compute_80"),
        (DEFAULT, "sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 compute_80"),
    ],
    ids=str,
)
def test_names_give_machine_code_and_ptx_for_what_comes(names: tuple[str, ...], wanted: str) -> None:
    assert " ".join(map(str, targets_of(names, KNOWN))) == wanted


@pytest.mark.parametrize("name", ["9.9", "7.0", "8.0a", "Pascal", "sm90x", "", "8", "8.0+", "ten"])
def test_an_unknown_one_is_refused_and_those_that_are_known_are_listed(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        targets_of((name,), KNOWN)
    assert repr(name) in str(raised.value)
    assert "8.0" in str(raised.value)
    assert "Hopper" in str(raised.value)


@pytest.mark.parametrize("text", ["8.0;9.0+PTX", "8.0 9.0+PTX", "8.0,9.0+PTX", " 8.0;  9.0+PTX "])
def test_lists_are_read_as_torch_reads_them(text: str) -> None:
    assert split_architectures(text) == ("8.0", "9.0+PTX")

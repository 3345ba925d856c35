"""Mangled names, read by the machine's C++ library."""

from __future__ import annotations

import ctypes

import pytest

from dotcu import demangler
from dotcu.demangler import demangle


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5scalePfi", "scale(float*, int)"),
        ("_ZN2ns4turnIdLi256EEEvPT_", "void ns::turn<double, 256>(double*)"),
        ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k()"),
        ("cudaLaunchKernel", "cudaLaunchKernel"),
        ("i", "i"),  # a type's code, were it taken for a mangled name
        ("_Znonsense", "_Znonsense"),
        ("_Z\N{GREEK SMALL LETTER ALPHA}", "_Z\N{GREEK SMALL LETTER ALPHA}"),
    ],
)
def test_mangled_names_are_read_and_others_left(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


def test_without_a_cxx_library_names_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(demangler, "_known", {})
    demangler._library_functions.cache_clear()
    try:
        for symbol in ("_Z5scalePfi", "_ZN2ns4turnIdLi256EEEvPT_"):
            assert demangle(symbol) == symbol
    finally:
        demangler._library_functions.cache_clear()


def doubling(times: int) -> str:
    """A name with some bytes for each time that what it stands for doubles."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "_Z1f1a1bIS_S_E" + "".join(f"S0_IS{digits[n]}_S{digits[n]}_E" for n in range(1, 1 + times))


def test_a_name_that_stands_for_more_than_memory_stays_mangled_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demangler, "_WAIT_S", 0.5)
    monkeypatch.setattr(demangler, "_known", {})
    bomb = doubling(34)
    assert len(bomb) < 400
    demangler.demangle_all(["_ZN2ns4turnIdLi256EEEvPT_", bomb, "_ZN2ns4turnIfLi256EEEvPT_"])
    assert demangle(bomb) == bomb
    assert demangle("_ZN2ns4turnIdLi256EEEvPT_") == "void ns::turn<double, 256>(double*)"
    assert demangle("_ZN2ns4turnIfLi256EEEvPT_") == "void ns::turn<float, 256>(float*)"


def test_a_name_that_doubles_a_few_times_is_read() -> None:
    assert demangle(doubling(2)).startswith("f(a, b<a, a>, b<b<a, a>, b<a, a> >")

"""PTX files, by their directives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dotcu.compile import ObjectCode
from dotcu.errors import UsageError
from dotcu.inspection.binaries.image import Image
from dotcu.inspection.binaries.ptx import read_ptx


def test_ptx_of_the_compiler_is_read(compiled: Callable[[str], ObjectCode]) -> None:
    made = compiled("compute_80")
    found = read_ptx(Image(name="it", data=made.ptx.encode()))
    assert (found.arch, found.version >= (9, 0)) == ("sm_80", True)
    assert set(made.lowered.values()) <= {kernel.symbol for kernel in found.kernels}


def test_what_stands_in_comments_is_no_directive() -> None:
    text = b"""// .version 1.0
    .version 8.4  /* .target sm_70
    .entry old() */
    .target sm_90a, debug
    .visible .entry _Z4turnPf(.param .u64 p) { ret; }
    .func helper() { ret; }
    .weak .entry kernel$1() { ret; }
    """
    found = read_ptx(Image(name="it", data=text))
    assert (found.version, found.arch) == ((8, 4), "sm_90a")
    assert [kernel.name for kernel in found.kernels] == ["turn(float*)", "kernel$1"]


def test_ptx_cut_off_before_its_target_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it is no whole PTX file: it has no \.target directive"):
        read_ptx(Image(name="it", data=b".version 9.0\n"))

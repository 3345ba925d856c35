"""The oldest system that suffices."""

from __future__ import annotations

import pytest

from dotcu.elf import HostBinary
from dotcu.inspection.manylinux import Floor, floor_of, glibc_minor_of


def floor(versions: list[str], libraries: list[str], machine: str) -> Floor:
    binary = HostBinary(
        kind="shared library", machine=machine, soname="", needed=tuple(libraries), search=(),
        versions={"it": tuple(versions)}, symbols=(), is_linked=True,
    )  # fmt: skip
    found = floor_of(binary)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("versions", "tag"),
    [
        ([], "manylinux_2_5_x86_64"),
        (["GLIBC_2.2.5"], "manylinux_2_5_x86_64"),
        (["GLIBC_2.14", "GLIBC_2.3"], "manylinux_2_17_x86_64"),
        (["GLIBC_2.17", "GLIBCXX_3.4.19", "CXXABI_1.3.7", "GCC_4.8.0"], "manylinux_2_17_x86_64"),
        (["GLIBC_2.17", "GLIBCXX_3.4.20"], "manylinux_2_24_x86_64"),
        (["GLIBC_2.17", "CXXABI_1.3.11"], "manylinux_2_27_x86_64"),
        (["GLIBC_2.2.5", "GCC_12.0.0"], "manylinux_2_35_x86_64"),
        (["GLIBC_2.18"], "manylinux_2_24_x86_64"),
        (["GLIBC_2.4", "GLIBC_ABI_DT_RELR"], "manylinux_2_36_x86_64"),
        (["GLIBC_2.43"], "manylinux_2_43_x86_64"),
        (["GLIBCXX_3.4.21", "CXXABI_FLOAT128", "libcudart.so.13"], "manylinux_2_24_x86_64"),
    ],
)
def test_the_tag_is_the_lowest_that_has_all_versions(versions: list[str], tag: str) -> None:
    """Held against `auditwheel show` on wheels of PyPI too."""
    assert floor(versions, ["libc.so.6"], "x86_64").tag == tag


def test_on_arm_tags_begin_later() -> None:
    assert floor(["GLIBC_2.17"], [], "aarch64").tag == "manylinux_2_17_aarch64"
    assert floor([], [], "aarch64").tag == "manylinux_2_17_aarch64"


@pytest.mark.parametrize(
    ("libraries", "machine"), [(["libc.so.6"], "EM_RISCV"), (["libc.musl-x86_64.so.1"], "x86_64")]
)
def test_another_processor_or_c_library_has_no_such_tag(libraries: list[str], machine: str) -> None:
    assert floor([], libraries, machine).tag == ""


def test_the_highest_versions_are_reported_by_number() -> None:
    found = floor(["GLIBC_2.9", "GLIBC_2.17", "GLIBCXX_3.4.9", "GLIBCXX_3.4.21"], [], "x86_64")
    assert (found.glibc, found.libstdcxx) == ("2.17", "3.4.21")


def test_libraries_that_no_system_must_have_are_reported() -> None:
    needed = ["libcudart.so.13", "libc.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libtorch.so"]
    assert floor([], needed, "x86_64").outside == ("libcudart.so.13", "libtorch.so")


@pytest.mark.parametrize(
    ("platform", "minor"),
    [
        ("manylinux_2_28_x86_64", 28),
        ("manylinux2014_aarch64", 17),
        ("manylinux1_x86_64", 5),
        ("linux_x86_64", None),
        ("any", None),
        ("win_amd64", None),
        ("", None),
    ],
)
def test_a_platform_tag_promises_a_glibc(platform: str, minor: int | None) -> None:
    assert glibc_minor_of(platform) == minor

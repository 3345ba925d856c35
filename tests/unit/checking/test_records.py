"""What compute-sanitizer prints is read as its manual shows it."""

from __future__ import annotations

from dotcu.checking.records import parse, trouble

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, long long)+0x90 in ops.cu:4
=========     by thread (99,0,0) in block (0,0,0)
=========     Address 0x7f6510c00190 is out of bounds
=========
========= Program hit cudaErrorNotReady (error 600) due to "device not ready" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========
========= Invalid __global__ read of size 4 bytes
=========     at scale(const float *, float *, long long)+0x50 in ops.cu:4
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reverse(int *)+0x90 in ops.cu:41
=========     and Read access at reverse(int *)+0x100 in ops.cu:51 [508 hazards]
=========
========= Warning: Race reported between Write access at within_a_warp(int *)+0x90 in ops.cu:61
=========     and Read access at within_a_warp(int *)+0x100 in ops.cu:62 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
REFUSED = """========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section of the manual
=========     or use another device
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""


def test_each_report_is_a_record_with_its_place() -> None:
    write, read = parse(MEMCHECK.splitlines())
    assert write.headline == "Invalid __global__ write of size 4 bytes"
    assert str(write).splitlines()[1:] == [
        "    at scale(const float *, float *, long long)+0x90 in ops.cu:4",
        "    by thread (99,0,0) in block (0,0,0)",
        "    Address 0x7f6510c00190 is out of bounds",
    ]
    assert read.headline == "Invalid __global__ read of size 4 bytes"
    assert not write.is_warning


def test_a_race_is_an_error_or_a_warning_as_the_tool_says() -> None:
    error, warning = parse(RACECHECK.splitlines())
    assert "reverse" in str(error)
    assert [error.is_warning, warning.is_warning] == [False, True]


def test_what_a_tool_says_of_itself_is_no_record_but_trouble() -> None:
    assert parse(REFUSED.splitlines()) == []
    assert trouble(REFUSED.splitlines()).startswith("Error: Device not supported")
    assert trouble(MEMCHECK.splitlines()) == ""
    assert trouble(RACECHECK.splitlines()) == ""

"""Whether counters may be read, by what the system says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu import process
from dotcu.profiling import permission
from dotcu.profiling.permission import judge, ways_out

ONLY, ALL = "ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n", "RmProfilingAdminOnly: 0\n"
USER = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"
ROOT = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"
IN_CONTAINER = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"
PERFMON = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000004000000000\n"


@pytest.mark.parametrize(
    ("params", "status", "hopeless"),
    [
        (ONLY, USER, True),
        (ONLY, ROOT, False),
        (ONLY, PERFMON, False),
        (ONLY, IN_CONTAINER, False),
        (ALL, USER, False),
        ("", USER, False),
        (ONLY, "", False),
    ],
)
def test_only_what_cannot_work_is_not_tried(params: str, status: str, hopeless: bool) -> None:
    assert judge(params, status).hopeless is hopeless


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        (ONLY, USER, "RmProfilingAdminOnly: 1, and this process is no administrator"),
        (ONLY, IN_CONTAINER, "root without CAP_SYS_ADMIN, as in a container"),
        (ALL, USER, "though /proc/driver/nvidia/params has RmProfilingAdminOnly: 0"),
        ("", USER, "ERR_NVGPUCTRPERM"),
    ],
)
def test_the_reason_is_told(params: str, status: str, words: str) -> None:
    assert words in judge(params, status).told


def test_files_that_are_not_there_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "PARAMS", tmp_path / "none")
    found = permission.look()
    assert found.admin_only is None
    assert not found.hopeless


def tools(monkeypatch: pytest.MonkeyPatch, *there: str) -> None:
    """Have only these programs on the machine."""
    monkeypatch.setattr(
        process, "find", lambda name, folders=(): Path("/usr/sbin", name) if name in there else None
    )


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("update-initramfs", "sudo update-initramfs -u && sudo reboot"),
        ("dracut", "sudo dracut -f && sudo reboot"),
        ("mkinitcpio", "sudo mkinitcpio -P && sudo reboot"),
    ],
)
def test_the_boot_image_is_rebuilt_by_the_program_that_is_here(
    program: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools(monkeypatch, program)
    words = "\n".join(ways_out("ops.py:scale", Path("/opt/ncu")))
    assert f"\n    {line}\n" in words
    assert words.count("&& sudo reboot") == 1


def test_where_no_such_program_is_found_each_is_shown_with_its_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools(monkeypatch)
    words = "\n".join(ways_out("ops.py:scale", Path("/opt/ncu")))
    assert "\n    sudo update-initramfs -u && sudo reboot  # Debian, Ubuntu\n" in words
    assert "\n    sudo dracut -f && sudo reboot            # Fedora, RHEL, SUSE\n" in words
    assert "\n    sudo mkinitcpio -P && sudo reboot        # Arch\n" in words


def test_programs_of_the_administrator_are_found_though_a_users_path_lacks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(permission, "SYSTEM", (tmp_path,))
    (tmp_path / "dracut").write_text("#!/bin/sh\n")
    (tmp_path / "dracut").chmod(0o755)
    assert "sudo dracut -f && sudo reboot" in "\n".join(ways_out("ops.py", Path("/opt/ncu")))
    assert "mkinitcpio" not in "\n".join(ways_out("ops.py", Path("/opt/ncu")))


def test_the_ways_out_are_lines_to_type() -> None:
    words = "\n".join(ways_out("my ops.py:scale", Path("/opt/nvidia/nsight-compute/2025.3.1/ncu")))
    assert 'sudo env "PATH=$PATH" ' in words
    assert "-m dotcu profile 'my ops.py:scale'" in words
    assert ':/opt/nvidia/nsight-compute/2025.3.1"' in words
    assert "NVreg_RestrictProfilingToAdminUsers=0" in words
    assert "--cap-add=SYS_ADMIN" in words

"""Where Nsight Compute is found, and whether it may read counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu import process
from dotcu.profiling import ncu
from dotcu.profiling.ncu import permission_remedies
from helpers import ncu_reports


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "INSTALLED", (tmp_path / "opt", tmp_path / "cuda"))
    monkeypatch.setattr(ncu, "find_tool", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def program(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return ncu_reports.program(folder, None)[0]


def with_module(folder: Path) -> Path:
    inside = folder / "extras" / "python"
    inside.mkdir(parents=True)
    (inside / ncu.MODULE).write_text("")
    return inside


def test_where_there_is_none_there_is_none() -> None:
    assert ncu.find() is None


def test_the_one_on_path_is_taken_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "bin")
    monkeypatch.setattr(ncu, "find_tool", lambda name: path)
    assert ncu.find() == path
    assert ncu.version_of(path) == "2025.3.1.0"


def test_of_those_that_are_installed_the_newest_is_taken(tmp_path: Path) -> None:
    for version in ("2024.10.2", "2025.3.1", "2025.3.0"):
        program(tmp_path / "opt" / version)
    found = ncu.find()
    assert found is not None
    assert found.parent.name == "2025.3.1"


def test_the_module_lies_beside_the_program(tmp_path: Path) -> None:
    path = program(tmp_path / "opt" / "2025.3.1")
    assert ncu.module_of(path) is None
    inside = with_module(path.parent)
    assert ncu.module_of(path) == inside
    link = tmp_path / "ncu"
    link.symlink_to(path)
    assert ncu.module_of(link) == inside


def test_the_module_of_a_toolkits_program_lies_in_the_toolkit(tmp_path: Path) -> None:
    path = program(tmp_path / "cuda-13.0" / "bin")
    inside = with_module(tmp_path / "cuda-13.0" / "nsight-compute-2025.3.1")
    assert ncu.module_of(path) == inside


def test_a_program_without_one_gets_that_of_an_installed_version(tmp_path: Path) -> None:
    inside = with_module(tmp_path / "opt" / "2025.3.1")
    assert ncu.module_of(program(tmp_path / "elsewhere")) == inside


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
def test_only_what_cannot_work_is_not_tried(
    params: str, status: str, hopeless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "_text", lambda path: params if path == ncu.PARAMS else status)
    refused = ncu.expected_refusal("ops.py", Path("/opt/ncu"))
    assert (refused is not None and refused.kind == "refused") is hopeless


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        (ONLY, USER, "RmProfilingAdminOnly: 1, and this process is no administrator"),
        (ONLY, IN_CONTAINER, "root without CAP_SYS_ADMIN, as in a container"),
        (ALL, USER, "though /proc/driver/nvidia/params has RmProfilingAdminOnly: 0"),
        ("", USER, "ERR_NVGPUCTRPERM"),
    ],
)
def test_the_reason_is_given(params: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "_text", lambda path: params if path == ncu.PARAMS else status)
    assert words in ncu.refused("ops.py", Path("/opt/ncu")).reason


def test_files_that_are_not_there_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "PARAMS", tmp_path / "none")
    assert ncu.expected_refusal("ops.py", Path("/opt/ncu")) is None


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
    words = "\n".join(permission_remedies("ops.py:scale", Path("/opt/ncu")))
    assert f"\n    {line}\n" in words
    assert words.count("&& sudo reboot") == 1


def test_where_no_such_program_is_found_each_is_shown_with_its_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools(monkeypatch)
    words = "\n".join(permission_remedies("ops.py:scale", Path("/opt/ncu")))
    assert "\n    sudo update-initramfs -u && sudo reboot  # Debian, Ubuntu\n" in words
    assert "\n    sudo dracut -f && sudo reboot            # Fedora, RHEL, SUSE\n" in words
    assert "\n    sudo mkinitcpio -P && sudo reboot        # Arch\n" in words


def test_programs_of_the_administrator_are_found_though_a_users_path_lacks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(ncu, "SYSTEM", (tmp_path,))
    (tmp_path / "dracut").write_text("#!/bin/sh\n")
    (tmp_path / "dracut").chmod(0o755)
    assert "sudo dracut -f && sudo reboot" in "\n".join(permission_remedies("ops.py", Path("/opt/ncu")))
    assert "mkinitcpio" not in "\n".join(permission_remedies("ops.py", Path("/opt/ncu")))


def test_the_remedies_are_lines_to_type() -> None:
    words = "\n".join(permission_remedies("my ops.py:scale", Path("/opt/nvidia/nsight-compute/2025.3.1/ncu")))
    assert 'sudo env "PATH=$PATH" ' in words
    assert "-m dotcu profile 'my ops.py:scale'" in words
    assert ':/opt/nvidia/nsight-compute/2025.3.1"' in words
    assert "NVreg_RestrictProfilingToAdminUsers=0" in words
    assert "--cap-add=SYS_ADMIN" in words

"""Settings come from the environment, each parsed to its type, and can be replaced for a while."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.errors import UsageError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings.read({}) == settings.Settings()


def test_an_empty_value_counts_as_not_set() -> None:
    assert settings.read({"DOTCU_JIT": "", "DOTCU_CACHE_DIR": ""}) == settings.Settings()


@pytest.mark.parametrize("text", ["1", "true", "YES", "on"])
def test_a_switch_is_turned_on_by(text: str) -> None:
    assert settings.read({"DOTCU_SIMULATE": text}).simulate is True


@pytest.mark.parametrize("text", ["0", "false", "No", "off"])
def test_a_switch_is_turned_off_by(text: str) -> None:
    assert settings.read({"DOTCU_NATIVE": text}).native is False


@pytest.mark.parametrize(
    ("text", "mode"),
    [("allow", "allow"), ("Warn", "warn"), ("error", "error"), ("0", "error"), ("1", "allow")],
)
def test_compiling_has_three_modes_and_a_switch_means_the_outer_two(text: str, mode: str) -> None:
    assert settings.read({"DOTCU_JIT": text}).jit == mode


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("DOTCU_JIT", "maybe"),
        ("DOTCU_CACHE_BYTES", "1 GB"),
        ("DOTCU_CACHE_BYTES", "-1"),
        ("DOTCU_CACHE_TIMEOUT_S", "1 s"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_variable_and_itself(variable: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings.read({variable: text})
    assert variable in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("variable", ["DOTCU_CACHE_DIR", "DOTCU_CACHE_DIRS"])
def test_a_home_that_is_not_known_is_named(variable: str) -> None:
    with pytest.raises(UsageError, match=rf"{variable}='~nobody-here/x' names a home folder.*\n.*unset"):
        settings.read({variable: "~nobody-here/x"})


def test_sizes_and_paths_are_parsed() -> None:
    read = settings.read({"DOTCU_CACHE_BYTES": "4096", "DOTCU_NVRTC": "~/libnvrtc.so"})
    assert read.cache_bytes == 4096
    assert read.nvrtc == Path.home() / "libnvrtc.so"


def test_several_folders_are_separated_as_in_path() -> None:
    assert settings.read({"DOTCU_CACHE_DIRS": "~/a:/b:"}).cache_dirs == (Path.home() / "a", Path("/b"))


def test_every_setting_says_its_variable_and_its_meaning() -> None:
    fields = dataclasses.fields(settings.Settings)
    variables = [field.metadata["variable"] for field in fields]
    assert len(set(variables)) == len(variables)
    assert all(field.metadata["meaning"] for field in fields)


def test_the_environment_is_read_again_after_an_error_whose_remedy_may_be_a_variable() -> None:
    script = """
import os
from dotcu import settings
from dotcu.errors import ToolchainError
os.environ["CXX"] = "nope"
with settings.override(debug=True):
    assert settings.current().cxx == "nope"
    os.environ["CXX"] = "g++"
    assert settings.current().cxx == "nope"
    ToolchainError("CXX=nope is not a program.")
    assert settings.current().cxx == "g++"
    assert settings.current().debug
    assert settings.current() is settings.current()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_each_call_reads_anew_does_not_last() -> None:
    plain = settings.read({})
    anew = {"DOTCU_SIMULATE": "1", "DOTCU_NATIVE": "0", "CUDA_LAUNCH_BLOCKING": "1", "DOTCU_DEBUG": "1"}
    assert settings.read(anew).lasting() == plain.lasting()
    assert settings.read({"DOTCU_JIT": "error"}).lasting() != plain.lasting()


def test_an_override_holds_inside_its_block() -> None:
    before = settings.current()
    with settings.override(simulate=not before.simulate) as changed:
        assert settings.current() is changed
        assert changed.simulate is not before.simulate
    assert settings.current() == before


def test_overrides_that_overlap_end_each_with_its_own_block() -> None:
    before = settings.current()
    one, other = settings.override(simulate=not before.simulate), settings.override(jit=not before.jit)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert settings.current() == dataclasses.replace(before, jit=not before.jit)
    other.__exit__(None, None, None)
    assert settings.current() == before


def test_an_override_ends_with_its_block_even_when_it_raises() -> None:
    before = settings.current()
    with pytest.raises(ZeroDivisionError), settings.override(simulate=True):
        raise ZeroDivisionError
    assert settings.current() == before


def test_a_setting_that_does_not_exist_cannot_be_overridden() -> None:
    with pytest.raises(TypeError), settings.override(simulated=True):
        pass

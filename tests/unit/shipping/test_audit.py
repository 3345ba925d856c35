"""The audit refuses wheels that do not run where their tags say: each is made here, and is bad in one way."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dotcu.errors import ToolchainError, UsageError
from dotcu.shipping import audit as auditing
from dotcu.shipping.audit import TOOLS, Audit, audit, repair
from helpers import tiny_wheels

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in TOOLS),
    reason=f'needs {", ".join(TOOLS)}: pip install "dotcu[build]"',
)

PLACE = "mylib/_cpp.abi3.so"


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """For a library that needs torch's."""
    return tiny_wheels.needing_torch(tmp_path_factory.mktemp("lib"))


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]) -> Path:
    """A library on the stable ABI."""
    return tiny_wheels.library(tmp_path_factory.mktemp("made") / "a.so", tiny_wheels.STABLE, *flags)


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """abi3audit and twine, a second each, find nothing: what a test is about is another rule."""
    monkeypatch.setattr(auditing, "_python_abi", lambda wheel: {})
    monkeypatch.setattr(auditing, "metadata_complaint", lambda wheel: "")


def broken(found: Audit) -> dict[str, tuple[str, ...]]:
    return {rule: problems for rule, problems in found.problems.items() if problems}


def test_a_wheel_that_keeps_to_every_rule_holds(tmp_path: Path, stable: Path) -> None:
    """Also auditwheel's tag: it finds an older system than the one that the wheel is tagged for first."""
    made = tiny_wheels.wheel(
        tmp_path, {PLACE: stable}, tag=tiny_wheels.TAG.replace("many", "").replace("_2_39", "")
    )
    repaired = repair(made, tmp_path / "repaired")
    assert "-cp310-abi3-manylinux" in repaired.name
    found = audit(repaired)
    assert broken(found) == {}
    assert found.passed
    assert found.upload == f"python -m twine upload {repaired}"
    assert "torch's stable ABI           passed" in str(found)


@pytest.mark.slow
def test_a_module_for_one_python_is_refused(tmp_path: Path, stable: Path) -> None:
    """By its name, and by what it uses of Python."""
    module = tiny_wheels.library(tmp_path / "made" / "module.so", tiny_wheels.MODULE)
    place = "mylib/_cpp.cpython-311-x86_64-linux-gnu.so"
    found = audit(tiny_wheels.wheel(tmp_path, {PLACE: stable, place: module}))
    assert not found.passed
    (by_name,) = (text for text in found.problems["tag against contents, glibc"] if "one only" in text)
    assert by_name == f"The tag abi3 promises every Python, and this module is for one only: {place}."
    (by_use,) = found.problems["Python's limited API"]
    assert "uses what is not in Python's limited API: _PyLong_Sign" in by_use


@pytest.mark.usefixtures("untold")
def test_a_module_for_the_python_of_the_tag_is_refused_too(tmp_path: Path, stable: Path) -> None:
    made = tiny_wheels.wheel(tmp_path, {PLACE: stable, "mylib/_c.cpython-310-x86_64-linux-gnu.so": stable})
    assert "for one only" in str(broken(audit(made))["tag against contents, glibc"])


@pytest.mark.usefixtures("untold")
def test_unstable_symbols_are_refused_by_their_names_in_cpp(tmp_path: Path, flags: tuple[str, ...]) -> None:
    bad = tiny_wheels.library(tmp_path / "made" / "_cpp.abi3.so", tiny_wheels.UNSTABLE, *flags)
    found = audit(tiny_wheels.wheel(tmp_path, {PLACE: bad}), {"_ZN3c106reportEPKc": ("scale.cpp",)})
    (problem,) = broken(found)["torch's stable ABI"]
    assert problem.startswith(f"{PLACE} uses what is not in torch's stable ABI: ")
    assert "at::Tensor::Tensor(at::Tensor const&)" in problem
    assert "c10::report(char const*) (in scale.cpp)" in problem
    assert set(broken(found)) == {"torch's stable ABI"}


@pytest.mark.usefixtures("untold")
def test_a_library_that_names_no_library_of_torch_is_refused(tmp_path: Path) -> None:
    alone = tiny_wheels.library(tmp_path / "made" / "_cpp.abi3.so", tiny_wheels.STABLE)
    (problem,) = broken(audit(tiny_wheels.wheel(tmp_path, {PLACE: alone})))["torch's stable ABI"]
    assert "needs none of its libraries" in problem


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("torch==2.14.1", "excludes others"),
        ("torch<2.13,>=2.10", "excludes others"),
        ("torch~=2.10.1", "excludes others"),
        ("torch>=2.10", ""),
        ("torch~=2.10", ""),
        ("torchvision>=0.20,<0.27", ""),  # another package, whose name begins alike
        ("torch==2.11; extra == 'dev'", ""),
    ],
)
def test_a_wheel_tied_to_one_torch_is_refused(tmp_path: Path, stable: Path, requires: str, said: str) -> None:
    found = audit(tiny_wheels.wheel(tmp_path, {PLACE: stable}, requires=(requires, "numpy")))
    assert said in str(found.problems["torch's version"])
    assert found.passed == (not said)


@pytest.mark.usefixtures("untold")
def test_functions_of_a_later_torch_than_the_one_required_are_refused(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    text = tiny_wheels.STABLE.replace("torch_parallel_for", "torch_stream_native_handle")
    later = tiny_wheels.library(tmp_path / "a.so", text, *flags)
    (problem,) = broken(audit(tiny_wheels.wheel(tmp_path, {PLACE: later})))["torch's version"]
    assert "uses functions of torch 2.13, and METADATA allows 2.10: torch_stream_native_handle" in problem
    assert audit(tiny_wheels.wheel(tmp_path / "new", {PLACE: later}, requires=("torch>=2.13",))).passed


@pytest.mark.usefixtures("untold")
def test_bundled_libraries_of_torch_and_cuda_are_refused(tmp_path: Path, stable: Path) -> None:
    files = {PLACE: stable, "mylib.libs/libcudart-1f0c55e1.so.13": stable, "mylib.libs/libfoo.so": stable}
    (problem,) = broken(audit(tiny_wheels.wheel(tmp_path, files)))["libraries"]
    assert problem == "It bundles what torch and CUDA provide: libcudart-1f0c55e1.so.13."


@pytest.mark.usefixtures("untold")
def test_a_library_that_nobody_brings_and_a_folder_of_this_machine_are_refused(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    tiny_wheels.library(Path(flags[0][2:]) / "libfoo.so", "", "-Wl,-soname,libfoo.so.1")
    needing = tiny_wheels.library(
        tmp_path / "a.so", tiny_wheels.STABLE, *flags, "-lfoo", "-Wl,-rpath,/opt/secret"
    )
    problems = broken(audit(tiny_wheels.wheel(tmp_path, {PLACE: needing})))["libraries"]
    assert [text.removeprefix(f"{PLACE} ") for text in problems] == [
        "needs libfoo.so.1, which neither the system, torch nor CUDA provides.",
        "looks for libraries in /opt/secret, folders of the machine it was built on.",
    ]


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("cp310-abi3-linux_x86_64", "PyPI accepts manylinux tags"),
        ("cp311-cp311-manylinux_2_39_x86_64", "is for one Python"),
        ("cp310-abi3-manylinux_2_5_x86_64", ""),
    ],
)
def test_tags_that_promise_too_much_or_too_little_are_refused(
    tmp_path: Path, tag: str, said: str, flags: tuple[str, ...]
) -> None:
    text = "#include <math.h>\n" + tiny_wheels.STABLE.replace("(1)", "((long)pow(2.0, (double)(long)&call))")
    text = text.replace('extern "C" int call()', 'extern "C" int call(); int call()')
    made = tiny_wheels.wheel(
        tmp_path, {PLACE: tiny_wheels.library(tmp_path / "a.so", text, *flags, "-lm")}, tag=tag
    )
    found = broken(audit(made))
    assert said in str(found.get("tag", ""))
    if not said:  # pow is GLIBC_2.29's
        assert "promises manylinux_2_5" in str(found["tag against contents, glibc"])


@pytest.mark.usefixtures("untold")
def test_a_strong_function_of_cuda_is_noted(tmp_path: Path, flags: tuple[str, ...]) -> None:
    text = tiny_wheels.STABLE.replace("torch_parallel_for", "aoti_torch_get_current_cuda_stream")
    strong = tiny_wheels.library(tmp_path / "a.so", text, *flags)
    weak = tiny_wheels.library(
        tmp_path / "b.so", "#pragma weak aoti_torch_get_current_cuda_stream\n" + text, *flags
    )
    (note,) = audit(tiny_wheels.wheel(tmp_path / "strong", {PLACE: strong})).notes
    assert "needs torch with CUDA" in note
    assert audit(tiny_wheels.wheel(tmp_path / "weak", {PLACE: weak})).notes == ()


def test_metadata_that_pypi_would_refuse_are_reported_in_twines_words(tmp_path: Path, stable: Path) -> None:
    made = tiny_wheels.wheel(tmp_path, {PLACE: stable}, requires=("torch>=2.10", "what is this?"))
    assert broken(audit(made))["metadata"]


def test_what_is_no_wheel_is_reported(tmp_path: Path, stable: Path) -> None:
    with pytest.raises(UsageError, match="is not a wheel"):
        audit(stable)


def test_tools_that_are_missing_are_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing.importlib.util, "find_spec", lambda name: None if name == "twine" else name)
    with pytest.raises(
        ToolchainError, match=r'not installed: twine\.\nType: pip install "dotcu\[build,tools\]"'
    ):
        auditing.require_tools()

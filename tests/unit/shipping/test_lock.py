"""`dotcu build` up to the wheel: what is locked, what fails the build, what is left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dotcu import process, settings
from dotcu.cli.main import parser
from dotcu.compile import pool, toolchain
from dotcu.errors import CompileError, DotcuError, NotCovered, ToolchainError, UsageError
from dotcu.operator.tuned import TunedEntry, TunedFile
from dotcu.shipping import assembling, lock, project, wheel
from helpers import projects


@pytest.fixture
def made(tmp_path: Path) -> projects.Made:
    return projects.make(tmp_path)


def names(made: projects.Made) -> set[str]:
    return {name for _, _, name, _ in lock.read(made.root).kernels()}


def test_the_lock_has_what_samples_reach(tmp_path: Path) -> None:
    made = projects.make(tmp_path, dtypes="(torch.float32, torch.bfloat16)")
    projects.lock(made)
    assert names(made) == {"scale<float>", "scale<__nv_bfloat16>"}


HIDDEN = """

def _make():
    @dotcu.op("{name}::scaled", dtypes=(torch.float16,))
    def scaled(x: Tensor, by: float) -> Tensor:
        out, n = torch.empty_like(x), x.numel()
        kernels.scale[x.dtype](x, out, by, n, grid=dotcu.cdiv(n, 128), block=128)
        return out

    scaled.reference(lambda x, by: x * by)
    scaled.samples(lambda device, dtype: [dotcu.Sample(torch.ones(300, device=device, dtype=dtype), 3.0)])
    return {{"scaled": scaled}}


_made = _make()


@scale.backward
def _(ctx, grad):
    return _made["scaled"](grad.double(), ctx.by).to(grad.dtype), None


@scale.setup_context
def _(ctx, inputs, output):
    ctx.by = inputs[1]
"""


def test_the_lock_has_what_only_a_backward_reaches(tmp_path: Path) -> None:
    made = projects.make(tmp_path, ops=projects.OPS + HIDDEN)
    projects.lock(made)
    of_samples, of_an_operator_that_nothing_exports, of_the_backward = "float", "__half", "double"
    reached = {of_samples, of_an_operator_that_nothing_exports, of_the_backward}
    assert names(made) == {f"scale<{each}>" for each in reached}


def test_the_lock_has_what_instantiate_names(tmp_path: Path) -> None:
    ops = projects.OPS.replace(
        '"scale.cu"', '"scale.cu", instantiate={{"scale": [torch.float64, (torch.float16,)]}}'
    )
    made = projects.make(tmp_path, ops=ops)
    projects.lock(made)
    assert names(made) == {"scale<float>", "scale<double>", "scale<__half>"}


def test_a_kernel_that_only_one_architecture_reaches_is_locked_for_that_one(tmp_path: Path) -> None:
    ops = projects.OPS.replace("    n = x.numel()\n", "    n = x.numel()\n{fork}").replace(
        "{fork}",
        "    if dotcu.sm_count(x) > 120:\n"
        "        kernels.scale[torch.float16](x.half(), out.half(), by, n, grid=1, block=128)\n",
    )
    made = projects.make(tmp_path, ops=ops, architectures=("8.0", "9.0"))
    projects.lock(made)
    kernels = {(name, arch) for _, _, name, arch in lock.read(made.root).kernels()}
    everywhere = {("scale<float>", arch) for arch in ("sm_80", "sm_90", "simulated")}
    assert kernels == everywhere | {("scale<__half>", "sm_90")}


TUNED = (
    "@scale.configurations\n"
    "def _():\n"
    "    yield Tile(128, True)\n"
    "    yield Tile(64, False)\n\n\n"
    "@scale.reference"
)


def test_the_lock_has_the_kernels_of_tuned_configurations(tmp_path: Path) -> None:
    ops = (
        projects.OPS.replace("import torch\n", "from typing import NamedTuple\n\nimport torch\n", 1)
        .replace(
            "\n\n@dotcu.op", "\n\nclass Tile(NamedTuple):\n    block: int\n    half: bool\n\n\n@dotcu.op", 1
        )
        .replace("    kernels.", "    tile = scale.configuration(n)\n    kernels.")
        .replace("[x.dtype]", "[x.dtype if tile.half else torch.float64]")
        .replace("@scale.reference", TUNED)
    )
    made = projects.make(tmp_path, ops=ops, architectures=("8.0", "9.0"))
    (operator,) = projects.lock(made).operators
    tunable: Any = operator.tunable  # type: ignore[attr-defined]
    assert names(made) == {"scale<float>"}
    entry = TunedEntry(
        gpu="NVIDIA H200", capability="9.0", multiprocessors=132, key=(1,),
        configuration={"block": 64, "half": False}, median_us=1.0, over_runner_up=1.0, over_default=1.0,
        digest=tunable.digest,
    )  # fmt: skip
    TunedFile().with_entries(operator.qualified_name, [entry]).write(made.package / "ops.tuned.toml")
    tunable.forget()
    projects.lock(made)
    kernels = {(name, arch) for _, _, name, arch in lock.read(made.root).kernels()}
    everywhere = {("scale<float>", arch) for arch in ("sm_80", "sm_90", "simulated")}
    assert kernels == everywhere | {("scale<double>", "sm_90")}


def test_the_same_project_gives_the_same_lock(made: projects.Made) -> None:
    first = projects.lock(made).lock.to_text()
    again = wheel.prepare(project.read(made.root))
    assert again.lock.to_text() == first == (made.root / "dotcu.lock").read_text()
    assert "is unchanged" in again.change


def test_the_lock_can_be_written_without_a_wheel(
    made: projects.Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(assembling, "build_all", None)
    parser()(["build", str(made.root), "--lock-only"], standalone_mode=False)
    assert names(made) == {"scale<float>"}
    assert capsys.readouterr().out == "dotcu.lock is new: 2 kernels, counted for each architecture\n"
    assert not (made.root / "dist").exists()


def test_the_lock_of_this_repository_has_every_source_of_the_gallery() -> None:
    root = Path(__file__).parents[3]
    written = {root / source.path for source in lock.read(root).sources}
    gallery = root / "src" / "dotcu" / "gallery"
    lessons = set(gallery.rglob("step_*.cu"))  # of a ladder, launched by kernel= alone
    assert written == set(gallery.rglob("*.cu")) - lessons


def test_the_lock_of_this_repository_is_of_its_sources_as_they_are() -> None:
    root = Path(__file__).parents[3]
    lock.require_current(lock.read(root), root, ())


def test_a_body_that_reaches_more_than_the_lock_has_fails_the_build(made: projects.Made) -> None:
    planned = projects.lock(made)
    text = planned.lock.to_text().replace("scale<float>", "scale<double>")
    (made.root / "dotcu.lock").write_text(text)
    with pytest.raises(NotCovered) as raised:
        wheel.prepare(project.read(made.root), locked=True)
    assert f"{made.name}/scale.cu: scale<float> for simulated, sm_80" in str(raised.value)
    assert "dotcu build" in str(raised.value)


def test_another_define_is_more_than_the_lock_has(made: projects.Made) -> None:
    projects.lock(made)
    renamed = projects.make(
        made.root, ops=projects.OPS.replace('"scale.cu"', '"scale.cu", define={{"F": 1}}')
    )
    shutil.copy(renamed.package / "ops.py", made.package / "ops.py")
    (made.root / "dotcu.lock").write_text(
        (made.root / "dotcu.lock").read_text().replace(made.name, renamed.name)
    )
    with pytest.raises(NotCovered, match=r"scale\.cu: scale<float>"):
        wheel.prepare(project.read(made.root), locked=True)


def test_a_lock_that_cannot_be_read_is_written_anew(made: projects.Made) -> None:
    (made.root / "dotcu.lock").write_text("<<<<<<< HEAD\n")
    assert "is new" in projects.lock(made).change
    assert names(made) == {"scale<float>"}


def test_packages_that_are_installed_in_the_project_are_not_of_it(tmp_path: Path) -> None:
    made = projects.make(tmp_path)
    other = projects.make(tmp_path / ".venv" / "lib" / "python3.11" / "site-packages")
    made.write("other.py", "import sys\n" + f"sys.path.insert(0, {str(other.root)!r})\nimport {other.name}\n")
    made.write("__init__.py", "from . import ops, other\nfrom .ops import scale\n")
    projects.lock(made)
    assert {path for path, *_ in lock.read(made.root).kernels()} == {f"{made.name}/scale.cu"}


def test_a_package_beside_a_folder_src_is_found(made: projects.Made) -> None:
    (made.root / "src").mkdir()
    assert names_of(projects.lock(made)) == {"scale<float>"}


def names_of(planned: wheel.WheelPlan) -> set[str]:
    return {name for _, _, name, _ in planned.lock.kernels()}


def test_a_body_that_fails_is_reported_with_its_line(tmp_path: Path) -> None:
    made = projects.make(tmp_path, ops=projects.OPS.replace("n = x.numel()", "n = x.numel() + nowhere"))
    with pytest.raises(UsageError, match=r"could not be traced for sm_80(.|\n)*ops\.py:(.|\n)*nowhere"):
        wheel.prepare(project.read(made.root))


def test_a_wheel_cannot_go_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "dist").write_text("")
    with pytest.raises(UsageError, match=r"cannot go to .*dist"):
        wheel.require_folder(tmp_path / "dist")


@pytest.mark.parametrize("version", ["abc", "12", "12.8.1", ""])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=r"version is that of its CUDA(.|\n)*--nvrtc 12\.8"):
        wheel.nvrtc_of_version(version)


def test_a_source_that_was_edited_since_is_refused(made: projects.Made, tmp_path: Path) -> None:
    projects.lock(made)
    made.write("scale.cu", projects.SCALE + "// edited\n")
    with pytest.raises(UsageError, match=r"has changed since dotcu\.lock was written"):
        projects.install(made, tmp_path / "site")


def test_an_architecture_that_was_not_followed_is_refused(
    made: projects.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects.lock(made)
    file = made.root / "pyproject.toml"
    file.write_text(file.read_text().replace("'8.0'", "'8.0', '9.0'"))
    with pytest.raises(UsageError, match=r"sm_90 is requested(.|\n)*dotcu build --arch sm_90"):
        projects.install(made, tmp_path / "site")


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in processes of their own, however few there are to compile."""
    monkeypatch.setattr(pool, "FEW", 1)
    monkeypatch.setitem(pool.compile_ahead.__kwdefaults__, "few", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


@pytest.mark.usefixtures("in_processes")
def test_several_processes_compile_what_one_does(tmp_path: Path) -> None:
    made = projects.make(tmp_path, architectures=("8.0", "9.0+PTX"), dtypes="(torch.float32, torch.float16)")
    jobs, done = wheel.prepare(project.read(made.root)).jobs, list[str]()
    with settings.override(cache_dir=tmp_path / "cache"):
        codes = assembling.compile_all(jobs, done.append)
        again = assembling.compile_all(jobs)
    assert list(codes) == list(jobs)
    assert sorted(done) == sorted(map(str, jobs))
    assert all(code.cached for code in again.values())
    assert [(code.cubin, code.ptx) for code in codes.values()] == [
        (code.cubin, code.ptx) for code in again.values()
    ]


@pytest.mark.usefixtures("in_processes")
def test_a_process_that_cannot_compile_gives_the_compilers_words(tmp_path: Path) -> None:
    wrong = projects.SCALE.replace("by *", "\n#if __CUDA_ARCH__ >= 900\nnowhere *\n#endif\n")
    made = projects.make(tmp_path, architectures=("8.0", "9.0"), source=wrong)
    with pytest.raises(CompileError, match=r'"nowhere" is undefined') as caught:
        projects.lock(made)
    assert caught.value.diagnostics[0].line == 6


@pytest.mark.usefixtures("in_processes")
def test_what_a_process_that_ends_leaves_is_compiled_here(
    made: projects.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "ENTRY", "os:abort")
    jobs = wheel.prepare(project.read(made.root)).jobs
    with settings.override(cache_dir=tmp_path / "cache"):
        assert list(assembling.compile_all(jobs)) == list(jobs)


def test_what_fails_on_one_architecture_names_it_and_leaves_no_lock(tmp_path: Path) -> None:
    source = '#if __CUDA_ARCH__ == 890\n#error "no Ada"\n#endif\n' + projects.SCALE
    made = projects.make(tmp_path, architectures=("8.0", "8.9"), source=source)
    planned = wheel.prepare(project.read(made.root))
    with pytest.raises(CompileError) as raised:
        wheel.compile_kernels(planned, lambda _: None)
    assert "does not compile for sm_89" in str(raised.value)
    assert "no Ada" in str(raised.value)
    assert sorted(path.name for path in made.root.iterdir()) == sorted([made.name, "pyproject.toml"])


WITHOUT_OPERATORS = '"""Nothing."""\n\nscale = None\n'
INLINE = projects.OPS.replace('dotcu.load("scale.cu")', 'dotcu.load_inline("""{source}""")').replace(
    "{source}", projects.SCALE.replace("{", "{{").replace("}", "}}")
)


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (WITHOUT_OPERATORS, "defines no operator"),
        (INLINE, "a wheel contains kernels from files"),
        (
            projects.OPS.replace('"scale.cu"', '"scale.cu", include=["/usr/include"]'),
            "not in the project",
        ),
        ("import nowhere\n" + projects.OPS, "cannot be imported"),
    ],
    ids=["no operators", "inline", "include outside", "import"],
)
def test_a_project_that_cannot_be_built_is_reported_why(tmp_path: Path, ops: str, told: str) -> None:
    made = projects.make(tmp_path, ops=ops)
    with pytest.raises(DotcuError, match=told):
        wheel.prepare(project.read(made.root))
    assert not (made.root / "dotcu.lock").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"not in a dotcu project(.|\n)*\[tool\.dotcu\]"),
        ("[tool.dotcu]\n", "modules of"),
        ('[tool.dotcu]\nmodules = "mylib"\n', "is a list of strings, got 'mylib'"),
        ("[tool.dotcu\n", "cannot be read"),
    ],
    ids=["no table", "no modules", "a string", "no TOML"],
)
def test_a_pyproject_that_does_not_say_enough_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=told):
        project.find(tmp_path)


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no pyproject.toml(.|\n)*dotcu new"):
        project.find(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"format": 9}', '{"format": 1}', "[]"], ids=repr)
def test_a_damaged_lock_is_refused(made: projects.Made, text: str) -> None:
    (made.root / "dotcu.lock").write_text(text)
    with pytest.raises(UsageError, match=r"dotcu\.lock(.|\n)*dotcu build"):
        lock.read(made.root)


def test_the_wheel_is_compiled_by_the_nvrtc_that_was_checked(
    made: projects.Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def run(command: object, *, environment: dict[str, str], **_: object) -> process.Finished:
        given.append(environment["DOTCU_NVRTC"])
        return process.Finished(command=(), status=1, stdout="", stderr="")

    planned = projects.lock(made)
    monkeypatch.setattr(wheel.process, "run", run)
    with pytest.raises(ToolchainError):
        wheel.make_wheel(planned, tmp_path)
    assert given == [str(toolchain.nvrtc().path)]


def test_an_nvrtc_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no NVRTC 12\.1(.|\n)*nvidia-cuda-nvrtc-cu12==12\.1"):
        wheel.nvrtc_of_version("12.1")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as on a disk that is mounted read-only
    with pytest.raises(UsageError, match=r"it cannot be written(.|\n)*dotcu build --out FOLDER"):
        wheel.require_folder(tmp_path / "dist")

"""Every code block of README.md, docs/ and the gallery's pages does what its page says.

The blocks of a page are run in order, in an empty folder of its own:

    ```cuda title="scale.cu"     any block with a title is written to that file
    ```python                    run, in one namespace for the page
    ```console                   a shell runs each `$ line`, and its output is compared
    ```sh                        not run: lines that install something or need a clone

In expected output `...` matches any text, and a measured value (a time, a percentage, a number below
one, the steps of a kernel, which differ by NVRTC's release) matches any other. A block under
`<!-- needs a GPU -->` is skipped on a machine without one, and one under `<!-- needs Triton -->` where
Triton is not installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

import dotcu
from dotcu import errors, settings
from dotcu.benchmark import timing
from dotcu.benchmark.results import Protocol
from dotcu.checking import numerics
from dotcu.checking.catalogue import CHECKS, FINDS
from helpers import forked_scripts

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src" / "dotcu" / "gallery").rglob("*.md")),
]
LONG = {
    *("bench.md", "build.md", "check.md", "commands.md", "everywhere.md", "first_call.md", "host_code.md"),
    "inspect.md",
    *("launching.md", "cpp.md", "operators.md", "package.md", "performance.md", "pitfalls.md"),
    *("project.md", "reading_code.md", "several_gpus.md", "simulator.md", "torch_library.md", "tune.md"),
}
"""Pages whose commands take long; `make test-all` runs them."""

IMPORTED = {"first_kernel.md"}
"""Pages with a script that imports the operators which `dotcu` takes: it gets a process of its own."""

BLOCK = re.compile(
    r"^(?P<comment><!-- [^\n]* -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SCRIPT = re.compile(r"python (\w+\.py)")
COMMAND = re.compile(r"^\$ (?P<line>[^\n]*)\n(?P<output>.*?)(?=^\$ |\Z)", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"\b\d+(\.\d+)? (µs|ms|s)\b|\b\d+%|\b0\.\d+\b|[\d,]+ steps\b")
NOT_RUN = {"sh", "text", "cuda", "toml", "yaml", "cpp"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int
    needs_gpu: bool
    needs_triton: bool


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', match["info"])
        yield Block(
            language=match["language"],
            title=title[1] if title else "",
            text=re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            line=text.count("\n", 0, match.start("text")) + 1,
            needs_gpu="needs a GPU" in (match["comment"] or ""),
            needs_triton="needs Triton" in (match["comment"] or ""),
        )


def matches(expected: str, got: str) -> bool:
    pattern = re.escape(normal(expected)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, normal(got), re.DOTALL) is not None


def normal(text: str) -> str:
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in MEASURED.sub("#", text).strip().splitlines()]
    return "\n".join(lines)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `python` and `dotcu` of the environment under test."""
    folder = tmp_path_factory.mktemp("bin")
    for name, words in {"python": [sys.executable], "dotcu": [sys.executable, "-m", "dotcu"]}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def run_console(block: Block, page: Path, programs: Path, cache: Path) -> None:
    for command in COMMAND.finditer(block.text):
        script = SCRIPT.fullmatch(command["line"])
        words = shlex.split(command["line"])
        if script and page.name not in LONG:
            printed = run_here(script[1])
        elif words[0] == "dotcu" and page.name in IMPORTED:
            done = forked_scripts.command(*words[1:], folder=Path.cwd(), DOTCU_CACHE_DIR=str(cache))
            printed = PROGRESS.sub("", done.stdout + done.stderr)
        elif words[0] == "dotcu" and page.name not in LONG:
            with settings.override(cache_dir=cache):
                done = forked_scripts.here(*words[1:])
            printed = PROGRESS.sub("", done.stdout + done.stderr)
        else:
            printed = run_in_shell(command["line"], programs, cache)
        got = printed.replace(f"{Path.cwd()}/", "")
        where = f"{page.name}:{block.line}: $ {command['line']}"
        assert matches(command["output"], got), f"{where}\n--- expected\n{command['output']}--- got\n{got}"


def run_here(script: str) -> str:
    """Run a script in this process, which has imported torch, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        runpy.run_path(script, run_name="__main__")
    return printed.getvalue()


PROGRESS = re.compile(r"^(\S+ \S+: \d+ done, at |\d+ of \d+ done in ).*\n", re.MULTILINE)
"""What a check says of its progress, which depends on the machine."""


def run_in_shell(line: str, programs: Path, cache: Path) -> str:
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    done = subprocess.run(
        line,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ) | {"PATH": path, "DOTCU_CACHE_DIR": str(cache)},
        check=False,
    )
    return PROGRESS.sub("", done.stdout)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.name in LONG else ()) for page in PAGES],
    ids=[page.relative_to(ROOT).as_posix() for page in PAGES],
)
def test_page(
    page: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    programs: Path,
) -> None:
    cache = tmp_path_factory.mktemp("empty-cache")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(
        "TRITON_CACHE_DIR", str(cache)
    )  # it has the paths of files that were compiled elsewhere
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns of another default to come
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where torch looks a function's module up
    module.__file__ = str(tmp_path / "page.py")
    namespace = vars(module)
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.needs_gpu and not torch.cuda.is_available():
            continue
        if block.needs_triton and find_spec("triton") is None:
            continue
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text)
            sys.modules.pop(Path(block.title).stem, None)  # another page may have a file of that name
        elif block.language == "python":
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(tmp_path / "page.py"), "exec"), namespace)
        elif block.language == "console":
            run_console(block, page, programs, cache)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_a_page_has_a_language_that_is_run_or_said_not_to_be(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE)), "a fence was not understood"
    unknown = [b.line for b in found if b.language not in NOT_RUN | {"python", "console"} and not b.title]
    assert unknown == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("a\n", "a"),
        ("a ... c", "a b\nb c"),
        ("took 12 ms, 4%", "took 3.4 ms, 70%"),
        ("8 sums, 1,409 steps in sequence", "8 sums, 412 steps in sequence"),
        ("...\nlast", "first\nlast"),
    ],
)
def test_output_that_fits(expected: str, got: str) -> None:
    assert matches(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"), [("a", "ab"), ("", "a"), ("12 lanes", "13 lanes"), ("... c", "a b")]
)
def test_output_that_does_not_fit(expected: str, got: str) -> None:
    assert not matches(expected, got)


def test_the_table_of_checks_is_the_catalogue() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \| (quick|standard|full) \|$", page, re.MULTILINE)
    assert rows == [(name, FINDS[level][name], level.name.lower()) for name, level in CHECKS.items()]


@pytest.mark.parametrize(
    ("page", "heading"), [("simulator.md", "## Change the simulator"), ("check.md", "## Add a check")]
)
def test_the_files_and_names_that_contributors_are_told_to_edit_exist(page: str, heading: str) -> None:
    section = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    folders = (ROOT / "src" / "dotcu", ROOT / "tests")
    paths = [path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts]
    known = "\n".join(f"{path.as_posix()}{'/' * path.is_dir()}" for path in paths) + "\n"
    named = re.findall(r"`([\w/]+(?:/|\.(?:py|cu)))`", section)
    assert [name for name in named if f"/{name}\n" not in known] == []
    source = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py")
    names = set(re.findall(r"`([A-Za-z_]\w+)`", section))
    assert names
    assert names - set(re.findall(r"\w+", source)) == set()


def test_the_bound_in_the_docs_is_the_one_in_force() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    stated = re.findall(r"\*\*(\d+) times\*\*", page.partition("## The bound")[2].partition("\n## ")[0])
    assert stated == [f"{numerics.MARGIN:g}", f"{numerics.NORM_MARGIN:g}"]


def test_the_parameters_of_a_measurement_in_the_docs_are_those_in_force() -> None:
    page = (ROOT / "docs" / "explanation" / "measuring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| .* \|$", page, re.MULTILINE)
    assert rows == [(name, str(value)) for name, value in dataclasses.asdict(Protocol()).items()]
    assert f"Above {timing.MARKED_ABOVE:g} % a row is marked" in page


def test_every_template_to_come_from_has_the_same_four_sections() -> None:
    folder, sections = ROOT / "docs" / "coming_from", ["What you have", "What you write now", "What you gain"]
    sections.append("What you lose")
    for page in folder.glob("*.md"):
        if page.name != "index.md":
            headings = re.findall(r"^###? (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            templates = [heading for heading in headings if heading not in sections]
            assert [each for each in headings if each in sections] == sections * max(1, len(templates)), page


OUTSIDE = [page for page in PAGES if ROOT / "docs" not in page.parents]
"""Pages that mkdocs does not build, and whose links it does not check."""


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_outside_of_the_site_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        other = page.parent / target if target else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in headings], anchor


def test_every_file_that_the_architecture_names_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "dotcu"
    for name in set(re.findall(r"\b[a-z_]+/[a-z_/]*(?:[a-z_]+\.(?:py|c)|(?<=/))(?=[\s`,:;)])", page)):
        assert (source / name).exists() or (ROOT / name).exists(), name
    for file, names in re.findall(r"\b([a-z_]+/[a-z_/]+\.py): ([A-Za-z_.]+)\b", page):
        text = (source / file).read_text(encoding="utf-8")
        for name in names.split("."):
            assert re.search(rf"^ *(?:def|class) {name}\b", text, re.MULTILINE), f"{file}: {name}"
    for name, file in re.findall(r"`([A-Za-z_]+)`\s+in\s+`([a-z_/]+\.(?:py|c))`", page):
        text = (source / file).read_text(encoding="utf-8")
        assert re.search(rf"^[\w *]*\b{name}\b *[(:=]", text, re.MULTILINE), f"{file}: {name}"


TROUBLE = """
template <typename T> __global__ void scale(T* x) { x[threadIdx.x] *= 2; }
__global__ void copy(const float* x, float* out, int n) { if (threadIdx.x < n) out[0] = x[0]; }
__global__ void large(float* out) { __shared__ float t[20000]; t[threadIdx.x] = 1; out[threadIdx.x] = t[0]; }
__global__ void shared(float* out) { extern __shared__ float s[]; s[threadIdx.x] = 1; *out = s[0]; }
"""


def test_the_messages_of_troubleshooting_are_those_that_are_raised() -> None:
    page = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text(encoding="utf-8")
    kernels, x, out = dotcu.load_inline(TROUBLE), torch.ones(4, 4), torch.empty(16)
    half = dotcu.load_inline("__global__ void f(float* x) { *x = __half2float(1); }")
    for message, call, arguments in (
        ('identifier "__half2float" is undefined', half.f, (x,)),
        ("is a template and was used without template arguments", kernels.scale, (x,)),
        ("with strides (1, 4)", kernels.copy, (x.T, out, 16)),
        ("takes an int from -2147483648 to 2147483647, got", kernels.copy, (x, out, 2**31)),
        ("takes 3 arguments, got 2. Missing: int n.", kernels.copy, (x, out)),
        ("got 80000 bytes of static shared memory; the limit is 49152", kernels.large, (out,)),
        ("was launched on a tensor that requires grad", kernels.copy, (x.clone().requires_grad_(), out, 16)),
        ("has 0 bytes of shared memory", kernels.shared, (out,)),
    ):
        with pytest.raises(errors.DotcuError) as raised:
            call(*arguments, grid=1, block=32)
        assert message in " ".join(str(raised.value).split())
        assert message in page
    with pytest.raises(errors.LaunchConfigError, match=r"got block\.x=2048; the limit is 1024"):
        kernels.copy(x, out, 16, grid=1, block=2048)

"""`dotcu sanitize`: a script runs as under Python, and a report names the faults of its kernels."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from helpers import forked_scripts

KERNEL = """
import dotcu, sys, torch
module = dotcu.load_inline(\"\"\"
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s out[i] = 2 * x[i];
}\"\"\")
x, out = torch.rand(100%s), torch.empty(100%s)
module.twice(x, out, 100, grid=%s, block=64)
"""
FAULTY = KERNEL % ("", "", "", 2)
RIGHT = KERNEL % ("if (i < n)", "", "", 2)
ON_GPU = KERNEL % ("if (i < n)", ', device="cuda"', ', device="cuda"', 2)
EMPTY_GRID = KERNEL % ("", "", "", 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sanitized(*words: str, **scripts: str) -> CompletedProcess[str]:
    for name, text in scripts.items():
        Path(f"{name}.py").write_text(text)
    return forked_scripts.command("sanitize", *words, folder=Path.cwd())


def test_a_fault_is_reported_with_its_count_and_fails() -> None:
    done = sanitized("faulty.py", faulty=FAULTY + "print('the end')\n")
    assert (done.returncode, done.stdout) == (1, "the end\n")
    assert "out-of-bounds" in done.stderr
    assert "faulty.py:9" in done.stderr  # the launch
    assert "1 launch of twice, simulated for sm_80 in" in done.stderr


def test_without_a_fault_the_script_has_its_own_exit_code() -> None:
    done = sanitized("right.py", right=RIGHT + "sys.exit(3)\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("No findings. 1 launch of twice, simulated for sm_80 in")
    assert sanitized("right.py", right=RIGHT).returncode == 0


def test_findings_go_before_the_exit_code_of_the_script() -> None:
    assert sanitized("faulty.py", faulty=FAULTY + "sys.exit(3)\n").returncode == 1


def test_checks_seed_and_architecture_can_be_chosen() -> None:
    done = sanitized("--checks", "race,barrier", "--seed", "1", "--arch", "sm_90", "faulty.py", faulty=FAULTY)
    assert done.returncode == 0
    assert "simulated for sm_90" in done.stderr


def test_json_has_standard_output_for_itself() -> None:
    text = FAULTY + "import os\nprint('from Python')\nsys.stdout.flush()\nos.write(1, b'from C\\n')\n"
    done = sanitized("--json", "faulty.py", faulty=text)
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] == 1
    assert report["version"] == 1
    assert report["launches"] == {"twice": 1}
    assert sum(report["counts"].values()) == len(report["findings"])
    assert report["findings"][0]["kind"] in report["counts"]
    assert "twice" in report["findings"][0]["text"]
    assert done.stderr == "from Python\nfrom C\n"


SEES = "import json, sys\nprint(json.dumps([__name__, __file__, sys.argv, sys.path[0]]))\n"


def test_a_script_sees_what_python_shows_it(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "script.py").write_text(SEES)
    (folder / "inner" / "beside.py").write_text("")
    words = ("inner/script.py", "--json", "-h", "--", "x")
    done = sanitized(*words)
    path = str(folder / "inner" / "script.py")
    assert json.loads(done.stdout) == ["__main__", path, list(words), str(folder / "inner")]


def test_a_module_runs_as_with_m(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__main__.py").write_text(SEES)
    done = sanitized("-m", "package", "-x", "--json")
    path = str(folder / "package" / "__main__.py")
    assert json.loads(done.stdout) == ["__main__", path, [path, "-x", "--json"], str(folder)]


def test_a_folder_with_a_main_is_a_script(folder: Path) -> None:
    (folder / "program").mkdir()
    (folder / "program" / "__main__.py").write_text("import beside\nprint(beside.word)\n")
    (folder / "program" / "beside.py").write_text("word = 'beside'\n")
    assert sanitized("program").stdout == "beside\n"


def test_an_interrupt_ends_with_a_report() -> None:
    done = sanitized("script.py", script=RIGHT + "raise KeyboardInterrupt\n")
    assert (done.returncode, done.stderr.split(",")[0]) == (130, "No findings. 1 launch of twice")


def test_main_can_be_imported_and_pickled() -> None:
    text = (
        "import pickle, __main__\nclass Value: ...\nassert __main__.Value is Value\npickle.dumps(Value())\n"
    )
    assert "Traceback" not in sanitized("script.py", script=text).stderr


def test_an_error_shows_the_traceback_of_python() -> None:
    text = RIGHT + "def fail():\n    raise KeyError('lost')\nfail()\n"
    done = sanitized("script.py", script=text)
    assert done.returncode == 1
    shown, _, report = done.stderr.partition("No findings.")
    lines = shown.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('script.py", line 12, in <module>')
    assert lines[-1] == "KeyError: 'lost'"
    assert "1 launch of twice" in report


def test_an_error_before_the_first_launch_says_that_nothing_was_checked() -> None:
    done = sanitized("script.py", script="raise AssertionError('Torch not compiled with CUDA enabled')\n")
    assert done.returncode == 1
    assert "AssertionError: Torch not compiled with CUDA enabled\nerror: No findings, because" in done.stderr
    assert done.stderr.endswith("type: dotcu sanitize --device-cuda-as-cpu script.py\n")


def test_a_syntax_error_is_that_of_the_script() -> None:
    done = sanitized("script.py", script="x = (\n")
    assert done.returncode == 1
    assert "script.py" in done.stderr
    assert "SyntaxError: '(' was never closed" in done.stderr


def test_an_error_of_dotcu_begins_with_the_line_of_the_script() -> None:
    done = sanitized("script.py", script=RIGHT.replace("x, out, 100", "x, out"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: script.py:9: ")
    assert "Traceback" not in done.stderr


def test_a_message_of_sys_exit_is_shown() -> None:
    done = sanitized("script.py", script="import sys\nsys.exit('no data')\n")
    assert done.returncode == 1
    assert "no data" in done.stderr


@pytest.mark.parametrize("text", ["print('hello')\n", EMPTY_GRID])
def test_a_run_without_a_launch_is_no_success(text: str) -> None:
    done = sanitized("script.py", script=text)
    assert done.returncode == 1
    assert done.stderr == (
        "error: No findings, because script.py launched no kernel: nothing was checked.\n"
        "Required: a launch on CPU tensors of a kernel of Triton, Numba, TileLang, cuTile or dotcu.\n"
        'If it asks for "cuda", type: dotcu sanitize --device-cuda-as-cpu script.py\n'
    )


def test_code_that_asks_for_a_gpu_runs_by_an_option() -> None:
    done = sanitized("--device-cuda-as-cpu", "script.py", script=ON_GPU + "assert x.is_cuda\n")
    assert (done.returncode, done.stderr.split(",")[0]) == (0, "No findings. 1 launch of twice")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "There is no script nowhere.py.\n"),
        (["-m", "nowhere.at.all"], "There is no module nowhere.at.all.\n"),
        (["--arch", "sm_70", "script.py"], 'arch is "sm_75" or newer'),
        (["--arch", "hopper", "script.py"], "An architecture was expected, got 'hopper'.\n"),
        (["--checks", "races", "script.py"], "checks are some of"),
        (["--seed", "-5", "script.py"], "seed is None, -1"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_script_runs(words: list[str], message: str) -> None:
    done = sanitized(*words, script="print('it runs')\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")


def test_a_package_that_fails_at_import_shows_its_own_error(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("1 / 0\n")
    (folder / "package" / "part.py").write_text("")
    done = sanitized("-m", "package.part")
    assert done.returncode == 1
    assert "\nZeroDivisionError: division by zero\nerror: No findings, because package.part" in done.stderr


def test_a_triton_that_is_too_old_is_named(folder: Path) -> None:
    (folder / "triton").mkdir()
    (folder / "triton" / "__init__.py").write_text("__version__ = '2.1.0'\n")
    done = sanitized("script.py", script=RIGHT)
    assert done.returncode == 3
    assert done.stderr.startswith("error: Triton 2.1.0 is installed, which dotcu cannot use: ")
    assert done.stderr.endswith("Required: Triton 3.7 or later.\nType: pip install --upgrade triton\n")


def test_a_triton_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys\nsys.modules['triton'] = None\nimport triton\n"
    done = sanitized("script.py", script=text)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: script.py:3: Triton is imported, and not installed.\nRequired: Triton 3.7"
    )

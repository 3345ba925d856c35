"""The templates: plain files in which «package», «project» and «operator» stand for names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent / "template"

_FIRST_OPERATOR = "src/«package»/ops.py"

PROJECT = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "Makefile": "Makefile",
    "gitignore": ".gitignore",
    "clang-format": ".clang-format",
    "pre-commit-config.yaml": ".pre-commit-config.yaml",
    "workflow.yml": ".github/workflows/test.yml",
    "Containerfile": "Containerfile",
    "Containerfile.gpu": "Containerfile.gpu",
    "third_party.md": "third_party/README.md",
    "init.py": "src/«package»/__init__.py",
    "py.typed": "src/«package»/py.typed",
}
"""Template -> where it goes in a project, once."""

OPERATOR = {
    "operator.cu": "src/«package»/«operator».cu",
    "operator.py": "src/«package»/«operator».py",
    "test_operator.py": "tests/test_«operator».py",
    "benchmark.py": "benchmarks/«operator».py",
}
"""Template -> where it goes, once for each operator."""

FIRST_OPERATOR = OPERATOR | {"operator.py": _FIRST_OPERATOR}

# The same with launchers in C++, `dotcu new --native`.
NATIVE_PROJECT = {
    "native/pyproject.toml": "pyproject.toml",
    "native/README.md": "README.md",
    "native/Makefile": "Makefile",
    "gitignore": ".gitignore",
    "native/clang-format": ".clang-format",
    "pre-commit-config.yaml": ".pre-commit-config.yaml",
    "native/workflow.yml": ".github/workflows/test.yml",
    "native/Containerfile": "Containerfile",
    "Containerfile.gpu": "Containerfile.gpu",
    "native/third_party.md": "third_party/README.md",
    "native/init.py": "src/«package»/__init__.py",
    "native/library.py": "src/«package»/_library.py",
    "py.typed": "src/«package»/py.typed",
    "native/library.cpp": "src/«package»/csrc/library.cpp",
    "native/stable.h": "src/«package»/csrc/stable.h",
    "native/launch.h": "src/«package»/csrc/launch.h",
}

NATIVE_OPERATOR = {
    "native/operator.cpp": "src/«package»/csrc/«operator».cpp",
    "native/operator.cu": "src/«package»/csrc/«operator».cu",
    "native/operator.py": "src/«package»/«operator».py",
    "native/test_operator.py": "tests/test_«operator».py",
    "native/benchmark.py": "benchmarks/«operator».py",
}

NATIVE_FIRST_OPERATOR = NATIVE_OPERATOR | {"native/operator.py": _FIRST_OPERATOR}


def filled(table: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The files of a table: their paths with their texts."""
    return {_fill(path, names): _fill(_read(template), names) for template, path in table.items()}


def own_names() -> set[str]:
    """The names that an operator's templates use themselves, so that no operator can have them.

    In C++ and CUDA with host code an operator's name is text, or has more letters.
    """
    found: set[str] = set()
    for template in (*OPERATOR, *filter(_is_python, NATIVE_OPERATOR)):
        text = _fill(_read(template), {"package": "_", "operator": "_"})
        found |= set(_python_names(text) if _is_python(template) else _cuda_names(text))
    return (found | {name.removeprefix("test_") for name in found}) - {"_"}  # test_NAME is made, too


def _is_python(template: str) -> bool:
    return template.endswith(".py")


def _read(template: str) -> str:
    return (_FOLDER / f"{template}.template").read_text(encoding="utf-8")


def _fill(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"«{name}»", value)
    return text


def _python_names(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def _cuda_names(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", re.sub(r"//.*|#include.*", "", text))

"""Which names there can be, and what is said of the others."""

from __future__ import annotations

import pytest

import dotcu
from dotcu import scaffold

PROJECTS = {
    "3d-ops": "begin with a letter",
    "_ops": "begin with a letter",
    "ops_": "end with a letter or digit",
    "my ops": "contain only those",
    "my.ops": "contain only those",
    "größe": "contain only those",
    "": "begin with a letter",
    "class": "keyword of Python",
    "None": "keyword of Python",
    "json": "standard library",
    "dotcu": "would hide dotcu",
    "torch": "would hide torch",
    "ml-dtypes": "would hide ml_dtypes",
    "tests": "would hide tests",
    "aten": "torch has operators",
    "a" * 41: "41 characters, and at most 40 are allowed",
}

OPERATORS = {
    "3d": "begin with a letter",
    "_op": "begin with a letter",
    "my-op": "contain only letters",
    "my op": "contain only letters",
    "": "begin with a letter",
    "größe": "contain only letters",
    "lambda": "keyword of Python",
    "float": "keyword of C++",
    "statistics": "standard library",
    "numpy": "would hide numpy",
    "threadIdx": "something else in CUDA",
    "float4": "something else in CUDA",
    "size_t": "something else in CUDA",
    "compile": "own files use that name",
    "kernels": "own files use that name",
    "alpha": "own files use that name",
    "values": "own files use that name",  # test_values would be made twice
    "a" * 41: "41 characters, and at most 40 are allowed",
}


@pytest.mark.parametrize(("name", "why"), PROJECTS.items(), ids=repr)
def test_no_project_has_the_name(name: str, why: str) -> None:
    assert why in scaffold.project_refusal(name)
    assert scaffold.project_refusal(scaffold.suggested(name, "_ops")) == ""


@pytest.mark.parametrize(("name", "why"), OPERATORS.items(), ids=repr)
def test_no_operator_has_the_name(name: str, why: str) -> None:
    assert why in scaffold.operator_refusal(name)
    assert scaffold.operator_refusal(scaffold.suggested(name, "_op")) == ""


@pytest.mark.parametrize("name", ["mylib", "my-lib", "MyLib", "x", "flash2", "scale_add", "a" * 40])
def test_a_project_may_have_the_name(name: str) -> None:
    assert scaffold.project_refusal(name) == ""


@pytest.mark.parametrize("name", ["scale_add", "exp", "sum", "relu_", "RMSNorm", "half", "x2", "a" * 40])
def test_an_operator_may_have_the_name(name: str) -> None:
    assert scaffold.operator_refusal(name) == ""


def test_hyphens_become_an_importable_name() -> None:
    assert scaffold.package_of("my-new-lib") == "my_new_lib"


@pytest.mark.parametrize(
    ("name", "near"), [("my ops", "my_ops"), ("json", "json_ops"), ("3d-ops", "my_3d_ops"), ("", "my")]
)
def test_the_suggestion_is_near(name: str, near: str) -> None:
    assert scaffold.suggested(name, "_ops") == near


def test_a_kernel_never_hides_behind_what_a_module_has_itself() -> None:
    module = dotcu.load_inline("__global__ void k(float* x) { *x = 1; }")
    own = {name for name in dir(module) if not name.startswith("_")} - {"k"}
    assert {name for name in own if not scaffold.operator_refusal(name)} == set()


def test_names_that_the_templates_use_are_found_in_code_alone() -> None:
    own = scaffold.own_names()
    assert {"dotcu", "torch", "Tensor", "all", "main", "checks", "BLOCK", "lanes", "vector", "T"} <= own
    assert "memory" not in own  # it stands in a comment

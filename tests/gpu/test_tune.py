"""Tuning on a GPU: configurations that hang, fault or are wrong are named, and one file comes of one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from dotcu.checking.target import resolve
from dotcu.tuning import tune
from tune import chosen, write

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("alone")]


def test_what_hangs_or_faults_is_named_and_never_wins(tmp_path: Path) -> None:
    file = write(tmp_path).with_name("fault_ops.py")
    report = tune(resolve(str(file))[0][1], shapes="100")
    (row,) = report.rows
    reasons = {str(each.configuration["name"]): each.reason for each in row.rejected}
    assert list(reasons) == ["hangs", "faults", "writes beyond", "is NaN beyond 64", "does not compile"]
    assert "did not end" in reasons["hangs"]
    assert "unusable" in reasons["faults"]
    assert str(row.configuration["name"]).startswith("good")


def test_a_product_is_tuned_and_tuned_again_to_the_same_file(tmp_path: Path) -> None:
    file = write(tmp_path)
    op: Any = resolve(f"{file}:matmul")[0][1]
    shapes = "512x512:512x512"
    (row,) = tune(op, shapes=shapes).rows
    assert row.status == "tuned"
    assert row.over_default >= 0.97
    tuned_file = file.with_suffix(".tuned.toml")
    before = tuned_file.read_bytes()
    assert chosen(tuned_file) == {(512, 512, 512): dict(row.configuration)}
    tune(op, shapes=shapes)
    assert tuned_file.read_bytes() == before


@pytest.mark.filterwarnings(
    "ignore:TypedStorage is deprecated", "ignore:The CUDA Graph is empty"
)  # torch's own
def test_inductor_times_the_configurations_of_a_graph(tmp_path: Path) -> None:
    op: Any = resolve(f"{write(tmp_path).with_name('scale_ops.py')}:scale")[0][1]
    op.autotune_in_inductor([op.tunable.space[0], op.tunable.space[-1]])
    x = torch.randn(1 << 24, device="cuda")
    with torch._inductor.config.patch(fx_graph_cache=False):
        compiled = torch.compile(lambda x: op(x).relu(), fullgraph=True, mode="max-autotune")
        out, codes = run_and_get_code(compiled, x)
    torch.testing.assert_close(out, (2 * x).relu())
    assert "configuration='block=1024 items=8'" in "".join(codes)  # as it was timed, at least
    torch.testing.assert_close(compiled(-x), (-2 * x).relu())

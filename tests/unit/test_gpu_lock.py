"""The lock that keeps tests which measure time on a GPU apart from all others."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from helpers.gpu_lock import holding_gpu


def is_free(path: Path, *, exclusive: bool) -> bool:
    """Whether another process could have the lock at once."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_test_that_is_alone_shuts_out_all_others_and_is_shut_out_by_all(
    tmp_path: Path, exclusive: bool
) -> None:
    path = tmp_path / "gpu.lock"
    with holding_gpu(exclusive=exclusive, path=path):
        assert not is_free(path, exclusive=True)
        assert is_free(path, exclusive=False) is not exclusive
        assert is_free(path.with_suffix(".queue"), exclusive=True)
    assert is_free(path, exclusive=True)

"""What the tests of C++ share: a cache of their own, and a compiler that is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.cpp.tools import TorchInstall
from helpers.cpp_projects import Fake, Project, write_fake


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return write_fake(tmp_path / "tools")


@pytest.fixture
def torch_parts(tmp_path: Path) -> TorchInstall:
    return TorchInstall(version="2.13.0", cuda=None, folder=tmp_path / "torch", identity="torch 2.13.0")


@pytest.fixture
def project(tmp_path: Path, cache_dir: Path, fake: Fake, torch_parts: TorchInstall) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder=folder, fake=fake, torch=torch_parts)

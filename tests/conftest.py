"""What every test shares: a cache of its own, settings out of the user's reach, a device."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dotcu import files, settings
from dotcu.compile import cache
from helpers.gpu_lock import holding_gpu

if TYPE_CHECKING:
    import torch  # for seconds, which pytest's first process, with workers of its own, need not wait for

# A worker of pytest has a core. Threads of torch and NumPy would wait in loops for what is done with a test's
# small tensors: a tenth of all CPU time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

KEPT = {"nvrtc", "cuda_home"}  # these say which toolkit is under test

OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
"""By these the `make` that runs pytest would give its flags to a test's, and have it name its folder."""


@pytest.fixture(scope="session", autouse=True)
def _own_settings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Defaults for every setting, and an empty cache that workers share; for a test's programs, too."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if hasattr(request.config, "workerinput") else base) / "dotcu-cache"
    fields = [f for f in dataclasses.fields(settings.Settings) if f.name not in KEPT]
    with pytest.MonkeyPatch.context() as patch:
        for field in fields:
            patch.delenv(field.metadata["variable"], raising=False)
        for variable in OF_MAKE:
            patch.delenv(variable, raising=False)
        patch.setenv("DOTCU_CACHE_DIR", str(cache))
        patch.setattr(os, "fsync", lambda descriptor: None)  # each compile would wait five times for the disk
        defaults = {field.name: field.default for field in fields}
        with settings.override(**defaults | {"cache_dir": cache}):
            yield


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Give every test the same random tensors in every run.

    Without a GPU the CPU's generator alone: for the others torch keeps each seed until they are there, with
    the stack that it came from, which takes milliseconds.
    """
    import torch

    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_logger() -> Iterator[None]:
    """The command line sets handlers and level for its whole process; the next test has its own again."""
    logger = logging.getLogger("dotcu")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    if logger.level != level:
        logger.setLevel(level)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Iterator[Path]:
    """An empty cache, in force until the test ends."""
    with settings.override(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"
        cache.forget()


@pytest.fixture
def of_another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Lets files and folders count as those of another user, which only root could really make."""
    real, nodes = files.is_trusted, set[tuple[int, int]]()

    def is_trusted(status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) not in nodes and real(status)

    def give(path: Path) -> None:
        status = path.lstat()
        nodes.add((status.st_dev, status.st_ino))

    monkeypatch.setattr(files, "is_trusted", is_trusted)
    return give


@pytest.fixture
def device() -> torch.device:
    """The GPU where there is one; else the CPU, where a launch runs in the simulator."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _gpu_with_others(request: pytest.FixtureRequest) -> Iterator[None]:
    """Share the GPU with tests of other workers, but with none that has it `alone`."""
    import torch

    if not torch.cuda.is_available() or "alone" in request.fixturenames:
        yield
        return
    with holding_gpu(exclusive=False):
        yield


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """Keep out of each garbage collection what is there when a file begins: modules and caches, which stay.

    A test that collects would walk through millions of objects, for seconds.

    Let torch's loggers propagate, too: pytest adds its handlers to each that does not, six times a test. And
    torch traces each compile for whoever has a handler there, which pytest would be.
    """
    gc.freeze()
    for logger in [*logging.getLogger().manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger) and logger.name.startswith(("torch", "strobelight", "c10d")):
            logger.propagate = True
    logging.getLogger("torch.__trace").handlers.clear()


def pytest_configure() -> None:
    """Log from INFO on, since torch logs its whole trace at DEBUG, and collect garbage rarely.

    pytest's `log_level` would set the level anew for each part of each test, which costs a walk through all
    loggers.
    """
    logging.getLogger().setLevel(logging.INFO)
    gc.set_threshold(100_000, 10, 10)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End a worker, which has told its results, without taking torch down, for which the tests' end waits."""
    if hasattr(config, "workerinput"):
        os._exit(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; torch sees none here"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line that counts the skipped tests by reason, where pytest would print one for each place."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        counted = ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {counted}")

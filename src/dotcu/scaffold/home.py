"""The project that a folder belongs to: its pyproject.toml, and what [tool.dotcu] there says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dotcu.errors import UsageError
from dotcu.pyproject import FILE, enclosing, section


@dataclass(frozen=True, kw_only=True)
class Home:
    """A project.

    Attributes:
        folder: That of its pyproject.toml.
        package: The package that has its operators.
        sources: Where that package lies, relative to the folder: `src`, or `.`.
        native: Whether its launchers are C++.
    """

    folder: Path
    package: str
    sources: str
    native: bool

    @property
    def package_folder(self) -> Path:
        """Where the package's files are."""
        return self.folder / self.sources / self.package


def find(folder: Path) -> Home:
    """The project that a folder belongs to.

    Raises:
        UsageError: There is none, or its pyproject.toml does not say where its operators are.
    """
    root = enclosing(folder)
    if root is None:
        raise UsageError(
            f"{folder} is in no project of dotcu's: no pyproject.toml here or above has [tool.dotcu].\n"
            "Go to one, or make one: dotcu new NAME"
        )
    package = _package(root / FILE)
    for sources in ("src", "."):
        if (root / sources / package / "__init__.py").is_file():
            native = "native" in (section(root / FILE) or {})
            return Home(folder=root, package=package, sources=sources, native=native)
    raise UsageError(
        f"{root / FILE} names the package {package}, and there is no src/{package}/__init__.py or "
        f"{package}/__init__.py beside it.\nCorrect modules in [tool.dotcu], or make that file."
    )


def _package(path: Path) -> str:
    """The package to add to, whose own names count among the modules."""
    modules = (section(path) or {}).get("modules")
    if isinstance(modules, list):
        packages = [module for module in modules if isinstance(module, str) and module.isidentifier()]
        if packages:
            return packages[0]
    raise UsageError(
        f"modules in [tool.dotcu] of {path} names no package (got {modules!r}).\n"
        'A new operator is imported by the package, so let it have that: modules = ["NAME"]'
    )

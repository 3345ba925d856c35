"""How large is dotcu? Files, lines, code and classes of the source, lines by part, pages and words.

    python benchmarks/counts.py

Exit codes: 0 each count is within its limit, 1 one is not.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = {
    "files": 290,
    "lines": 68_000,
    "lines of code": None,
    "classes": 400,
    "types of one name": 0,
    "pages": 46,
    "words": None,
}
"""What each count may be at most; None where there is no limit."""


def counts() -> dict[str, int]:
    """Count the Python in `src/` and the pages in `docs/`."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    trees = [ast.parse(text) for text in sources]
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    return {
        "files": len(sources),
        "lines": sum(len(text.splitlines()) for text in sources),
        "lines of code": sum(map(lines_of_code, sources)),
        "classes": sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree)),
        "types of one name": len(duplicates(sources)),
        "pages": len(pages),
        "words": sum(len(text.split()) for text in pages),
    }


def lines_by_part() -> dict[str, int]:
    """Count the lines of each folder of the package, and of the modules beside them."""
    package = ROOT / "src" / "dotcu"
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        place = path.relative_to(package).parts
        found[f"{place[0]}/" if len(place) > 1 else "modules"] += len(path.read_text("utf-8").splitlines())
    return dict(found.most_common())


def lines_of_code(source: str) -> int:
    """Count the lines that are not blank, and in no docstring or comment of its own."""
    texts = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    in_texts = {
        number for node in texts for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = [line.strip() for line in source.splitlines()]
    return sum(bool(line) and line[0] != "#" and n not in in_texts for n, line in enumerate(lines, 1))


def duplicates(sources: list[str]) -> list[str]:
    """Return the names that more than one module gives to a class or a type alias."""
    names = Counter(
        name for text in sources for node in ast.parse(text).body for name in names_of(node) if is_type(name)
    )
    return sorted(name for name, count in names.items() if count > 1)


def names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module gives to a class, a function or a value."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def is_type(name: str) -> bool:
    """Tell whether a name is written as types are: `Kernel`, and not `kernel`, `KERNEL`, `_Kernel` or `T`."""
    return name[0].isupper() and len(name) > 1 and not name.isupper()


def main() -> int:
    """Print each count beside its limit."""
    found = counts()
    for name, count in found.items():
        limit = LIMITS[name]
        print(f"{name:24}{count:>8,}" + ("" if limit is None else f"   at most {limit:,}"))
    print("lines by part:", ", ".join(f"{part} {count:,}" for part, count in lines_by_part().items()))
    names = duplicates([path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")])
    if names:
        print("types of two modules:", ", ".join(names))
    return int(any(limit is not None and found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())

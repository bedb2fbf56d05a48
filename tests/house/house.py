"""Sources, pages and the import graph, read once for all rules of the house."""

from __future__ import annotations

import ast
import functools
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")
"""The core; a plug-in has one package, in a folder of ``plugins/``."""
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/entry_points.toml"))
DISTRIBUTIONS = sorted(path.parent for path in (ROOT / "plugins").glob("*/*/pyproject.toml"))
"""Distributions of their own, each with one package of its name."""
FOLDERS = [
    *(ROOT / package for package in PACKAGES), *(plugin / f"rlenv_{plugin.name}" for plugin in PLUGINS),
    *(distribution / distribution.name for distribution in DISTRIBUTIONS),
]  # fmt: skip
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
_READMES = (folder / "README.md" for folder in (ROOT / "benchmarks", *PLUGINS))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *_READMES])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*command: str) -> None:
    """Run a command in the repository's root; fail with all that it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@functools.cache
def tree(path: Path) -> ast.Module:
    """Parse a source file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def shown(path: Path) -> str:
    """Return a path as messages show it: relative to the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def listing(offenders: list[str]) -> str:
    """Return one offender a line, with their number."""
    return "\n".join([f"{len(offenders)} offenders:", *offenders])


@functools.cache
def modules() -> dict[str, Path]:
    """Map the dotted name of each module to its file; a package's name is its ``__init__``."""
    named = {}
    for path in SOURCES:
        root = next((folder for folder in (*DISTRIBUTIONS, *PLUGINS) if folder in path.parents), ROOT)
        parts = path.relative_to(root).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports_of(name: str) -> Iterator[str]:
    """Yield the modules of ours that a module imports, in functions too, but not for type checking alone."""
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _executed(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target in modules():
                    yield target
                elif base in modules():
                    yield base


def _executed(module: ast.Module) -> Iterator[ast.AST]:
    """Yield every node but those that only type checkers read."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.expr):  # imports are statements
            waiting += ast.iter_child_nodes(node)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def imports() -> dict[str, frozenset[str]]:
    """Map each module to the modules of ours that it imports."""
    return {name: frozenset(imports_of(name)) - {name} for name in modules()}


@functools.cache
def importers() -> dict[str, frozenset[str]]:
    """Map each module to the modules of ours that import it."""
    reverse: dict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        for target in targets:
            reverse[target].add(name)
    return {name: frozenset(reverse[name]) for name in modules()}


def circles() -> list[list[str]]:
    """Return every set of two or more modules that import one another, directly or by way of others (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(imports()[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            start = stack.index(name)
            components.append(stack[start:])
            del stack[start:]

    for name in modules():
        if name not in index:
            visit(name)
    return [sorted(component) for component in components if len(component) > 1]

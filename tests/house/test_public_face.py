"""Pages and recipes import public names alone: exported by a package, or listed in the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.house import PACKAGES, PAGES, ROOT, listing, modules, shown, tree

FACES = ("hal", "real", "rlenv_robot", "sim")
"""The packages whose ``__all__`` is public."""


def listed() -> list[str]:
    """Return the names that the reference's pages ask mkdocstrings for."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return re.findall(r"^::: ([\w.]+)$", "".join(page.read_text(encoding="utf-8") for page in pages), re.MULTILINE)


def documented() -> set[str]:
    """Return every name that the reference lists, and every name in the modules that it lists."""
    names = set(listed())
    return names | {f"{name}.{public}" for name in names & modules().keys() for public in exported(name)}


def exported(module: str) -> list[str]:
    """Return the public names of a module, read without importing the module: some need extras."""
    stub = modules()[module].with_suffix(".pyi")
    if stub.exists():
        imports = [node for node in tree(stub).body if isinstance(node, ast.ImportFrom)]
        return [alias.name for node in imports for alias in node.names]
    for node in tree(modules()[module]).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return []


def imports() -> Iterator[tuple[str, str]]:
    """Yield (file, dotted name) for each import of ours in the Python of pages and in the recipes."""
    sources = [(shown(path), path.read_text(encoding="utf-8")) for path in sorted((ROOT / "launch").glob("*.py"))]
    for page in PAGES:
        blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        sources += [(shown(page), block) for block in blocks]
    for file, source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                yield from ((file, f"{node.module}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((file, alias.name) for alias in node.names if alias.name.split(".")[0] in PACKAGES)


def test_pages_and_recipes_import_what_is_public() -> None:
    public = {f"{face}.{name}" for face in FACES for name in exported(face)}
    public |= {*FACES, *documented()}
    used = list(imports())
    assert len(used) > 50, "they were found"
    offenders = sorted({f"{file}: {name}" for file, name in used if name not in public})
    assert not offenders, listing(offenders)


def test_what_the_reference_lists_is_there() -> None:
    offenders = [name for name in sorted(documented()) if not _exists(name)]
    assert not offenders, listing(offenders)


def test_the_reference_has_each_name_once() -> None:
    assert sorted(listed()) == sorted(set(listed()))


def test_the_whole_face_is_in_the_reference() -> None:
    names = set(exported("rlenv_robot")) - {"__version__"}
    tails = {name.rpartition(".")[2] for name in documented()}
    assert not sorted(names - tails), listing(sorted(names - tails))


def _exists(name: str) -> bool:
    """Whether a module exports the name; a method counts by its class."""
    if name in modules():
        return True
    module, _, attribute = name.rpartition(".")
    while module not in modules():
        module, _, attribute = module.rpartition(".")
    return attribute in exported(module)

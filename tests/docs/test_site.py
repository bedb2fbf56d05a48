"""The documentation builds without a warning, and its reference has all that users import."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlenv_robot

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.parent != REFERENCE)]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    pytest.importorskip("mkdocstrings", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return folder


def listed() -> list[str]:
    """Return the names that the reference's pages ask mkdocstrings for."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    return re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)


def documented() -> set[str]:
    return set(listed())


def test_the_reference_has_each_name_once() -> None:
    assert sorted(listed()) == sorted(documented())


@pytest.mark.slow
@pytest.mark.requirement("R4.1")
def test_the_site_builds_without_a_warning(site: Path) -> None:
    text = (site / "reference" / "environments" / "index.html").read_text(encoding="utf-8")
    assert 'id="rlenv_robot.make"' in text
    assert (site / "glossary" / "index.html").exists()


@pytest.mark.slow
def test_links_within_the_site_lead_to_headings(site: Path) -> None:
    offenders = []
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    for page, text in pages.items():
        for target in re.findall(r'<a [^>]*href="([^":]+)"', text):
            path, _, anchor = target.partition("#")
            if page.name == "404.html" or path.startswith("/"):
                continue
            file = (page.parent / path).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in pages and f'id="{anchor}"' not in pages[file]):
                offenders.append(f"{page.relative_to(site)}: {target}")
    assert not offenders, "\n".join(offenders)


def test_the_reference_has_the_public_face() -> None:
    missing = [name for name in rlenv_robot.__all__ if not name.startswith("__") and not _has(name)]
    assert not missing, missing


def _has(name: str) -> bool:
    """Whether a name that `rlenv_robot` exports is in the reference, where users import it or where it is defined."""
    places = {f"rlenv_robot.{name}", f"hal.{name}", f"real.{name}"}
    try:
        home = getattr(rlenv_robot, name).__module__
        places |= {f"{home}.{name}", home}
    except (AttributeError, ModuleNotFoundError):  # a name that holds no class or function; an optional package
        places |= {place for place in documented() if place.endswith(f".{name}")}
    return bool(documented() & places)


def test_the_reference_has_what_pages_import() -> None:
    missing = sorted(
        f"{page.name}: {module}.{name}"
        for page in PAGES
        for module, name in _imported(page)
        if module not in documented() and not any(place.endswith(f".{name}") for place in documented())
    )
    assert not missing, "\n".join(missing)


def _imported(page: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from our packages in a page's Python."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                errors = ("EpisodeError", "RobotStopped")  # `hal.errors` documents them all
                yield from ((node.module or "", alias.name) for alias in node.names if alias.name not in errors)

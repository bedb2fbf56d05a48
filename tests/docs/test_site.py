"""The documentation builds without a warning; tests/house/test_public_face.py compares its reference with imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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

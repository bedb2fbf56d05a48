"""The documentation builds without a warning; tests/house/test_public_face.py compares its reference with imports.

The builds are those of launch/docs: its own command line, in a copy of the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlenv_robot

pytestmark = [pytest.mark.tier("docs"), pytest.mark.slow]
pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
pytest.importorskip("mkdocstrings", reason="the extra 'docs' is not installed")

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of the repository by the command line of launch/docs."""
    words = re.search(r"python -m (mkdocs build[^;#]*);;", (ROOT / "launch" / "docs").read_text())
    assert words is not None, "launch/docs builds in another way"
    command = (sys.executable, "-m", *words[1].split(), "--site-dir", str(folder))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return folder


LINKS = {
    "glossary.md": ("[a page](no-such-page.md)", "no-such-page.md"),
    "safety.md": ("[a file](../no-such-file.md)", "no-such-file.md"),
    "log.md": ("[a heading](glossary.md#no-such-heading)", "no-such-heading"),
    "models.md": ("[a name][hal.no_such_link]", "hal.no_such_link"),
}
REFERENCE = {"reference/robots.md": ("::: hal.no_such_name", "hal.no_such_name")}
"""Page -> the mistake that is written at its end, and a word of the warning. The reference's ends the build first."""


@pytest.mark.parametrize("planted", [LINKS, REFERENCE], ids=["links", "reference"])
def test_a_planted_mistake_fails_the_build_by_name(planted: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    root = tmp_path / "copy"
    root.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("docs", "launch") and not path.name.startswith((".venv", ".git")):
            (root / path.name).symlink_to(path)
    for name in ("docs", "launch"):  # a hook in launch/ finds the pages from its own place
        shutil.copytree(ROOT / name, root / name)
    for page, (text, _) in planted.items():
        with (root / "docs" / page).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    done = build(root, tmp_path / "site")
    assert done.returncode != 0
    for page, (_, word) in planted.items():
        assert re.search(rf"^(WARNING|ERROR).*{re.escape(word)}", done.stdout + done.stderr, re.MULTILINE), page


@pytest.mark.requirement("R4.1")
def test_the_site_builds_without_a_warning(site: Path) -> None:
    reference = site / "reference" / "environments"
    assert 'href="rlenv_robot.make/"' in (reference / "index.html").read_text(encoding="utf-8")
    assert 'id="rlenv_robot.make"' in (reference / "rlenv_robot.make" / "index.html").read_text(encoding="utf-8")
    sizes = {page: page.stat().st_size for page in (site / "reference").rglob("index.html")}
    assert len(sizes) > 200
    assert max(sizes.values()) < 100_000, max(sizes, key=sizes.__getitem__)
    assert (site / "glossary" / "index.html").exists()
    for name in rlenv_robot.environment_names():
        fields = (site / "protocol" / name / "index.html").read_text(encoding="utf-8")
        assert "<code>frame_no</code>" in fields, name


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

"""Versions, dependencies, commands and links agree with each other."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.house.house import PAGES, PROJECT, ROOT, listing, run, shown

SCRIPTS = [
    ROOT / ".ci" / "run",
    *(ROOT / "launch" / name for name in ("demo", "docs", "pictures", "pin", "setup", "test")),
]
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
"""Versions of Python for which the pins are checked: the oldest promised, Debian 12's, and each newer one."""
UNPINNED_EXTRAS = ("vision", "gpu", "filament", "dds", "unitree")
"""Extras without pins: headless is pinned instead of the first; the next two bring another release of MuJoCo along; the
last two have no wheel for Python 3.14."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_on_packages_has_every_extra_once() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "packages.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"`([^`]+)`", " ".join(rows))
    assert sorted(named) == sorted(PROJECT["project"]["optional-dependencies"])


def test_the_modules_that_are_tried_with_each_extra_exist() -> None:
    tried = " ".join(runpy.run_path(str(ROOT / "launch" / "check_package"))["IMPORTS"].values()).split()
    ours = [name for name in tried if re.match(r"(hal|sim|real|recorder|rlenv_\w+)\.", name)]
    assert ours
    for name in ours:
        path = name.replace(".", "/")
        places = [place for end in (".py", "/__init__.py") for place in (path + end, f"plugins/*/{path}{end}")]
        assert any(found for place in places for found in ROOT.glob(place)), name


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == PROJECT["project"]["version"]


def applies(entry: Requirement, python: str) -> bool:
    """Return whether a requirement is one on a version of Python."""
    system = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    return entry.marker is None or entry.marker.evaluate(system)


def pins(python: str) -> dict[str, str]:
    """Return the pinned version of each package on a version of Python."""
    lines = (ROOT / "launch" / "pins.txt").read_text().splitlines()
    entries = [Requirement(line) for line in lines if not line.startswith("#")]
    applying = [entry for entry in entries if applies(entry, python)]
    assert len({entry.name for entry in applying}) == len(applying), "two versions for one Python"
    return {canonicalize_name(entry.name): str(entry.specifier).removeprefix("==") for entry in applying}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_within_its_range(python: str) -> None:
    assert python in SpecifierSet(PROJECT["project"]["requires-python"])
    extras = PROJECT["project"]["optional-dependencies"]
    entries = [*PROJECT["project"]["dependencies"]]
    entries += [entry for name, listed in extras.items() if name not in UNPINNED_EXTRAS for entry in listed]
    pinned = pins(python)
    offenders = [
        str(entry)
        for entry in map(Requirement, entries)
        if applies(entry, python) and pinned.get(canonicalize_name(entry.name), "0") not in entry.specifier
    ]
    assert not offenders, f"run launch/pin: {offenders}"


@pytest.mark.parametrize("python", PYTHONS)
def test_no_installed_pin_refuses_a_promised_python(python: str) -> None:
    """Compare the installed packages alone; the tier `pins` asks the package index (tests/launch/test_pins.py)."""
    pinned, installed = pins(python), {canonicalize_name(one.name): one for one in distributions()}
    same = [name for name, version in pinned.items() if name in installed and installed[name].version == version]
    assert {"numpy", "mujoco-core", "pyzmq", "pytest", "mypy"} <= set(same), "this environment has other versions"
    ranges = {name: installed[name].metadata.get("Requires-Python") or "" for name in same}
    offenders = [f"{name}: {allowed}" for name, allowed in ranges.items() if python not in SpecifierSet(allowed)]
    assert not offenders, f"run launch/pin: {offenders}"


def test_the_pins_name_no_index_and_no_build() -> None:
    text = (ROOT / "launch" / "pins.txt").read_text()
    assert not re.findall(r"^-|://|@|\+|--hash|^(?:nvidia|cuda|triton)", text, re.MULTILINE)
    assert pins("3.11.0")["torch"] == "2.13.0"


def test_the_commands_of_the_readme_exist() -> None:
    commands = [line.split("#")[0].split() for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    ours = [words for words in commands if words and words[0].startswith("launch/")]
    assert {words[0] for words in ours} >= {"launch/demo", "launch/console", "launch/test"}
    for words in ours:
        assert os.access(ROOT / words[0], os.X_OK), words
    cli = importlib.import_module("rlenv_robot.cli.main")
    for words in commands:
        if words and words[0].endswith("rlenv-robot"):
            with pytest.raises(SystemExit) as ended:
                cli.main([words[1], "--help"])
            assert ended.value.code == 0, words


def test_links_lead_somewhere() -> None:
    offenders = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)', text):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = page.parent / path if path else page
            if not file.exists():
                offenders.append(f"{shown(page)}: {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                offenders.append(f"{shown(page)}: {target}: no such heading")
    assert not offenders, listing(offenders)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_python_on_the_pages_is_python() -> None:
    for page in PAGES:
        for block in blocks(page, "python(?: no-run)?"):
            ast.parse(block, shown(page))


@pytest.mark.slow
@pytest.mark.requirement("R4.1")
def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    for block in blocks(ROOT / "README.md", "python"):
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_scripts_are_shell_and_executable() -> None:
    for script in SCRIPTS:
        assert os.access(script, os.X_OK), script
        run("bash", "-n", str(script))


def test_setup_says_how_it_is_used() -> None:
    done = subprocess.run([ROOT / "launch" / "setup", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "usage: launch/setup demo|console|test|docs|learning|browser" in done.stderr


def test_files_beside_the_modules_are_part_of_the_wheel() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    roots = {ROOT / name for name in ("hal", "sim", "real", "recorder", "rlenv_robot")} | set(
        ROOT.glob("plugins/*/rlenv_*")
    )
    offenders = []
    for path in (ROOT / name for name in listed if not name.endswith(".py")):
        root = next((root for root in roots if root in path.parents), None)
        if root is None:
            continue
        package = next(folder for folder in path.parents if (folder / "__init__.py").exists())
        inside = {".".join(package.relative_to(root.parent).parts), "*"}
        globs = [pattern for name in inside for pattern in patterns.get(name, [])]
        if not any(path in package.glob(pattern) for pattern in globs):
            offenders.append(shown(path))
    assert not offenders, "files that the wheel lacks; name them in package-data\n" + listing(offenders)

"""The house rules: what is true of all files at once, and so of no single part."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCRIPTS = [ROOT / ".ci" / "run", *(ROOT / "launch" / name for name in ("demo", "pictures", "pin", "setup", "test"))]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

OPEN: dict[str, str] = {
    "R6.4": "language models: preference pairs only; reward models and dialogues come after the first release",
    "R6.5": "sciences: nothing here hinders them, nothing proves them yet",
}
"""Requirement -> why no test proves it yet."""


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def _python(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -- tools ---------------------------------------------------------------------------------------------------


def test_arrows_only_point_down() -> None:
    _run(sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")


@pytest.mark.parametrize("check", [("check",), ("format", "--check")], ids=lambda check: check[0])
def test_ruff_is_content(check: tuple[str, ...]) -> None:
    _run(sys.executable, "-m", "ruff", *check, ".")


@pytest.mark.timeout(600)
def test_types_are_right() -> None:
    _run(sys.executable, "-m", "mypy")


# -- sources -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=_shown)
def test_a_file_can_be_read_in_one_go(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600, "more than 600 lines: is that two concepts?"


@pytest.mark.parametrize("path", SOURCES, ids=_shown)
def test_nothing_here_runs_code_from_data(path: Path) -> None:
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    for node in ast.walk(_python(path)):
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            imported.append(node.module or "")
        assert not forbidden & {name.split(".")[0] for name in imported}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec"}


@pytest.mark.parametrize("path", SOURCES, ids=_shown)
def test_all_is_complete(path: Path) -> None:
    names = _exported(path)
    if names is None:
        return  # exports nothing by name
    defined = {
        node.name
        for node in _python(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    }
    assert defined <= set(names), "public, but not in __all__"


def _exported(path: Path) -> list[str] | None:
    for node in _python(path).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    return None


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_exports_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert Path(module.__file__ or "").parent == ROOT / package, "another package of this name shadows ours"
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name)


def test_what_works_on_joint_states_needs_no_images_and_no_extras() -> None:
    heavy = {"cv2", "OpenGL", "glfw", "matplotlib", "pyarrow", "pandas", "gymnasium", "rich", "cmaes", "h5py"}
    heavy |= {"rosbags", "torch", "av"}
    _run(
        sys.executable,
        "-c",
        f"import sys, hal, rlenv_robot; found = {heavy} & set(sys.modules); assert not found, found",
    )


# -- what the project says of itself -------------------------------------------------------------------------


def test_the_changelog_knows_this_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == PROJECT["project"]["version"]


def test_every_dependency_is_pinned_within_its_range() -> None:
    lines = (ROOT / "launch" / "pins.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if "==" in line)
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"]]
    left_out = ("vision", "gpu")  # headless instead; MuJoCo Warp brings another release of MuJoCo along
    wanted += [entry for name, entries in extras.items() if name not in left_out for entry in entries]
    for entry in map(Requirement, wanted):
        assert pins.get(entry.name.lower()) in entry.specifier, f"{entry}: run launch/pin"


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_readme_exist() -> None:
    commands = [
        line.split("#")[0].split() for block in _blocks(ROOT / "README.md", "sh") for line in block.splitlines()
    ]
    ours = [words for words in commands if words and words[0].startswith("launch/")]
    assert {words[0] for words in ours} >= {"launch/demo", "launch/test"}
    for words in ours:
        assert os.access(ROOT / words[0], os.X_OK), words
    cli = importlib.import_module("rlenv_robot.cli.main")
    for words in commands:
        if words and words[0].endswith("rlenv-robot"):
            with pytest.raises(SystemExit) as ended:
                cli.main([words[1], "--help"])
            assert ended.value.code == 0, words


@pytest.mark.parametrize("page", PAGES, ids=_shown)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:src|srcset|href)="([^"#]+)', text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=_shown)
def test_python_in_the_pages_is_python(page: Path) -> None:
    for block in _blocks(page, "python(?: no-run)?"):
        ast.parse(block)


@pytest.mark.requirement("R4.1")
def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    for block in _blocks(ROOT / "README.md", "python"):
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("script", SCRIPTS, ids=_shown)
def test_scripts_are_shell_and_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    _run("bash", "-n", str(script))


def test_setup_says_how_it_is_used() -> None:
    done = subprocess.run([ROOT / "launch" / "setup", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "usage: launch/setup demo|test" in done.stderr


# -- requirements --------------------------------------------------------------------------------------------


def test_every_requirement_is_proved_or_said_to_be_open() -> None:
    known = set(re.findall(r"^\| (R[\d.]+) \|", (ROOT / "docs" / "requirements.md").read_text(), re.MULTILINE))
    assert len(known) == 25
    named = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for marker in re.findall(r"mark\.requirement\(([^)]*)\)", path.read_text())
        for name in re.findall(r'"(R[\d.]+)"', marker)
    }
    assert named <= known, "no such requirement"
    assert known - named - OPEN.keys() == set(), "no test proves these, and OPEN does not say why"


def test_the_tests_that_the_table_names_bear_the_mark() -> None:
    lines = re.findall(r"^\| (R[\d.]+) \|.*\| (.*) \|$", (ROOT / "docs" / "requirements.md").read_text(), re.MULTILINE)
    for name, cell in lines:
        paths = re.findall(r"\(\.\./(tests/[^)]+)\)", cell)
        assert paths or name in OPEN, name
        for path in paths:
            marks = re.findall(r"mark\.requirement\(([^)]*)\)", (ROOT / path).read_text())
            assert any(f'"{name}"' in mark for mark in marks), f"{path} proves nothing of {name}"

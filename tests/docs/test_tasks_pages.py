"""docs/tasks: every setting with its default, every picture there, every example run."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlenv_robot.config.plugin_names import PLUGINS, plugin_of
from rlenv_robot.registry import task
from tests.shipped import SHIPPED_TASKS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tasks"
NAMES = (
    "go2-walk", "so101-drawer", "so101-insert", "so101-lid", "so101-pair-lift", "so101-pick-place",
    "so101-push", "so101-reach", "so101-sort", "so101-stack",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_are_the_tasks(name: str) -> None:
    lines = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", (FOLDER / f"{name}.md").read_text(), re.MULTILINE)
    assert dict(lines) == {field.name: str(field.default) for field in dataclasses.fields(task(name))}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_image_a_baseline_and_a_way_to_the_fields(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert f"]({name}.png)" in text
    assert f"`rlenv-robot protocol {name}`" in text
    assert re.search(r"^\| (script|trained|random)[^|]* \| \d+ \| [\d.]+% \|", text, re.MULTILINE)
    assert f"]({name}.md)" in (FOLDER / "README.md").read_text()


@pytest.mark.process
@pytest.mark.requirement("R4.1")
@pytest.mark.parametrize("page", ["README", "so101-pair-lift"])
def test_the_examples_run(page: str) -> None:
    text = (FOLDER / f"{page}.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "to_pettingzoo" in block:
            pytest.importorskip("pettingzoo", reason="the extra 'agents' is not installed")
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("name", [name for name in SHIPPED_TASKS if name != "go"])
def test_the_table_of_tasks_names_the_plug_in(name: str) -> None:
    (line,) = re.findall(rf"^\| \[`{name}`\].*$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    package = plugin_of("rlenv_robot.tasks", name)
    assert ("| core |" if package is None else f"| [plug-in `{package.removeprefix('rlenv_')}`](") in line


def test_the_page_of_packages_lists_every_plug_in() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]\(\.\./plugins/\1/", (FOLDER.parent / "packages.md").read_text(), re.MULTILINE)
    assert [f"rlenv_{name}" for name in listed] == list(PLUGINS)

"""The table of plug-ins' names is what the plug-ins declare, and names the plug-in that is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlenv_robot.cli.verbs import plugin_verbs
from rlenv_robot.config.plugin_names import PLUGINS, VERB_GROUPS, missing_plugins, plugin_of

ROOT = Path(__file__).resolve().parents[3]
GROUPS = {group for groups in PLUGINS.values() for group in groups}
DECLARATIONS = sorted(ROOT.glob("plugins/*/entry_points.toml"))

WITHOUT = """
import importlib.metadata, importlib.util
find_spec, entry_points = importlib.util.find_spec, importlib.metadata.entry_points
def is_plugin(name):
    return name.startswith("rlenv_") and name.partition(".")[0] != "rlenv_robot"
importlib.util.find_spec = lambda name, package=None: None if is_plugin(name) else find_spec(name, package)
importlib.metadata.entry_points = lambda **selected: importlib.metadata.EntryPoints(
    point for point in entry_points(**selected) if not is_plugin(point.value))
"""
"""Lines that hide the plug-ins from a process, as if they were not installed."""


@pytest.mark.skipif(not DECLARATIONS, reason="the plug-ins are not there: a checkout without plugins/")
def test_the_table_has_what_the_plug_ins_declare() -> None:
    declared = {}
    for path in DECLARATIONS:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))["entry-points"]
        declared[f"rlenv_{path.parent.name}"] = {
            group: sorted(names) for group, names in groups.items() if group in GROUPS
        }
    listed = {
        package: {
            group: sorted(name.split()[-1] if group in VERB_GROUPS else name for name in names)
            for group, names in groups.items()
        }
        for package, groups in PLUGINS.items()
    }
    assert listed == declared


@pytest.mark.skipif(bool(missing_plugins()), reason="plug-ins are not installed here")
def test_verbs_have_the_word_of_their_group() -> None:
    expected = {f"{verb.group} {name}".strip() for name, verb in plugin_verbs().items()}
    expected |= {f"data {name}" for name in plugin_verbs("rlenv_robot.data_verbs")}
    listed = {name for groups in PLUGINS.values() for group in VERB_GROUPS for name in groups.get(group, ())}
    assert listed <= expected


def test_a_name_belongs_to_one_plug_in() -> None:
    assert plugin_of("rlenv_robot.tasks", "sokoban") == "rlenv_language"
    assert plugin_of("rlenv_robot.robots", "sokoban") is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "subject", "plugin"),
    [
        ("rr.make('so101-stack')", "environment 'so101-stack'", "tabletop"),
        ("rr.make('so101-drawer')", "environment 'so101-drawer'", "tabletop"),
        ("rr.make_vector('sokoban', num_envs=2)", "environment 'sokoban'", "language"),
        ("rr.robot('koch')", "robot 'koch'", "arms"),
        ("from rlenv_robot.registry import find_task; find_task('so101-lid')", "task 'so101-lid'", "tabletop"),
        ("from rlenv_robot.robot_models import find_robot_model; find_robot_model('koch')", "robot 'koch'", "arms"),
        ("from rlenv_robot.training.trainers import trainer; trainer('ppo')", "trainer 'ppo'", "learn"),
        ("from rlenv_robot.training.trainers import unknown_method; raise unknown_method('ppo')", "--method 'ppo'",
         "learn"),
        ("import gymnasium; gymnasium.make('rlenv_robot/sokoban-v0')", "environment 'sokoban'", "language"),
    ],
)  # fmt: skip
def test_a_missing_plug_in_s_name_names_it(code: str, subject: str, plugin: str) -> None:
    if "gymnasium" in code:
        pytest.importorskip("gymnasium")
    program = f"{WITHOUT}\nimport rlenv_robot as rr\ntry:\n    {code}\nexcept ValueError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == (
        f"{subject} is in the plug-in rlenv_{plugin}, which is not installed here: in a checkout, restore the folder "
        f"plugins/{plugin} and run launch/setup test; elsewhere, install rlenv-robot again, which contains it"
    )


def test_a_name_of_no_plug_in_is_told_its_neighbour() -> None:
    from rlenv_robot.registry import find_task

    with pytest.raises(ValueError, match="task 'so101-reech' is unknown, did you mean 'so101-reach'"):
        find_task("so101-reech")

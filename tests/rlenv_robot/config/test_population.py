"""Populations are read strictly, and simulations draw their arms as wholes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal.robots.so101 import JOINTS, SO101
from rlenv_robot import ProfileError, SpecError
from rlenv_robot.config.population import BUILTIN, Population, PopulationArm, ReplayError, ServoRow, load_population
from rlenv_robot.config.sim_settings import sim_settings
from rlenv_robot.serving import build_robot
from rlenv_robot.training.trials import conditions
from sim.batch import SimBatch
from sim.robot import SimRobot
from sim.robots.so101 import so101


def arm(name: str, scale: float = 1.0, held_out: bool = False) -> PopulationArm:
    """An arm whose numbers tell from which arm, joint and kind they are."""

    def six(base: float) -> list[float]:
        return [scale * (base + number / 100) for number in range(6)]

    row = ServoRow(six(6.0), six(0.5), six(0.1), six(0.01), 0.02 * scale, 0.01 * scale, 0.004 * scale)
    return PopulationArm(name, "made up", 2, 600, list(JOINTS), row, ReplayError(0.01, 0.02), held_out)


def population(*arms: PopulationArm) -> Population:
    return Population("so101", list(JOINTS), list(arms))


TWO = population(arm("a"), arm("b", 1.5), arm("c", 0.5, held_out=True))


def saved(folder: Path, data: object) -> Path:
    path = folder / "arms.json"
    path.write_text(json.dumps(data))
    return path


def test_a_file_comes_back(tmp_path: Path) -> None:
    TWO.save(tmp_path / "arms.json")
    assert load_population(tmp_path / "arms.json") == TWO
    TWO.training.save(tmp_path / "arms.json")
    assert [one.name for one in load_population(tmp_path / "arms.json").arms] == ["a", "b"]
    assert list(tmp_path.iterdir()) == [tmp_path / "arms.json"], "nothing else is left"


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    broken = replace(TWO.arms[0], values=replace(TWO.arms[0].values, delay=math.nan))
    with pytest.raises(ProfileError, match="delay"):
        population(broken).save(tmp_path / "arms.json")
    assert not list(tmp_path.iterdir())


def test_the_shipped_population_is_one() -> None:
    shipped = load_population(BUILTIN)
    assert shipped.robot == "so101"
    assert tuple(shipped.joints) == JOINTS
    assert all(one.error_rad.identified < one.error_rad.nominal for one in shipped.arms)


@pytest.mark.parametrize(
    ("place", "value", "key"),
    [
        (("arms", 0, "values", "stiffness", 3), 0.0, "arms[0].values.stiffness[3]"),
        (("arms", 0, "values", "damping", 0), -1e-9, "arms[0].values.damping[0]"),
        (("arms", 0, "values", "stiffness", 3), True, "arms[0].values.stiffness[3]"),
        (("arms", 0, "values", "friction", 0), "1", "arms[0].values.friction[0]"),
        (("arms", 0, "values", "offset", 0), None, "arms[0].values.offset[0]"),
        (("arms", 0, "values", "offset"), [0.0] * 5, "arms[0].values.offset"),
        (("arms", 0, "values", "mass"), 1.0, "arms[0].values.mass"),
        (("arms", 0, "values"), {}, "arms[0].values.stiffness"),
        (("arms", 0, "colour"), "red", "arms[0].colour"),
        (("arms", 0, "name"), "", "arms[0].name"),
        (("arms", 0, "name"), "x" * 201, "arms[0].name"),
        (("arms", 1, "name"), "a", "arms[1].name"),
        (("arms", 0, "fitted"), ["tail"], "arms[0].fitted"),
        (("arms", 0, "episodes"), 1.5, "arms[0].episodes"),
        (("arms", 0, "held_out"), 1, "arms[0].held_out"),
        (("arms",), {}, "arms"),
        (("joints",), [], "joints"),
        (("joints", 0), "elbow_flex", "joints"),
        (("format",), "rlenv-robot population 2", "format"),
        (("maker",), "me", "maker"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(tmp_path: Path, place: tuple[Any, ...], value: object, key: str) -> None:
    data: Any = json.loads(json.dumps(TWO.to_dict()))
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(ProfileError) as caught:
        load_population(saved(tmp_path, data))
    assert caught.value.key == key
    assert len(str(caught.value)) < 2000


@given(
    key=st.sampled_from(["armature", "delay", "backlash"]),
    value=st.floats() | st.sampled_from([0.0, -0.0, 2.0, math.nextafter(2.0, 3.0), 5e-324]),
)
def test_numbers_are_finite_and_in_their_range(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: float
) -> None:
    data = TWO.to_dict()
    data["arms"][0]["values"][key] = value
    path = saved(tmp_path_factory.mktemp("arms"), data)
    allowed = (
        math.isfinite(value) and value >= 0 and (key != "armature" or value > 0) and (key != "delay" or value <= 2)
    )
    if allowed:
        assert getattr(load_population(path).arms[0].values, key) == value
    else:
        with pytest.raises(ProfileError):
            load_population(path)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{", '{"format": NaN}', "\xff", "3", " " * (17 << 20)])
def test_files_of_something_else_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "arms.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ProfileError, match=r"arms\.json"):
        load_population(path)
    with pytest.raises(ProfileError, match="no such file"):
        load_population(tmp_path / "other.json")


def test_an_episode_draws_a_whole_arm() -> None:
    envs = rr.make_vector("so101-reach", 30, seed=1, **TWO.settings(SO101))
    drawn = envs.reset()["extra_info"]["randomisation"]
    assert set(drawn["row"].tolist()) == {0.0, 1.0, 2.0}
    for env, row in enumerate(drawn["row"].astype(int).tolist()):
        values = TWO.arms[row].values
        for number, joint in enumerate(JOINTS):
            assert drawn[f"actuator.{joint}.kp"][env] == values.stiffness[number]
            assert drawn[f"actuator.{joint}.biasprm[0]"][env] == -values.stiffness[number] * values.offset[number]
            assert drawn[f"joint.{joint}.damping"][env] == values.damping[number]
            assert drawn[f"joint.{joint}.frictionloss"][env] == values.friction[number]
            assert drawn[f"joint.{joint}.armature"][env] == values.armature
        assert drawn["timing.command_delay"][env] == values.delay
        assert drawn["timing.backlash.joint_target"][env] == values.backlash


def test_a_single_environment_draws_as_in_a_batch() -> None:
    settings = sim_settings(**TWO.settings(SO101))
    alone = SimRobot(so101(looks=False), **settings)
    batches = [SimBatch(so101(looks=False), num, threads, **settings) for num, threads in ((2, 1), (5, 2))]
    for seeds in ([5], [8], None):
        alone.reset({"seed": seeds[0]} if seeds else {})
        for batch in batches:
            batch.reset(seeds=[*range(batch.num - 1), *seeds] if seeds else None)
            assert {name: value[-1] for name, value in batch.drawn.items()} == alone.drawn


@pytest.mark.plugin("tabletop")
def test_each_arm_of_a_pair_draws_its_own_row() -> None:
    pair = rr.robot_models.find_robot_model("so101-pair").load_spec()
    settings = TWO.settings(pair)
    envs = rr.make_vector("so101-pair-lift", 40, seed=2, **settings)
    drawn = envs.reset()["extra_info"]["randomisation"]
    pairs = set(zip(drawn["row.left"].tolist(), drawn["row.right"].tolist(), strict=True))
    assert len(pairs) > 6
    for env in range(40):
        left, right = (TWO.arms[int(drawn[f"row.{side}"][env])].values for side in ("left", "right"))
        assert drawn["actuator.left_wrist_flex.kp"][env] == left.stiffness[3]
        assert drawn["actuator.right_wrist_flex.kp"][env] == right.stiffness[3]
        assert drawn["timing.backlash.right_joint_target"][env] == right.backlash
        assert drawn["timing.command_delay"][env] == left.delay, "the delay of all commands is the first arm's"


def test_a_robot_without_such_an_arm_is_refused() -> None:
    with pytest.raises(SpecError, match="no command joint_target"):
        TWO.settings(rr.robot_models.find_robot_model("go2").load_spec())
    with pytest.raises(SpecError, match="no arm to draw"):
        population(arm("a", held_out=True)).training.settings(SO101)
    with pytest.raises(SpecError, match="'z', arms are a, b, c"):
        TWO.choose(["a", "z"])


# -- In a profile --------------------------------------------------------------------------------------------


def profile_of(folder: Path, text: str) -> rr.config.profile.Profile:
    TWO.save(folder / "arms.json")
    (folder / "p.toml").write_text(text)
    return rr.load_profile(folder / "p.toml")


def test_a_profile_draws_the_arms_that_are_not_held_out(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, '[population]\nfile = "arms.json"\n')
    envs = rr.make_vector("so101-reach", 30, seed=1, profile=profile)
    delays = envs.reset()["extra_info"]["randomisation"]["timing.command_delay"]
    assert set(delays.tolist()) == {0.01, 0.015}
    assert conditions("so101-reach", False, {"profile": profile})[1], "training draws robots"
    one = profile_of(tmp_path, '[population]\nfile = "arms.json"\narms = ["c"]\n')
    with rr.make("so101-reach", profile=one) as env:
        told = env.reset({"seed": 0})["extra_info"]["randomisation"]
    assert told["actuator.gripper.kp"] == TWO.arms[2].values.stiffness[5]


def test_lines_of_the_profile_replace_those_of_the_arms(tmp_path: Path) -> None:
    own = (
        '[timing]\ncommand_delay = 0.1\n[randomise]\n"joint.gripper.damping" = {choice = [0.77], unit = "N m s/rad"}\n'
    )
    profile = profile_of(tmp_path, f'{own}[population]\nfile = "arms.json"\n')
    with rr.make("so101-reach", profile=profile) as env:
        told = env.reset({"seed": 0})["extra_info"]["randomisation"]
    assert (told["timing.command_delay"], told["joint.gripper.damping"]) == (0.1, 0.77)
    assert told["joint.wrist_roll.damping"] == TWO.arms[int(told["row"])].values.damping[4]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('file = "none.json"', ""),
        ('file = "arms.json"\narms = ["z"]', "population.arms"),
        ('file = "arms.json"\n[robot]\nwhere = "twin"', "population.file"),
        ('fil = "arms.json"', "population.fil"),
        ("file = 3", "population.file"),
    ],
)
def test_a_wrong_population_of_a_profile_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ProfileError) as caught:
        profile_of(tmp_path, f"[population]\n{text}\n")
    assert caught.value.key == key


def test_a_served_simulation_is_an_arm_of_the_population(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, '[population]\nfile = "arms.json"\narms = ["b"]\n')
    robot = build_robot(profile)
    try:
        assert robot.spec.actuation is not None
        assert np.isclose(robot.spec.actuation.delays["command"].low, 0.015)
        assert robot.spec.actuation.gains["joint_target.gripper"]["stiffness"].low == TWO.arms[1].values.stiffness[5]
    finally:
        robot.close()


def test_an_arm_with_a_changed_name_is_another(tmp_path: Path) -> None:
    grown = replace(TWO, arms=[*TWO.arms, replace(TWO.arms[0], name="d")])
    grown.save(tmp_path / "arms.json")
    assert load_population(tmp_path / "arms.json").choose(["d", "a"]).arms[0].name == "d"

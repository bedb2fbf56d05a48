"""Skills of the arm at a table: each does what its name says, in simulation, and refuses what it can't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_language.gem import GemEnv
from rlenv_robot.env import Environment
from rlenv_tabletop.skills import SKILLS, SkillWorld


def table(name: str = "so101-errand", **options: Any) -> GemEnv:
    return GemEnv(Environment(SkillWorld(rr.make(name, **options).world)))


def do(env: GemEnv, command: str) -> dict[str, Any]:
    info = env.step(f"<answer>{command}</answer>")[4]
    assert "text_error" not in info, info
    return info


def cubes(env: GemEnv) -> np.ndarray:
    world: Any = env.text_world.unwrapped
    sensors = world._robot_state.sensors
    return np.atleast_2d(sensors.get("cube_positions", sensors.get("cube_position")))


@pytest.mark.parametrize("name", ["so101-errand-skills", "so101-push-skills", "so101-pick-place-skills"])
def test_skills_have_names_for_make_and_every_framework(name: str) -> None:
    env = GemEnv(name, max_steps=1)
    _, info = env.reset(seed=1)
    assert "grasp(object=" in info["env_instruction"]
    *_, terminated, truncated, info = env.step("<answer>release</answer>")
    assert (info["skill"]["name"], terminated, truncated) == ("release", True, True)
    assert env.spawn().reset(seed=1)[0] == env.reset(seed=1)[0]
    with pytest.raises(ValueError, match="takes no robot"):
        rr.make(name, robot="tcp://127.0.0.1:5555")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_cube_is_taken_carried_put_and_pushed(seed: int) -> None:
    env = table(cubes=2)
    env.reset(seed=seed)
    assert do(env, "grasp(green)")["skill"]["reached"]
    assert cubes(env)[1, 2] > 0.04
    assert do(env, "move_to([0.25, 0, 0.1])")["skill"]["reached"]
    np.testing.assert_allclose(cubes(env)[1], (0.25, 0.0, 0.1), atol=0.02)
    assert do(env, "put(on_red)")["skill"]["reached"]
    red, green = cubes(env)
    assert np.hypot(*(green - red)[:2]) < 0.015
    assert green[2] - red[2] == pytest.approx(0.025, abs=0.003)


@pytest.mark.slow
def test_the_rest_of_the_skills_move_the_arm() -> None:
    env = table()
    env.reset(seed=1)
    where = [round(float(value), 3) for value in cubes(env)[0]]
    x = where[0] - 0.04 if where[0] > 0.23 else where[0] + 0.04
    assert do(env, f"push(red, [{x:.3f}, {where[1]}, 0])")["skill"]["reached"]
    assert np.hypot(*(cubes(env)[0, :2] - (x, where[1]))) < 0.015
    assert do(env, "move_to([0.2, 0.1, 0.12])")["skill"]["reached"]
    assert do(env, "release")["skill"]["reached"]
    assert do(env, "set_joints([0.3, -0.5, 0.5, 0.6, -1.5, 0.4])")["skill"]["reached"]


def test_what_can_t_be_done_is_refused_and_nothing_moves() -> None:
    env = table()
    env.reset(seed=0)
    before = cubes(env).copy()
    for command, code in (
        ("put(left)", "nothing_held"),
        ("move_to([0.36, 0.25, 0.25])", "reach"),
        ("grasp(green)", "format"),
    ):
        *_, info = env.step(f"<answer>{command}</answer>")
        assert info["text_error"]["code"] == code
    np.testing.assert_array_equal(cubes(env), before)


def test_the_episode_s_end_ends_a_skill_and_rewards_add_up() -> None:
    world = rr.make("so101-errand", steps=10).world
    env = Environment(SkillWorld(world))
    first: Any = env.reset({"seed": 3})
    action = {
        "skill": SKILLS.index("grasp"),
        "object": 0,
        "place": 0,
        "position": [0.2, 0, 0.1],
        "joint_target": np.zeros(6),
    }
    table, _reward = env.step({"env_id": env.env_id, "frame_no": first["frame_no"], "action": action})
    assert (table["truncated"], table["extra_info"]["skill"]["periods"]) == (1, 10)
    assert table["extra_info"]["skill"]["reached"] is False


def test_one_cube_s_own_tasks_have_skills_too_and_an_arm_alone_has_none() -> None:
    env = table("so101-pick-place", steps=400)
    _text, info = env.reset(seed=0)
    assert "put(place=target)" in info["env_instruction"]
    assert do(env, "grasp(cube)")["skill"]["reached"]
    assert table("so101-push").text_world.action
    with pytest.raises(ValueError, match="cubes"):
        SkillWorld(rr.make("so101-reach").world)
    with pytest.raises(ValueError, match="cubes"):
        SkillWorld(rr.make("go").world)

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import rlenv_robot
from hal import Field, Spec
from rlenv_robot.adapters.gymnasium import GymnasiumEnv, space_of, to_gymnasium
from rlenv_robot.env import Environment

pytestmark = pytest.mark.requirement("R1.1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: to_gymnasium(rlenv_robot.make("so101-reach")),
        lambda: to_gymnasium(rlenv_robot.make("go", size=5)),
        lambda: to_gymnasium(rlenv_robot.make("go")),
    ],
    ids=["so101-reach", "go 5x5", "go 19x19"],
)
def test_gymnasiums_own_checker_is_content(make: Any) -> None:
    env = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    env.close()


def test_spaces_are_the_specs() -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"))
    assert isinstance(env.observation_space, spaces.Dict)
    for field in env.env.observation:
        box = env.observation_space[field.name]
        assert (box.shape, box.dtype) == (field.shape, field.numpy_dtype)
        np.testing.assert_array_equal(box.low, field.bounds[0])
        np.testing.assert_array_equal(box.high, field.bounds[1])
    assert env.action_space == spaces.Box(-1.0, 1.0, (6,), np.float32)
    assert to_gymnasium(rlenv_robot.make("go")).action_space == spaces.Discrete(362)
    env.close()


def test_an_open_side_is_infinite_in_the_space() -> None:
    fields = (Field("up", (2,), low=0.0, meaning="x"), Field("both", (2,), low=(0.0, -np.inf)), Field("any"))
    space = space_of(Spec("open", fields))
    assert space["up"].low.tolist() == [0.0, 0.0]
    assert space["up"].high.tolist() == [np.inf, np.inf]
    assert space["both"].low.tolist() == [0.0, -np.inf]
    assert space["any"].low == -np.inf


def test_the_ends_of_the_scaled_action_are_the_ends_of_the_range() -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"))
    low, high = env.env.action["joint_target"].bounds
    for scaled, wanted in ((-1.0, low), (1.0, high), (0.0, (low + high) / 2)):
        action = env._action(np.full(6, scaled, np.float32))["joint_target"]
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, wanted, atol=2e-7)
        if scaled:
            np.testing.assert_array_equal(action, wanted)
    env.close()


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("action", "code"),
    [
        (np.full(6, 1.01, np.float32), "range"),
        (np.full(6, np.nan, np.float32), "not_finite"),
        (np.zeros(5, np.float32), "shape"),
        (np.zeros(1, np.float32), "shape"),
        (0.0, "shape"),
        ("far", "dtype"),
    ],
)
def test_an_illegal_action_is_told_in_info(action: np.ndarray, code: str) -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"))
    first, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(action)
    assert info["error"]["code"] == code
    assert (reward, terminated, truncated) == (0.0, False, False)
    for name, value in first.items():
        np.testing.assert_array_equal(observation[name], value)
    assert "error" not in env.step(np.zeros(6, np.float32))[4]
    env.close()


def test_it_does_what_the_environment_does() -> None:
    env, plain = to_gymnasium(rlenv_robot.make("so101-reach")), rlenv_robot.make("so101-reach")
    (observation, _), obs = env.reset(seed=7), plain.reset({"seed": 7})
    rng, over = np.random.default_rng(0), False
    while not over:
        np.testing.assert_array_equal(observation["joint_position"], obs["observation"]["joint_position"])
        action = rng.uniform(-0.2, 0.2, 6).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        request = {"env_id": plain.env_id, "frame_no": obs["frame_no"], "action": env._action(action)}
        obs, expected = plain.step(request)
        assert reward == expected["reward"]
        assert (terminated, truncated) == (bool(obs["terminated"]), bool(obs["truncated"]))
        over = terminated or truncated
    assert info["is_success"] == obs["extra_info"]["success"]
    env.close()
    plain.close()


def test_options_reach_the_environment() -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"))
    observation, _ = env.reset(seed=1, options={"goal": {"target_position": [0.2, 0.0, 0.1]}})
    np.testing.assert_allclose(observation["target_position"], [0.2, 0.0, 0.1])
    with pytest.raises(ValueError, match="'gaol' is unknown"):
        env.reset(options={"gaol": 1})
    env.close()


def test_unscaled_actions_are_in_the_robots_units() -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"), normalise=False)
    low, high = env.env.action["joint_target"].bounds
    assert env.action_space == spaces.Box(low, high, (6,), np.float32)
    env.close()


def test_several_action_fields_are_a_dictionary(slider: Any) -> None:
    env = GymnasiumEnv(Environment(slider))
    assert env.action_space == space_of(env.env.action)
    env.reset(seed=0)
    assert "error" not in env.step({"push": np.zeros(2), "gear": np.array(1, np.int8)})[4]


def test_a_wrong_render_mode_is_refused(slider: Any) -> None:
    with pytest.raises(ValueError, match="render_mode is 'human', allowed are None and 'rgb_array'"):
        to_gymnasium(Environment(slider), render_mode="human")
    env = to_gymnasium(Environment(slider), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (4, 4, 3)
    assert to_gymnasium(Environment(slider)).render() is None

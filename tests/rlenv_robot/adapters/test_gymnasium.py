from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import rlenv_robot
from hal import Field, IllegalAction, Spec
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.adapters.gymnasium import GymnasiumEnv, space_of, to_gymnasium
from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv, to_gymnasium_vector
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
        (np.full(6, np.nan, np.float32), "not_finite"),
        (np.zeros(5, np.float32), "shape"),
        (np.zeros(1, np.float32), "shape"),
        (0.0, "shape"),
        ("far", "dtype"),
    ],
)
def test_an_action_that_no_policy_may_choose_raises(action: Any, code: str) -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach"))
    env.reset(seed=0)
    with pytest.raises(IllegalAction) as refused:
        env.step(action)
    assert refused.value.violation.code == code
    assert "error" not in env.step(np.zeros(6, np.float32))[4], "the episode goes on"
    env.close()


@pytest.mark.requirement("R1.2")
def test_actions_out_of_range_are_warned_of_once_and_count_against_the_time_limit() -> None:
    env = to_gymnasium(rlenv_robot.make("so101-reach", steps=10))
    env.reset(seed=0)
    assert "illegal_share" not in env.step(np.zeros(6, np.float32))[4]
    with pytest.warns(UserWarning, match="refused"):
        _, reward, terminated, truncated, info = env.step(np.full(6, 1.01, np.float32))
    assert info["error"]["code"] == "range"
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["illegal_share"] == 0.5
    ends = [env.step(np.full(6, 1.01, np.float32))[3] for _ in range(8)]  # a second warning would be an error here
    assert ends == [False] * 7 + [True]
    env.reset()
    assert "illegal_share" not in env.step(np.zeros(6, np.float32))[4]
    env.close()


@pytest.mark.requirement("R1.2")
def test_a_vector_out_of_range_is_refused_or_cut_off_as_asked() -> None:
    flat = flat_for(rlenv_robot.task("so101-reach"))

    def stepped(action: float, **options: Any) -> tuple[Any, ...]:
        env = to_gymnasium(rlenv_robot.make("so101-reach", steps=3), flat=flat, **options)
        first, _ = env.reset(seed=0)
        answer = env.step(np.full(6, action, np.float32))
        env.close()
        return first, *answer

    with pytest.warns(UserWarning, match="refused"):
        first, observation, reward, *_, info = stepped(1.01)
    np.testing.assert_array_equal(observation, first)
    assert (reward, info["error"]["code"], info["illegal_share"]) == (0.0, "range", 1.0)
    _same(stepped(1.01, out_of_range="clip")[1], stepped(1.0)[1])
    for value in (np.nan, np.inf):
        with pytest.raises(IllegalAction, match="finite"):
            stepped(value, out_of_range="clip")


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
    with pytest.raises(ValueError, match=r"'human', .* 'rgb_array'"):
        to_gymnasium(Environment(slider), render_mode="human")
    env = to_gymnasium(Environment(slider), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (4, 4, 3)
    assert to_gymnasium(Environment(slider)).render() is None


NUM, STEPS = 3, 20


def _single(flat: FlattenObservation | None = None) -> Any:
    return to_gymnasium(rlenv_robot.make("so101-reach", steps=8), flat=flat)


def _vector(flat: bool = False, **options: Any) -> GymnasiumVectorEnv:
    """All environments share the episodes of environment 0, which are those of a single one."""
    envs = rlenv_robot.make_vector("so101-reach", NUM, steps=8, streams=np.zeros(NUM, int), **options)
    return to_gymnasium_vector(envs, flat=flat_for(envs.task) if flat else None)


def _same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for name in theirs:
            _same(mine[name], theirs[name])
    else:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("flat", [False, True], ids=["fields", "vectors"])
def test_bit_for_bit_what_gymnasiums_own_vector_of_single_environments_gives(flat: bool) -> None:
    mine = _vector(flat)
    one = mine.flat
    theirs = SyncVectorEnv([lambda: _single(one)] * NUM, autoreset_mode=AutoresetMode.SAME_STEP)
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
        assert getattr(mine, name) == getattr(theirs, name)
    assert mine.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    _same(mine.reset(seed=5)[0], theirs.reset(seed=[5] * NUM)[0])
    rng, ends = np.random.default_rng(0), 0
    for _ in range(STEPS):
        actions = rng.uniform(-1, 1, (NUM, 6)).astype(np.float32)
        (*arrays, info), (*expected, wanted) = mine.step(actions), theirs.step(actions)
        for values, other in zip(arrays, expected, strict=True):
            _same(values, other)
            assert flat or isinstance(values, dict) or values.dtype == other.dtype
        assert ("final_obs" in info) == ("final_obs" in wanted)
        if "final_obs" in wanted:
            ends += 1
            np.testing.assert_array_equal(info["_final_obs"], wanted["_final_obs"])
            for env in np.flatnonzero(wanted["_final_obs"]):
                _same(info["final_obs"][env], wanted["final_obs"][env])
            np.testing.assert_array_equal(info["final_info"]["is_success"], wanted["final_info"]["is_success"])
            _same(info["final_info"]["metrics"]["distance_mm"], wanted["final_info"]["metrics"]["distance_mm"])
    assert ends == STEPS // 8
    mine.close()
    theirs.close()


def test_a_single_environment_of_vectors_passes_gymnasiums_checker() -> None:
    env = _single(flat_for(rlenv_robot.make("so101-reach").world.task))
    check_env(env, skip_render_check=True)
    env.close()


def test_what_is_returned_lies_in_the_spaces_and_is_not_written_to_again() -> None:
    envs = _vector(True)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    for _ in range(STEPS):
        observation, *_ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observation)
    np.testing.assert_array_equal(first, kept)
    envs.close()


@pytest.mark.parametrize("autoreset", ["same_step", "disabled"])
def test_gymnasiums_statistics_wrapper_counts_our_episodes(autoreset: str) -> None:
    envs = RecordEpisodeStatistics(_vector(autoreset=autoreset))
    envs.reset(seed=0)
    total = np.zeros(NUM)
    for step in range(16):
        _, rewards, terminated, truncated, info = envs.step(np.zeros((NUM, 6), np.float32))
        total += rewards
        if (terminated | truncated).all():
            np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-6)
            assert info["episode"]["l"].tolist() == [8] * NUM
            total[:] = 0
            if autoreset == "disabled":
                envs.reset(options={"reset_mask": np.ones(NUM, bool)})
        assert bool(truncated.any()) == (step % 8 == 7)
    envs.close()


def test_without_autoreset_the_flag_of_an_ended_row_stands_until_its_reset() -> None:
    envs = _vector(True, autoreset="disabled")
    envs.reset(seed=0)
    for _ in range(9):
        *_, truncated, _ = envs.step(np.zeros((NUM, 6), np.float32))
    assert truncated.tolist() == [True] * NUM
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    *_, terminated, truncated, _ = envs.step(np.zeros((NUM, 6), np.float32))
    assert (terminated.tolist(), truncated.tolist()) == ([False] * NUM, [True, False, True])
    envs.close()


def test_a_mask_resets_some_and_a_step_moves_some() -> None:
    envs = _vector(True, autoreset="disabled")
    start, _ = envs.reset(seed=0)
    actions = np.full((NUM, 6), 0.5, np.float32)
    moved, *_ = envs.step_some(np.array([1]), actions)
    assert [bool(np.array_equal(moved[env], start[env])) for env in range(NUM)] == [True, False, True]
    again, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(again[[0, 2]], start[[0, 2]])
    assert not np.array_equal(again[1], moved[1])
    envs.close()


def test_an_action_that_is_not_legal_is_told_by_its_row() -> None:
    envs = _vector()
    envs.reset(seed=0)
    actions = np.zeros((NUM, 6), np.float32)
    actions[1, 2] = 1.01
    with pytest.warns(UserWarning, match="environment 1"):
        assert envs.step(actions)[4]["error"][1]["code"] == "range"
    envs.close()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"seed": [1, 2, 3]}, "give one number"),
        ({"options": {"reset_mask": np.ones(NUM)}}, "expected a bool array"),
        ({"options": {"goal": 1}}, "'goal' is unknown, allowed is reset_mask"),
    ],
)
def test_a_wrong_reset_says_what_is_allowed(request_: dict[str, Any], message: str) -> None:
    envs = _vector()
    with pytest.raises(ValueError, match=message):
        envs.reset(**request_)
    envs.close()


@pytest.mark.requirement("R1.2")
def test_a_batch_of_actions_with_nan_raises_and_moves_nothing() -> None:
    envs = to_gymnasium_vector(rlenv_robot.make_vector("so101-reach", 3, seed=0))
    envs.reset(seed=0)
    actions = np.zeros((3, 6), np.float32)
    actions[1, 2] = np.nan
    with pytest.raises(IllegalAction, match=r"environment 1") as refused:
        envs.step(actions)
    assert refused.value.violation.code == "not_finite"
    assert envs._table["frame_no"].tolist() == [0, 0, 0]
    envs.close()


def _out_of_range_rows(flat: bool, **options: Any) -> tuple[np.ndarray, np.ndarray, list[int], Any]:
    """Step three rows, the second always out of range; return each row's first end, the last share and final info."""
    batch = rlenv_robot.make_vector("so101-reach", 3, seed=0, steps=6, **options)
    envs = to_gymnasium_vector(batch, flat=flat_for(batch.task) if flat else None)
    envs.reset(seed=0)
    actions = np.zeros((3, 6), np.float32)
    actions[1, 2] = 1.01
    first, shares, final = [0, 0, 0], np.zeros(3), {}
    for step in range(1, 7):
        *_, truncated, info = envs.step(actions)
        shares = info.get("illegal_share", shares)
        final = info.get("final_info", final)
        first = [begun or step * bool(ended) for begun, ended in zip(first, truncated.tolist(), strict=True)]
    envs.close()
    return actions, shares, first, final


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize("flat", [False, True], ids=["fields", "vectors"])
@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_a_row_of_actions_out_of_range_ends_with_time_and_is_warned_of_once(autoreset: str, flat: bool) -> None:
    with pytest.warns(UserWarning, match="environment 1 was refused") as told:
        _, shares, first, final = _out_of_range_rows(flat, autoreset=autoreset)
    assert len(told) == 1
    assert first == [6, 6, 6]
    assert final["illegal_share"].tolist() == [0, 1, 0]
    if autoreset != "same_step":
        assert shares.tolist() == [0, 1, 0]


def test_a_policy_of_illegal_actions_is_named_in_the_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Far:
        def act(self, observation: Any) -> Any:
            return {"joint_target": np.full((4, 6), 9, np.float32)}

    curve = rlenv_robot.LearningCurve("so101-reach", episodes=4)
    curve.add(0, Far(), 0.25)  # type: ignore[arg-type]
    curve.close()
    line = capsys.readouterr().out
    assert "illegal actions 100.0%" in line
    assert "in learning 25.0% illegal" in line

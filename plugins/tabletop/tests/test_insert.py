"""`so101-insert`: states made by hand are judged by their geometry, and a script solves the task."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from rlenv_tabletop.insert import Insert
from rlenv_tabletop.robots import PEG_HALF, SO101_PEG
from rlenv_tabletop.scripted import ScriptedInsert

SOCKET = np.float32([0.21, 0.05])


def state(peg: tuple[float, float, float], tips: tuple[float, float, float]) -> dict[str, np.ndarray]:
    """Return sensors of a peg so far from the socket's middle on the table, with the tips so far from the peg."""
    middle = np.array([*SOCKET, PEG_HALF[2]]) + peg
    return {
        **SO101_PEG.sensors.sample(np.random.default_rng(0)),
        "socket_position": SOCKET, "peg_position": np.float32(middle), "gripper_position": np.float32(middle + tips),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("peg", "tips", "good"),
    [
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.06), True),
        ((0.001, -0.001, 0.0), (0.0, 0.03, 0.03), True),  # in a corner of the socket
        ((0.0, 0.0, 0.0042), (0.0, 0.0, 0.06), True),  # 3 mm and the play from its place
        ((0.0, 0.0, 0.0055), (0.0, 0.0, 0.06), False),  # not down
        ((0.0, 0.0, 0.020), (0.0, 0.0, 0.06), False),  # on the rim
        ((0.0, 0.050, 0.0), (0.0, 0.0, 0.06), False),  # beside the socket
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.03), False),  # held
    ],
)
def test_a_state_is_judged_by_its_geometry(
    peg: tuple[float, float, float], tips: tuple[float, float, float], good: bool
) -> None:
    sensors = state(peg, tips)
    assert Insert().success(sensors, {}) == good
    assert Insert(rewards="sparse").reward(sensors, {}, sensors, {}) == float(good)
    metrics = Insert().metrics(sensors, {})
    assert metrics["distance_mm"] == pytest.approx(max(np.linalg.norm(peg) - 0.002 / np.sqrt(2), 0) * 1e3, abs=0.01)
    assert metrics["clearance_mm"] == pytest.approx(np.linalg.norm(tips) * 1e3, abs=0.01)


@given(socket=st.floats(-3, 3), peg=st.floats(-3, 3), tilt=st.floats(-0.3, 0.3))
def test_the_turn_that_a_peg_lacks_makes_it_fit(socket: float, peg: float, tilt: float) -> None:
    """Turned by it, an upright or tilted peg is a whole number of quarter turns from the socket, and never by more."""
    yaw, pitch = (np.array([np.cos(angle / 2), np.sin(angle / 2)]) for angle in (peg, tilt))
    turned = [yaw[0] * pitch[0], -yaw[1] * pitch[1], yaw[0] * pitch[1], yaw[1] * pitch[0]]  # about z, then about its y
    sensors = state((0.0, 0.0, 0.0), (0.0, 0.0, 0.06))
    sensors |= {"socket_yaw": np.float32([socket]), "peg_orientation": np.float32(turned)}
    turn = float(Insert().observe(sensors, {})["peg_turn"][0])
    quarters = (socket - peg - turn) / (np.pi / 2)
    assert abs(quarters - round(quarters)) < 1e-5
    assert abs(turn) <= np.pi / 4 + 1e-5


def test_half_a_second_is_judged_and_not_its_last_reading() -> None:
    assert Insert().averaged_readings == 15, "half a second at 30 Hz"
    last = state((0.0, 0.0, 0.0), (0.0, 0.0, 0.06))
    good = {"distance_mm": np.float64(2.0), "clearance_mm": np.float64(41.0)}
    assert Insert().average_success(good, last, {})
    for name, bad in (("distance_mm", 3.1), ("clearance_mm", 39.0)):
        assert not Insert().average_success({**good, name: np.float64(bad)}, last, {}), name


def test_the_reward_is_what_the_page_says() -> None:
    """The formula in the class's description, which is the page's, with its own numbers."""
    number = r"([0-9.]+)"
    found = re.search(
        rf"{number} exp\(-g / {number} m\) \+ {number} exp\(-d / {number} m\) \+ {number} exp\(-d / {number} m\) \+\s+"
        rf"{number} w \(1 - exp\(-g / {number} m\)\) - {number} \|q\*", " ".join((Insert.__doc__ or "").split()),
    )  # fmt: skip
    assert found, "the description has no formula any more"
    near, reach, first, wide, second, close, left, again, calm = map(float, found.groups())
    for height, done in ((0.0, 1.0), (0.02, 0.0)):
        sensors = state((0.0, 0.0, height), (0.0, 0.03, 0.0))
        moved = {**sensors, "joint_goal": sensors["joint_goal"] + np.float32([0.1] * 5 + [0.7])}
        away = max(height - 0.002 / np.sqrt(2), 0.0)
        told = near * np.exp(-0.03 / reach) + first * np.exp(-away / wide) + second * np.exp(-away / close)
        told += left * done * (1 - np.exp(-0.03 / again)) - calm * 5 * 0.01
        assert Insert().reward(sensors, {}, moved, {}) == pytest.approx(told, abs=1e-4)


@pytest.mark.requirement("R3.1")
def test_leading_axes_change_nothing() -> None:
    task, rng, shape = Insert(), np.random.default_rng(0), (2, 3)
    before, after = (SO101_PEG.sensors.sample(rng, shape) for _ in range(2))

    def judged(before: dict, after: dict) -> dict[str, np.ndarray]:
        return {
            "reward": task.reward(before, {}, after, {}), "success": task.success(after, {}),
            "terminated": task.terminated(after, {}), **task.metrics(after, {}), **task.observe(after, {}),
        }  # fmt: skip

    whole = judged(before, after)
    for index in np.ndindex(*shape):
        one = [{name: value[index] for name, value in part.items()} for part in (before, after)]
        for name, value in judged(*one).items():
            np.testing.assert_allclose(whole[name][index], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_off_the_table_the_task_ends() -> None:
    assert Insert().terminated(state((0.3, 0.0, -0.2), (0.0, 0.0, 0.3)), {})
    assert not Insert().terminated(state((0.0, 0.0, 0.0), (0.0, 0.0, 0.3)), {})


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"tolerance_m": 0.0}, "tolerance_m is 0.0"),
        ({"steps": 0}, "steps is 0"),
        ({"clearance_m": -1.0}, "clearance_m is -1.0"),
        ({"rewards": "many"}, "rewards is 'many'"),
        ({"play_m": 0.02}, "play_m is 0.02"),
    ],
)
def test_a_wrong_setting_is_refused(setting: dict, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Insert(**setting)


@pytest.mark.parametrize("play_m", [0.002, 0.004])
def test_a_batch_does_what_one_does_and_a_script_solves_the_task(play_m: float) -> None:
    """The table in docs/tasks has the share over more episodes; here it must not have become impossible."""
    script = ScriptedInsert()
    with (
        rr.make_vector("so101-insert", 4, seed=11, autoreset="disabled", play_m=play_m, steps=170) as envs,
        rr.make("so101-insert", play_m=play_m, steps=170) as env,
    ):
        table, alone = envs.reset(), env.reset({"seed": 11})
        for step in range(envs.task.steps):
            action = script.act(table["observation"])
            table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            if step < 40:
                one = {key: value[0] for key, value in action.items()}
                alone, paid = env.step({"env_id": env.env_id, "frame_no": step, "action": one})
                assert paid["reward"] == pytest.approx(reward["reward"][0], rel=1e-6)
                for key, value in alone["observation"].items():
                    np.testing.assert_array_equal(value, table["observation"][key][0], err_msg=key)
        assert table["extra_info"]["final"]["success"].all()

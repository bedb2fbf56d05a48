"""One policy's file of go2-walk, in simulation and on a virtual Go2 over DDS: one argument differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from plugins.unitree.tests.conftest import ControlledGo2, homed
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.deployment import check_deployment, deployed_spec, robot_of_training
from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.tasks.walk import Walk
from rlenv_unitree.driver import UnitreeRobot

STEPS = 200
GOAL = {"commanded_velocity": np.zeros(2, np.float32), "commanded_turning": np.zeros(1, np.float32)}


def sway(path: Path) -> Path:
    """Save a policy that sways on four feet: an oscillator over the last action, steadied by the IMU.

    A policy's file has no clock, so thigh and calf, a quarter of a period apart, drive each other. All four legs follow
    their common phase.
    """
    flat = flat_for(Walk())
    direct = np.zeros((flat.size, 12))
    last, gravity = flat.size - 12, 3
    turn, gain = 2 * np.pi / 25, 1.15  # a period of half a second
    thigh, calf = np.arange(1, 12, 3), np.arange(2, 12, 3)
    for leg in range(4):
        share = gain / 4
        direct[last + thigh, thigh[leg]] = share * np.cos(turn)
        direct[last + calf, thigh[leg]] = -share * np.sin(turn)
        direct[last + thigh, calf[leg]] = share * np.sin(turn)
        direct[last + calf, calf[leg]] = share * np.cos(turn)
    direct[gravity + 1, np.arange(0, 12, 3)] = -0.5  # hips against a roll
    hidden = parameter_count(flat) - direct.size - 12
    parameters = np.concatenate([np.zeros(hidden), direct.ravel(), np.zeros(12)])
    FeedbackPolicy(parameters, flat, "go2-walk", robot_of_training("go2-walk")).save(path, {"made": "by hand"})
    return path


def joint_path(robot: Any, policy_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Run the policy; return measured and commanded angles less the stance, rad, (T, 12) each."""
    policy = load_policy(policy_path)
    with rr.make("go2-walk", robot=robot, steps=STEPS) as env:
        policy.check(env.observation, env.action)
        check_deployment(policy, deployed_spec(env.world))
        table = env.reset({"seed": 3, "goal": GOAL})
        angles, goals = [], []
        while not (table["truncated"] or table["terminated"]):
            action = policy.act(table["observation"])
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            angles.append(table["observation"]["joint_deviation"])
            goals.append(0.5 * table["observation"]["last_action"])
        assert table["extra_info"]["truncated_by"] == "time"  # it has not fallen, and nothing stopped it
    return np.array(angles), np.array(goals)


@pytest.mark.slow
@pytest.mark.process
def test_the_same_file_moves_both_alike(
    tmp_path: Path, virtual: ControlledGo2, make_driver: Callable[..., UnitreeRobot]
) -> None:
    path = sway(tmp_path / "sway.npz")
    simulated, simulated_goals = joint_path("sim", path)
    served, served_goals = joint_path(homed(make_driver()), path)
    moved = np.ptp(simulated[50:], axis=0).reshape(4, 3)
    difference, goals = rms(simulated[50:], served[50:]), rms(simulated_goals[50:], served_goals[50:])
    print(f"thighs move by {moved[:, 1].mean():.2f} rad, calves by {moved[:, 2].mean():.2f}; RMS difference of "
          f"measured angles {difference:.4f} rad, of goals {goals:.4f} rad")  # fmt: skip
    assert moved[:, 1:].min() > 0.2
    assert goals < 0.02
    assert difference < 0.12  # 0.03 on a machine with time to spare


def rms(one: np.ndarray, other: np.ndarray) -> float:
    """Return the root of the mean squared difference over the shorter length."""
    length = min(len(one), len(other))
    return float(np.sqrt(np.mean(np.square(one[:length] - other[:length]))))

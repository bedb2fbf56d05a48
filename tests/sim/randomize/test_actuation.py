"""The gains and delays of simulated robots, as their models, randomisation and timing have them."""

from __future__ import annotations

from typing import Any

import pytest

from hal.drivers.sts3215 import STIFFNESS
from rlenv_robot.robot_models import find_robot_model
from sim.latency import DelayModel
from sim.model import SimModel
from sim.randomize.actuation import configured_spec
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot
from sim.robots.go2 import go2
from sim.robots.so101 import STIFF_SERVO, so101
from sim.robots.sts3215 import STS3215


def gains(model: SimModel, joint: str, **lines: Any) -> dict[str, tuple[float, float]]:
    randomise = Randomise.from_dict(lines["randomise"]) if "randomise" in lines else None
    actuation = configured_spec(model, None, randomise, lines.get("gains")).actuation
    assert actuation is not None
    return {name: tuple(ends) for name, ends in actuation.gains[f"joint_target.{joint}"].items()}  # type: ignore[misc]


def test_the_nominal_arm_declares_the_registers_of_its_stiffness() -> None:
    declared = gains(so101(looks=False), "gripper")
    assert declared == {"stiffness": (8.9, 8.9), "p": (16, 16), "i": (0, 0), "d": (32, 32), "volts": (7.4, 7.4)}
    assert pytest.approx(8.9, rel=0.01) == STIFFNESS * 16 * 7.4 == pytest.approx(STS3215.stiffness(16))
    assert gains(so101(looks=False, servo=STIFF_SERVO), "gripper") == {
        "stiffness": (998.22, 998.22), "damping": (2.731, 2.731),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "stiffness"),
    [
        ({"uniform": [2.0, 5.0], "unit": "N m/rad"}, (2.0, 5.0)),
        ({"uniform": [0.5, 2.0], "scale": True}, (20.0, 80.0)),
        ({"uniform": [-5.0, 5.0], "add": True, "unit": "N m/rad"}, (35.0, 45.0)),
    ],
)
def test_drawn_stiffness_has_its_range(line: dict[str, Any], stiffness: tuple[float, float]) -> None:
    table = gains(go2(looks=False), "FL_hip", randomise={"actuator.FL_hip.kp": line})
    assert table["stiffness"] == pytest.approx(stiffness)
    assert gains(go2(looks=False), "FR_hip", randomise={"actuator.FL_hip.kp": line})["stiffness"] == (40.0, 40.0)


def test_registers_of_a_drawn_stiffness_are_unknown_unless_they_are_given() -> None:
    drawn = {"actuator.*.kp": {"choice": [3.2], "unit": "N m/rad"}}
    arm = so101(looks=False)
    assert gains(arm, "gripper", randomise=drawn) == {"stiffness": (3.2, 3.2)}
    known = gains(arm, "gripper", randomise=drawn, gains={"p": 16, "volts": [7.0, 8.4]})
    assert known == {"stiffness": (3.2, 3.2), "p": (16, 16), "volts": (7.0, 8.4)}


def test_delays_are_those_of_timing_and_model() -> None:
    timing = DelayModel.from_dict({"command_delay": {"uniform": [0.01, 0.03]}, "reading_delay": 0.004})
    for model, own in ((so101(looks=False), 0.0), (find_robot_model("so101").make_twin(0), 2 / 240)):
        actuation = configured_spec(model, timing.ranges).actuation
        assert actuation is not None
        assert tuple(actuation.delays["command"]) == pytest.approx((own + 0.01, own + 0.03))
        assert tuple(actuation.delays["reading"]) == pytest.approx((0.004, 0.004))


def test_a_twin_declares_what_is_known_of_a_real_arm() -> None:
    twin = find_robot_model("so101").make_twin(3)
    assert gains(twin, "wrist_roll") == gains(so101(looks=False), "wrist_roll")
    assert gains(find_robot_model("go2").make_twin(3), "FL_hip")["stiffness"] == (40.0, 40.0)
    assert SimRobot(twin).spec.digest == SimRobot(so101(looks=False)).spec.digest

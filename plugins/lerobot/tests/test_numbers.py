"""LeRobot's numbers of commands, by LeRobot's own formulas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, IllegalAction, Spec, SpecError
from hal.drivers.calibration import nominal_calibration, save_calibration
from hal.robots.so101 import HIGH, JOINTS, LOW, SO101
from hal.robots.so101_units import STEP_RAD
from rlenv_lerobot.numbers import CommandNumbers

NAMES = tuple(f"{joint}.pos" for joint in JOINTS)
PAN = Field("joint_target", (2,), "float32", (-1.0, 0.0), (1.0, 2.0), "rad", "goals", ("pan", "gripper"))


def actions(*values: float, names: tuple[str, ...] = NAMES) -> dict[str, float]:
    return dict(zip(names, values, strict=True))


def test_degrees_of_an_so101_are_lerobots() -> None:
    """LeRobot's DEGREES: ticks from the middle of the range, 360 degrees for 4095 (``motors_bus.py``)."""
    numbers = CommandNumbers(SO101.commands)
    assert numbers.names == NAMES
    ticks = 700
    command = numbers.to_command(actions(ticks * 360 / 4095, 0, 0, 0, 0, 25))["joint_target"]
    assert command.dtype == np.float32
    np.testing.assert_allclose(command[0], ticks * STEP_RAD, atol=1e-6)
    np.testing.assert_allclose(command[5], LOW[5] + 0.25 * (HIGH[5] - LOW[5]), atol=1e-6)
    back = numbers.from_command({"joint_target": command})
    np.testing.assert_allclose(list(back.values()), [ticks * 360 / 4095, 0, 0, 0, 0, 25], atol=1e-4)


def test_percent_of_an_so101_are_of_its_calibration(tmp_path: Path) -> None:
    file = tmp_path / "arm.json"
    save_calibration(file, nominal_calibration(), lerobot=True)
    swept = nominal_calibration().joints["elbow_flex"]
    numbers = CommandNumbers(SO101.commands, "percent", str(file))
    command = numbers.to_command(actions(0, 0, 50, 0, 0, 0))["joint_target"]
    np.testing.assert_allclose(command[2], (swept.range_max - swept.range_min) * STEP_RAD / 4, atol=1e-5)


def test_radians_stay() -> None:
    numbers = CommandNumbers(SO101.commands, "radians")
    values = (0.1, -0.2, 0.3, 0.4, -0.5, 0.6)
    np.testing.assert_allclose(numbers.to_command(actions(*values))["joint_target"], values, atol=1e-7)


@pytest.mark.parametrize(("units", "given"), [("degrees", (math.degrees(0.5), 25.0)), ("percent", (50.0, 25.0))])
def test_other_arms_count_from_their_own_zero_and_grippers_in_percent(units: str, given: tuple[float, ...]) -> None:
    numbers = CommandNumbers(Spec("arm", (PAN,)), units)
    action = actions(*given, names=("pan.pos", "gripper.pos"))
    np.testing.assert_allclose(numbers.to_command(action)["joint_target"], (0.5, 0.5), atol=1e-6)
    np.testing.assert_allclose(list(numbers.from_command(numbers.to_command(action)).values()), given, atol=1e-4)


def test_two_arms_have_names_of_their_own() -> None:
    import dataclasses

    both = Spec("pair", (dataclasses.replace(PAN, name="left"), dataclasses.replace(PAN, name="right")))
    assert CommandNumbers(both).names == ("left_pan.pos", "left_gripper.pos", "right_pan.pos", "right_gripper.pos")


def test_lerobots_own_actions_keep_their_names_and_numbers() -> None:
    theirs = Spec("set", (Field("target", (6,), "float32", elements=NAMES),))
    numbers = CommandNumbers(theirs)
    assert numbers.names == NAMES
    assert numbers.from_command({"target": np.arange(6.0)}) == actions(*range(6))


def test_velocities_and_whole_numbers() -> None:
    spec = Spec("base", (
        Field("speed", (), "float32", -1.0, 1.0, "m/s", "forward speed"),
        Field("gear", (), "int8", 0, 5, "1", "gear"),
    ))  # fmt: skip
    numbers = CommandNumbers(spec)
    assert numbers.names == ("speed.vel", "gear.value")
    command = numbers.to_command({"speed.vel": 0.5, "gear.value": 3.0})
    assert command["gear"] == 3
    assert command["gear"].dtype == np.int8


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (actions(0, 0, 0, 0, 0, 0) | {"elbow.pos": 1.0}, "has elbow.pos"),
        (dict.fromkeys(NAMES[1:], 0.0), "lacks shoulder_pan.pos"),
        (actions(math.nan, 0, 0, 0, 0, 0), "shoulder_pan.pos is nan"),
        (actions(0, 0, 0, 0, 0, -math.inf), "gripper.pos is -inf"),
    ],
)
def test_what_is_no_action_is_refused(action: dict[str, float], text: str) -> None:
    with pytest.raises(IllegalAction, match=text):
        CommandNumbers(SO101.commands).to_command(action)


def test_what_is_out_of_range_is_named() -> None:
    numbers = CommandNumbers(SO101.commands)
    limited, changed = numbers.within_range(numbers.to_command(actions(0, 0, 0, 0, 0, 120)))
    assert changed == ["gripper.pos"]
    np.testing.assert_allclose(limited["joint_target"][5], HIGH[5], atol=1e-6)
    assert numbers.within_range(numbers.to_command(actions(0, 0, 0, 0, 0, 100)))[1] == [], "100 is the range's end"


@pytest.mark.parametrize(
    ("commands", "options", "error"),
    [
        (SO101.commands, {"units": "ticks"}, "degrees, percent, radians"),
        (Spec("arm", (PAN,)), {"calibration": "arm.json"}, "is no SO-101"),
    ],
)
def test_settings_say_what_is_allowed(commands: Spec, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        CommandNumbers(commands, **options)


def test_texts_are_no_numbers() -> None:
    with pytest.raises(SpecError, match="words"):
        CommandNumbers(Spec("talk", (Field("words", (), "text", characters=20),)))

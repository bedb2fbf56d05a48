"""A table of joints is refused where it contradicts itself, and describes a robot where it does not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hal.drivers.arm_table import ArmJoint, ArmTable, load_arm
from hal.drivers.so101_arm import SO101_ARM
from hal.errors import SpecError
from hal.robots.so101 import SO101

JOINT = """
[[joints]]
name = "pan"
id = 1
range_deg = [-90, 90]
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "head.arm.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_describes_the_robot(tmp_path: Path) -> None:
    arm = load_arm(written(tmp_path, f'name = "head"\nrate_hz = 50\n{JOINT}home_deg = 10\n'))
    spec = arm.spec
    assert (spec.name, spec.rate_hz, arm.ids) == ("head", 50.0, (1,))
    command = spec.commands["joint_target"]
    assert command.elements == ("pan",)
    assert [float(end) for bound in command.bounds for end in np.ravel(bound)] == pytest.approx([-np.pi / 2, np.pi / 2])
    assert spec.home["joint_target"] == pytest.approx((math.radians(10),))
    assert spec.limits.max_velocity["joint_target"] == 2.0


def test_a_command_is_no_faster_than_the_slowest_servo() -> None:
    slow = ArmTable("slow", (ArmJoint("pan", 1, -0.5, 0.5, gear=4.0),), max_velocity=5.0)
    assert slow.spec.limits.max_velocity["joint_target"] == pytest.approx(3400 * 2 * np.pi / 4096 / 4)


def test_the_so101_is_a_table_with_its_own_description() -> None:
    assert SO101_ARM.spec is SO101
    assert SO101_ARM.names == SO101.commands["joint_target"].elements


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'joints' is missing"),
        (JOINT, "'name' is missing"),
        ('name = "a"\njoints = []\n', "has no joint"),
        ('name = "a"\nspeed = 3\n' + JOINT, "'speed' is unknown"),
        ('name = "a"\n' + JOINT + "id_ = 2\n", "joint pan: key 'id_' is unknown"),
        ('name = "a"\n[[joints]]\nname = "pan"\nid = 1\n', "joint pan: the key 'range_deg' is missing"),
        ('name = "a"\n[[joints]]\nname = "pan"\nid = "1"\nrange_deg = [0, 1]\n', "id is '1', wanted is of type int"),
        ('name = "a"\n[[joints]]\nname = "pan"\nid = 1\nrange_deg = [90, -90]\n', "from a lower to a higher angle"),
        ('name = "a"\n[[joints]]\nname = "pan"\nid = 1\nrange_deg = [0, nan]\n', "wanted are 2 numbers"),
        ('name = "a"\n' + JOINT + 'servo = "mg996r"\n', "servo 'mg996r' is unknown"),
        ('name = "a"\n' + JOINT + JOINT, "two joints have the name 'pan'"),
        ('name = "a"\n' + JOINT + JOINT.replace("pan", "tilt"), "two joints have the servo id 1"),
        ('name = "a"\n' + JOINT + "home_deg = 91\n", "home is 1.58825 rad, outside its range"),
        ('name = "a"\n' + JOINT + "gear = 3\n", "more than a turn of the servo"),
        ('name = "a"\n' + JOINT + "gains = {k = 1}\n", "gain 'k' is unknown"),
        ('name = "a"\n' + JOINT + "torque_limit = 2\n", "torque_limit is 2.0"),
        ('name = "a"\n' + JOINT + "stops = false\n", "it has no stops"),
        ('name = "a"\n' + JOINT + "body = {origin = [0, 0, 0]}\n", "body: the key 'axis' is missing"),
        ("name = 3\n" + JOINT, "name is 3, wanted is of type str"),
        ("name = ", "no table of joints"),
    ],
)  # fmt: skip
def test_what_a_table_contradicts_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        load_arm(written(tmp_path, text))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value).strip()


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        load_arm(tmp_path / "none.arm.toml")
    with pytest.raises(SpecError):
        load_arm(written(tmp_path, "#" * (2 << 20)))


def test_a_body_belongs_to_every_joint_or_to_none(tmp_path: Path) -> None:
    body = "body = {origin = [0, 0, 0.1], axis = [0, 0, 1], end = [0, 0, 0.1], radius = 0.01, mass = 0.1}\n"
    other = JOINT.replace("pan", "tilt").replace("= 1", "= 2")
    with pytest.raises(SpecError):
        load_arm(written(tmp_path, f'name = "a"\n{JOINT}{body}{other}'))
    assert load_arm(written(tmp_path, f'name = "a"\n{JOINT}{body}{other}{body}')).joints[1].body is not None

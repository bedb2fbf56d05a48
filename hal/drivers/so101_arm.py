"""The SO-101 as a table of joints."""

from __future__ import annotations

from collections.abc import Mapping

from hal.drivers.arm_table import ArmJoint, ArmTable, SweepPlan
from hal.robots.so101 import HIGH, HOME, JOINTS, LOW, SO101, forward_kinematics

__all__ = ["SO101_ARM"]


def _followers(name: str, goal: float) -> Mapping[str, float]:
    """Return the goals of joints that keep forearm and gripper off table and arm while another one is swept, rad."""
    if name == "elbow_flex":
        back = max(goal - 0.8, 0.0)  # upright, the forearm meets the shoulder before the elbow's end
        return {"shoulder_lift": -back, "wrist_flex": max(min(-goal, 1.5), -1.2)}
    if name == "shoulder_lift":
        forward = max(goal, 0.0)
        return {"elbow_flex": max(min(-goal - 0.2 * forward, 1.6), -1.6), "wrist_flex": -0.4 * forward}
    return {}


SO101_ARM = ArmTable(
    "so101",
    tuple(
        ArmJoint(
            name, index + 1, LOW[index], HIGH[index], home=HOME[index], grips=name == "gripper",
            whole_turn=name == "wrist_roll", torque_limit=0.5 if name == "gripper" else 1.0,
        )
        for index, name in enumerate(JOINTS)
    ),
    rate_hz=SO101.rate_hz,
    described=SO101,
    derived={"gripper_position": forward_kinematics},
    sweep=SweepPlan(
        "pointing forward, the upper arm upright, forearm and gripper level, the jaw above the fixed finger, the "
        "finger tips 16 mm apart",
        order=("gripper", "wrist_roll", "wrist_flex", "elbow_flex", "shoulder_lift", "shoulder_pan"),
        folded={"shoulder_lift": -1.6, "elbow_flex": 1.5, "wrist_flex": 0.9},
        shares=dict.fromkeys(JOINTS, 0.3) | {"shoulder_lift": 0.45, "elbow_flex": 0.35},
        followers=_followers,
    ),
)  # fmt: skip
"""The SO-101: six STS3215 with ids 1 to 6, as LeRobot numbers them.

LeRobot treats ``wrist_roll`` as a whole turn, whatever its stops. If a sweep would bring the gripper down to the table,
other joints turn the opposite way at the same time.
"""

"""Move SO-101 arms by scripts that solve tasks."""

from rlenv_robot.scripted.arm import (
    STEP_RAD,
    ScriptedPairLift,
    ScriptedPickPlace,
    ScriptedPush,
    blend,
    coming_position,
    fingers_middle,
    grasp_and_carry,
    heading_to,
    holds,
    ramp,
    roll_to,
    same_turn,
    toward,
    yaw_of,
)

__all__ = [
    "STEP_RAD", "ScriptedPairLift", "ScriptedPickPlace", "ScriptedPush", "blend", "coming_position", "fingers_middle",
    "grasp_and_carry", "heading_to", "holds", "ramp", "roll_to", "same_turn", "toward", "yaw_of",
]  # fmt: skip

"""Declare the verb of the power cut, which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["power_cut"]

power_cut = Verb(
    "rlenv_power_cut.cli",
    "cut a servo supply when the control loop dies: state, switching, trials",
    group="robot",
    example="status PORT",
    heading="judge and protect",
)

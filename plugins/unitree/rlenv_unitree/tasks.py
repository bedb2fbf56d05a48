"""Make the tasks of a Go2 and a G1 without a goal: the observation is the robot's sensors, the action its command.

Policies that mjlab exported are for these: ``rlenv-robot run rlenv_unitree.tasks:g1 --policy walk.mjlab``.
"""

from rlenv_robot.tasks.free import Free

__all__ = ["g1", "go2"]


def go2(steps: int = 500) -> Free:
    """Return the Go2's task; ``steps`` is the length of an episode in control periods of 1/50 s."""
    return Free("go2", steps=steps)


def g1(steps: int = 500) -> Free:
    """Return the G1's task, likewise; it has no simulation, so it needs a served robot."""
    return Free("g1", steps=steps)

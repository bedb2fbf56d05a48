"""What every batch of simulations says of itself, whatever computes it."""

from __future__ import annotations

from hal.robot import RobotSpec
from sim.model import SimModel

__all__ = ["Simulations"]


class Simulations:
    """N simulations of one robot, and how long they have run.

    Args:
        sim_model: the robot.
        num: how many.
    """

    def __init__(self, sim_model: SimModel, num: int) -> None:
        self._sim_model, self._num = sim_model, num
        self._steps = 0
        self._period_ns = 1e9 / sim_model.spec.rate_hz

    @property
    def spec(self) -> RobotSpec:
        """What each of them is."""
        return self._sim_model.spec

    @property
    def sim_model(self) -> SimModel:
        """The model they run on."""
        return self._sim_model

    @property
    def num(self) -> int:
        """How many."""
        return self._num

    @property
    def stamp_ns(self) -> int:
        """Simulated time since this batch was made, nanoseconds. A reset takes none."""
        return int(self._steps * self._period_ns + 0.5)

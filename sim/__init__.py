"""Simulation: any MJCF as a robot, alone or in a batch. `sim.robots.so101` and `sim.robots.twin` are arms,
`sim.rendering.camera` draws."""

from sim.batch import SimBatch
from sim.latency.delay_model import DelayModel
from sim.mjcf.robot import from_mjcf
from sim.model import Columns, Computed, SimModel
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot

__all__ = ["Columns", "Computed", "DelayModel", "Randomise", "SimBatch", "SimModel", "SimRobot", "from_mjcf"]

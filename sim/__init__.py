"""Simulation: any MJCF as a robot, alone or in a batch. `sim.so101` and `sim.twin` are arms, `sim.camera` draws."""

from sim.batch import SimBatch
from sim.mjcf import from_mjcf
from sim.model import Columns, Computed, SimModel
from sim.randomise import Randomise
from sim.robot import SimRobot
from sim.timing import DelayModel

__all__ = ["Columns", "Computed", "DelayModel", "Randomise", "SimBatch", "SimModel", "SimRobot", "from_mjcf"]

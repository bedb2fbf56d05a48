"""Simulation: any MJCF as a robot, alone or in a batch. `sim.so101` and `sim.twin` are arms, `sim.camera` draws."""

from sim.batch import SimBatch
from sim.model import Columns, Computed, SimModel
from sim.robot import SimRobot

__all__ = ["Columns", "Computed", "SimBatch", "SimModel", "SimRobot"]

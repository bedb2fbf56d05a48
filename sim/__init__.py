"""Simulate robots in MuJoCo: any MJCF as one robot or as a batch; `sim.robots` has ours, `sim.rendering` draws them."""

from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.mjcf.robot import from_mjcf
from sim.model import Columns, Computed, SimModel
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot

__all__ = ["Columns", "Computed", "DelayModel", "Randomise", "SimBatch", "SimModel", "SimRobot", "from_mjcf"]

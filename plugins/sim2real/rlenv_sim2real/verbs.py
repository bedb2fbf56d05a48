"""Declare the verbs of this plug-in, which are imported on first use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["contact", "excite", "gap", "identify", "manifest", "offsets", "population", "regress", "validity"]

contact = Verb(
    "rlenv_sim2real.cli.contact",
    "fit the currents of free motion, by which a driver notices contacts",
    group="sim2real",
)
excite = Verb(
    "rlenv_sim2real.cli.excite", "record a motion from which an arm's servos can be identified", group="sim2real"
)
gap = Verb(
    "rlenv_sim2real.cli.gap",
    "measure how far a simulation is from a recorded arm",
    group="sim2real",
    example="runs/2026-11-21-0001",
)
regress = Verb(
    "rlenv_sim2real.cli.regress", "write a test that a simulation stays as close to a run as it is", group="sim2real"
)
identify = Verb(
    "rlenv_sim2real.cli.identify", "fit the servos of a simulated arm to recordings of a real one", group="sim2real"
)
population = Verb(
    "rlenv_sim2real.cli.population",
    "identify many recorded arms, as a file that simulations draw from",
    group="sim2real",
)
offsets = Verb(
    "rlenv_sim2real.cli.offsets", "find constant offsets between goals and measurements, or two arms", group="sim2real"
)
validity = Verb(
    "rlenv_sim2real.cli.validity", "judge whether scores in simulation predict those on the robot", group="sim2real"
)
manifest = Verb(
    "rlenv_sim2real.cli.manifest", "show and compare the robot that a policy was trained on", group="sim2real"
)

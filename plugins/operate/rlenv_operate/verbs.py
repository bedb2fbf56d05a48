"""Declare the verbs of this plug-in, which are imported on first use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["console", "doctor", "keys", "latency", "teleop", "tokens", "view", "watch"]

teleop = Verb(
    "rlenv_operate.cli.teleop",
    "move a robot with a leader arm, a gamepad or keys, and record it",
    group="operate",
    example="--leader leader.toml --record runs",
)
latency = Verb(
    "rlenv_operate.cli.latency", "measure the time from a person's input to the robot's motion", group="operate"
)
view = Verb("rlenv_operate.cli.view", "show a served robot in Foxglove, Lichtblick or Rerun", group="operate")
console = Verb("rlenv_operate.cli.console", "serve the operator's page of a served robot", group="operate")
tokens = Verb(
    "rlenv_operate.cli.console:add_tokens", "make and revoke the tokens of the console's visitors", group="operate"
)
doctor = Verb("rlenv_operate.cli.doctor", "show what this machine has and what it lacks", heading="build and check")
keys = Verb("rlenv_operate.cli.keys", "make and list the keys of robots and clients", group="robot", heading="connect")
watch = Verb(
    "rlenv_operate.cli.watch",
    "print each change of a served robot's state",
    group="robot",
    heading="describe and watch",
)

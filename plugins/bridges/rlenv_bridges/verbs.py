"""Declare the verbs of the bridges plug-in, each of which is imported on use."""

from rlenv_robot.cli.verbs import Verb

__all__ = ["tables"]

tables = Verb(
    "rlenv_bridges.cli.tables",
    "let a program in another language act in an environment",
    group="dev",
    example="so101-reach --listen tcp://127.0.0.1:5650",
)

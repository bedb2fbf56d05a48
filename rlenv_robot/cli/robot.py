"""``rlenv-robot robot``: describe a robot model, or write it as URDF."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rlenv_robot.cli.output import print_table, say

if TYPE_CHECKING:
    from hal import RobotSpec

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Show the sensors, commands and limits of a robot model, or write its simulation as URDF with meshes, for "
        "RViz, Foxglove, MoveIt, pinocchio and other tools that read no MJCF."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot                            # list the robots that are known
  rlenv-robot robot show so101
  rlenv-robot robot show so101 --urdf so101-urdf    # so101-urdf/so101.urdf and so101-urdf/meshes/
  rlenv-robot robot show my_arm.xml --urdf my-arm --mesh-prefix package://my_arm_description/meshes/
"""
    parser.add_argument("robot", nargs="?", help="a name, module:name, or a MuJoCo model (.xml); without it, list all")
    parser.add_argument("--urdf", metavar="FOLDER", help="write the URDF and its meshes there; nothing is overwritten")
    parser.add_argument(
        "--mesh-prefix", default="meshes/", metavar="TEXT",
        help="of the meshes' names in the URDF, such as package://NAME/meshes/ (default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print names or a description, or write files.

    Raises:
        ValueError: the robot is unknown, or has no simulation.
        RobotError: the robot can't be written as URDF, or a file exists already.
    """
    from rlenv_robot.robot_models import load_robot_model, robot_names

    if args.robot is None:
        if args.urdf is not None:
            raise ValueError(f"name the robot to write as URDF; known are {', '.join(robot_names())}")
        say("\n".join(robot_names()))
        return 0
    model = load_robot_model(args.robot)
    if args.urdf is None:
        _describe(model.load_spec())
        return 0
    from rlenv_robot.config.plugins import PluginTable

    formats = PluginTable("format of robots", "rlenv_robot.robot_formats", {})
    if "urdf" not in formats:
        from hal.errors import missing_plugin

        raise ValueError(f"robots are written as URDF by {missing_plugin('rlenv_operate')}")
    urdf_robot: Any = formats.load("urdf")
    robot = urdf_robot(model.make_sim_model(), args.mesh_prefix)
    say(f"{robot.write(args.urdf)}: {robot.name}, {len(robot.meshes)} meshes")
    for note in robot.notes:
        say(f"note: {note}")
    return 0


def _describe(spec: RobotSpec) -> None:
    rows = [
        (kind, field.name, "x".join(map(str, field.shape)) or "1", field.unit, ", ".join(field.elements), field.meaning)
        for kind, fields in (("sensor", spec.sensors), ("command", spec.commands))
        for field in fields
    ]
    print_table(f"{spec.name}, {spec.rate_hz:g} Hz", ("kind", "name", "shape", "unit", "elements", "meaning"), rows)

"""``rlenv-robot operate teleop``: move a served robot with a leader arm, a gamepad or keys, and record it."""

from __future__ import annotations

import argparse
import signal

from rlenv_robot.cli.clearing import add_clearing, clearing

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Move a robot with a leader arm (a second arm without torque, moved by hand), a gamepad, or the keys of this "
        "terminal, and record the episodes as an expert's demonstrations. The space bar is the clutch: engaging moves "
        "nothing, since the leader's pose then stands for the robot's; releasing it, losing the device or the "
        "connection, and Ctrl-C hold the robot."
    )
    parser.epilog = """
Examples:

  rlenv-robot operate teleop --leader leader.toml --record runs
  rlenv-robot operate teleop tcp://192.168.1.7:5555 --keys client-keys --leader leader.toml --record runs
  rlenv-robot operate teleop twin --gamepad any
  rlenv-robot operate teleop                                          # keys q to u and a to j jog the joints

To try it on two virtual arms, serve both with `rlenv-robot robot twin so101 --bus --link PATH --calibration FILE`;
docs/teleop.md shows their profiles.
"""
    parser.add_argument(
        "robot", nargs="?", default="tcp://127.0.0.1:5555",
        help="a server's address (default: %(default)s), twin, or module:factory of a driver",
    )  # fmt: skip
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument(
        "--take", choices=("ask", "force"), help="if another client holds the robot: ask it, or take it"
    )
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--leader", metavar="PROFILE", help="of the leader arm: its driver, port and calibration")
    device.add_argument("--gamepad", metavar="DEVICE", help="an event device such as /dev/input/event7, or any")
    parser.add_argument(
        "--absolute", action="store_true", help="go to the leader's own pose, in place of following its motion"
    )
    parser.add_argument("--engaged", action="store_true", help="begin each episode with the clutch closed")
    parser.add_argument("--velocity", type=float, help="fastest motion, rad/s (default: 2.0 with a leader, else 0.5)")
    parser.add_argument("--task", default="", help="of the episodes, by name; without one they have no goal")
    parser.add_argument("--steps", type=int, help="length of an episode in control periods")
    parser.add_argument("--episodes", type=int, help="number of episodes (default: until Ctrl-C)")
    parser.add_argument("--record", metavar="FOLDER", help="record the episodes there, as an expert's")
    parser.add_argument("--operator", metavar="NAME", default="", help="of the person, for the record (default: yours)")
    add_clearing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Teleoperate until Ctrl-C, SIGTERM, or the last episode."""
    from rlenv_operate.teleop.session import TeleopSettings, teleoperate
    from rlenv_operate.teleop.terminal import TeleopKeys
    from rlenv_robot.cli.output import counted, say
    from rlenv_robot.config.user import user_name

    settings = TeleopSettings(
        where=args.robot, keys=args.keys, take=args.take or "no", task=args.task, steps=args.steps,
        leader=args.leader or "", gamepad=args.gamepad or "", absolute=args.absolute, engaged=args.engaged,
        velocity=args.velocity, record=args.record, operator=args.operator or user_name("operator"),
        episodes=args.episodes, clearing=clearing(args),
    )  # fmt: skip
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        count = teleoperate(settings, TeleopKeys(), say)
    finally:
        signal.signal(signal.SIGTERM, before)
    say(f"{counted(count, 'episode')}; the robot holds")
    return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt

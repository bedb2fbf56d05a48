"""``rlenv-robot robot virtual-go2``: run a virtual Go2 that speaks DDS."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

__all__ = ["add", "main", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Run a virtual Go2 until Ctrl-C or SIGTERM: it takes rt/lowcmd and sends rt/lowstate 500 times a second, so "
        "programs for a real Go2 can drive it. It writes a line of JSON every second."
    )
    parser.add_argument(
        "--interface", default="lo", help="network interface; lo keeps it inside this machine (default)"
    )
    parser.add_argument("--domain", type=int, default=0, help="DDS domain; real robots use 0 (default)")
    parser.add_argument("--mode", default="normal", help="motion control that stands until it is released; '': none")
    parser.add_argument("--watchdog", type=float, metavar="S", help="silence before it brakes (0.1)")
    parser.add_argument("--battery", type=int, default=80, metavar="PERCENT", help="charge of the battery (80)")
    parser.add_argument("--priority", type=int, default=0, help="real-time priority, 1 to 99; 0: none (default)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the virtual Go2 until Ctrl-C or SIGTERM.

    Raises:
        RobotError: the interface or the domain can't be used, or the simulation became unstable.
    """
    from real.control.realtime import settle_process
    from rlenv_robot.cli.output import say
    from rlenv_robot.serving import TerminationSignals
    from rlenv_unitree.channel import Channel
    from rlenv_unitree.virtual import WATCHDOG_S, VirtualGo2
    from rlenv_unitree.virtual_body import STEPS_HZ

    with TerminationSignals() as signals, Channel(args.interface, args.domain) as channel:
        robot = VirtualGo2(channel, args.mode, args.watchdog or WATCHDOG_S, args.priority)
        robot.battery = args.battery
        settle_process()
        with robot:
            say(f"virtual Go2 on {args.interface}, DDS domain {args.domain}: rt/lowstate at {STEPS_HZ} Hz")
            while robot.running and not signals.wait(1.0):
                say(json.dumps(robot.report()))
        say(json.dumps(robot.report()))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a virtual Go2 by these arguments, by default those of the command line; return the exit code."""
    parser = argparse.ArgumentParser("python -m rlenv_unitree.cli")
    add(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())

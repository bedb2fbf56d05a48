"""``rlenv-robot operate latency``: measure the time from an input to the changed goal and to the robot's motion."""

from __future__ import annotations

import argparse
import json

from rlenv_robot.cli.output import print_table, say

__all__ = ["add", "run"]

_TITLES = {
    "input_to_written": "input to goal written",
    "written_to_moved": "goal written to motion measured",
    "input_to_moved": "input to motion measured",
}
_FIGURES = ("p50_ms", "p95_ms", "p99_ms", "worst_ms")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Measure how long a person's input takes to a robot: from the input to the goal that is written, and to the "
        "first reading that shows motion. By default device and robot are virtual, and nothing real moves. With a "
        "profile the real robot moves by up to 9 degrees in its first joint: keep clear of it."
    )
    parser.epilog = """
Examples:

  rlenv-robot operate latency leader
  rlenv-robot operate latency page --robot sim --trials 300 --json
  rlenv-robot operate latency keyboard --robot arm.toml
  rlenv-robot operate latency gamepad --source /dev/input/event7 --robot arm.toml --trials 20
"""
    parser.add_argument("device", choices=("keyboard", "gamepad", "leader", "page"), help="the input")
    parser.add_argument(
        "--robot", default="bus",
        help="bus, a virtual arm on a serial bus; sim, a simulated arm; or a profile's file (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--source", default="", metavar="DEVICE",
        help="your own gamepad (event device) or leader (profile), which you move yourself, in place of a virtual one",
    )  # fmt: skip
    parser.add_argument("--trials", type=int, default=100, help="how many (default: 100)")
    parser.add_argument(
        "--motion", type=float, default=0.005, help="smallest measured motion that counts, rad (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures for programs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the percentiles; return 1 if a trial showed no motion."""
    from rlenv_operate.teleop.latency.devices import LatencySettings, measure_latency

    settings = LatencySettings(
        device=args.device, robot=args.robot, trials=args.trials, motion=args.motion, source=args.source
    )
    figures = measure_latency(settings, lambda line: None if args.json else say(line))
    if args.json:
        print(json.dumps(figures, indent=2))
        return 1 if figures["lost"] else 0
    print_table(
        f"{figures['device']} ({figures['source']}) to {figures['robot']} at {figures['rate_hz']:g} Hz, ms",
        ("stage", "n", "p50", "p95", "p99", "worst"),
        [
            (title, str(figures[stage]["n"]), *(_text(figures[stage][name]) for name in _FIGURES))
            for stage, title in _TITLES.items()
        ],
    )
    if figures["lost"]:
        print(f"{figures['lost']} of {figures['trials']} trials were lost: no motion was measured in time")
    return 1 if figures["lost"] else 0


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"

"""``rlenv-robot stop`` and ``robot status``: stop and observe a served robot from a terminal."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

__all__ = ["add_place", "add_status", "add_stop", "describe", "run_status", "run_stop"]

_ADDRESS = "tcp://127.0.0.1:5555"

# -- Stop ------------------------------------------------------------------------------------------------------


def add_stop(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``stop``."""
    parser.description = (
        "Stop a served robot, whichever client moves it. It moves again only after a reset with the option clear_stop. "
        "This is no substitute for the robot's own stop button: it needs this machine and the network."
    )
    parser.epilog = """
Examples:

  rlenv-robot stop
  rlenv-robot stop tcp://192.168.1.7:5555 --keys client-keys --reason "a cable is loose"

The exit code is 0 once the robot's driver has confirmed, and 2 if it has not.
"""
    add_place(parser)
    parser.add_argument(
        "--reason",
        default="stopped from a terminal",
        help="shown to the client that moves it, and logged (default: %(default)s)",
    )
    parser.set_defaults(run=run_stop)


def run_stop(args: argparse.Namespace) -> int:
    """Stop the robot, and print how long the confirmation took."""
    from real import RemoteRobot

    with closing(RemoteRobot(args.address, keys=args.keys)) as remote:
        began = time.monotonic()
        remote.stop(args.reason)
        print(f"stopped; the robot confirmed after {(time.monotonic() - began) * 1e3:.0f} ms")
    return 0


# -- Status ----------------------------------------------------------------------------------------------------


def add_status(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``status``."""
    parser.description = "Show a served robot's state, client, control loop and cameras. Nothing moves."
    parser.epilog = """
Examples:

  rlenv-robot robot status
  rlenv-robot robot status tcp://192.168.1.7:5555 --keys client-keys --json
"""
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print the whole status, for programs")
    parser.set_defaults(run=run_status)


def run_status(args: argparse.Namespace) -> int:
    """Print the status once."""
    from real import RemoteRobot

    with closing(RemoteRobot(args.address, keys=args.keys)) as remote:
        status = remote.status()
    if args.json:
        print(json.dumps(status, indent=2, sort_keys=True))
    else:
        for name, value in describe(status).items():
            print(f"{name + ':':15} {value}")
    return 0


def describe(status: Mapping[str, Any]) -> dict[str, str]:
    """Return a server's status as name -> short text, in display order.

    Args:
        status: as `real.server.server.Server.about` returns it. Keys that another version's server lacks are skipped.
    """
    why, age, cadence = status.get("why"), status.get("reading_age_s"), status.get("cadence")
    lines = {
        "state": f"{status.get('state', 'unknown')}{f': {why}' if why else ''}",
        "to clear it": _clearing_hint(status) if status.get("state") == "stopped" else "",
        "client": str(status.get("holder") or "none"),
        "newest reading": "none yet" if age is None else f"{age * 1e3:.0f} ms old",
        "control loop": _loop_text(cadence) if isinstance(cadence, Mapping) else "",
        "real time": str(status.get("real_time") or ""),
        "late commands": str(status["late_commands"]) if status.get("late_commands") else "",
        "held back": _held_back(status.get("guard")),
        "cameras": _cameras(status.get("pictures")),
        "recording": _recording(status.get("recording")),
        "cut off": ", ".join(f"{count} for {reason}" for reason, count in (status.get("cut_off") or {}).items()),
    }
    return {name: text for name, text in lines.items() if text}


def _clearing_hint(status: Mapping[str, Any]) -> str:
    from rlenv_robot.serving.stopper import clearing_hint

    return clearing_hint(status.get("stop_number"))


def _loop_text(cadence: Mapping[str, Any]) -> str:
    try:
        return (
            f"{cadence['periods']:,} periods of {cadence['period_ms']:.3g} ms, {cadence['overruns']:,} overruns, "
            f"longest {cadence['longest_ms']:.3g} ms"
        )
    except (KeyError, TypeError, ValueError):  # a server of another version
        return ""


def _held_back(guard: Any) -> str:
    if not isinstance(guard, Mapping) or not guard.get("held_back"):
        return ""
    return f"{guard['held_back']} commands, the last by {guard.get('last')}"


def _cameras(pictures: Any) -> str:
    return str(pictures.get("address", "")) if isinstance(pictures, Mapping) else ""


def _recording(recording: Any) -> str:
    if not isinstance(recording, Mapping):
        return ""
    return ", ".join(f"{name} {value}" for name, value in recording.items() if value not in (None, "", 0))


def add_place(parser: argparse.ArgumentParser) -> None:
    """Declare the address of a served robot, and this machine's keys."""
    parser.add_argument("address", nargs="?", default=_ADDRESS, help="of the server (default: %(default)s)")
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")

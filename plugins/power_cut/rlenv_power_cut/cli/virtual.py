"""``rlenv-robot robot power-cut virtual``: run the firmware on a pseudo-terminal, with a virtual arm's supply."""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_power_cut.virtual_board import VirtualBoard

__all__ = ["add", "obey", "run"]

_VOLTS = 7.4
_PRIORITY = 50
"""Priority for the real-time scheduler: a microcontroller does not wait for the host's processor."""

_END_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Run the firmware of the power cut on a pseudo-terminal until Ctrl-C or SIGTERM. It prints each switching of "
        "the supply with this machine's monotonic time, ns, and for how much of it the board waited for a processor. "
        "With --arm it also runs a virtual arm, whose supply it switches."
    )
    parser.epilog = """
Lines on standard input press its buttons and its plug: press, release (the stop button), confirm, unconfirm (the
confirm button), unplug, plug, restart.

Examples:

  rlenv-robot robot power-cut virtual --link /tmp/power-cut
  rlenv-robot robot power-cut virtual --link /tmp/power-cut --arm so101 --arm-link /tmp/arm --calibration arm.json
"""
    parser.add_argument("--link", metavar="PATH", help="a symbolic link to create, as a lasting name of the terminal")
    parser.add_argument("--arm", metavar="ROBOT", help="also run `rlenv-robot robot twin ROBOT --bus`")
    parser.add_argument("--arm-link", metavar="PATH", help="a symbolic link to the virtual arm's terminal")
    parser.add_argument("--calibration", metavar="FILE", help="write the virtual arm's calibration there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the virtual board until Ctrl-C or SIGTERM.

    Raises:
        ValueError: an option of the arm is given without --arm.
    """
    from contextlib import closing

    from real.control.realtime import ask_real_time
    from rlenv_power_cut.virtual_board import VirtualBoard
    from rlenv_robot.cli.output import say
    from rlenv_robot.serving import TerminationSignals

    if not args.arm and (args.arm_link or args.calibration):
        raise ValueError("--arm-link and --calibration are the virtual arm's: give --arm too, such as --arm so101")
    with TerminationSignals() as signals, _arm(args) as arm:

        def switch(on: bool, now_ns: int, waited_ns: int) -> None:
            say(f"supply {'on' if on else 'off'} {now_ns} {waited_ns}")
            if arm is not None:  # servos lose their registers without supply
                arm.write(f"brown-out\nvolts {_VOLTS}\n" if on else "volts 0\n")
                arm.flush()

        if arm is not None:
            switch(False, 0, 0)
        with closing(VirtualBoard(switch, args.link)) as board:
            say(f"virtual power cut at {board.path}")
            say(f"real time: {ask_real_time(_PRIORITY).message}")
            heard = True
            with open(0, "rb", buffering=0, closefd=False) as lines:  # none waits in a buffer, where select sees none
                while not signals.wait(0.0):
                    board.serve_once()
                    while heard and select.select([lines], [], [], 0)[0]:
                        words = lines.readline().decode()
                        heard = bool(words)
                        if words.strip():
                            obey(words.strip(), board)
    return 0


def obey(word: str, board: VirtualBoard) -> None:
    """Press a button or pull the plug, as a line of standard input says; print a refusal."""
    match word:
        case "press" | "release":
            board.stop_pressed = word == "press"
        case "confirm" | "unconfirm":
            board.confirm_pressed = word == "confirm"
        case "unplug":
            board.unplug()
        case "plug":
            board.plug()
        case "restart":
            board.restart()
        case _:
            print(f"unknown: {word}; see rlenv-robot robot power-cut virtual --help", file=sys.stderr)


@contextmanager
def _arm(args: argparse.Namespace) -> Iterator[IO[str] | None]:
    """Run a virtual arm beside the board; yield what takes its commands."""
    if not args.arm:
        yield None
        return
    command = [sys.executable, "-m", "rlenv_robot", "robot", "twin", args.arm, "--bus"]
    command += ["--link", args.arm_link] if args.arm_link else []
    command += ["--calibration", args.calibration] if args.calibration else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()

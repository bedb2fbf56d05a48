"""``rlenv-robot robot power-cut``: use a board that cuts a servo supply when the heartbeat of a server stays away."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.verbs import Verb, add_verbs

__all__ = ["VERBS", "add"]

VERBS = {
    "status": Verb("rlenv_power_cut.cli.board", "show the state of a board", example="/dev/ttyACM1"),
    "on": Verb(
        "rlenv_power_cut.cli.board:add_on", "switch the supply of a served robot on", example="/dev/ttyACM1 --cut 0"
    ),
    "off": Verb("rlenv_power_cut.cli.board:add_off", "cut the supply now", example="/dev/ttyACM1"),
    "firmware": Verb(
        "rlenv_power_cut.cli.board:add_firmware",
        "write the firmware for a board",
        example="main.py && mpremote cp main.py :main.py && mpremote reset",
    ),
    "virtual": Verb("rlenv_power_cut.cli.virtual", "run the firmware on a virtual serial port"),
    "test": Verb("rlenv_power_cut.cli.trial", "measure how soon the supply is cut after each kind of death"),
}
"""The verbs that follow ``robot power-cut``."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    parser.description = (
        "Use a board that cuts a servo supply when the heartbeat of a server's control loop stays away, or when its "
        "button is pressed (docs/power-cut.md)."
    )
    add_verbs(parser, VERBS)

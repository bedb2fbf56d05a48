"""``rlenv-robot robot power-cut status``, ``on``, ``off`` and ``firmware``: use a board that cuts a servo supply."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

__all__ = ["add", "add_firmware", "add_off", "add_on"]


def _add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("port", help="serial port of the power cut, such as /dev/serial/by-id/...")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``status``."""
    parser.description = "Show the state of a power cut, from the server that holds its port or from the board itself."
    _add_port(parser)
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> int:
    from rlenv_power_cut.control_socket import ask
    from rlenv_power_cut.link import PowerCutLink

    answer = ask(args.port, {"verb": "status"})
    if answer is not None:
        silent = f"; no heartbeat: {answer['silent']}" if answer["silent"] else ""
        print(f"{answer['state']}, held by a server{silent}")
        return 0
    with closing(PowerCutLink(args.port)) as link:
        print(f"{link.first_status().describe()}, no server holds it")
    return 0


def add_on(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``on``."""
    parser.description = (
        "Switch the supply of a served robot on. The board takes the command only while the server's heartbeat "
        "arrives, its stop button is released, and the number is that of the newest cut. The servos have no torque "
        "until a reset."
    )
    _add_port(parser)
    parser.add_argument(
        "--cut", type=int, required=True, metavar="NUMBER", help="number of the cut that you looked at; status shows it"
    )
    parser.set_defaults(run=_on)


def _on(args: argparse.Namespace) -> int:
    from rlenv_power_cut.control_socket import ask
    from rlenv_power_cut.link import PowerCutError

    answer = ask(args.port, {"verb": "on", "cut": args.cut})
    if answer is None:
        raise PowerCutError(
            f"no server holds {args.port}, so nothing would prove that a control loop lives: serve the robot with "
            "[extensions.power-cut] in its profile first"
        )
    print(answer["state"])
    return 0


def add_off(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``off``."""
    parser.description = "Cut the supply now. The arm falls."
    _add_port(parser)
    parser.set_defaults(run=_off)


def _off(args: argparse.Namespace) -> int:
    from rlenv_power_cut.control_socket import ask
    from rlenv_power_cut.link import PowerCutError, PowerCutLink

    answer = ask(args.port, {"verb": "off"})
    if answer is not None:
        if answer["on"]:
            raise PowerCutError(f"the supply is still on: press the board's button ({answer['state']})")
        print(answer["state"])
        return 0
    with closing(PowerCutLink(args.port)) as link:
        link.switch_off()
        status = link.first_status()
        if status.is_on:
            raise PowerCutError(f"the supply is still on: press the board's button ({status.describe()})")
        print(status.describe())
    return 0


def add_firmware(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``firmware``."""
    parser.description = "Write the firmware into a file. It runs on a Raspberry Pi Pico with MicroPython as main.py."
    parser.add_argument("out", type=Path, help="file to write")
    parser.set_defaults(run=_firmware)


def _firmware(args: argparse.Namespace) -> int:
    from importlib.resources import files

    from rlenv_power_cut.firmware.power_cut import VERSION

    args.out.write_bytes(files("rlenv_power_cut.firmware").joinpath("power_cut.py").read_bytes())
    print(f"firmware {VERSION} written to {args.out}")
    return 0

"""``rlenv-robot ports``: list serial ports, and the servos that answer there."""

from __future__ import annotations

import argparse

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "List the USB serial ports by their lasting names, with the adapter, the programs that hold them, and what to "
        "do about a missing right or a slow adapter. With a port: list the servos that answer there."
    )
    parser.epilog = """
Examples:

  rlenv-robot ports
  rlenv-robot ports /dev/serial/by-id/usb-1a86_USB_Single_Serial-if00
"""
    parser.add_argument("port", nargs="?", help="ask this port for its Feetech servos; nothing moves")
    parser.add_argument("--baud", type=int, default=1_000_000, help="bits a second (default: 1000000)")
    parser.add_argument("--highest", type=int, default=20, help="the highest id to ask (default: 20)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the ports, or the servos of one."""
    from hal.drivers.ports import list_ports, scan_servos

    if args.port:
        servos = scan_servos(args.port, args.baud, args.highest)
        for servo, description in servos:
            print(f"{servo}: {description}")
        if not servos:
            print(f"no servo answers at {args.port} with {args.baud} baud; is the supply on, and the rate right?")
        return 0 if servos else 1
    ports = list_ports()
    for port in ports:
        print(f"{port.name}  ({port.device}; {port.adapter})")
        for line in port.advice:
            print(f"  {line}")
    if not ports:
        print("no USB serial port; plug the adapter in, and look into `dmesg` if it does not show here")
    return 0 if ports else 1

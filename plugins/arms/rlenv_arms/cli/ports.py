"""``rlenv-robot robot ports``: list serial ports, the servos that answer there, and the cameras."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "List the USB serial ports by their lasting names, with the adapter, the programs that hold them, and what to "
        "do about a missing right or a slow adapter. With a port: list the servos that answer there."
    )
    parser.epilog = """
Examples:

  rlenv-robot robot ports
  rlenv-robot robot ports /dev/serial/by-id/usb-1a86_USB_Single_Serial-if00
  rlenv-robot robot ports --wiggle
  rlenv-robot robot ports --pictures /tmp/cameras
"""
    parser.add_argument("port", nargs="?", help="ask this port for its servos; nothing moves")
    parser.add_argument("--baud", type=int, default=1_000_000, help="bits a second (default: 1000000)")
    parser.add_argument("--highest", type=int, default=20, help="the highest id to ask (default: 20)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--wiggle", action="store_true", help="tell which port's arm you move by hand; nothing is written"
    )
    action.add_argument("--pictures", metavar="FOLDER", help="write a picture of each USB camera there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the ports, the servos at one port, the port with the arm that a person moves, or the cameras."""
    from rlenv_arms.ports import list_ports
    from rlenv_arms.scan import scan_servos

    if args.pictures:
        return _take_pictures(Path(args.pictures))
    if args.wiggle:
        paths = [args.port] if args.port else [port.name for port in list_ports() if port.usable and not port.holders]
        return _identify(paths, args.baud, args.highest)
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


def _identify(paths: list[str], baud: int, highest: int) -> int:
    """Ask for a joint to be moved by hand, and print its port and its name."""
    from hal.robots.so101 import JOINTS
    from rlenv_arms.scan import find_wiggle

    if not paths:
        print("no port to watch: plug an adapter in, or end the programs that hold the ports")
        return 1

    def ready(servos: dict[str, int]) -> None:
        for path, count in servos.items():
            print(f"{path}: {count} servos")
        print("move a joint of the arm that you look for by hand, by more than 10 degrees", flush=True)

    wiggle = find_wiggle(paths, baud=baud, highest=highest, ready=ready)
    if wiggle is None:
        print("no joint moved; an arm that holds itself has to be let go first: rlenv-robot robot calibrate does so")
        return 1
    joint = f", {JOINTS[wiggle.servo - 1]} of an SO-101" if wiggle.servo <= len(JOINTS) else ""
    print(f"{wiggle.port}: servo {wiggle.servo}{joint}, moved by {wiggle.degrees:.0f} degrees")
    return 0


def _take_pictures(folder: Path) -> int:
    """Write one picture of each USB camera, and print its name beside the camera's."""
    from hal import RobotError
    from hal.cameras.settings import CameraSettings
    from hal.cameras.source import opencv
    from hal.cameras.sources import make_source, video_devices

    devices = video_devices()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for number, device in enumerate(devices):
        source = make_source(CameraSettings(device), threading.Event().wait)
        file = folder / f"camera-{number}.jpg"
        try:
            source.open()
            data = source.read().data
            file.write_bytes(data if isinstance(data, bytes) else opencv().imencode(".jpg", data)[1].tobytes())
            print(f"{device}: {file}")
        except (RobotError, OSError) as error:
            failed += 1
            print(f"{device}: {error}")
        finally:
            source.close()
    if not devices:
        print("no USB camera is plugged in (there is no /dev/video*)")
    return 1 if failed or not devices else 0

"""The serial ports of this machine: their names, rights, holders and delays, and the servos behind them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hal.drivers import feetech
from hal.drivers.bus import BusSettings, ServoBus
from hal.drivers.serial_port import port_holders
from hal.drivers.simulated_port import open_port
from hal.drivers.sts3215 import MODEL, STEPS, TABLE
from hal.errors import RobotError

__all__ = ["PortInfo", "Wiggle", "find_wiggle", "list_ports", "scan_servos"]

_PATTERNS = ("ttyACM*", "ttyUSB*")
_FTDI_MS = 1
_PATIENCE_S = 0.1  # no loop waits here, and an adapter may be slow
_WIGGLE_STEPS = 114  # 10 degrees, more than an arm that holds itself gives way
_MAKERS = {"1a86": "QinHeng (CH340, CH343)", "0403": "FTDI", "10c4": "Silicon Labs", "16d0": "ROBOTIS"}


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A serial port.

    Attributes:
        device: such as ``/dev/ttyACM0``, which may be another port's after the next start.
        name: its lasting name in ``/dev/serial/by-id``, or the device where there is none.
        adapter: maker and kernel driver of the adapter.
        usable: whether this user may read and write it.
        holders: the processes that have it open.
        advice: what to do about it, a line each.
    """

    device: str
    name: str
    adapter: str
    usable: bool
    holders: tuple[str, ...]
    advice: tuple[str, ...]


def list_ports(root: str | Path = "/") -> list[PortInfo]:
    """Return the USB serial ports.

    Args:
        root: of the file system, for tests.
    """
    base = Path(root)
    by_id = {os.path.realpath(link): link for link in sorted((base / "dev/serial/by-id").glob("*"))}
    devices = sorted(device for pattern in _PATTERNS for device in (base / "dev").glob(pattern))
    return [_info(base, device, by_id.get(os.path.realpath(device), device)) for device in devices]


def _info(base: Path, device: Path, name: Path) -> PortInfo:
    sysfs = base / "sys/class/tty" / device.name / "device"
    vendor = _usb_vendor(sysfs)
    driver = os.path.basename(os.path.realpath(sysfs / "driver")) if (sysfs / "driver").exists() else "?"
    usable = os.access(device, os.R_OK | os.W_OK)
    holders = tuple(port_holders(device))
    advice = tuple(_advice(base, device, sysfs, vendor, usable, holders))
    return PortInfo(str(device), str(name), f"{_MAKERS.get(vendor, vendor or '?')}, {driver}", usable, holders, advice)


def _usb_vendor(sysfs: Path) -> str:
    """Return the vendor id of the USB device that a port belongs to, in hexadecimal; empty where it has none."""
    folder = sysfs.resolve()
    for parent in (folder, *folder.parents):
        if (parent / "idVendor").is_file():
            return (parent / "idVendor").read_text().strip()
    return ""


def _advice(
    base: Path, device: Path, sysfs: Path, vendor: str, usable: bool, holders: tuple[str, ...]
) -> Iterator[str]:
    if not usable:
        yield 'no right to it: sudo usermod -aG dialout $USER, then log in again; or a udev rule with TAG+="uaccess"'
    if holders:
        yield f"held by {', '.join(holders)}: end that program first"
    timer = sysfs / "latency_timer"
    if timer.is_file() and int(timer.read_text()) > _FTDI_MS:
        yield (
            f"each answer waits up to {timer.read_text().strip()} ms in the adapter: echo {_FTDI_MS} | sudo tee "
            f"/sys/class/tty/{device.name}/device/latency_timer; for good, a udev rule "
            'ACTION=="add", SUBSYSTEM=="usb-serial", DRIVER=="ftdi_sio", ATTR{latency_timer}="1"'
        )
    if vendor == "1a86" and (base / "usr/bin/brltty").exists():
        yield "brltty, the driver of Braille displays, takes this adapter on Ubuntu: sudo apt remove brltty"


def scan_servos(path: str | Path, baud: int = 1_000_000, highest: int = 20) -> list[tuple[int, str]]:
    """Return the Feetech servos that answer at a port, as (id, what it is).

    Args:
        path: of the port.
        baud: bits a second.
        highest: the highest id to ask.

    Raises:
        ConnectionLost: the port can't be opened.
    """
    found = []
    port = open_port(path, baud)
    bus = ServoBus(port, feetech, BusSettings(latency_s=_PATIENCE_S))
    try:
        for servo in range(1, highest + 1):
            if not bus.present(servo):
                continue
            try:
                data = bus.read(servo, 0, 16).data
                volts = bus.read(servo, 62, 1).data[0] / 10
            except RobotError:
                continue
            model = TABLE["model"].unpack(data[3:])
            name = "STS3215" if model == MODEL else f"model {model}"
            limits = f"{data[15] / 10:g} to {data[14] / 10:g} V"
            found.append((servo, f"{name}, firmware {data[0]}.{data[1]}, at {volts:g} V, takes {limits}"))
    finally:
        bus.close()
    return found


@dataclass(frozen=True, slots=True)
class Wiggle:
    """The joint that somebody moved.

    Attributes:
        port: as it was given.
        servo: the servo's id.
        degrees: how far it moved.
    """

    port: str
    servo: int
    degrees: float


@dataclass(slots=True)
class _Watched:
    """The servos of one port, and how far each has moved."""

    name: str
    bus: ServoBus
    servos: tuple[int, ...]
    last: dict[int, int] = field(default_factory=dict)
    travel: dict[int, int] = field(default_factory=dict)

    def look(self) -> Wiggle | None:
        """Read the positions; return the joint that has moved far enough."""
        register = TABLE["present_position"]
        for servo, reply in self.bus.sync_read(register.address, register.size, self.servos).items():
            position = register.unpack(reply.data)
            step = (position - self.last.get(servo, position) + STEPS // 2) % STEPS - STEPS // 2
            self.last[servo] = position
            self.travel[servo] = self.travel.get(servo, 0) + step
            if abs(self.travel[servo]) >= _WIGGLE_STEPS:
                return Wiggle(self.name, servo, abs(self.travel[servo]) * 360 / STEPS)
        return None


def find_wiggle(
    paths: Sequence[str],
    *,
    baud: int = 1_000_000,
    highest: int = 6,
    longest_s: float = 60.0,
    ready: Callable[[dict[str, int]], None] = lambda servos: None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Wiggle | None:
    """Watch several ports until somebody moves a joint by hand; nothing is written to the servos.

    Args:
        paths: of the ports.
        baud: bits a second.
        highest: the highest id to ask.
        longest_s: time to wait, seconds.
        ready: called when all ports are watched, with the number of servos at each port.
        now, sleep: the clock, seconds.

    Returns:
        The joint that moved first by 10 degrees; None where none did.

    Raises:
        ConnectionLost: a port can't be opened, or is lost.
    """
    with ExitStack() as ends:
        watched = []
        for path in paths:
            bus = ServoBus(open_port(path, baud), feetech, BusSettings(latency_s=_PATIENCE_S))
            ends.callback(bus.close)
            watched.append(_Watched(path, bus, tuple(id_ for id_ in range(1, highest + 1) if bus.present(id_))))
        ready({port.name: len(port.servos) for port in watched})
        end_s = now() + longest_s
        while now() < end_s:
            for port in watched:
                found = port.look() if port.servos else None
                if found is not None:
                    return found
            sleep(0.02)
    return None

"""The serial ports of this machine: their names, rights, holders and delays, and the servos behind them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hal.drivers.bus import BusSettings, Port, ServoBus
from hal.drivers.fitness import read_facts
from hal.drivers.serial_port import port_holders
from hal.drivers.servo_family import ServoFamily
from hal.drivers.servo_models import SERVOS
from hal.drivers.simulated_port import open_port

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
    """Return the servos that answer at a port, Feetech's or Dynamixels, as (id, what it is).

    Args:
        path: of the port.
        baud: bits a second.
        highest: the highest id to ask.

    Raises:
        ConnectionLost: the port can't be opened.
    """
    port = open_port(path, baud)
    try:
        bus, family, servos = _find_servos(port, highest)
        return [(servo, _described(bus, servo, family)) for servo in servos]
    finally:
        port.close()


def _find_servos(port: Port, highest: int) -> tuple[ServoBus, ServoFamily, tuple[int, ...]]:
    """Return the servos of the first family of which some answer."""
    for family in dict.fromkeys(model.family for model in SERVOS.values()):
        bus = ServoBus(port, family.codec, BusSettings(latency_s=_PATIENCE_S))
        servos = tuple(servo for servo in range(1, highest + 1) if bus.present(servo))
        if servos:
            break
    return bus, family, servos


def _described(bus: ServoBus, servo: int, family: ServoFamily) -> str:
    """Return the model of a servo, its firmware and its supply."""
    facts = read_facts(bus, servo, family)
    if facts is None:
        return "it answers, but not to a read of its registers"
    registers = facts.registers
    names = {model.number: model.name.upper() for model in SERVOS.values() if model.family is family}
    name = names.get(registers["model"], f"model {registers['model']}")
    limits = f"{registers['min_voltage'] / 10:g} to {registers['max_voltage'] / 10:g} V"
    return f"{name}, firmware {facts.firmware}, at {facts.volts:g} V, takes {limits}"


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
    family: ServoFamily
    servos: tuple[int, ...]
    last: dict[int, int] = field(default_factory=dict)
    travel: dict[int, int] = field(default_factory=dict)

    def look(self) -> Wiggle | None:
        """Read the positions; return the joint that has moved far enough."""
        register, steps = self.family.table["present_position"], self.family.steps
        for servo, reply in self.bus.sync_read(register.address, register.size, self.servos).items():
            position = register.unpack(reply.data)
            step = (position - self.last.get(servo, position) + steps // 2) % steps - steps // 2
            self.last[servo] = position
            self.travel[servo] = self.travel.get(servo, 0) + step
            if abs(self.travel[servo]) >= _WIGGLE_STEPS:
                return Wiggle(self.name, servo, abs(self.travel[servo]) * 360 / steps)
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
            opened = open_port(path, baud)
            ends.callback(opened.close)
            watched.append(_Watched(path, *_find_servos(opened, highest)))
        ready({port.name: len(port.servos) for port in watched})
        end_s = now() + longest_s
        while now() < end_s:
            for port in watched:
                found = port.look() if port.servos else None
                if found is not None:
                    return found
            sleep(0.02)
    return None

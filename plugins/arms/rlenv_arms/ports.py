"""List the serial ports of this machine: their names, permissions, holders and latencies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hal.drivers.serial_port import port_holders
from rlenv_robot.cli.output import Finding

__all__ = ["PortInfo", "examine_ports", "list_ports"]

_PATTERNS = ("ttyACM*", "ttyUSB*")
_FTDI_MS = 1
_MAKERS = {"1a86": "QinHeng (CH340, CH343)", "0403": "FTDI", "10c4": "Silicon Labs", "16d0": "ROBOTIS"}


@dataclass(frozen=True, slots=True)
class PortInfo:
    """Describe a serial port.

    Attributes:
        device: the device, such as ``/dev/ttyACM0``, which may name another port after the next boot.
        name: the persistent name in ``/dev/serial/by-id``, or the device if there is none.
        adapter: maker and kernel driver of the adapter.
        usable: whether this user may read and write the port.
        holders: the processes that have the port open.
        advice: one line for each problem, with its remedy.
    """

    device: str
    name: str
    adapter: str
    usable: bool
    holders: tuple[str, ...]
    advice: tuple[str, ...]


def list_ports(root: str | Path = "/") -> list[PortInfo]:
    """Return the USB serial ports of this machine.

    Args:
        root: root of the file system, for tests.
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


def examine_ports(record: Path | None = None, keys: Path | None = None) -> list[Finding]:
    """Examine the serial ports of this machine, for the verb ``doctor``.

    Args:
        record: unused.
        keys: unused.
    """
    ports = list_ports()
    if not ports:
        return [Finding("serial ports", None, "none", "for a real arm: plug its adapter in (docs/servos.md)")]
    return [
        Finding("serial port", None if port.advice else True, f"{port.name}, {port.adapter}", "; ".join(port.advice))
        for port in ports
    ]

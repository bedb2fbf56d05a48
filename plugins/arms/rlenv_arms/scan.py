"""Find the servos behind serial ports, and the port of an arm that a person moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hal.drivers.bus import BusSettings, Port, ServoBus
from hal.drivers.fitness import read_facts
from hal.drivers.servo_family import ServoFamily
from hal.drivers.servo_models import servo_models
from hal.drivers.simulated_port import open_port

__all__ = ["Wiggle", "find_wiggle", "scan_servos"]

_PATIENCE_S = 0.1  # no loop waits here, and an adapter may be slow
_WIGGLE_STEPS = 114  # 10 degrees, more than an arm that holds itself gives way


def scan_servos(path: str | Path, baud: int = 1_000_000, highest: int = 20) -> list[tuple[int, str]]:
    """Return the Feetech or Dynamixel servos that answer at a port, as (id, description).

    Args:
        path: device path of the port.
        baud: baud rate, bits per second.
        highest: highest id to query.

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
    for family in dict.fromkeys(model.family for model in servo_models().values()):
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
    names = {model.number: model.name.upper() for model in servo_models().values() if model.family is family}
    name = names.get(registers["model"], f"model {registers['model']}")
    limits = f"{registers['min_voltage'] / 10:g} to {registers['max_voltage'] / 10:g} V"
    return f"{name}, firmware {facts.firmware}, at {facts.volts:g} V, takes {limits}"


@dataclass(frozen=True, slots=True)
class Wiggle:
    """A joint that a person moved.

    Attributes:
        port: the port, as passed to `find_wiggle`.
        servo: the servo's id.
        degrees: the joint's motion, degrees.
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
    """Watch several ports until a person moves a joint by hand. Nothing is written to the servos.

    Args:
        paths: device paths of the ports.
        baud: baud rate, bits per second.
        highest: highest id to query.
        longest_s: longest time to wait, seconds.
        ready: called when all ports are watched, with the number of servos at each port.
        now: the clock, seconds.
        sleep: waits on that clock, seconds.

    Returns:
        The first joint that moved by 10 degrees, or None if no joint did.

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
                wiggle = port.look() if port.servos else None
                if wiggle is not None:
                    return wiggle
            sleep(0.02)
    return None

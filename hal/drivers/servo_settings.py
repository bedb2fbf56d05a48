"""Write the settings of a run to the servos at each reset, and compare them in each control period.

A servo that loses its supply for a moment answers again within milliseconds, without torque and with the torque limit
of its EEPROM. Its measurements do not show that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hal.drivers.bus import LATE_NS, Reply, ServoBus, ServoRefused
from hal.drivers.servo_family import ServoFamily
from hal.drivers.torque import write_all

__all__ = ["Difference", "ServoSettings", "SettingsLost", "check_settings", "keep_registers", "torque_limit_register"]

_log = logging.getLogger(__name__)

_TRIES = 3
"""Largest number of times that a setting is written to servos that do not confirm it, `LATE_NS` apart."""

_GAINS = ("p", "i", "d")


def torque_limit_register(share: float, max_torque: int, full_duty: int = 1000) -> int:
    """Return the content of ``torque_limit`` for a share of the full duty cycle.

    It never equals ``max_torque``, which the servo loads when it starts (memory table of the STS3215, registers 16 and
    48; e-Manual of the XL330, registers 36 and 100). So this register shows that a servo has restarted, even if its
    firmware has switched the torque on again.

    Args:
        share: share of the full duty cycle, 0 to 1.
        max_torque: content of the register ``max_torque``.
        full_duty: content for the full duty cycle.
    """
    limit = round(share * full_duty)
    return limit - 1 if limit == max_torque else limit


def check_settings(on_stop: str, **shares: float | None) -> None:
    """Check a driver's settings of torque.

    Args:
        on_stop: the effect of a stop.
        shares: setting -> largest duty cycle; None is not given.

    Raises:
        ValueError: a setting is not allowed.
    """
    for name, value in shares.items():
        if value is not None and not 0.05 <= value <= 1.0:
            raise ValueError(f"the setting {name} is {value}, allowed are 0.05 to 1")
    if on_stop not in ("hold", "damp"):
        raise ValueError(f"the setting on_stop is {on_stop!r}, allowed are 'hold' and 'damp'")


def keep_registers(
    bus: ServoBus, family: ServoFamily, servo: tuple[int, str], wanted: Mapping[str, int], held: Mapping[str, int]
) -> int:
    """Write the EEPROM registers of a servo that differ, log them, and return their number.

    Args:
        bus: the bus of the servos.
        family: the servos' family.
        servo: the servo's id, and the name of its joint.
        wanted: register -> its content; registers outside of EEPROM are left out.
        held: register -> its present content.

    Raises:
        ServoRefused, DeadlineExceeded: the servo does not accept a value.
        ConnectionLost: the serial line is lost.
    """
    number, joint = servo
    changes = {key: value for key, value in wanted.items() if family.table[key].kept and held[key] != value}
    if changes:
        family.write_kept(bus, number, changes)
    for key, value in changes.items():
        _log.info("%s: register %s written to EEPROM: %d in place of %d", joint, key, value, held[key])
    return len(changes)


class Difference(NamedTuple):
    """A register that does not hold the value written to it.

    Attributes:
        register: name of the register (`hal.drivers.servo_family.ServoFamily`).
        address: address of its first byte.
        expected: the allowed contents.
        got: the present content.
    """

    register: str
    address: int
    expected: tuple[int, ...]
    got: int

    def __str__(self) -> str:
        expected = " or ".join(map(str, self.expected))
        return f"{self.register} ({self.address}) is {self.got}, expected {expected}"


@dataclass(frozen=True, slots=True)
class SettingsLost:
    """A servo that lost its settings.

    Attributes:
        joint: name of the servo's joint.
        differences: the registers that differ.
        cause: the probable cause and the remedy.
    """

    joint: str
    differences: tuple[Difference, ...]
    cause: str

    def __str__(self) -> str:
        return f"{self.joint} lost its settings: {', '.join(map(str, self.differences))}; {self.cause}"


class ServoSettings:
    """Write the settings of a run to the servos, and find servos that hold other values.

    Args:
        joints: servo id -> name of its joint.
        family: the servos' family.
        sleep: waits for a number of seconds.

    Attributes:
        lost: settings that servos lost since `write`.
        limp: ids of servos found without torque that should have it.
    """

    def __init__(self, joints: Mapping[int, str], family: ServoFamily, sleep: Callable[[float], None]) -> None:
        self._joints, self._family, self._sleep = dict(joints), family, sleep
        self._table = family.table
        goal, (start, length) = family.table["goal_position"], family.settings
        at = min(goal.address - start, length)
        self._around_goal = slice(at), slice(min(at + goal.size, length), length)
        self._max_torque: dict[int, int] = {}
        self._limits: dict[int, int] = {}
        self._expected: dict[int, dict[str, tuple[int, ...]]] = {}
        self._passed: dict[int, bytes] = {}  # the newest settings of each servo that were right, without its goal
        self.lost: tuple[SettingsLost, ...] = ()
        self.limp: frozenset[int] = frozenset()

    def write(
        self,
        bus: ServoBus,
        limits: Mapping[int, float],
        max_torque: Mapping[int, int],
        gains: Mapping[int, Mapping[str, int]] | None = None,
    ) -> None:
        """Write all settings except the torque, read them back, and expect them from now on.

        Args:
            bus: the bus of the servos.
            limits: servo id -> largest duty cycle, 0 to 1.
            max_torque: servo id -> content of ``max_torque``.
            gains: servo id -> contents of ``p``, ``i`` and ``d``, for servos that do not keep them in EEPROM.

        Raises:
            ServoRefused: a servo holds another value, or is silent.
            ConnectionLost: the serial line is lost.
        """
        self._max_torque, self.lost, self.limp = dict(max_torque), (), frozenset()
        self._expected = {servo: {} for servo in self._joints}
        self._limits = {servo: self._limit(servo, share) for servo, share in limits.items()}
        self._family.release_watchdog(bus, list(self._joints))
        for key, value in self._family.same_on_all.items():
            if not self._table[key].kept:
                self._write(bus, key, dict.fromkeys(self._joints, value))
            self._expect(key, dict.fromkeys(self._joints, (value,)))
        for key in _GAINS if gains else ():
            contents = {servo: values[key] for servo, values in (gains or {}).items()}
            self._write(bus, key, contents)
            self._expect(key, {servo: (content,) for servo, content in contents.items()})
        self._write(bus, "torque_limit", self._limits)
        self._expect("torque_limit", {servo: (limit,) for servo, limit in self._limits.items()})

    def _limit(self, servo: int, share: float) -> int:
        return torque_limit_register(share, self._max_torque[servo], self._family.full_duty)

    def _write(self, bus: ServoBus, key: str, values: Mapping[int, int]) -> None:
        register = self._table[key]
        packed = {servo: register.pack(value) for servo, value in values.items()}
        missed = write_all(bus, register.address, packed)
        for _ in range(_TRIES - 1):
            if not missed:
                return
            self._sleep(LATE_NS / 1e9)  # until no late answer can be taken for a new one
            missed = write_all(bus, register.address, {servo: packed[servo] for servo in missed})
        if missed:
            joints = ", ".join(self._joints[servo] for servo in missed)
            raise ServoRefused(
                f"{joints}: {key} ({register.address}) does not read back as {values[missed[0]]}, so the arm is not "
                f"switched on; {bus.cure}, then reset again"
            )

    def _expect(self, register: str, contents: Mapping[int, Sequence[int]]) -> None:
        """Set the contents of a register that are right, by servo; several while a write is not confirmed."""
        for servo, allowed in contents.items():
            self._expected[servo][register] = tuple(allowed)
            self._passed.pop(servo, None)

    def expect_torque(self, *, or_damping: bool = False) -> None:
        """Expect torque on every servo from now on; with ``or_damping`` also accept damping."""
        if not self._expected:
            return
        self._expect("torque_enable", dict.fromkeys(self._joints, (1,)))
        if or_damping:
            name, content = self._family.braking
            for servo in self._joints:
                self._expect(name, {servo: (*self._expected[servo][name], content)})

    def change_limits(self, bus: ServoBus, limits: Mapping[int, float]) -> list[int]:
        """Write torque limits once, and expect them; return the servos that do not confirm theirs.

        Args:
            bus: the bus of the servos.
            limits: servo id -> largest duty cycle, 0 to 1.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        after = {servo: self._limit(servo, share) for servo, share in limits.items()}
        self._expect("torque_limit", {servo: (self._limits[servo], limit) for servo, limit in after.items()})
        packed = {servo: self._table["torque_limit"].pack(limit) for servo, limit in after.items()}
        missed = write_all(bus, self._table["torque_limit"].address, packed, attempts=1)
        confirmed = {servo: limit for servo, limit in after.items() if servo not in missed}
        self._limits |= confirmed
        self._expect("torque_limit", {servo: (limit,) for servo, limit in confirmed.items()})
        return missed

    def require(self, bus: ServoBus, answers: Mapping[int, Reply]) -> None:
        """Check that the servos hold the expected settings.

        Raises:
            ServoRefused: a setting differs; the message names each servo, its registers and the probable cause.
        """
        lost = self._find(bus, answers)
        if lost:
            raise ServoRefused(" / ".join(map(str, lost)))

    def look(self, bus: ServoBus, answers: Mapping[int, Reply]) -> None:
        """Compare the settings in answers, and record differences in `lost` and `limp`.

        After a difference the torque limits are written again, so that a servo which a goal has switched on does not
        push with its full duty.

        Args:
            bus: the bus of the servos.
            answers: servo id -> fresh answer, of the block `ServoFamily.state`.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        joints = {lost.joint for lost in self.lost}
        lost = self._find(bus, {servo: reply for servo, reply in answers.items() if self._joints[servo] not in joints})
        if not lost:
            return
        self.lost += lost
        packed = {servo: self._table["torque_limit"].pack(limit) for servo, limit in self._limits.items()}
        missed = write_all(bus, self._table["torque_limit"].address, packed)
        if missed:
            _log.error("no torque limit could be written to %s", ", ".join(self._joints[servo] for servo in missed))

    def _find(self, bus: ServoBus, answers: Mapping[int, Reply]) -> tuple[SettingsLost, ...]:
        """Return what servos lost, by a second answer too: a damaged one may pass for a right one."""
        suspects = [servo for servo, reply in answers.items() if not self._passes(servo, reply.data)]
        if not suspects:
            return ()
        answers = {**answers, **bus.sync_read(*self._family.state, suspects)}
        losses = []
        for servo in suspects:
            differences = tuple(self._differences(servo, answers[servo].data))
            if any(difference.register == "torque_enable" for difference in differences):
                self.limp |= {servo}
            if differences:
                cause = self._cause(servo, differences, answers[servo].data)
                losses.append(SettingsLost(self._joints[servo], differences, cause))
        return tuple(losses)

    def _passes(self, servo: int, state: bytes) -> bool:
        before, after = self._around_goal
        settings = state[before] + state[after]
        if settings == self._passed.get(servo):
            return True
        if any(self._differences(servo, state)):
            return False
        self._passed[servo] = settings
        return True

    def _differences(self, servo: int, state: bytes) -> Iterable[Difference]:
        start, length = self._family.settings
        for name, expected in self._expected[servo].items():
            register = self._table[name]
            if start <= register.address < start + length:
                content = register.unpack(state[register.address - start :])
                if content not in expected:
                    yield Difference(name, register.address, expected, content)

    def _cause(self, servo: int, differences: Sequence[Difference], state: bytes) -> str:
        got = {difference.register: difference.got for difference in differences}
        if got.get("torque_limit") == self._max_torque[servo]:
            return "it started anew, probably by a brown-out: check the supply, its plugs and the cable of this servo"
        if got.get("watchdog") == 0xFF:
            return "its own watchdog stopped it, since nobody asked it anything for a while: look what held the program"
        alarms = self._family.alarm_names(self._family.feedback(state).alarms)
        if alarms:
            return f"its alarm is on ({', '.join(alarms)}): look what loads it"
        return "probably another program writes to the servos: end it"

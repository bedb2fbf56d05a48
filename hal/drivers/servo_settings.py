"""The settings of a run in the servos' registers: written in each reset, and compared in each control period.

An STS3215 that loses its supply for a moment answers again within milliseconds, without torque and with the torque
limit of its EEPROM. Nothing in its measurements says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hal.drivers import feetech
from hal.drivers.bus import LATE_NS, Reply, ServoBus, ServoRefused
from hal.drivers.sts3215 import FEEDBACK, SETTINGS, STATE, TABLE
from hal.drivers.torque import DAMPING, ON, write_all

__all__ = ["Difference", "ServoSettings", "SettingsLost", "torque_limit_register"]

_log = logging.getLogger(__name__)

_SAME_ON_ALL = {"mode": 0, "acceleration": 254, "goal_speed": 0, "lock": 1}
"""Registers that hold the same on every servo of a running arm. All but ``mode``, which lies in EEPROM, are written."""

_WATCHED = (*_SAME_ON_ALL, "torque_enable", "torque_limit")

_TRIES = 3
"""Largest number of times that a setting is written to servos that do not confirm it, `LATE_NS` apart."""

_GOAL = slice(TABLE["goal_position"].address - SETTINGS[0], TABLE["goal_position"].address - SETTINGS[0] + 2)
_STATUS = SETTINGS[1] + TABLE["status"].address - FEEDBACK[0]


def torque_limit_register(share: float, max_torque: int) -> int:
    """Return the content of ``torque_limit`` for a share of the full duty cycle.

    It is never that of ``max_torque``, which the servo loads when it starts (memory table of the STS3215, registers 16
    and 48). So a servo that started anew shows in this register, also where its firmware has put the torque on again.

    Args:
        share: of the full duty cycle, 0 to 1.
        max_torque: content of register 16.
    """
    limit = round(share * 1000)
    return limit - 1 if limit == max_torque else limit


class Difference(NamedTuple):
    """A register that holds something else than was written to it.

    Attributes:
        register: its name in `hal.drivers.sts3215.TABLE`.
        expected: the contents that are allowed.
        got: its content.
    """

    register: str
    expected: tuple[int, ...]
    got: int

    def __str__(self) -> str:
        expected = " or ".join(map(str, self.expected))
        return f"{self.register} ({TABLE[self.register].address}) is {self.got}, expected {expected}"


@dataclass(frozen=True, slots=True)
class SettingsLost:
    """A servo that does not keep its settings.

    Attributes:
        joint: its name.
        differences: the registers that differ.
        cause: what probably happened, and what to do.
    """

    joint: str
    differences: tuple[Difference, ...]
    cause: str

    def __str__(self) -> str:
        return f"{self.joint} lost its settings: {', '.join(map(str, self.differences))}; {self.cause}"


class ServoSettings:
    """Write the settings of a run to the servos, and find servos that hold something else.

    Args:
        joints: name by id of the servo.
        sleep: waits, seconds.

    Attributes:
        lost: what servos lost since `write`.
        limp: ids of servos that were seen without the torque that they were told to have.
    """

    def __init__(self, joints: Mapping[int, str], sleep: Callable[[float], None]) -> None:
        self._joints, self._sleep = dict(joints), sleep
        self._max_torque: dict[int, int] = {}
        self._limits: dict[int, int] = {}
        self._expected: dict[int, dict[str, tuple[int, ...]]] = {}
        self._passed: dict[int, bytes] = {}  # the newest settings of each servo that were right, without its goal
        self.lost: tuple[SettingsLost, ...] = ()
        self.limp: frozenset[int] = frozenset()

    def write(self, bus: ServoBus, limits: Mapping[int, float], max_torque: Mapping[int, int]) -> None:
        """Write all settings but the torque, read them back, and expect them from now on.

        Args:
            bus: the bus.
            limits: largest duty cycle by servo, 0 to 1.
            max_torque: content of register 16 by servo.

        Raises:
            ServoRefused: a servo holds something else, or is silent.
            ConnectionLost: the line is gone.
        """
        self._max_torque, self.lost, self.limp = dict(max_torque), (), frozenset()
        self._expected = {servo: {} for servo in self._joints}
        self._limits = {servo: torque_limit_register(share, max_torque[servo]) for servo, share in limits.items()}
        for key, value in _SAME_ON_ALL.items():
            if key != "mode":
                self._write(bus, key, dict.fromkeys(self._joints, value))
            self._expect(key, dict.fromkeys(self._joints, (value,)))
        self._write(bus, "torque_limit", self._limits)
        self._expect("torque_limit", {servo: (limit,) for servo, limit in self._limits.items()})

    def _write(self, bus: ServoBus, key: str, values: Mapping[int, int]) -> None:
        register = TABLE[key]
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
        """Expect torque on every servo from now on, or damping where that was ordered."""
        if self._expected:
            self._expect("torque_enable", dict.fromkeys(self._joints, ON + DAMPING if or_damping else ON))

    def change_limits(self, bus: ServoBus, limits: Mapping[int, float]) -> list[int]:
        """Write torque limits once, and expect them; return the servos that do not confirm theirs.

        Args:
            bus: the bus.
            limits: largest duty cycle by servo, 0 to 1.

        Raises:
            ConnectionLost: the line is gone.
        """
        after = {servo: torque_limit_register(share, self._max_torque[servo]) for servo, share in limits.items()}
        self._expect("torque_limit", {servo: (self._limits[servo], limit) for servo, limit in after.items()})
        packed = {servo: TABLE["torque_limit"].pack(limit) for servo, limit in after.items()}
        missed = write_all(bus, TABLE["torque_limit"].address, packed, attempts=1)
        confirmed = {servo: limit for servo, limit in after.items() if servo not in missed}
        self._limits |= confirmed
        self._expect("torque_limit", {servo: (limit,) for servo, limit in confirmed.items()})
        return missed

    def require(self, bus: ServoBus, answers: Mapping[int, Reply]) -> None:
        """Refuse servos that hold something else.

        Raises:
            ServoRefused: naming each servo, the registers and the probable cause.
        """
        lost = self._find(bus, answers)
        if lost:
            raise ServoRefused(" / ".join(map(str, lost)))

    def look(self, bus: ServoBus, answers: Mapping[int, Reply]) -> None:
        """Compare the settings in answers, and note in `lost` and `limp` what differs.

        The torque limits are written once more then: a servo that a goal has put on must not push with its full duty.

        Args:
            bus: the bus.
            answers: fresh ones by servo, of the block `hal.drivers.sts3215.STATE`.

        Raises:
            ConnectionLost: the line is gone.
        """
        known = {lost.joint for lost in self.lost}
        lost = self._find(bus, {servo: reply for servo, reply in answers.items() if self._joints[servo] not in known})
        if not lost:
            return
        self.lost += lost
        packed = {servo: TABLE["torque_limit"].pack(limit) for servo, limit in self._limits.items()}
        missed = write_all(bus, TABLE["torque_limit"].address, packed)
        if missed:
            _log.error("no torque limit could be written to %s", ", ".join(self._joints[servo] for servo in missed))

    def _find(self, bus: ServoBus, answers: Mapping[int, Reply]) -> tuple[SettingsLost, ...]:
        """Return what servos lost, by a second answer too: a damaged one may pass for a right one."""
        suspects = [servo for servo, reply in answers.items() if not self._passes(servo, reply.data)]
        if not suspects:
            return ()
        answers = {**answers, **bus.sync_read(*STATE, suspects)}
        found = []
        for servo in suspects:
            differences = tuple(self._differences(servo, answers[servo].data))
            if any(difference.register == "torque_enable" for difference in differences):
                self.limp |= {servo}
            if differences:
                cause = self._cause(servo, differences, answers[servo].data)
                found.append(SettingsLost(self._joints[servo], differences, cause))
        return tuple(found)

    def _passes(self, servo: int, state: bytes) -> bool:
        settings = state[: _GOAL.start] + state[_GOAL.stop : SETTINGS[1]]
        if settings == self._passed.get(servo):
            return True
        if any(self._differences(servo, state)):
            return False
        self._passed[servo] = settings
        return True

    def _differences(self, servo: int, state: bytes) -> Iterable[Difference]:
        expected = self._expected[servo]
        for name in _WATCHED:
            if name in expected:
                content = TABLE[name].unpack(state[TABLE[name].address - SETTINGS[0] :])
                if content not in expected[name]:
                    yield Difference(name, expected[name], content)

    def _cause(self, servo: int, differences: Sequence[Difference], state: bytes) -> str:
        got = {difference.register: difference.got for difference in differences}
        if got.get("torque_limit") == self._max_torque[servo]:
            return "it started anew, probably by a brown-out: check the supply, its plugs and the cable of this servo"
        alarms = feetech.alarm_names(state[_STATUS])
        if alarms:
            return f"its alarm is on ({', '.join(alarms)}): look what loads it"
        return "probably another program writes to the servos: end it"

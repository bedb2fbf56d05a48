"""The SO-101 on a bus of Feetech STS3215 servos."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hal.clock import Rate
from hal.drivers import feetech
from hal.drivers.bus import LATE_NS, BusSettings, GroupRead, Port, ServoBus
from hal.drivers.calibration import STEP_RAD, Calibration, load_calibration
from hal.drivers.fitness import FitnessSettings, ServoFacts, UnfitArm, check_arm
from hal.drivers.health import HealthSettings, HealthWatch
from hal.drivers.serial_port import SerialPort
from hal.drivers.sts3215 import FEEDBACK, STEPS, STIFFNESS, TABLE, Feedback, decode_feedback
from hal.drivers.torque import OFF, ON, damp, let_down, write_all
from hal.errors import ConnectionLost, DeadlineExceeded, EpisodeError, Fault, RobotError, RobotStopped, StopReason
from hal.field import JsonDict
from hal.robot import Actuation, Range, RobotSpec, RobotState
from hal.robots.so101 import JOINTS, SO101, forward_kinematics

__all__ = ["FeetechArm"]

_log = logging.getLogger(__name__)

_TORQUE, _GOAL, _LIMIT = TABLE["torque_enable"], TABLE["goal_position"], TABLE["torque_limit"]

_HOLD_STEPS = 115
"""Farthest that a held goal lies from the position, steps (10 degrees): a servo carries a load by its error."""

_SETTLE_S = 4.0
"""Longest time for which damping may let the arm down; if it still moves then, it stays in damping, seconds."""

_SILENT_NS = 60_000_000
"""Age from which on a servo's newest answer is a fault, nanoseconds: more than one period was lost."""

_GRIP_S = 1.0
"""Time for which the gripper pushes on a thing with its full limit before it only holds it, seconds."""


class FeetechArm:
    """Drive an SO-101: one grouped write and one grouped read in each control period.

    The constructor stores settings only. The first `reset` opens the port, compares servos and calibration
    (`hal.drivers.fitness`), writes the EEPROM registers that differ, and puts torque on with each goal at the measured
    position, so that nothing moves. A lost answer is asked for once more; a position that stays old carries its age. A
    blocked or hot joint stops the arm (`hal.drivers.health`) until a reset clears the stop. A gripper that closes on a
    thing is no blocked one: after a second its torque limit falls to ``grip_torque``, until it opens.

    `close` lets the arm down by damping, a mode of the servo that needs no controller, and takes the torque away when
    it has come to rest, never before. The STS3215 has no watchdog: if the process is killed, every servo holds its last
    goal.

    Args:
        port: of the adapter, best as ``/dev/serial/by-id/...``; or a `hal.drivers.bus.Port` that is open.
        calibration: the file of this arm, ours or LeRobot's, or a `Calibration`.
        baud: bits a second.
        p, i, d: gains of the position law, registers 21, 23 and 22. LeRobot's are 16, 0 and 32.
        volts: of the supply, V, for the arm's manifest. If the servos measure a voltage that differs by more than a
            fifth, the arm is not switched on. None says nothing: a policy's voltage is then not compared.
        delay_s: from a goal on the bus to the first motion, seconds, where it was measured (``rlenv-robot identify``),
            for the manifest; a number, or a list of both ends.
        torque_limit: largest duty cycle of the arm's joints, 0 to 1.
        gripper_torque_limit: largest duty cycle of the gripper, which may push for long.
        grip_torque: largest duty cycle of the gripper while it holds a thing.
        on_stop: what a stop does: ``hold`` the arm, or ``damp`` it, so that it sinks slowly.
        rate_hz: control periods a second.
        travel_tolerance_deg: most difference between the calibration's travel and the model's.
        turnaround_s, latency_s: as for `hal.drivers.bus.BusSettings`.
        now, sleep: the clock, seconds.

    Raises:
        CalibrationError: the calibration can't be used.
        ValueError: a setting is not allowed.
    """

    def __init__(
        self,
        port: str | Path | Port,
        calibration: str | Path | Calibration,
        *,
        baud: int = 1_000_000,
        p: int = 16,
        i: int = 0,
        d: int = 32,
        volts: float | None = None,
        delay_s: float | Sequence[float] | None = None,
        torque_limit: float = 1.0,
        gripper_torque_limit: float = 0.5,
        grip_torque: float = 0.25,
        on_stop: Literal["hold", "damp"] = "hold",
        rate_hz: float = SO101.rate_hz,
        travel_tolerance_deg: float = 3.0,
        turnaround_s: float = 0.0005,
        latency_s: float = 0.004,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        shares = {"torque_limit": torque_limit, "gripper_torque_limit": gripper_torque_limit}
        for name, value in {**shares, "grip_torque": grip_torque}.items():
            if not 0.05 <= value <= 1.0:
                raise ValueError(f"the setting {name} is {value}, allowed are 0.05 to 1")
        if on_stop not in ("hold", "damp"):
            raise ValueError(f"the setting on_stop is {on_stop!r}, allowed are 'hold' and 'damp'")
        self._port, self._baud = port, baud
        self._calibration = calibration if isinstance(calibration, Calibration) else load_calibration(calibration)
        self._kept = {"p": p, "i": i, "d": d}
        self._limits = {name: gripper_torque_limit if name == "gripper" else torque_limit for name in JOINTS}
        self._grip_torque, self._on_stop = min(grip_torque, gripper_torque_limit), on_stop
        self._eased: frozenset[str] = frozenset()  # joints whose limit is that of a grip
        self._spec = replace(SO101, rate_hz=rate_hz, actuation=_actuation(self._kept, volts, delay_s))
        self._fitness = FitnessSettings(travel_tolerance_deg=travel_tolerance_deg, volts=volts)
        self._bus_settings = BusSettings(turnaround_s, latency_s)
        self._rate = Rate(rate_hz, now, sleep)
        self._now, self._sleep = now, sleep
        self._health = HealthWatch(HealthSettings())
        self._bus: ServoBus | None = None
        self._group: GroupRead | None = None
        self._facts: dict[str, ServoFacts] = {}
        self._measured: dict[str, Feedback] = {}  # the newest of each joint
        self._names = dict(zip(self._calibration.ids, JOINTS, strict=True))
        self._signs = np.array([-1.0 if joint.drive_mode else 1.0 for joint in self._calibration.joints.values()])
        self._stopped: str | None = None
        self._is_reset = self._closed = False
        self._changing = threading.Lock()  # between a stop from another thread and the goals of a step
        self.eeprom_writes = 0

    @property
    def spec(self) -> RobotSpec:
        """The description that the simulated arm has too, with the gains that this driver writes to the servos."""
        return self._spec

    @property
    def bus(self) -> ServoBus | None:
        """The bus while it is open."""
        return self._bus

    # -- the robot -------------------------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Read the arm where it is and hold it there; `hal.Homing` moves it to a start.

        Raises:
            RobotStopped: a stop is latched, and the options don't clear it.
            UnfitArm: the servos are not those of the calibration, or not fit.
            ConnectionLost: the port can't be opened, or is lost.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("reset after close: make a new driver")
        why = options.get("clear_stop")
        with self._changing:
            stopped = self._stopped
            if stopped is not None and not (isinstance(why, str) and why.strip()):
                raise RobotStopped(stopped)
            self._stopped, self._is_reset = None, False  # so that a stop during the reset is a new one
        try:
            if self._bus is None:
                self._connect()
            self._hold_here()
            self._rate.restart()
            self._rate.wait()
        except BaseException as error:
            self._stopped = self._stopped or stopped
            if isinstance(error, ConnectionLost):
                self._disconnect()
            raise
        self._health.clear()
        self._is_reset = True
        return self._state(self._calibration.angles(self._positions("goal")), ())

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Write all goals, wait for the control period, and read all servos.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            RobotStopped: a stop is latched, or a joint is blocked or hot.
            ConnectionLost: the port is lost.
            EpisodeError: before `reset`, or after `close`.
        """
        target = self.spec.commands.validate(command, "command")["joint_target"]
        if self._closed or not self._is_reset:
            raise EpisodeError("step before reset, or after close")
        goals = self._calibration.steps(target)
        try:
            with self._changing:
                if self._stopped is not None:  # checked last, since a stop may come from another thread
                    raise RobotStopped(self._stopped)
                self._write_goals(goals)
            self._rate.wait()
            missing = self._refresh()
        except ConnectionLost:
            self._disconnect()
            raise
        faults = self._look(missing)
        if self._health.verdict is not None and self._stopped is None:
            self.stop(self._health.verdict)
            raise RobotStopped(self._health.verdict)
        return self._state(target.copy(), faults)

    def read(self) -> RobotState | None:
        """Read all servos and command nothing, also after a stop; None while the port is closed.

        Raises:
            ConnectionLost: the port is lost.
        """
        if self._closed or self._bus is None:
            return None
        try:
            missing = self._refresh()
        except ConnectionLost:
            self._disconnect()
            raise
        return self._state(self._calibration.angles(self._positions("goal")), self._look(missing))

    def lead(self) -> RobotState:
        """Take the torque away, so that a person can move the arm by hand and `read` measures it.

        An arm that has torque is let down by damping first. Nothing is written to EEPROM. A reset ends it.

        Returns:
            The first reading; ``applied`` is the goal that the servos hold, which moves nothing.

        Raises:
            UnfitArm: the servos are not those of the calibration, or not fit.
            ConnectionLost: the port can't be opened, is lost, or a servo is silent.
            RobotError: the torque is not off, since a joint still moves.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("lead after close: make a new driver")
        self._is_reset = False
        try:
            if self._bus is None:
                self._connect(configure=False)
            bus = self._opened()[1]
            torques = bus.sync_read(_TORQUE.address, _TORQUE.size, self._calibration.ids)
            if len(torques) < len(JOINTS) or self._refresh():
                raise ConnectionLost("not every servo answers; check the cables, then try again")
            powered = any(torque.data != OFF for torque in torques.values())
            if powered and not let_down(bus, self._calibration.ids, self._sleep, _SETTLE_S):
                raise RobotError("the torque is not off, since a joint still moves; hold the arm still and try again")
        except ConnectionLost:
            self._disconnect()
            raise
        self._health.clear()
        return self._state(self._calibration.angles(self._positions("goal")), ())

    def stop(self, reason: str | StopReason) -> None:
        """Hold every joint at or near its position, and refuse every command until a reset clears the stop.

        A goal that is farther from its joint than 10 degrees is brought nearer; a nearer one stays, since a servo
        carries its load by that error. With ``on_stop="damp"`` the arm sinks slowly instead. Each servo is asked
        whether it has the order, and told again if not. Called from any thread; idempotent.
        """
        with self._changing:
            if self._stopped is not None:
                return
            self._stopped = str(reason)
            bus = self._bus
            if bus is None or len(self._measured) < len(JOINTS):
                return
            try:
                if self._on_stop == "damp":
                    missed = damp(bus, self._calibration.ids)
                else:
                    present, goals = self._positions("position"), self._positions("goal")
                    held = present + np.clip(goals - present, -_HOLD_STEPS, _HOLD_STEPS)
                    missed = write_all(bus, _GOAL.address, self._packed(held))
            except ConnectionLost as error:
                _log.error("the arm could not be told to stop: %s", error)
                return
            if missed:
                _log.error("no answer to the stop from %s", ", ".join(self._names[servo] for servo in missed))

    def damp(self) -> bool:
        """Let the arm sink slowly, braked by its servos, until the next reset; return whether it does."""
        with self._changing:
            if self._stopped is not None or self._bus is None:
                return False
            self._is_reset = False
            return not damp(self._bus, self._calibration.ids)

    def close(self) -> None:
        """Let the arm down by damping, take the torque away, and release the port. Calling it twice is allowed.

        An arm that still moves after 4 s stays in damping: its torque is never taken away in the midst of a motion.
        """
        if self._closed:
            return
        self._closed = True
        if self._bus is None:
            return
        try:
            let_down(self._bus, self._calibration.ids, self._sleep, _SETTLE_S)
        except RobotError as error:
            _log.error("the arm keeps its torque, since it could not be let down: %s", error)
        finally:
            self._disconnect()

    def about(self) -> JsonDict:
        """Report the servos' firmware, voltage and temperature, and what happened on the bus."""
        if self._bus is None:
            return {}
        servos = {
            name: {"firmware": facts.firmware, "volts": facts.volts, "temperature": facts.temperature}
            for name, facts in self._facts.items()
        }
        return {
            "servos": servos, "gains": self._kept, "torque_limits": self._limits, "bus": self._bus.counts.to_dict(),
            "eeprom_writes": self.eeprom_writes,
        }  # fmt: skip

    # -- connecting ------------------------------------------------------------------------------------------------

    def _connect(self, *, configure: bool = True) -> None:
        port = SerialPort(self._port, self._baud) if isinstance(self._port, str | Path) else self._port
        bus = ServoBus(port, feetech, self._bus_settings)
        try:
            facts, misfits = check_arm(bus, self._calibration, self._fitness)
            if misfits:
                raise UnfitArm(misfits)
            self._facts, self._eased = facts, frozenset()
            if configure:
                self._configure(bus)
        except BaseException:
            bus.close()
            raise
        self._bus = bus
        self._group = GroupRead(bus, *FEEDBACK, self._calibration.ids)
        _log.info("opened %s: %d servos with firmware %s", self._port, len(facts), facts[JOINTS[0]].firmware)

    def _configure(self, bus: ServoBus) -> None:
        """Write the EEPROM registers that differ, and the limits of this run."""
        for name, servo in zip(JOINTS, self._calibration.ids, strict=True):
            registers = self._facts[name].registers
            changes = {key: value for key, value in self._kept.items() if registers[key] != value}
            if changes:
                bus.write(servo, TABLE["lock"].address, b"\x00")
                for key, value in changes.items():
                    bus.write(servo, TABLE[key].address, TABLE[key].pack(value))
                    self.eeprom_writes += 1
                    _log.info("%s: register %s written to EEPROM: %d in place of %d", name, key, value, registers[key])
                bus.write(servo, TABLE["lock"].address, b"\x01")
            bus.write(servo, TABLE["acceleration"].address, b"\xfe")
            bus.write(servo, TABLE["goal_speed"].address, b"\x00\x00")
            bus.write(servo, _LIMIT.address, _LIMIT.pack(round(self._limits[name] * 1000)))

    def _hold_here(self) -> None:
        """Put every goal at its joint's position, then the torque on, where it is not on already."""
        group, bus = self._opened()
        tries = 3
        while self._refresh():
            tries -= 1
            if not tries:
                raise ConnectionLost("not every servo answers; check the cables, then reset again")
            self._sleep(LATE_NS / 1e9)  # until no late answer can be taken for a new one
        for servo in self._calibration.ids:
            held = _read(bus, servo, _TORQUE.address, _GOAL.address + _GOAL.size - _TORQUE.address)
            if held[0] == ON[0]:
                continue  # it holds its goal already: another one would move it
            position = _GOAL.pack(decode_feedback(group.newest[servo].data).position)
            bus.write(servo, _GOAL.address, position)
            bus.write(servo, _TORQUE.address, ON)
        self._refresh()

    def _disconnect(self) -> None:
        bus, self._bus, self._group, self._is_reset = self._bus, None, None, False
        self._measured.clear()
        if bus is not None:
            bus.close()

    # -- reading and writing ---------------------------------------------------------------------------------------

    def _opened(self) -> tuple[GroupRead, ServoBus]:
        if self._group is None or self._bus is None:
            raise ConnectionLost("the port is closed; clear the stop and reset")
        return self._group, self._bus

    def _refresh(self) -> tuple[int, ...]:
        """Read all servos; return those whose newest measurement is an old one."""
        group = self._opened()[0]
        missing = group.refresh()
        for servo, reply in group.newest.items():
            if servo not in missing:
                self._measured[self._names[servo]] = decode_feedback(reply.data)
        return missing

    def _positions(self, key: str) -> np.ndarray:
        return np.array([getattr(self._measured[name], key) for name in JOINTS])

    def _write_goals(self, goals: Sequence[int] | np.ndarray) -> None:
        """Write goals in steps with one request."""
        self._opened()[1].sync_write(_GOAL.address, self._packed(goals))

    def _packed(self, goals: Sequence[int] | np.ndarray) -> dict[int, bytes]:
        """Return the bytes of goals in steps, each within the range of its joint, by servo."""
        packed = {}
        for joint, goal in zip(self._calibration.joints.values(), goals, strict=True):
            packed[joint.id] = _GOAL.pack(min(max(int(goal), joint.range_min), joint.range_max))
        return packed

    def _look(self, missing: tuple[int, ...]) -> tuple[Fault, ...]:
        group, _ = self._opened()
        absent = {self._names[servo] for servo in missing}
        fresh = {name: measured for name, measured in self._measured.items() if name not in absent}
        limits = self._limits | dict.fromkeys(self._eased, self._grip_torque)
        closing = {name: -int(sign) for name, sign in zip(JOINTS, self._signs, strict=True)}
        faults = self._health.look(self._now(), fresh, limits, closing)
        self._ease_grips()
        silent = [self._names[servo] for servo in missing if group.age_ns(servo) > _SILENT_NS]
        if silent:
            faults += (Fault("servo_silent", silent[0], f"no answer from {', '.join(silent)}; check the cables"),)
        return faults

    def _ease_grips(self) -> None:
        """Lower the torque limit of a joint that holds a thing, and put it back when it lets go."""
        now_s = self._now()
        eased = frozenset(joint for joint, since_s in self._health.grips.items() if now_s - since_s >= _GRIP_S)
        changed = {
            self._calibration.joints[joint].id: self._grip_torque if joint in eased else self._limits[joint]
            for joint in eased ^ self._eased
        }
        if not changed:
            return
        packed = {servo: _LIMIT.pack(round(limit * 1000)) for servo, limit in changed.items()}
        missed = {self._names[servo] for servo in write_all(self._opened()[1], _LIMIT.address, packed, attempts=1)}
        self._eased = eased ^ (missed & (eased ^ self._eased))  # the next period repeats what did not arrive

    def _state(self, applied: np.ndarray, faults: tuple[Fault, ...]) -> RobotState:
        group, bus = self._opened()
        position = self._calibration.angles(self._positions("position"))
        speed = self._positions("speed") * STEP_RAD * self._signs
        command = self.spec.commands["joint_target"]
        goal = self._calibration.angles(self._positions("goal"))
        sensors = {
            "joint_position": _wrapped(position).astype(np.float32),
            "joint_velocity": np.clip(speed, *self.spec.sensors["joint_velocity"].bounds).astype(np.float32),
            "joint_goal": np.clip(goal, *command.bounds).astype(np.float32),
            "gripper_position": forward_kinematics(position).astype(np.float32),
        }
        oldest_ns = max(group.age_ns(servo) for servo in self._calibration.ids)
        ages = {"joint_position": oldest_ns, "joint_velocity": oldest_ns}
        held = np.clip(applied, *command.bounds).astype(np.float32)
        return RobotState(sensors, {"joint_target": held}, bus.port.now_ns(), ages, faults=faults)


def _actuation(registers: Mapping[str, int], volts: float | None, delay_s: float | Sequence[float] | None) -> Actuation:
    """Return the gains and delays of an arm's manifest.

    Raises:
        ValueError: a number is not allowed.
    """
    if volts is not None and not 4.0 <= volts <= 14.0:
        raise ValueError(f"the setting volts is {volts}, allowed are 4 to 14, as these servos take them")
    gains: dict[str, float | Sequence[float]] = dict(registers)
    if volts is not None:
        gains |= {"volts": volts, "stiffness": STIFFNESS * registers["p"] * volts}
    try:
        delays = {} if delay_s is None else {"command": Range.of(delay_s)}
    except ValueError as error:
        raise ValueError(f"the setting delay_s {error}") from error
    return Actuation(Actuation.for_all(SO101.commands, gains).gains, delays)


def _read(bus: ServoBus, servo: int, address: int, count: int, attempts: int = 4) -> bytes:
    """Read registers of one servo, again where a packet was lost.

    Raises:
        DeadlineExceeded: no answer came to any attempt.
        ConnectionLost: the line is gone.
    """
    for _ in range(attempts - 1):
        with contextlib.suppress(DeadlineExceeded):
            return bus.read(servo, address, count).data
    return bus.read(servo, address, count).data


def _wrapped(angles: np.ndarray) -> np.ndarray:
    """Return angles within the field's range of a turn either way, whatever an encoder that jumped says."""
    limit = STEPS * STEP_RAD
    return np.asarray(np.clip(angles, -limit, limit))
